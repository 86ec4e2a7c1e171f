"""Evidence: what due triggers need to know of the event history, narrowed by SQL to the events that can matter.

Every function reads inside one transaction of the caller, bounded by one position, so that decision and claim speak
of the same moment.
"""

import datetime as dt
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.changed_columns import changed_columns
from lakechime_dagster.dce.event import TableUid
from lakechime_dagster.dce.partition import UNPARTITIONED, canonical_json
from lakechime_dagster.dce.position import Position
from lakechime_dagster.store import ledger_schema as ledger
from lakechime_dagster.store.dialect import VisibleBelow
from lakechime_dagster.store.queries import (
    carries,
    changed_tag,
    changes_data,
    is_after,
    is_data,
    is_delete,
    is_drop,
    is_dropped,
    is_new,
    is_through,
)
from lakechime_dagster.store.schema import HISTORY, dce_availability, dce_event, dce_folded, dce_table
from lakechime_dagster.store.slices import slices
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.decision import AtomState, Waiting
from lakechime_dagster.triggers.unread import Unread

CHUNK = 5_000  # parameters of one statement
NO_COLUMNS: Mapping[str, frozenset[str]] = MappingProxyType({})
TableKey = tuple[str, str]  # cluster, name


def head_at(connection: Connection, time_ms: int) -> Position:
    """The newest position of the events registered before a time, folded ones too: information about the past, never a place."""
    queries = [sa.select(kept.c.tx_id, kept.c.seq).where(kept.c.event_ts < time_ms) for kept in HISTORY]
    before = sa.union_all(*queries).subquery()
    row = connection.execute(sa.select(before).order_by(before.c.tx_id.desc(), before.c.seq.desc()).limit(1)).one_or_none()
    return Position(row.tx_id, row.seq) if row else Position.ORIGIN


def place_before(connection: Connection, time_ms: int, head: Position) -> Position:
    """The newest position, up to the head, before whatever was registered at a time or later, folded events too.

    Positions do not follow the clock: what was registered earlier may come after it.
    """
    queries = [sa.select(kept.c.tx_id, kept.c.seq).where(kept.c.event_ts >= time_ms, is_through(head, kept)) for kept in HISTORY]
    since = sa.union_all(*queries).subquery()
    row = connection.execute(sa.select(since).order_by(since.c.tx_id, since.c.seq).limit(1)).one_or_none()
    return Position(row.tx_id, row.seq - 1) if row else head


def held_back(connection: Connection) -> str:
    """A sentence when registered events cannot be read yet, because an older transaction of the database server is still open.

    They are delayed, never lost. SQLite has one writer at a time and holds nothing back.
    """
    if connection.dialect.name != "postgresql":
        return ""
    bound = sa.select(VisibleBelow()).scalar_subquery()
    hidden = connection.execute(sa.select(sa.func.count()).select_from(dce_event).where(dce_event.c.tx_id >= bound)).scalar_one()
    if not hidden:
        return ""
    activity = sa.table("pg_stat_activity", sa.column("xact_start", sa.DateTime(timezone=True)), sa.column("backend_xid"))
    since = connection.execute(sa.select(sa.func.min(activity.c.xact_start)).where(activity.c.backend_xid.is_not(None))).scalar()
    opened = f" open since {since.astimezone(dt.timezone.utc):%Y-%m-%d %H:%M:%S}Z" if since else ""
    return f"{hidden} event{'' if hidden == 1 else 's'} held back by a database transaction{opened}"


def table_ids(connection: Connection, tables: Sequence[TableKey]) -> dict[TableKey, tuple[int, TableUid | None]]:
    """The ids and current uids of the tables that the store has heard of."""
    names = {name for _, name in tables}
    found: dict[TableKey, tuple[int, TableUid | None]] = {}
    for chunk in slices(sorted(names), CHUNK):
        query = sa.select(dce_table.c.cluster, dce_table.c.name, dce_table.c.table_id, dce_table.c.table_uid).where(
            dce_table.c.name.in_(chunk)
        )
        found |= {(row.cluster, row.name): (row.table_id, row.table_uid and TableUid(row.table_uid)) for row in connection.execute(query)}
    return {table: found[table] for table in tables if table in found}


