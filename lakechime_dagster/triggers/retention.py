"""Retention: old events are compacted, but none that a live consumer still needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Engine

from lakechime_dagster.dce.engine import high_water, reading, writing
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.queries import (
    TableRow,
    changed_table,
    is_after,
    is_through,
    locked_whole,
    tables_by_id,
)
from lakechime_dagster.dce.schema import dce_compacted, dce_event
from lakechime_dagster.triggers.registry import (
    EXECUTIONS,
    IS_OPEN,
    SUBSCRIPTIONS,
    SubscriptionRow,
    consumers_of,
    hold_checkpoints,
    subscription_from,
)
from lakechime_dagster.triggers.schema import lc_consumer, lc_subscription

Needed = Mapping[str, Position] | Callable[[Connection, str], Position | None]


@dataclass(frozen=True, kw_only=True)
class ExpiredTable:
    """What expiry did, or would do, to the events of one table.

    `needed` events are old enough but held back: they come after the checkpoint of a live consumer.
    """

    table: str
    cluster: str
    compacted: int
    needed: int = 0


@dataclass(frozen=True, kw_only=True)
class Expired:
    """What one expiry did, or would do with `dry_run`."""

    before_ms: int
    dry_run: bool
    tables: tuple[ExpiredTable, ...] = ()

    @property
    def compacted(self) -> int:
        return sum(table.compacted for table in self.tables)

    @property
    def held_back(self) -> int:
        return sum(table.needed for table in self.tables)


def expire(engine: Engine, before_ms: int, *, needed: Needed, dry_run: bool = False) -> Expired:
    """Compact the events registered before a time, table by table, each in one transaction.

    What was compacted is not fetched any more. Triggers still find it: partitions with their tags,
    and the snapshots of tables; their executions still get it. A repeat stays a duplicate. `needed`
    says per table name after which position live consumers still need events; None or absent: no
    consumer needs any. A function is asked in the table's transaction, so that its answer may hold
    until the events are compacted.
    """
    with reading(engine) as connection:
        tables = list(tables_by_id(connection).values())
    results: list[ExpiredTable] = []
    for table in tables:
        with reading(engine) if dry_run else writing(engine) as connection:
            position = (
                needed(connection, table.name) if callable(needed) else needed.get(table.name)
            )
            if not dry_run:
                # from here on nobody registers into this table
                locked_whole(connection, [table.table_id])
            result, expiring = _expiring(connection, table, before_ms, position)
            if result.compacted and not dry_run:
                _compact(connection, table, expiring)
        if result.compacted or result.needed:
            results.append(result)
    return Expired(before_ms=before_ms, dry_run=dry_run, tables=tuple(results))


def _expiring(
    connection: Connection, table: TableRow, before_ms: int, checkpoint: Position | None
) -> tuple[ExpiredTable, ColumnElement[bool]]:
    """What expires of a table, in numbers, and by which condition."""
    event = dce_event.c
    is_old = sa.and_(
        event.table_id == table.table_id,
        event.event_ts < before_ms,
        event.tx_id < high_water(connection),
    )
    expiring = is_old if checkpoint is None else sa.and_(is_old, is_through(checkpoint))
    needed = 0 if checkpoint is None else _count(connection, sa.and_(is_old, is_after(checkpoint)))
    result = ExpiredTable(
        table=table.name,
        cluster=table.cluster,
        compacted=_count(connection, expiring),
        needed=needed,
    )
    return result, expiring


def _compact(connection: Connection, table: TableRow, expiring: ColumnElement[bool]) -> None:
    names = [column.name for column in dce_event.columns]
    moving = sa.select(dce_event).where(expiring)
    connection.execute(sa.insert(dce_compacted).from_select(names, moving))
    connection.execute(sa.delete(dce_event).where(expiring))
    # who registers a single event must look again: its repeat may be compacted now
    changed_table(connection, table.table_id)


def _count(connection: Connection, condition: ColumnElement[bool]) -> int:
    return connection.execute(
        sa.select(sa.func.count()).select_from(dce_event).where(condition)
    ).scalar_one()


@dataclass(frozen=True, kw_only=True)
class Need:
    """A subscription needs the events of a table after a position (exclusive)."""

    table: str
    position: Position
    deployment: str
    subscription: str


def needs(engine: Engine) -> dict[str, Need]:
    """Per table name the oldest need, and whose it is; a table that no subscription reads is not in
    it.

    A snapshot trigger needs what is after its consumer's checkpoint, or after what was evaluated
    without firing. A partition trigger finds compacted partitions too, so it needs what it has not
    evaluated; any subscription what its open executions read.
    """
    found: dict[str, Need] = {}
    with reading(engine) as connection:
        for subscription in _subscriptions(connection):
            position = _subscription_needs_after(connection, subscription)
            for table in sorted(subscription.table_names):
                if table not in found or position < found[table].position:
                    found[table] = Need(
                        table=table,
                        position=position,
                        deployment=subscription.deployment,
                        subscription=subscription.name,
                    )
    return found


def needed_after(connection: Connection, table: str) -> Position | None:
    """The position after which a table's events are needed, None when nobody needs any; it holds
    until the transaction ends.
    """
    hold_checkpoints(connection)
    readers = [
        subscription
        for subscription in _subscriptions(connection)
        if table in subscription.table_names
    ]
    return min(
        (_subscription_needs_after(connection, subscription) for subscription in readers),
        default=None,
    )


def _subscription_needs_after(connection: Connection, subscription: SubscriptionRow) -> Position:
    starts = _open_starts(connection, subscription)
    if subscription.is_partitioned:
        return min([subscription.looked, *starts.values()])
    own = consumers_of(connection, subscription.subscription_id, [""]).get("")
    checkpoint = own.checkpoint.position if own else subscription.start.position
    needed = checkpoint if "" in starts else max(checkpoint, subscription.looked)
    return min([needed, *starts.values()])


def _open_starts(connection: Connection, subscription: SubscriptionRow) -> dict[str, Position]:
    """Where the ranges of the subscription's open executions begin, by consumer key."""
    rows = connection.execute(
        EXECUTIONS.where(lc_consumer.c.subscription_id == subscription.subscription_id, IS_OPEN)
    )
    return {row.key: row.start_checkpoint.position for row in rows}


def _subscriptions(connection: Connection) -> Sequence[SubscriptionRow]:
    return [
        subscription_from(row)
        for row in connection.execute(SUBSCRIPTIONS.order_by(lc_subscription.c.subscription_id))
    ]
