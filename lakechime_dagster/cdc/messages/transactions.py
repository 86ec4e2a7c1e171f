"""Transactions as Debezium's connectors tell them: in which one a change was, and how many changes each had.

With `provide.transaction.metadata=true` each change names its transaction and its place in it, and a topic beside those of the tables
tells the begin and the end of each transaction; its end tells how many changes it had of each table.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from lakechime_dagster.cdc.messages.message import payload_of
from lakechime_dagster.cdc.messages.reading import ReaderBeside, shown
from lakechime_dagster.cdc.messages.record import Control, Placed, Reading, Record, TransactionEnd

BEGIN, END = "BEGIN", "END"  # what a message of a topic of transactions tells of one
_OF_POSTGRES = re.compile(r"(\d+):\d+")  # the place after it is that of the message, and another one in each of a transaction's


class TransactionReader(ReaderBeside):
    """Reads the messages of a table's topics, and among them those of the connector's topics of transactions."""

    def _read(self, record: Record, is_exact: bool) -> Reading:
        payload = None if record.value is None else payload_of(record.value, "value", is_exact=is_exact)
        if payload is None:
            return Control.TRANSACTION
        found = boundary_of(payload) if isinstance(payload, dict) else None
        if found is None:
            raise ValueError(f"status: a message of a topic of transactions is a BEGIN or an END, not {shown(payload)}")
        return found


def boundary_of(payload: Mapping[str, Any]) -> Reading | None:
    """What the begin or the end of a transaction tells; None of another message.

    Raises:
        ValueError: It is an end that does not tell of which transaction, or how many changes that had.
    """
    if payload.get("status") not in (BEGIN, END) or "event_count" not in payload or "data_collections" not in payload:
        return None
    return Control.TRANSACTION if payload["status"] == BEGIN else _end_of(payload)


def placed_in(payload: Mapping[str, Any]) -> Placed | None:
    """The place of a change in its transaction, where its message tells one."""
    found = payload.get("transaction")
    if not isinstance(found, dict):
        return None
    identity, order = found.get("id"), found.get("data_collection_order")
    return Placed(transaction_id(identity), order) if isinstance(identity, str) and identity and _is_whole(order) else None


def transaction_id(told: str) -> str:
    """What is the same in all messages of a transaction: a GTID, a place of the binary log, or PostgreSQL's number of it alone."""
    of_postgres = _OF_POSTGRES.fullmatch(told)
    return of_postgres[1] if of_postgres else told


def _end_of(payload: Mapping[str, Any]) -> TransactionEnd:
    identity, collections = payload.get("id"), payload["data_collections"]
    if not isinstance(identity, str) or not identity:
        raise ValueError(f"id: the end of a transaction names it, this one has {shown(identity)}")
    if not isinstance(collections, list | None):
        raise ValueError(f"data_collections: the end of a transaction tells its changes by table, not {shown(collections)}")
    counts: dict[str, int] = {}
    for one in collections or ():
        name, count = (one.get("data_collection"), one.get("event_count")) if isinstance(one, dict) else (None, None)
        if not isinstance(name, str) or not name or not _is_whole(count):
            raise ValueError(f"data_collections: each has a name and a number of changes, not {shown(one)}")
        counts[name] = counts.get(name, 0) + count
    return TransactionEnd(identity, counts)


def _is_whole(number: Any) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < 2**63
