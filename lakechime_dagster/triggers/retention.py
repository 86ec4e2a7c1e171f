"""Retention: old events are compacted and removed, but none that a live consumer still needs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Engine, FromClause, and_, delete, exists, func, or_, select

from lakechime_dagster.dce.compaction import PartitionUid, keep_availability, pages, remember
from lakechime_dagster.dce.contract import Availability, TagSet
from lakechime_dagster.dce.engine import among, high_water, reading, writing
from lakechime_dagster.dce.events import Position, RegisteredEvent
from lakechime_dagster.dce.queries import (
    TableKey,
    TableRow,
    changed_table,
    is_after,
    is_delete,
    is_drop,
    is_dropped,
    is_through,
    locked_whole,
    tables_by_id,
)
from lakechime_dagster.dce.schema import dce_event
from lakechime_dagster.triggers import schema
from lakechime_dagster.triggers.consumers import ConsumerState, ExecutionState
from lakechime_dagster.triggers.evidence import late_consumers
from lakechime_dagster.triggers.registry import (
    EXECUTIONS,
    SUBSCRIPTIONS,
    ConsumerRow,
    SubscriptionRow,
    consumers_of,
    execution_from,
    hold_checkpoints,
    make_consumer,
    subscription_from,
)

Needed = Mapping[str, Position] | Callable[[Connection, str], Position | None]


@dataclass(frozen=True, kw_only=True)
class ExpiredTable:
    """What expiry did, or would do, to the events of one table.

    `needed` events are old enough but come after the checkpoint of a live consumer: held back, or removed all the same when
    `forced`; whoever needed them up to `through` is stale then. `lost_tags` are the keys of tags of expiring events that
    are not kept: a trigger that asks for one of them later does not find it on these.
    """

    table: str
    cluster: str
    folded: int
    needed: int = 0
    forced: bool = False
    through: Position | None = None
    lost_tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Expired:
    """What one expiry did, or would do with `dry_run`."""

    before_ms: int
    dry_run: bool
    tables: tuple[ExpiredTable, ...] = ()

    @property
    def folded(self) -> int:
        return sum(table.folded for table in self.tables)

    @property
    def held_back(self) -> int:
        return sum(table.needed for table in self.tables if not table.forced)

    @property
    def forced(self) -> tuple[ExpiredTable, ...]:
        """The tables of which a live consumer lost events."""
        return tuple(table for table in self.tables if table.forced)


def expire(
    engine: Engine,
    before_ms: int,
    *,
    needed: Needed,
    tag_keys: Collection[str] | None = (),
    dry_run: bool = False,
    force: bool = False,
    when_forced: Callable[[Connection, ExpiredTable], None] | None = None,
) -> Expired:
    """Fold and remove the events registered before a time, table by table, each in one transaction.

    `needed` says per table name after which position live consumers still need events; None or absent: no consumer needs any. A
    function is asked in the table's transaction, so that its answer may hold until the events are removed. Of each partition
    the newest positions are kept, and the newest position of each set of tags in `tag_keys` (None: of all tags) that an event
    had together.
    `force` removes needed events too; `when_forced` is called before, in the same transaction, to mark those consumers.
    """
    with reading(engine) as connection:
        tables = list(tables_by_id(connection).values())
    results: list[ExpiredTable] = []
    for table in tables:
        with reading(engine) if dry_run else writing(engine) as connection:
            position = needed(connection, table.name) if callable(needed) else needed.get(table.name)
            if not dry_run:
                locked_whole(connection, [table.table_id])  # from here on nobody registers into this table
            result, expiring = _expiring(connection, table, before_ms, position, force)
            result = replace(result, lost_tags=() if tag_keys is None else _tags_beside(connection, expiring, tag_keys))
            if result.folded and not dry_run:
                if result.forced and when_forced is not None:
                    when_forced(connection, result)
                _fold_and_remove(connection, table, expiring, tag_keys)
        if result.folded or result.needed:
            results.append(result)
    return Expired(before_ms=before_ms, dry_run=dry_run, tables=tuple(results))


@dataclass
class _Fold:
    """What the expiring events of a table come to, by partition and uid."""

    tag_keys: Collection[str] | None
    kept: dict[PartitionUid, Availability] = field(default_factory=dict)

    def add(self, event: RegisteredEvent) -> None:
        """The next event in commit order of those that say that their partition is there."""
        key = (event.canonical, event.event.table_uid or "")
        before = self.kept.get(key)
        self.kept[key] = self._with(before, event) if before else self._first(event)

    def _first(self, event: RegisteredEvent) -> Availability:
        return Availability(
            table=event.event.table,
            cluster=event.event.cluster,
            canonical=event.canonical,
            table_uid=event.event.table_uid,
            newest=event.position,
            newest_data=event.position if event.changes_data else None,
            tag_positions=self._tags(event),
            first_ts=event.event_ts,
            last_ts=event.event_ts,
            events=1,
        )

    def _with(self, before: Availability, event: RegisteredEvent) -> Availability:
        return replace(
            before,
            newest=event.position,
            newest_data=event.position if event.changes_data else before.newest_data,
            tag_positions={**before.tag_positions, **self._tags(event)},
            last_ts=max(before.last_ts, event.event_ts),
            events=before.events + 1,
        )

    def _tags(self, event: RegisteredEvent) -> dict[TagSet, Position]:
        """Together, since all tags that a trigger wants must be on one event."""
        keys = event.event.tags if self.tag_keys is None else self.tag_keys
        kept = tuple(sorted((key, value) for key, value in event.event.tags.items() if key in keys))
        return {kept: event.position} if kept else {}


def _expiring(
    connection: Connection, table: TableRow, before_ms: int, checkpoint: Position | None, force: bool
) -> tuple[ExpiredTable, list[ColumnElement[bool]]]:
    """What expires of a table, in numbers, and by which conditions."""
    visible_below = high_water(connection)

    def is_old(event: FromClause) -> ColumnElement[bool]:
        return and_(event.c.table_id == table.table_id, event.c.event_ts < before_ms, event.c.tx_id < visible_below)

    def may_go(event: FromClause) -> ColumnElement[bool]:
        return is_old(event) if checkpoint is None or force else and_(is_old(event), is_through(checkpoint, event))

    needed = 0 if checkpoint is None else _count(connection, [is_old(dce_event), is_after(checkpoint)])
    expiring = [may_go(dce_event), _goes_whole(may_go)]
    folded, newest = _count(connection, expiring), _newest(connection, expiring)
    forced = bool(needed) and force
    return ExpiredTable(table=table.name, cluster=table.cluster, folded=folded, needed=needed, forced=forced, through=newest), expiring


def _fold_and_remove(
    connection: Connection, table: TableRow, expiring: list[ColumnElement[bool]], tag_keys: Collection[str] | None
) -> None:
    """Keep of the expiring events what partition triggers and repeats need of them, and remove them."""
    fold = _Fold(tag_keys)
    for event in pages(connection, [*expiring, ~is_delete(), ~is_dropped()]):
        fold.add(event)
    keep_availability(connection, table, fold.kept.values(), _dropped(connection, expiring))
    remember(connection, expiring)
    connection.execute(delete(dce_event).where(*expiring))
    changed_table(connection, table.table_id)  # who registers a single event must look again: its repeat may be folded now


def _goes_whole(may_go: Callable[[FromClause], ColumnElement[bool]]) -> ColumnElement[bool]:
    """Whether all versions of the event may go: what an amendment brings is known only beside the earlier versions."""
    other = dce_event.alias("other")
    first = func.coalesce(dce_event.c.amends_seq, dce_event.c.seq)
    is_version = or_(other.c.seq == first, other.c.amends_seq == first)
    return ~exists(select(1).select_from(other).where(is_version, ~may_go(other)))


def _count(connection: Connection, conditions: list[ColumnElement[bool]]) -> int:
    return connection.execute(select(func.count()).select_from(dce_event).where(*conditions)).scalar_one()


def _tags_beside(connection: Connection, conditions: list[ColumnElement[bool]], kept: Collection[str]) -> tuple[str, ...]:
    """The keys of tags of these events that are none of those that are kept, in order."""
    if connection.dialect.name == "postgresql":
        key = func.jsonb_object_keys(dce_event.c.tags)
    else:
        key = func.json_each(dce_event.c.tags).table_valued("key", name="given", joins_implicitly=True).c.key
    found = connection.execute(select(key).where(*conditions).distinct()).scalars()
    return tuple(sorted({*found} - {*kept}))


def _newest(connection: Connection, conditions: list[ColumnElement[bool]]) -> Position | None:
    newest = select(dce_event.c.tx_id, dce_event.c.seq).where(*conditions).order_by(dce_event.c.tx_id.desc(), dce_event.c.seq.desc())
    row = connection.execute(newest.limit(1)).one_or_none()
    return Position(row.tx_id, row.seq) if row else None


def _dropped(connection: Connection, conditions: list[ColumnElement[bool]]) -> set[str]:
    """The partitions that these events drop."""
    return set(connection.execute(select(dce_event.c.partition_key).where(*conditions, is_drop()).distinct()).scalars())


@dataclass(frozen=True, kw_only=True)
class Need:
    """A subscription needs the events of a table after a position (exclusive)."""

    table: str
    position: Position
    deployment: str
    subscription: str


def needs(engine: Engine) -> dict[str, Need]:
    """Per table name the oldest need, and whose it is; a table that no subscription reads is not in it.

    A snapshot trigger needs what is after its consumer's checkpoint, or after what was looked through in vain. A partition
    trigger finds folded partitions too, so it needs what it has not looked through; any subscription what its open executions read.
    """
    found: dict[str, Need] = {}
    with reading(engine) as connection:
        for subscription in _subscriptions(connection):
            position = _subscription_needs_after(connection, subscription)
            for table in subscription.tables:
                if table not in found or position < found[table].position:
                    found[table] = Need(table=table, position=position, deployment=subscription.deployment, subscription=subscription.name)
    return found


def needed_after(connection: Connection, table: str) -> Position | None:
    """The position after which a table's events are needed, None when nobody needs any; it holds until the transaction ends."""
    hold_checkpoints(connection)
    readers = [subscription for subscription in _subscriptions(connection) if table in subscription.tables]
    return min((_subscription_needs_after(connection, subscription) for subscription in readers), default=None)