def waiting(
    connection: Connection, tables: Sequence[TableKey], tags: Mapping[str, str], place: Position, through: Position,
    unread: Mapping[str, frozenset[str]] = NO_COLUMNS,
) -> list[Waiting]:  # fmt: skip
    """Per table the events in (place, through], folded ones too: how many match, when they came, how many do not match.

    Without tags only changes of data match: a mark says nothing to who did not ask for its tags. An amendment of an
    event that had the tags before says nothing new. Those that match and changed only columns that are `unread` are told apart;
    of folded ones nobody knows that, and who asked for tags wants to know of each event that has them.
    """
    by_columns = bool(unread) and not tags
    ids = table_ids(connection, tables)
    dialect = connection.dialect.name
    rows: dict[int, list[sa.Row[Any]]] = {}
    for event in HISTORY:
        counts = counted(event, is_new(dialect, dict(tags), event))
        of_tables = event.c.table_id.in_([table_id for table_id, _ in ids.values()])
        grouped = [event.c.table_id, *([changed_tag(dialect)] if by_columns and event is dce_event else [])]
        query = sa.select(*grouped, *counts).where(of_tables, is_after(place, event), is_through(through, event))
        for row in connection.execute(query.group_by(*grouped)) if ids else ():
            rows.setdefault(row.table_id, []).append(row)
    return [waiting_of(table[1], rows.get(ids[table][0], ()) if table in ids else (), unread.get(table[1])) for table in tables]


def through_commits(
    connection: Connection, tables: Sequence[TableKey], place: Position, through: Position, most: int
) -> Position:  # fmt: skip
    """The position up to which at most so many changes of data came to the tables after a place; `through` where there are no more."""
    ids = [table_id for table_id, _ in table_ids(connection, tables).values()]
    queries = [
        sa.select(event.c.tx_id, event.c.seq).where(
            event.c.table_id.in_(ids), changes_data(event), is_after(place, event), is_through(through, event)
        )
        for event in HISTORY
    ]  # fmt: skip
    found = sa.union_all(*queries).subquery()
    first = connection.execute(sa.select(found).order_by(found.c.tx_id, found.c.seq).limit(most + 1)).all()
    return Position(first[-2].tx_id, first[-2].seq) if len(first) > most else through


def counted(event: sa.FromClause, matches: sa.ColumnElement[bool]) -> list[sa.ColumnElement[Any]]:
    """The columns that `waiting_of` reads."""
    return [
        sa.func.sum(sa.case((matches, 1), else_=0)).label("matching"),
        sa.func.count().label("total"),
        sa.func.min(sa.case((matches, event.c.event_ts))).label("first_ts"),
        sa.func.max(sa.case((matches, event.c.event_ts))).label("last_ts"),
    ]


def waiting_of(table: str, rows: Iterable[sa.Row[Any]], unread: frozenset[str] | None = None) -> Waiting:
    """What waits of a table, from the counts of what is there and of what was folded, by changed columns where some are `unread`."""
    needed: list[sa.Row[Any]] = []
    passed: list[tuple[sa.Row[Any], frozenset[str]]] = []
    for row in rows:
        changed = changed_columns(row._mapping.get("changed")) if unread and row.matching else None
        if unread and changed is not None and changed <= unread:
            passed.append((row, changed))
        else:
            needed.append(row)
    count = _matching(needed)
    unmatched = sum(row.total for row in needed) - count + sum(row.total - int(row.matching) for row, _ in passed)
    if not passed:
        return Waiting(table=table, count=count, unmatched=unmatched, first_ts=_first(needed), last_ts=_last(needed))
    aside = [row for row, _ in passed]
    columns = tuple(sorted(frozenset().union(*(changed for _, changed in passed))))
    beside = Unread(count=_matching(aside), first_ts=_first(aside), last_ts=_last(aside), columns=columns)
    return Waiting(table=table, count=count, unmatched=unmatched, first_ts=_first(needed), last_ts=_last(needed), unread=beside)


