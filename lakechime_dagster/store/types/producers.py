"""Who sends the events of types, as the store knows it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.types import schema
from lakechime_dagster.store.types.repository import SqlEventTypes

COUNTS = ("events", "rescued", "variations", "columns", "conflicts")


@dataclass(frozen=True, kw_only=True)
class Producer:
    """What a producer did for one type of a group, or for all of them in sum, since the store keeps it.

    Attributes:
        events: That settled steps wrote or discarded.
        rescued: Rows of these that have something in `_rescued`.
        variations: That he sent first.
        columns: That are on his account.
        conflicts: Siblings of which he sent the kind first.
        most: Of the columns, those of the type to which he brought the most.
        reasons: The values that his rows have in `_rescued`, by why.
    """

    group: str
    producer: str
    events: int
    rescued: int
    variations: int
    columns: int
    conflicts: int
    most: int
    reasons: Mapping[str, int] = field(default_factory=dict)


def producers(types: SqlEventTypes, group: str, type_name: str | None = None) -> list[Producer]:
    """The producers of a group, or of one of its types, with why their values were rescued: the busiest first."""
    kind = schema.event_type.c
    of = [kind.deployment == types.deployment, kind.group_name == group, *([] if type_name is None else [kind.type == type_name])]
    with reading(types.engine) as connection:
        reasons = _reasons(connection, of)
        return [replace(one, reasons=reasons.get(one.producer, {})) for one in summed_up(connection, of)]


def summed_up(connection: Connection, of: Sequence[sa.ColumnElement[bool]]) -> Iterator[Producer]:
    """What producers did for these types, by group, the busiest first; not why their values were rescued."""
    row, kind = schema.type_producer.c, schema.event_type.c
    sums = {name: sa.func.sum(row[name]) for name in COUNTS}
    query = (
        sa.select(kind.group_name, row.producer, sa.func.max(row["columns"]), *sums.values())
        .join_from(schema.type_producer, schema.event_type)
        .where(*of)
        .group_by(kind.group_name, row.producer)
        .order_by(sums["events"].desc(), kind.group_name, row.producer)
    )
    for group, who, most, *counts in connection.execute(query):
        yield Producer(group=group, producer=who, most=most, **dict(zip(COUNTS, map(int, counts), strict=True)))


def _reasons(connection: Connection, of: Sequence[sa.ColumnElement[bool]]) -> dict[str, dict[str, int]]:
    """By producer."""
    row = schema.producer_rescue.c
    found: dict[str, dict[str, int]] = {}
    told = sa.select(row.producer, row.reason, sa.func.sum(row.total)).join_from(schema.producer_rescue, schema.event_type).where(*of)
    for who, reason, values in connection.execute(told.group_by(row.producer, row.reason).order_by(row.reason)):
        found.setdefault(who, {})[reason] = int(values)
    return found