def tags_needed(engine: Engine) -> frozenset[str] | None:
    """The tags that the triggers of all deployments ask for; None when it is not known of one, so that every tag is needed."""
    with reading(engine) as connection:
        declared = connection.execute(SUBSCRIPTIONS.with_only_columns(schema.subscription.c.tag_keys)).scalars().all()
    return None if None in declared else frozenset(key for keys in declared for key in keys)


def mark_stale(connection: Connection, expiring: ExpiredTable) -> None:
    """Mark the consumers that a forced expiry takes events from, before it does so in its transaction: they wait for a person."""
    if expiring.through is None:
        return
    reason = f"events of {expiring.table} up to {expiring.through} were expired by force before they were consumed"
    values = {"state": ConsumerState.STALE.value, "state_reason": reason}
    for subscription in _subscriptions(connection):
        if expiring.table in subscription.tables:
            lost = _losing(connection, subscription, (expiring.cluster, expiring.table), expiring.through)
            connection.execute(sa.update(schema.consumer).where(among(connection, schema.consumer.c.consumer_id, lost)).values(**values))


def _subscription_needs_after(connection: Connection, subscription: SubscriptionRow) -> Position:
    consumers = consumers_of(connection, subscription.subscription_id)
    starts = _open_starts(connection, subscription)
    if any(key for key in consumers):
        return min([subscription.looked, *starts.values()])
    checkpoint = consumers[""].checkpoint.position if consumers else subscription.start.position
    return checkpoint if starts else max(checkpoint, subscription.looked)


