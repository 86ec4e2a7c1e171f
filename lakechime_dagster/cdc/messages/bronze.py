"""The bronze table of a change table: each message as it came, and beside it what was read of it."""

from lakechime_dagster.compat import StrEnum


class Kind(StrEnum):
    """What a message turned out to be; the rest are the names of `record.Control`."""

    CHANGE = "change"
    TOMBSTONE = "tombstone"
    OTHER_TABLE = "other table"  # of one that the declared filter does not accept
    UNREADABLE = "unreadable"


COLUMNS = {
    "topic": "string",
    "topic_id": "string",  # of Kafka; the topic's name where there is none
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",  # Kafka's; of a file when it was last written
    "key": "string",
    "value": "string",
    "key_bytes": "binary",  # of a key that is not UTF-8, whose text is null
    "value_bytes": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "kind": "string",
    "source": "string",  # the table of a server that the change is of
    "op": "string",  # of the last change that the message tells, as the three that follow
    "row_key": "string",  # the values of the key's columns as a JSON array
    "position": "array<bigint>",  # in the log of the database
    "ts_ms": "bigint",  # the database's time
    "snapshot": "string",  # the connector's mark of a row that a snapshot read
    "transaction": "string",  # in which the change was, or that has ended
    "transaction_order": "bigint",  # the change's place among those of its table in the transaction, from 1 on
    "transaction_counts": "string",  # of a transaction that has ended, its changes by table, as a JSON object
    "problem": "string",  # why it is unreadable
}
