"""Statements that read events in commit order, never beyond what is visible for good."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    and_,
    case,
    cast,
    exists,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    true,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import JSONB

from lakechime_dagster.dce.changed_columns import CHANGED_TAG
from lakechime_dagster.dce.event import OperationType, TableFormat
from lakechime_dagster.dce.partition import canonical_partition
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.store import EventQuery
from lakechime_dagster.store.dialect import VisibleBelow
from lakechime_dagster.store.rows import FORMAT_CODES, OPERATION_CODES
from lakechime_dagster.store.schema import FOLDED_VERSIONS, dce_event, dce_folded, dce_table
from lakechime_dagster.store.tables import TableRow

is_data = and_(
    dce_event.c.amends_seq.is_(None),
    or_(dce_event.c.snapshot_id.is_not(None), dce_event.c.table_format == FORMAT_CODES[TableFormat.HIVE]),
)

was_data = or_(dce_folded.c.snapshot_id.is_not(None), dce_folded.c.table_format == FORMAT_CODES[TableFormat.HIVE])


def select_events() -> Select[Any]:
    """Events with cluster and name of their table."""
    return select(dce_event, dce_table.c.cluster, dce_table.c.name).join(dce_table, dce_table.c.table_id == dce_event.c.table_id)


def in_order(query: Select[Any]) -> Select[Any]:
    """In commit order, oldest first."""
    return query.order_by(dce_event.c.tx_id, dce_event.c.seq)


def is_visible() -> ColumnElement[bool]:
    """Whether every transaction up to the event's has ended, so that nothing can appear before it."""
    return dce_event.c.tx_id < select(VisibleBelow()).scalar_subquery()


def is_after(position: Position, event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event comes after a position."""
    return tuple_(event.c.tx_id, event.c.seq) > _place(position)


def is_through(position: Position, event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event is at a position or before it."""
    return tuple_(event.c.tx_id, event.c.seq) <= _place(position)


def delta_version(event: FromClause = dce_event) -> ColumnElement[int]:
    """The Delta version of the event as a number, NULL where it has none."""
    return case((event.c.table_format == FORMAT_CODES[TableFormat.DELTA], cast(event.c.snapshot_id, BigInteger)))


def is_delete(event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event says that nothing of its partition is left."""
    return event.c.operation_type == OPERATION_CODES[OperationType.DELETE]


def is_drop(event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event drops its whole partition; the amendment of a drop does not do so once more."""
    return and_(is_delete(event), event.c.amends_seq.is_(None))


def is_dropped(through: Position | None = None) -> ColumnElement[bool]:
    """Whether the event's partition was dropped after it, by the drops up to a position or by all.

    By Delta versions of the same table, since registration may come in any order; by position where one has no version.
    """
    drop = dce_event.alias("dropping")
    versions = (delta_version(drop), delta_version(dce_event))
    same_table = drop.c.table_uid.is_not_distinct_from(dce_event.c.table_uid)
    are_versions = and_(same_table, *(version.is_not(None) for version in versions))
    is_later = tuple_(drop.c.tx_id, drop.c.seq) > tuple_(dce_event.c.tx_id, dce_event.c.seq)
    after = case((are_versions, versions[0] > versions[1]), else_=is_later)
    mine = (drop.c.table_id == dce_event.c.table_id, drop.c.partition_key == dce_event.c.partition_key)
    known = () if through is None else (is_through(through, drop),)
    return exists(select(1).select_from(drop).where(*mine, *known, is_drop(drop), after))


def carries(dialect: str, tags: dict[str, str], event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event has all of these tags."""
    if dialect == "postgresql":
        return type_coerce(event.c.tags, JSONB).contains(tags)
    return and_(true(), *(_has_tag(event, key, value) for key, value in tags.items()))


def changed_tag(dialect: str) -> ColumnElement[str | None]:
    """What the event tells of changed columns, as `changed`; the name of its tag stands in the text, as the statement groups by it."""
    if dialect == "postgresql":
        return type_coerce(dce_event.c.tags, JSONB).op("->>")(literal_column(f"'{CHANGED_TAG}'")).label("changed")
    return func.json_extract(dce_event.c.tags, literal_column(f"""'$."{CHANGED_TAG}"'""")).label("changed")


def is_new(dialect: str, tags: dict[str, str], event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event says something new to who asked for these tags; without tags only changes of data do."""
    return for_the_first_time(lambda event: carries(dialect, tags, event), event) if tags else changes_data(event)


def changes_data(event: FromClause) -> ColumnElement[bool]:
    """Whether the event, or folded event, changed data."""
    return is_data if event is dce_event else was_data


def for_the_first_time(holds: Callable[[FromClause], ColumnElement[bool]], event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether something holds of the event that held of no earlier version of it: an amendment repeats the tags it had before.

    A folded event is one with all its versions.
    """
    if event is not dce_event:
        return holds(event)
    earlier = dce_event.alias("earlier")
    is_version = or_(earlier.c.seq == dce_event.c.amends_seq, earlier.c.amends_seq == dce_event.c.amends_seq)
    repeated = exists(select(1).select_from(earlier).where(is_version, earlier.c.seq < dce_event.c.seq, holds(earlier)))
    folded = [exists(select(1).select_from(kept).where(kept.c.seq == dce_event.c.amends_seq, holds(kept))) for kept in FOLDED_VERSIONS]
    return and_(holds(dce_event), or_(dce_event.c.amends_seq.is_(None), not_(or_(repeated, *folded))))


def matching(dialect: str, query: EventQuery, tables: dict[int, TableRow]) -> Select[Any]:
    """The statement of a query; `tables` are those that it names."""
    statement = in_order(select_events().where(is_visible()))
    if query.partition is not None:
        statement = statement.where(_of_partition(query, tables))
    elif query.table is not None or query.cluster is not None:
        statement = statement.where(dce_event.c.table_id.in_(list(tables)))
    conditions: list[tuple[object, Any]] = [
        (query.after, lambda: is_after(query.after or Position.ORIGIN)),
        (query.through, lambda: is_through(query.through or Position.ORIGIN)),
        (query.since, lambda: dce_event.c.event_ts >= query.since),
        (query.until, lambda: dce_event.c.event_ts < query.until),
        (query.tags or None, lambda: carries(dialect, dict(query.tags))),
        (query.only_new or None, lambda: is_new(dialect, dict(query.tags))),
    ]
    for given, condition in conditions:
        if given is not None:
            statement = statement.where(condition())
    return statement.limit(query.limit) if query.limit is not None else statement


def _of_partition(query: EventQuery, tables: dict[int, TableRow]) -> ColumnElement[bool]:
    """By table and canonical text, since tables of one name in several clusters may declare different levels."""
    return or_(
        *(
            and_(dce_event.c.table_id == table_id, dce_event.c.partition_key == canonical_partition(query.partition, table.levels))
            for table_id, table in tables.items()
        )
    )


def _place(position: Position) -> Any:
    return tuple_(literal(position.tx_id, dce_event.c.tx_id.type), literal(position.seq, dce_event.c.seq.type))


def _has_tag(event: FromClause, key: str, value: str) -> ColumnElement[bool]:
    pairs = func.json_each(event.c.tags).table_valued("key", "value")
    return exists(select(1).select_from(pairs).where(pairs.c.key == key, pairs.c.value == value))
