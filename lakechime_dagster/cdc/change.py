"""The one canonical change row that every envelope becomes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakechime_dagster.cdc.order import Order
from lakechime_dagster.compat import StrEnum

Key = tuple[Any, ...]  # the values of the key's columns, in the order of the declaration


class Operation(StrEnum):
    """What a change did, by Debezium's letters."""

    READ = "r"
    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"

    def __init__(self, letter: str) -> None:
        self.is_upsert = letter in "rcu"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of one row of a source, or a truncation of all its rows (without a key).

    `columns` are those that the change carries: one that the database did not send, such as an unchanged TOAST value, is
    not among them. A change of the key is two changes, the deletion of the old key and an upsert of the new one that
    `continues` the old key's columns as they were just before.
    """

    source: str  # a table of a server as one connector follows it: orders are compared, and rows truncated, within it only
    operation: Operation
    order: Order
    key: Key = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    omitted: tuple[str, ...] = ()  # columns that the row has, and the change does not carry
    continues: Key | None = None
    transaction: int | None = None  # of a database that may check its keys at the end of one only; see `fold`
    event_ms: int | None = None  # the database's time of the change: information, never an order
    snapshot: str | None = None  # the connector's mark of a row that a snapshot read, such as `first` or `incremental`
