"""What triggers need of the event history, narrowed by SQL to the events that can matter: what fires
them, and up to which snapshots of tables an execution reads.
"""

import datetime as dt
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.dialects.postgresql import JSONB

from lakechime_dagster.dce.engine import PARAMETERS, IsAfter, VisibleBelow, among, reading, slices
from lakechime_dagster.dce.events import (
    NO_CONDITIONS,
    OperationType,
    PartitionEvents,
    Position,
    SnapshotId,
    TableFormat,
    TableUid,
    TagConditions,
    version_of,
)
from lakechime_dagster.dce.partitions import UNPARTITIONED
from lakechime_dagster.dce.queries import (
    FORMAT_CODES,
    FORMATS,
    OPERATIONS,
    Switch,
    TableKey,
    changes_data,
    delta_version,
    fits,
    is_after,
    is_delete,
    is_drop,
    is_dropped,
    is_new,
    is_through,
    switches_of,
    table_ids,
)
from lakechime_dagster.dce.schema import HISTORY, dce_event, dce_table, lc_consumer_partition
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.triggers.consumers import Checkpoint
from lakechime_dagster.triggers.decision import Arrived, AtomState, Waiting, end_within
from lakechime_dagster.triggers.schema import lc_consumer, lc_execution
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import Atom, SnapshotTrigger, TagsFrom


def head_at(connection: Connection, time_ms: int) -> Position:
    """The newest position of the events registered before a time, compacted ones too: information
    about the past, never a checkpoint.
    """
    queries = [
        sa.select(kept.c.tx_id, kept.c.seq).where(kept.c.event_ts < time_ms) for kept in HISTORY
    ]
    before = sa.union_all(*queries).subquery()
    row = connection.execute(
        sa.select(before).order_by(before.c.tx_id.desc(), before.c.seq.desc()).limit(1)
    ).one_or_none()
    return Position(row.tx_id, row.seq) if row else Position.ORIGIN


def checkpoint_before(connection: Connection, time_ms: int, head: Position) -> Position:
    """The newest position, up to the head, before whatever was registered at a time or later,
    compacted events too.

    Positions do not follow the clock: what was registered earlier may follow it.
    """
    queries = [
        sa.select(kept.c.tx_id, kept.c.seq).where(
            kept.c.event_ts >= time_ms, is_through(head, kept)
        )
        for kept in HISTORY
    ]
    since = sa.union_all(*queries).subquery()
    row = connection.execute(
        sa.select(since).order_by(since.c.tx_id, since.c.seq).limit(1)
    ).one_or_none()
    return Position(row.tx_id, row.seq - 1) if row else head


def held_back_events(connection: Connection) -> str:
    """A sentence when registered events cannot be read yet, because an older transaction of the
    database server is still open.

    They are delayed, never lost. SQLite has one writer at a time and holds nothing back.
    """
    if connection.dialect.name != "postgresql":
        return ""
    bound = sa.select(VisibleBelow()).scalar_subquery()
    hidden = connection.execute(
        sa.select(sa.func.count()).select_from(dce_event).where(dce_event.c.tx_id >= bound)
    ).scalar_one()
    if not hidden:
        return ""
    activity = sa.table(
        "pg_stat_activity",
        sa.column("xact_start", sa.DateTime(timezone=True)),
        sa.column("backend_xid"),
    )
    since = connection.execute(
        sa.select(sa.func.min(activity.c.xact_start)).where(activity.c.backend_xid.is_not(None))
    ).scalar()
    opened = f" open since {since.astimezone(dt.timezone.utc):%Y-%m-%d %H:%M:%S}Z" if since else ""
    return f"{hidden} event{'' if hidden == 1 else 's'} held back by a database transaction{opened}"


