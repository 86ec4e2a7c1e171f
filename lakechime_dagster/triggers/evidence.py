"""Evidence: what due triggers need of the event history, narrowed by SQL to the events that can
matter.
"""

import datetime as dt
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql import JSONB

from lakechime_dagster.dce.engine import PARAMETERS, IsAfter, VisibleBelow, among, slices
from lakechime_dagster.dce.events import NO_CONDITIONS, Position, TagConditions
from lakechime_dagster.dce.partitions import UNPARTITIONED
from lakechime_dagster.dce.queries import (
    TableKey,
    changes_data,
    compares,
    fits,
    for_the_first_time,
    is_after,
    is_delete,
    is_drop,
    is_dropped,
    is_through,
    meets,
    table_ids,
)
from lakechime_dagster.dce.schema import HISTORY, dce_event, dce_table, lc_consumer_partition
from lakechime_dagster.triggers.conditions import Atom, TagsFrom
from lakechime_dagster.triggers.decision import Arrived, AtomState, Waiting, end_within
from lakechime_dagster.triggers.schema import lc_consumer, lc_execution
from lakechime_dagster.triggers.triggers import SnapshotTrigger


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


NOTHING = NO_CONDITIONS.to_text()


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
    nothing new. However many questions there are, they are a few statements.
    """
    ids = table_ids(connection, list({question.table for question in questions}))
    known = [
        (number, ids[one.table][0], one) for number, one in enumerate(questions) if one.table in ids
    ]
    rows: dict[int, list[sa.Row[Any]]] = {}
    for chunk, event in itertools.product(slices(known, PARAMETERS), HISTORY):
        for row in connection.execute(_counting(connection, event, chunk, through)):
            rows.setdefault(row.number, []).append(row)
    return [
        _waiting_of(question, rows.get(number, ())) for number, question in enumerate(questions)
    ]


def _counting(
    connection: Connection,
    event: sa.FromClause,
    asked: Sequence[tuple[int, int, Question]],
    through: Position,
) -> sa.Select[Any]:
    """Events that each question asks for, by its number and by whether they match."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        kinds = {
            "number": sa.Integer,
            "table_id": sa.BigInteger,
            "tx": sa.BigInteger,
            "seq": sa.BigInteger,
            "asks": sa.Boolean,
            "equal": JSONB,
            "compared": JSONB,
        }
        records = [dict(zip(kinds, _record(dialect, *one), strict=True)) for one in asked]
        function = sa.func.jsonb_to_recordset(
            sa.cast(sa.literal(json.dumps(records), sa.Text), JSONB)
        )
        names = [sa.column(name, kind) for name, kind in kinds.items()]
        number, table_id, tx, seq, asks, equal, compared = (
            function.table_valued(*names).render_derived(name="asked", with_types=True).c
        )

        demands_nothing = sa.and_(equal == sa.cast(sa.literal("{}"), JSONB), compared.is_(None))

        def fit(event: sa.FromClause) -> sa.ColumnElement[bool]:
            is_equal = sa.cast(event.c.tags, JSONB).contains(equal)
            return sa.and_(is_equal, sa.or_(compared.is_(None), compares(event, compared)))
    else:
        value = (
            sa.func.json_each(json.dumps([_record(dialect, *one) for one in asked]))
            .table_valued("value", name="asked")
            .c.value
        )
        number, table_id, tx, seq, asks, conditions = (
            sa.func.json_extract(value, f"$[{index}]") for index in range(6)
        )

        demands_nothing = conditions == NOTHING

        def fit(event: sa.FromClause) -> sa.ColumnElement[bool]:
            return meets(event, conditions)

    is_asked = sa.and_(IsAfter(event.c.tx_id, event.c.seq, tx, seq), is_through(through, event))
    # as a CASE, since SQLite evaluates both sides of an AND
    matches = sa.case(
        (asks, for_the_first_time(fit, event)),
        (sa.not_(changes_data(event)), sa.false()),
        (demands_nothing, sa.true()),
        else_=fit(event),
    ).label("matches")
    first, last = (
        sa.func.min(event.c.event_ts).label("first_ts"),
        sa.func.max(event.c.event_ts).label("last_ts"),
    )
    counts = sa.select(matches, sa.func.count().label("events"), first, last).where(
        event.c.table_id == table_id, is_asked
    )
    if dialect == "postgresql":
        # a plain join would read all events where there are not many
        per_question = counts.group_by(matches).lateral("found")
        return sa.select(number.label("number"), *per_question.c)
    return counts.add_columns(number.label("number")).group_by(matches, number)


def _record(dialect: str, number: int, table_id: int, question: Question) -> tuple[Any, ...]:
    tags, after = question.tags, question.after
    conditions = (
        (dict(tags.equal), tags.compared or None) if dialect == "postgresql" else (tags.to_text(),)
    )
    return number, table_id, after.tx_id, after.seq, not tags.fit({}), *conditions


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