def _matching(rows: Iterable[sa.Row[Any]]) -> int:
    return sum(int(row.matching) for row in rows)


def _first(rows: Iterable[sa.Row[Any]]) -> int | None:
    return min((row.first_ts for row in rows if row.first_ts is not None), default=None)


def _last(rows: Iterable[sa.Row[Any]]) -> int | None:
    return max((row.last_ts for row in rows if row.last_ts is not None), default=None)


def atom_states(connection: Connection, atoms: Sequence[Atom], tags: Mapping[str, str], through: Position) -> dict[Atom, AtomState]:
    """What is known of each partition: there with all tags on one event, only seen, dropped, or (absent) nothing.

    Searches the whole history, folded history too.
    """
    ids = table_ids(connection, list({(atom.cluster, atom.table) for atom in atoms}))
    by_table: dict[int, dict[str, Atom]] = {}
    for atom in atoms:
        if (atom.cluster, atom.table) in ids:
            by_table.setdefault(ids[atom.cluster, atom.table][0], {})[atom.canonical] = atom
    states: dict[Atom, AtomState] = {}
    for table_id, partitions in by_table.items():
        for chunk in slices(list(partitions), CHUNK):
            states |= {partitions[key]: state for key, state in _states(connection, table_id, chunk, tags, through)}
    return states


def _states(
    connection: Connection, table_id: int, keys: Sequence[str], tags: Mapping[str, str], through: Position
) -> Iterator[tuple[str, AtomState]]:
    matches = sa.and_(carries(connection.dialect.name, dict(tags)), sa.not_(is_delete()))
    query = (
        sa.select(
            dce_event.c.partition_key,
            sa.func.max(sa.case((matches, 1), else_=0)).label("matched"),
            sa.func.max(sa.case((is_drop(), 1), else_=0)).label("dropped"),
        )
        .where(dce_event.c.table_id == table_id, dce_event.c.partition_key.in_(keys), is_through(through))
        .group_by(dce_event.c.partition_key)
    )
    folded = _folded(connection, table_id, keys, tags, through)
    seen = {row.partition_key: row for row in connection.execute(query)}
    for key in keys:
        row = seen.get(key)
        if row is not None and row.dropped:
            yield key, _after_drops(connection, table_id, key, matches, through)
        elif row is not None or key in folded:
            is_there = bool((row is not None and row.matched) or folded.get(key))
            yield key, AtomState(available=is_there, seen=True, compacted=key in folded)


def _after_drops(connection: Connection, table_id: int, key: str, matches: sa.ColumnElement[bool], through: Position) -> AtomState:
    """The state of a partition that was dropped at least once: whether something is there that no drop came after."""
    mine = (dce_event.c.table_id == table_id, dce_event.c.partition_key == key, is_through(through))
    newest_first = sa.select(sa.literal(1)).order_by(dce_event.c.tx_id.desc(), dce_event.c.seq.desc()).limit(1)
    available = connection.execute(newest_first.where(*mine, matches, sa.not_(is_dropped(through)))).scalar() is not None
    return AtomState(available=available, seen=True, dropped=not available)