def last_claims(
    connection: Connection, subscription_ids: Sequence[int], until_ms: int
) -> dict[int, int]:
    """When the last execution of each snapshot trigger was claimed, up to a time, in milliseconds."""
    last = (
        sa.select(lc_execution.c.claimed_ts)
        .where(
            lc_execution.c.consumer_id == lc_consumer.c.consumer_id,
            lc_execution.c.claimed_ts <= until_ms,
        )
        .order_by(lc_execution.c.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(lc_consumer.c.subscription_id, last.label("claimed_ts")).where(
        among(connection, lc_consumer.c.subscription_id, subscription_ids), lc_consumer.c.key == ""
    )
    found = connection.execute(query) if subscription_ids else ()
    return {row.subscription_id: row.claimed_ts for row in found}


@dataclass(frozen=True)
class Question:
    """What waits of a table after a position for who asked for these tags."""

    table: TableKey
    after: Position
    tags: TagConditions = NO_CONDITIONS
    name: str = ""  # of the table, in messages


def waiting_events(
    connection: Connection, questions: Sequence[Question], through: Position
) -> list[Waiting]:
    """Per question the events in (after, through], compacted ones too: how many match, when they
    arrived, how many do not match.

    Where an event without tags meets the conditions only changes of data match: a marker says
    nothing to who did not ask for its tags. An amendment of an event that met them before says
    nothing new. However many questions there are, they are a few statements for each of the
    conditions.
    """
    ids = table_ids(connection, list({question.table for question in questions}))
    alike: dict[TagConditions, list[tuple[int, ...]]] = {}
    for number, one in enumerate(questions):
        if one.table in ids:
            asked = (number, ids[one.table][0], one.after.tx_id, one.after.seq)
            alike.setdefault(one.tags, []).append(asked)
    rows: dict[int, list[sa.Row[Any]]] = {}
    for tags, several in alike.items():
        for chunk, event in itertools.product(slices(several, PARAMETERS), HISTORY):
            for row in connection.execute(_counting(connection, event, tags, chunk, through)):
                rows.setdefault(row.number, []).append(row)
    return [
        _waiting_of(question, rows.get(number, ())) for number, question in enumerate(questions)
    ]


def _counting(
    connection: Connection,
    event: sa.FromClause,
    tags: TagConditions,
    asked: Sequence[tuple[int, ...]],
    through: Position,
) -> sa.Select[Any]:
    """Events that several questions for the same tags ask for, each given by its number, table and
    position: by the number and by whether they match.
    """
    is_postgres = connection.dialect.name == "postgresql"
    given = sa.literal(json.dumps(asked), sa.Text)
    if is_postgres:
        kind = JSONB()
        elements = sa.func.jsonb_array_elements(sa.cast(given, kind))
        value = elements.table_valued(sa.column("value", kind), name="asked").c.value
        numbers = (sa.cast(value[index].astext, sa.BigInteger) for index in range(4))
    else:
        value = sa.func.json_each(given).table_valued("value", name="asked").c.value
        numbers = (sa.func.json_extract(value, f"$[{index}]") for index in range(4))
    number, table_id, tx, seq = numbers
    matches = is_new(connection.dialect.name, tags, event).label("matches")
    first, last = (
        sa.func.min(event.c.event_ts).label("first_ts"),
        sa.func.max(event.c.event_ts).label("last_ts"),
    )
    counts = sa.select(matches, sa.func.count().label("events"), first, last).where(
        event.c.table_id == table_id,
        IsAfter(event.c.tx_id, event.c.seq, tx, seq),
        is_through(through, event),
    )
    if is_postgres:
        # a plain join would read all events where there are not many
        per_question = counts.group_by(matches).lateral("found")
        return sa.select(number.label("number"), *per_question.c)
    return counts.add_columns(number.label("number")).group_by(matches, number)


def bounded_end(
    connection: Connection,
    tables: Sequence[TableKey],
    checkpoint: Position,
    through: Position,
    trigger: SnapshotTrigger,
) -> Position:
    """Where in (checkpoint, through] an execution ends that takes no more than its trigger says."""
    ids = [table_id for table_id, _ in table_ids(connection, tables).values()]
    names = ("tx_id", "seq", "table_id", "snapshot_id", "partition_key", "added_bytes")
    queries = [
        sa.select(*(event.c[name] for name in names)).where(
            event.c.table_id.in_(ids),
            changes_data(event),
            is_after(checkpoint, event),
            is_through(through, event),
        )
        for event in HISTORY
    ]
    found = sa.union_all(*queries).subquery()
    ordered = sa.select(found).order_by(found.c.tx_id, found.c.seq)
    arrived = (
        Arrived(
            position=Position(row.tx_id, row.seq),
            commit=(row.table_id, row.snapshot_id or row.seq),
            partition=(row.table_id, row.partition_key),
            added_bytes=row.added_bytes or 0,
        )
        for row in connection.execute(ordered.execution_options(yield_per=1_000))
    )
    return end_within(trigger.bounds, arrived, checkpoint, through)


def _waiting_of(question: Question, rows: Sequence[sa.Row[Any]]) -> Waiting:
    matching = [row for row in rows if row.matches]
    return Waiting(
        table=question.name,
        count=sum(row.events for row in matching),
        first_ts=min((row.first_ts for row in matching), default=None),
        last_ts=max((row.last_ts for row in matching), default=None),
        unmatched=sum(row.events for row in rows if not row.matches),
    )


def atom_states(
    connection: Connection, atoms: Sequence[Atom], tags_from: TagsFrom, through: Position
) -> dict[Atom, AtomState]:
    """What is known of each partition: there with tags that meet its conditions, only seen, dropped,
    or (absent) nothing.

    Searches the whole history, compacted events too.
    """
    ids = table_ids(connection, list({(atom.cluster, atom.table) for atom in atoms}))
    alike: dict[tuple[int, TagConditions], dict[str, Atom]] = {}
    for atom in atoms:
        if (atom.cluster, atom.table) in ids:
            table_id, _ = ids[atom.cluster, atom.table]
            alike.setdefault((table_id, atom.tags), {})[atom.canonical] = atom
    states: dict[Atom, AtomState] = {}
    for (table_id, tags), partitions in alike.items():
        for chunk in slices(list(partitions), PARAMETERS):
            found = (
                _states(connection, table_id, chunk, tags, through)
                if tags_from is TagsFrom.EVENT
                else _merged_states(connection, table_id, chunk, tags, tags_from, through)
            )
            states |= {partitions[key]: state for key, state in found}
    return states


def _merged_states(
    connection: Connection,
    table_id: int,
    keys: Sequence[str],
    tags: TagConditions,
    tags_from: TagsFrom,
    through: Position,
) -> Iterator[tuple[str, AtomState]]:
    """The same where the tags are those of several events, which Python merges and compares."""
    rows: list[sa.Row[Any]] = []
    for event in HISTORY:
        is_gone = sa.or_(is_delete(event), is_dropped(through, event)).label("is_gone")
        places = (event.c.tx_id, event.c.seq, event.c.amends_tx, event.c.amends_seq)
        query = sa.select(event.c.partition_key, event.c.tags, *places, is_gone).where(
            event.c.table_id == table_id,
            event.c.partition_key.in_(keys),
            is_through(through, event),
        )
        rows += connection.execute(query).all()
    rows.sort(key=lambda row: (row.partition_key, row.tx_id, row.seq))
    for key, several in itertools.groupby(rows, key=lambda row: row.partition_key):
        there = [(_first_position(row), row.tags) for row in several if not row.is_gone]
        available = bool(there) and tags.fit(tags_from.merged(there))
        yield key, AtomState(available=available, seen=True, dropped=not there)


def _first_position(row: sa.Row[Any]) -> Position:
    """Where an event, or the one that it amends, was registered."""
    if row.amends_seq is None:
        return Position(row.tx_id, row.seq)
    return Position(row.amends_tx, row.amends_seq)


def _states(
    connection: Connection,
    table_id: int,
    keys: Sequence[str],
    tags: TagConditions,
    through: Position,
) -> Iterator[tuple[str, AtomState]]:
    found: dict[str, AtomState] = {}
    for event in HISTORY:
        query = (
            sa.select(
                event.c.partition_key,
                sa.func.max(sa.case((_matches(connection, event, tags), 1), else_=0)).label(
                    "matched"
                ),
                sa.func.max(sa.case((is_drop(event), 1), else_=0)).label("dropped"),
            )
            .where(
                event.c.table_id == table_id,
                event.c.partition_key.in_(keys),
                is_through(through, event),
            )
            .group_by(event.c.partition_key)
        )
        for row in connection.execute(query):
            before = found.get(row.partition_key, AtomState(available=False))
            available, dropped = (
                before.available or bool(row.matched),
                before.dropped or bool(row.dropped),
            )
            found[row.partition_key] = AtomState(available=available, seen=True, dropped=dropped)
    for key, state in found.items():
        yield (
            key,
            _after_drops(connection, table_id, key, tags, through) if state.dropped else state,
        )


def _matches(
    connection: Connection, event: sa.FromClause, tags: TagConditions
) -> sa.ColumnElement[bool]:
    return sa.and_(fits(connection.dialect.name, tags, event), sa.not_(is_delete(event)))


def _after_drops(
    connection: Connection, table_id: int, key: str, tags: TagConditions, through: Position
) -> AtomState:
    """The state of a partition that was dropped at least once: whether something is there that no
    drop followed.
    """
    there = [
        sa.exists(event.c.seq).where(
            event.c.table_id == table_id,
            event.c.partition_key == key,
            is_through(through, event),
            _matches(connection, event, tags),
            sa.not_(is_dropped(through, event)),
        )
        for event in HISTORY
    ]
    available = bool(connection.execute(sa.select(sa.or_(*there))).scalar())
    return AtomState(available=available, seen=True, dropped=not available)


def newest_partitions(connection: Connection, atoms: Sequence[Atom]) -> dict[Atom, str]:
    """Of partitions that have no event, the newest partition of the same table that has one: how
    its values are written, and up to when.
    """
    ids = table_ids(connection, [(atom.cluster, atom.table) for atom in atoms])
    found: dict[Atom, str] = {}
    for atom in atoms:
        if (atom.cluster, atom.table) in ids:
            newest = _newest_partition(connection, ids[atom.cluster, atom.table][0])
            found |= {} if newest is None else {atom: newest}
    return found


def _newest_partition(connection: Connection, table_id: int) -> str | None:
    newest: list[sa.Row[Any]] = []
    for event in HISTORY:
        query = (
            sa.select(event.c.tx_id, event.c.seq, event.c.partition_key)
            .where(event.c.table_id == table_id, event.c.partition_key != UNPARTITIONED)
            .order_by(event.c.tx_id.desc(), event.c.seq.desc())
        )
        newest += connection.execute(query.limit(1)).all()
    return max(newest, key=lambda row: (row.tx_id, row.seq)).partition_key if newest else None


def late_consumers(
    connection: Connection,
    subscription_id: int,
    looked: Position,
    through: Position,
    of: TableKey | None = None,
) -> dict[str, int]:
    """Per fired consumer of a subscription the data-changing events in its partitions after its
    checkpoint: what arrived late.

    Only events in (looked, through] are looked at, compacted ones too, of one table or of all.
    """
    late = Counter[str]()
    for event in HISTORY:
        counting = _late_in(event, subscription_id, looked, through, of)
        late.update({row.key: row.events for row in connection.execute(counting)})
    return dict(late)


def _late_in(
    event: sa.Table, subscription_id: int, looked: Position, through: Position, of: TableKey | None
) -> sa.Select[Any]:
    """The late events of each consumer in one table of the history."""
    checkpoint = (lc_consumer.c.checkpoint_tx, lc_consumer.c.checkpoint_seq)
    return (
        sa.select(lc_consumer.c.key, sa.func.count().label("events"))
        .select_from(event)
        .join(dce_table, dce_table.c.table_id == event.c.table_id)
        .join(
            lc_consumer_partition,
            sa.and_(
                lc_consumer_partition.c.table_name == dce_table.c.name,
                lc_consumer_partition.c.cluster == dce_table.c.cluster,
                lc_consumer_partition.c.partition_key == event.c.partition_key,
            ),
        )
        .join(lc_consumer, lc_consumer.c.consumer_id == lc_consumer_partition.c.consumer_id)
        .where(
            lc_consumer.c.subscription_id == subscription_id,
            lc_consumer.c.fired,
            changes_data(event),
            is_after(looked, event),
            is_through(through, event),
            IsAfter(event.c.tx_id, event.c.seq, *checkpoint),
            sa.true()
            if of is None
            else sa.and_(dce_table.c.cluster == of[0], dce_table.c.name == of[1]),
        )
        .group_by(lc_consumer.c.key)
    )


def sources_through(
    connection: Connection,
    subscription: Subscription,
    checkpoint: Checkpoint,
    after: Position,
    through: Position,
) -> dict[str, SnapshotCheckpoint]:
    """Per source the snapshot to read up to: the newest that the trigger's tags vouch for, else
    where the consumer stands; of a Hive table only where the subscription reads it. Of a table
    that was migrated it is one of the side that its name stood for at `through`, by default that
    of the switch.
    """
    sources: dict[str, SnapshotCheckpoint] = {}
    wanted = {} if subscription.is_partitioned else dict(subscription.wanted)
    for table, key in subscription.sources.items():
        stands = checkpoint.sources.get(table)
        tags = wanted.get(key, NO_CONDITIONS)
        since = after if stands is not None else Position.ORIGIN
        switches = switches_of(connection, key)
        switch = next((one for one in reversed(switches) if one.position <= through), None)
        later = next((one.from_uid for one in switches if one.position > through), None)
        if switch is not None:
            since = max(since, switch.position)
        found = newest_snapshot(connection, key, tags, since, through, later)
        if found is None and switch is not None and not _knows(stands, after, switch):
            found = switch.checkpoint, switch.to_format
        if found is not None and found[1] is TableFormat.HIVE and table not in subscription.reads:
            found = None
        chosen = stands if found is None else newer(stands, *found)
        if chosen is not None:
            sources[table] = chosen
    return sources


def newest_snapshot(
    connection: Connection,
    table: TableKey,
    tags: TagConditions,
    checkpoint: Position,
    through: Position,
    uid: TableUid | None = None,
) -> tuple[SnapshotCheckpoint, TableFormat] | None:
    """The newest snapshot of a table in (checkpoint, through] that the tags vouch for, with its
    format, or None; of the table as it is now, or of that with a uid.

    An event with the tags vouches for its own snapshot; a marker or amendment that brings them for
    all that was registered before it, also before the checkpoint: what nobody vouched for was not
    read then. Registration may come in any order: Delta versions are compared as numbers; of other
    formats a snapshot that is the predecessor of another is not the newest, then their times decide.
    A Hive table has no snapshots: the position of an event stands for one.
    """
    found = table_ids(connection, [table])
    if table not in found:
        return None
    table_id, current = found[table]
    uid = uid or current
    mark = _newest_mark(connection, table_id, tags, checkpoint, through) if tags else None

    def is_vouched(event: sa.FromClause) -> sa.ColumnElement[bool]:
        if not tags:
            return is_after(checkpoint, event)
        brings = is_new(connection.dialect.name, tags, event)
        return sa.or_(
            sa.and_(is_after(checkpoint, event), brings),
            sa.false() if mark is None else is_through(mark, event),
        )

    known = sa.union_all(
        *(
            sa.select(event.c.table_format, event.c.tx_id, event.c.seq)
            .add_columns(
                delta_version(event).label("version"),
                *(
                    sa.case((sa.not_(_is_hive(event)), event.c[name])).label(name)
                    for name in ("snapshot_id", "prev_snapshot_id", "snapshot_ts")
                ),
            )
            .where(*_of_table(event, table_id, uid, through), is_vouched(event))
            for event in HISTORY
        )
    ).cte()
    followed = sa.select(known.c.prev_snapshot_id).where(known.c.prev_snapshot_id.is_not(None))
    newest_first = [
        known.c.version.desc().nulls_last(),
        sa.case((known.c.snapshot_id.in_(followed), 1), else_=0),
        known.c.snapshot_ts.desc().nulls_last(),
        known.c.tx_id.desc(),
        known.c.seq.desc(),
    ]
    row = connection.execute(sa.select(known).order_by(*newest_first).limit(1)).one_or_none()
    if row is None:
        return None
    snapshot = SnapshotId(row.snapshot_id or str(Position(row.tx_id, row.seq)))
    return SnapshotCheckpoint(table_uid=uid, snapshot_id=snapshot), FORMATS[row.table_format]


def partition_events(
    engine: Engine, table: TableKey, uid: TableUid | None, start: Position, end: Position
) -> PartitionEvents:
    """What the events of a table with this uid, or with that of a side that it was migrated from or
    to, say of its partitions up to a position, whatever their tags: those of the range `start`,
    exclusive, to `end`, inclusive, and the partitions that were named before.
    """
    before = set[str]()
    changed: dict[str, frozenset[OperationType]] = {}
    with reading(engine) as connection:
        ids = table_ids(connection, [table])
        switches = switches_of(connection, table)
        uids = {uid, *(of for one in switches for of in (one.from_uid, one.to_uid))}
        for event, of in itertools.product(HISTORY if ids else (), uids):
            is_within = sa.case((is_after(start, event), 1), else_=0).label("is_within")
            named = (
                sa.select(event.c.partition_key, event.c.operation_type, is_within)
                .where(*_of_table(event, ids[table][0], of, end))
                .distinct()
            )
            for row in connection.execute(named):
                key, operation = row.partition_key, OPERATIONS[row.operation_type]
                if row.is_within:
                    changed[key] = changed.get(key, frozenset()) | {operation}
                else:
                    before.add(key)
    return PartitionEvents(before=frozenset(before), changed=changed)


def without_snapshot(
    connection: Connection, tables: Sequence[TableKey], through: Position
) -> list[str]:
    """The tables of which no snapshot is known yet, so that nothing can read them."""
    ids = table_ids(connection, tables)
    return [
        table[1]
        for table in tables
        if table not in ids
        or not (_has_snapshot(connection, *ids[table], through) or switches_of(connection, table))
    ]


def _has_snapshot(
    connection: Connection, table_id: int, uid: TableUid | None, through: Position
) -> bool:
    there = [
        sa.exists(sa.select(1).where(*_of_table(event, table_id, uid, through)))
        for event in HISTORY
    ]
    return bool(connection.execute(sa.select(sa.or_(*there))).scalar())


def _of_table(
    event: sa.FromClause, table_id: int, uid: TableUid | None, through: Position
) -> list[sa.ColumnElement[bool]]:
    """That an event names a snapshot of the table as it is now, not of one that had its name
    before, or changes data of a Hive table, which has none.
    """
    same_table = event.c.table_uid == uid if uid else event.c.table_uid.is_(None)
    is_snapshot = sa.case(
        (_is_hive(event), event.c.amends_seq.is_(None)), else_=event.c.snapshot_id.is_not(None)
    )
    return [event.c.table_id == table_id, is_through(through, event), is_snapshot, same_table]


def _is_hive(event: sa.FromClause) -> sa.ColumnElement[bool]:
    return event.c.table_format == FORMAT_CODES[TableFormat.HIVE]


def _newest_mark(
    connection: Connection,
    table_id: int,
    tags: TagConditions,
    checkpoint: Position,
    through: Position,
) -> Position | None:
    """The newest marker or amendment in (checkpoint, through] that brings the tags."""
    marks = sa.union_all(
        *(
            sa.select(event.c.tx_id, event.c.seq)
            .where(
                event.c.table_id == table_id,
                is_after(checkpoint, event),
                is_through(through, event),
            )
            .where(is_new(connection.dialect.name, tags, event), sa.not_(changes_data(event)))
            for event in HISTORY
        )
    ).subquery()
    row = connection.execute(
        sa.select(marks).order_by(marks.c.tx_id.desc(), marks.c.seq.desc()).limit(1)
    ).one_or_none()
    return Position(row.tx_id, row.seq) if row else None


def _knows(stands: SnapshotCheckpoint | None, position: Position, switch: Switch) -> bool:
    """Whether a consumer that has consumed all up to a position stands where a switch led, or past
    it.
    """
    is_there = stands is not None and stands.table_uid == switch.to_uid
    return is_there and position >= switch.position


def newer(
    stands: SnapshotCheckpoint | None, found: SnapshotCheckpoint, table_format: TableFormat
) -> SnapshotCheckpoint:
    """The later of a consumer's checkpoint in a table and the snapshot found after it, of this
    format.

    Another table uid is always later, an older Delta version never is, nor an older position, which
    stands for a snapshot of a Hive table; the ids of Iceberg say nothing of their order, so that
    what was registered after the checkpoint is later.
    """
    if stands is None or (
        stands.table_uid != found.table_uid
        and stands.table_uid is not None
        and found.table_uid is not None
    ):
        return found
    old, new = (_order(stands.snapshot_id, table_format), _order(found.snapshot_id, table_format))
    return stands if old is not None and new is not None and new < old else found


def _order(snapshot: SnapshotId | None, table_format: TableFormat) -> Position | None:
    """By what snapshots of a table are compared; None where they have no order."""
    if table_format is TableFormat.HIVE:
        with suppress(InvalidValueError):
            return Position.parse(snapshot or "")
    version = version_of(snapshot) if table_format is TableFormat.DELTA else None
    return None if version is None else Position(0, version)