def _losing(connection: Connection, subscription: SubscriptionRow, table: TableKey, through: Position) -> list[int]:
    """The consumers that still need something of a table at or before `through`; the consumer of a snapshot trigger is made for that."""
    if subscription.is_partitioned is False and subscription.cluster != table[0]:
        return []
    if subscription.is_partitioned is False and max(subscription.start.position, subscription.looked) < through:
        make_consumer(connection, subscription, "")
    starts = _open_starts(connection, subscription)
    late = late_consumers(connection, subscription.subscription_id, subscription.looked, through, table) if subscription.refires else {}
    consumers = consumers_of(connection, subscription.subscription_id).values()
    return [consumer.consumer_id for consumer in consumers if consumer.key in late or _needs(consumer, starts, subscription, through)]


def _needs(consumer: ConsumerRow, starts: dict[str, Position], subscription: SubscriptionRow, through: Position) -> bool:
    """Whether a consumer still needs something at or before `through`, but for late changes."""
    if consumer.key in starts:
        return starts[consumer.key] < through
    return not consumer.key and max(consumer.checkpoint.position, subscription.looked) < through


def _open_starts(connection: Connection, subscription: SubscriptionRow) -> dict[str, Position]:
    """Where the ranges of the subscription's open executions begin, by consumer key."""
    conditions = (schema.consumer.c.subscription_id == subscription.subscription_id, schema.execution.c.state == ExecutionState.OPEN.value)
    rows = connection.execute(EXECUTIONS.where(*conditions))
    return {execution.consumer.key: execution.start.position for execution in map(execution_from, rows)}


def _subscriptions(connection: Connection) -> Sequence[SubscriptionRow]:
    return [subscription_from(row) for row in connection.execute(SUBSCRIPTIONS.order_by(schema.subscription.c.subscription_id))]