def _folded(connection: Connection, table_id: int, keys: Sequence[str], tags: Mapping[str, str], through: Position) -> dict[str, bool]:
    """Per partition of which something was folded whether it was available with the tags; folding keeps which were on one event."""
    c = dce_availability.c
    mine = sa.select(c.partition_key, c.tag_positions, c.newest_tx, c.newest_seq).where(c.table_id == table_id, c.partition_key.in_(keys))
    found: dict[str, bool] = {}
    for row in connection.execute(mine):
        newest = Position(row.newest_tx, row.newest_seq)
        tagged = [Position.parse(position) for together, position in row.tag_positions if tags.items() <= together.items()]
        is_there = any(position <= through for position in tagged or ([] if tags else [newest]))
        if newest > through and not is_there:  # asked of a time before it was folded: its newest events say nothing of then
            is_there = _was_there(connection, table_id, row.partition_key, tags, through)
            if not is_there:
                continue
        found[row.partition_key] = found.get(row.partition_key, False) or is_there
    return found


def _was_there(connection: Connection, table_id: int, key: str, tags: Mapping[str, str], through: Position) -> bool:
    of_partition = (dce_folded.c.table_id == table_id, dce_folded.c.partition_key == key, is_through(through, dce_folded))
    matching = sa.select(1).where(*of_partition, carries(connection.dialect.name, dict(tags), dce_folded)).limit(1)
    return connection.execute(matching).scalar() is not None


def near_misses(connection: Connection, atoms: Sequence[Atom]) -> dict[Atom, str]:
    """Of partitions that have no event, those of which one is there that differs by the type of a value only (`5`, `"5"`)."""
    ids = table_ids(connection, [(atom.cluster, atom.table) for atom in atoms])
    found: dict[Atom, str] = {}
    for atom in atoms:
        if (atom.cluster, atom.table) not in ids or atom.canonical == UNPARTITIONED:
            continue
        table_id, _ = ids[atom.cluster, atom.table]
        mine = (dce_event.c.table_id == table_id, dce_event.c.partition_key.in_(retyped(atom.canonical)))
        other = connection.execute(sa.select(dce_event.c.partition_key).where(*mine).limit(1)).scalar()
        found |= {atom: other} if other is not None else {}
    return found


def retyped(canonical: str) -> list[str]:
    """The partitions that look the same but for the type of some values; at most four levels are varied."""
    values = json.loads(canonical)
    choices = [[value, *_retyped_value(value)] if index < 4 else [value] for index, value in enumerate(values)]
    return [text for text in (canonical_json(list(row)) for row in itertools.product(*choices)) if text != canonical]


def _retyped_value(value: object) -> list[object]:
    if isinstance(value, str):
        return [int(value)] if re.fullmatch(r"-?\d+", value, re.ASCII) else []
    return [canonical_json(value)] if isinstance(value, int | float) else []


def late_lanes(connection: Connection, flow_id: int, looked: Position, through: Position, of: TableKey | None = None) -> dict[str, int]:
    """Per fired lane of a flow the data-changing events in its partitions after its place: what came late.

    Only events in (looked, through] are looked at, of one table or of all.
    """
    place = sa.tuple_(ledger.lane.c.place_tx, ledger.lane.c.place_seq)
    query = (
        sa.select(ledger.lane.c.key, sa.func.count().label("events"))
        .select_from(dce_event)
        .join(dce_table, dce_table.c.table_id == dce_event.c.table_id)
        .join(
            ledger.lane_partition,
            sa.and_(
                ledger.lane_partition.c.table_name == dce_table.c.name,
                ledger.lane_partition.c.cluster == dce_table.c.cluster,
                ledger.lane_partition.c.partition_key == dce_event.c.partition_key,
            ),
        )
        .join(ledger.lane, ledger.lane.c.lane_id == ledger.lane_partition.c.lane_id)
        .where(
            ledger.lane.c.flow_id == flow_id, ledger.lane.c.fired, is_data, is_after(looked), is_through(through),
            sa.tuple_(dce_event.c.tx_id, dce_event.c.seq) > place,
            sa.true() if of is None else sa.and_(dce_table.c.cluster == of[0], dce_table.c.name == of[1]),
        )
        .group_by(ledger.lane.c.key)
    )  # fmt: skip
    return {row.key: row.events for row in connection.execute(query)}
