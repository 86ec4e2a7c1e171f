"""Messages that put rows right which a table lost: what the database says of them at a cut, in the words of its own messages.

Such a message is what Debezium's snapshot would have written there and then: a row that was read (`r`), or the deletion of
one that is not there (`d`), at the place of the cut. Its order is below all that came later, and above all that the table's
messages told before the cut was taken.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from lakechime_dagster.cdc.comparing.checksum import Comparison
from lakechime_dagster.cdc.comparing.compare import Key
from lakechime_dagster.cdc.comparing.monitored import key_shown
from lakechime_dagster.cdc.messages.debezium import is_envelope, source_block
from lakechime_dagster.cdc.messages.message import parsed
from lakechime_dagster.cdc.messages.reading import EnvelopeReader
from lakechime_dagster.cdc.messages.record import Changes, Record
from lakechime_dagster.cdc.schemas.connect import ConnectSchema, connect_schema
from lakechime_dagster.cdc.schemas.written import written
from lakechime_dagster.errors import LakeChimeError

ORIGIN = ("lakechime-origin", b"repair")  # their header
OF_BINLOG = ("mariadb", "mysql")  # connectors whose places are those of a binary log
CONNECTORS = (*OF_BINLOG, "postgresql")  # of which places can be written
Texts = Mapping[str, str | None]  # the canonical texts of a row, by column


class UnrepairableError(LakeChimeError):
    """A row cannot be put right by a message; says why, and what can be done instead."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """In what words a table's messages are written, by one of them.

    `newest_ms` is the newest time that its source has told of: a repair tells of no later one, which would say that all before
    it is complete.
    """

    table: str
    newest_ms: int | None
    schema: Mapping[str, Any]
    source: Mapping[str, Any]
    columns: Mapping[str, ConnectSchema]


@dataclass(frozen=True, kw_only=True)
class RowWriter:
    """Writes what the database says of keys at one cut, whose place the connector's `source` would tell so (`at`)."""

    words: Words
    at: Mapping[str, Any]
    comparison: Comparison
    reader: EnvelopeReader

    def record(self, at: Record, key: Key, row: Texts | None) -> Record:
        """The message at a coordinate, read back and held against the database's texts; None is no row.

        Raises:
            UnrepairableError: A value has no form in a message, or it would say something else.
        """
        told = dict(zip(self.comparison.keys, key, strict=True))
        record = replace(at, key=key_shown(key).encode(), value=repair_message(self.words, self.at, told, row))
        check_message(record, self.reader, self.comparison, told, row)
        return record


def words_of(table: str, message: Record, newest_ms: int | None) -> Words:
    """The words of a message of Debezium.

    Args:
        table: The one that errors name.
        message: One that tells of a row.
        newest_ms: The newest time that its source has told of.

    Raises:
        UnrepairableError: It brings no schema, is flattened, or comes from a database for which no place can be written.
    """
    remedy = f"put {table} right by a new snapshot of the connector"
    found = parsed(message.value or b"null", "value", is_exact=False)
    if not isinstance(found, dict) or found.keys() != {"schema", "payload"} or not is_envelope(found["payload"] or {}):
        raise UnrepairableError(f"{table}: its messages bring no schema, or are flattened to the row, and cannot be written; {remedy}")
    row = connect_schema(found["schema"]).field("after")
    source = source_block(found["payload"])
    if row is None or source.get("connector") not in CONNECTORS:
        raise UnrepairableError(
            f"{table}: a place of {source.get('connector')} cannot be written yet, only those of MariaDB and PostgreSQL; {remedy}"
        )
    return Words(table=table, newest_ms=newest_ms, schema=found["schema"], source=source, columns=dict(row.fields))


def repair_message(words: Words, at: Mapping[str, Any], key: Texts, row: Texts | None) -> bytes:
    """What says of a key which row it has at a place; None is no row. Columns that the message's schema does not have are left out.

    Raises:
        UnrepairableError: A value has no form in a message.
    """
    told = _told(words, key if row is None else row)
    return message(words, at, told if row is None else None, None if row is None else told)


def message(words: Words, at: Mapping[str, Any], before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bytes:
    """What says of a row that it was read so (`r`), or that it is not there (`d`) where there is none after.

    Args:
        words: In which it is written; its time is theirs.
        at: The place, as the connector's `source` tells it.
        before: The row, or its key, as JSON of the schema.
        after: The same.
    """
    source = {**words.source, "snapshot": "false", "ts_ms": words.newest_ms}
    source |= {name: None for name in ("gtid", "thread", "query", "sequence") if name in source}
    payload = {"before": before, "after": after, "source": {**source, **at}, "op": "d" if after is None else "r", "ts_ms": words.newest_ms}
    return orjson.dumps({"schema": words.schema, "payload": payload})


def check_message(record: Record, reader: EnvelopeReader, comparison: Comparison, key: Texts, row: Texts | None) -> None:
    """Read a message as the table will, and compare what it says with the database's own texts.

    Raises:
        UnrepairableError: It would say something else.
    """
    reading = reader.read(record)
    if not isinstance(reading, Changes) or len(reading.changes) != 1:
        raise UnrepairableError(f"key {dict(key)}: the message that would put it right cannot be read: {reading}")
    (change,) = reading.changes
    told = dict(zip(comparison.keys, change.key, strict=True)) if row is None else dict(change.columns)
    for name, text in (key if row is None else row).items():
        found = comparison.columns[name][1]
        value = told.get(name)
        if name in told and (None if value is None else found.twin(value)) != text:
            raise UnrepairableError(f"key {dict(key)}: column {name} would become {value!r}, and the database has it as {text!r}")


def _told(words: Words, row: Texts) -> dict[str, Any]:
    told = dict[str, Any]()
    for name, text in row.items():
        if (schema := words.columns.get(name)) is None:
            continue
        try:
            told[name] = None if text is None else written(schema, text)
        except (ValueError, ArithmeticError, KeyError) as problem:
            kind = schema.name or schema.type
            raise UnrepairableError(f"{words.table}: column {name}, {text!r}, has no form as {kind}: {problem}") from problem
    return told


def left_out(words: Words, source: Collection[str], lake: Sequence[str], comparison: Comparison) -> list[str]:
    """The columns of the lake's table that a message must carry and cannot.

    One that neither the database nor its messages have any more is none of them: rows keep what they had. It may have another
    name here, though, where the lake lacks a column that the messages have.
    """
    has_all = all(name in comparison.columns or name not in words.columns for name in source)
    gone = {name for name in lake if has_all and name not in source and name not in words.columns}
    return [name for name in lake if name not in gone and (name not in words.columns or name not in comparison.columns)]
