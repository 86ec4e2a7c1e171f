"""Evaluating many flows at once: what changed since the last look says which of them must be decided at all.

A flow that rested at the last look can fire now only by a new event of its tables, by a grid point that came, or by
what a person did to it. The new events are read once for all flows; flows that waited are counted by one statement.
"""

import datetime as dt
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.tags import Tags
from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.store import evidence
from lakechime_dagster.store import ledger_schema as ledger
from lakechime_dagster.store.dialect import among, now_ms
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.evaluation import Accepts, Evaluator, any_key
from lakechime_dagster.store.events import head_within
from lakechime_dagster.store.ledger_rows import FlowRow, blocked_sentence
from lakechime_dagster.store.orders import flows_with_orders
from lakechime_dagster.store.queries import changes_data, for_the_first_time, is_after, is_data, is_through
from lakechime_dagster.store.schema import FOLDED_VERSIONS, HISTORY, dce_event, dce_table
from lakechime_dagster.store.slices import slices
from lakechime_dagster.triggers.decision import Decision, LaneView, Waiting, decide_snapshot
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.grid import from_milliseconds
from lakechime_dagster.triggers.lanes import ExecutionState, LaneState, Place
from lakechime_dagster.triggers.model import PartitionTrigger, SnapshotTrigger

AT_ONCE = 500  # flows decided before it is asked whether enough of them fired
DELTA = 20_000  # new events above which every flow on a table that changed is counted by SQL instead


@dataclass(frozen=True)
class NewEvent:
    """What a decision needs of an event that came since the last look."""

    position: Position
    event_ts: int
    tags: Tags
    is_data: bool
    before: Sequence[Tags] = ()  # of an amendment the tags of its earlier versions

    def matches(self, tags: Tags) -> bool:
        if not tags:
            return self.is_data
        return self.tags.carries(tags) and not any(earlier.carries(tags) for earlier in self.before)


@dataclass
class Sweep:
    """The evaluation of many flows, again and again, by one process; the decisions are those of `Evaluator.evaluate`.

    Restless flows are decided at every look; those that rest only when something of theirs changed.
    """

    evaluator: Evaluator
    flows: Sequence[Flow]
    rows: dict[str, FlowRow] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # flows that cannot be activated now, and why
    noted_ts: int = 0  # when its ticks were noted last
    _through: Position | None = None  # where the last look ended; None before the first one
    _intervention: int = 0
    _restless: dict[str, None] = field(default_factory=dict)  # in the order in which they are decided
    _points: dict[str, dt.datetime | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Know nothing of the store yet: every flow that can be activated is decided at the next look."""
        self._activate()
        self._flows = {flow.name: flow for flow in self.flows if flow.name in self.rows}
        # by partitions, with further tables to read, or with columns that it does not: evaluated one by one
        self._apart = [name for name, flow in self._flows.items() if flow.is_partitioned or flow.reads or flow.unread]
        self._by_table: dict[evidence.TableKey, dict[Tags, list[str]]] = {}
        for flow in self._flows.values():
            for table in flow.watched:
                of_table = self._by_table.setdefault(table, {})
                of_table.setdefault(flow.trigger.tags, []).append(flow.name)
        self._ids = {row.flow_id: name for name, row in self.rows.items()}
        self._restless = dict.fromkeys(self._flows)
        self._through, self._intervention = None, 0

    def _activate(self) -> None:
        """Read the flows' rows, and make those of new flows; one that starts later hinders no other."""
        known = {row.name: row for row in self.evaluator.ledger.flows()}
        self.rows, self.refused = {}, {}
        for flow in self.flows:
            row = known.get(flow.name)
            try:
                self.rows[flow.name] = row if row is not None and row.describes(flow) else self.evaluator.activate(flow)
            except InvalidValueError as error:
                self.refused[flow.name] = str(error)

    def decisions(self, most: int | None = None, accepts: Mapping[str, Accepts] | None = None) -> dict[str, Decision]:
        """The decisions of the flows that may fire now or wait, by name; a flow that is not there has nothing to do.

        After `most` firings no more are decided: the rest is looked at first the next time. `accepts` is by flow.
        """
        if self._is_replaced():
            self._begin()
        with reading(self.evaluator.engine) as connection:
            now, through = now_ms(connection), head_within(connection)
            self._restless |= dict.fromkeys(self._touched_by_people(connection))
            new = {} if self._through is None else _new_events(connection, self._through, through)
            if new is None and self._through is not None:
                dirty = _dirty_tables(connection, self._through, through)
                self._restless |= {name: None for table in dirty for names in self._by_table.get(table, {}).values() for name in names}
            single = {name for name in self._apart if self._is_due(name, new or {}, now)}
            single |= {self._ids[flow_id] for flow_id in flows_with_orders(connection) if flow_id in self._ids}
            self._restless |= dict.fromkeys(sorted(single))  # until they are decided: an evaluation may fail
            together, undecided = self._together(connection, new or {}, single, now, through, most)
        found = together | {name: self._evaluated(name, through, (accepts or {}).get(name, any_key)) for name in sorted(single)}
        self._through = through
        calm = {name for name, decision in found.items() if not decision.fires and not decision.waits}
        self._restless = dict.fromkeys([*undecided, *(name for name in found if name not in calm)])
        return {name: decision for name, decision in found.items() if name not in calm}

    def reread(self) -> None:
        """Read the flows' rows again; one whose search somebody else began anew is decided at the next look.

        When one is gone, or was refused before, everything is looked at anew.
        """
        found = {row.name: row for row in self.evaluator.ledger.flows() if row.name in self._flows}
        if self.refused or any(name not in found or found[name].flow_id != row.flow_id for name, row in self.rows.items()):
            self._begin()
            return
        self._restless |= {name: None for name, row in found.items() if row.looked != self.rows[name].looked}
        self.rows |= found

    def move_on(self, busy: Set[str]) -> None:
        """Remember that nothing up to the last look can fire the flows that rest, so that retention may fold it.

        Left out are those that are `busy`, having an open execution, and those that were declared otherwise since.
        """
        if self._through is None:
            return
        rows = [row for name, row in self.rows.items() if name not in self._restless and name not in busy]
        resting = [row for row in rows if row.looked < self._through and row.describes(self._flows[row.name])]
        self.evaluator.all_looked_through(resting, self._through)
        self.rows |= {row.name: replace(row, looked=self._through) for row in resting}

    def _is_replaced(self) -> bool:
        """Whether the store was made anew, or put back to what it was, since the last look."""
        if self._through is None or not self.rows:
            return False
        first = next(iter(self.rows.values()))
        same = sa.select(sa.literal(1)).where(ledger.flow.c.flow_id == first.flow_id, ledger.flow.c.activated_ts == first.activated_ts)
        with reading(self.evaluator.engine) as connection:
            return head_within(connection) < self._through or connection.execute(same).scalar() is None

    def _evaluated(self, name: str, through: Position, accepts: Accepts) -> Decision:
        """The decision of a flow by itself; one whose keys cannot be resolved says so, waits, and hinders no other."""
        try:
            return self.evaluator.evaluate(self._flows[name], self._fresh(name), accepts=accepts)
        except (DeclarationError, InvalidValueError) as error:
            return Decision(trigger=name, fires=False, reasons=(str(error),), through=through, waits=True)

    def _fresh(self, name: str) -> FlowRow:
        row = self.evaluator.ledger.flow(name)
        self.rows[name] = row if row is not None else self.evaluator.activate(self._flows[name])
        return self.rows[name]

    def _is_due(self, name: str, new: Mapping[evidence.TableKey, object], now: int) -> bool:
        """Whether a flow that is evaluated by itself must be now."""
        flow = self._flows[name]
        if isinstance(flow.trigger, PartitionTrigger):
            point, before = flow.trigger.every.last(from_milliseconds(now)), self._points.get(name)
            self._points[name] = point
            if point != before:
                return True
        return name in self._restless or any(table in new for table in flow.watched)

    def _touched_by_people(self, connection: Connection) -> set[str]:
        """The flows to which a person did something since the last look."""
        query = sa.select(ledger.intervention.c.intervention_id, ledger.intervention.c.flow_id)
        rows = connection.execute(query.where(ledger.intervention.c.intervention_id > self._intervention)).all()
        self._intervention = max((row.intervention_id for row in rows), default=self._intervention)
        return {self._ids[row.flow_id] for row in rows if row.flow_id in self._ids}

    def _together(
        self, connection: Connection, new: Mapping[evidence.TableKey, Sequence[NewEvent]], single: set[str], now: int, through: Position,
        most: int | None,
    ) -> tuple[dict[str, Decision], Sequence[str]]:  # fmt: skip
        """The decisions of the snapshot flows that are restless or have a new event that matches, and who was not decided."""
        matched = self._matched(new, {*single, *self._restless})
        counted = [name for name in self._restless if name not in single and name not in self._apart]
        names = [*counted, *matched]
        found: dict[str, Decision] = {}
        fired = 0
        for start in range(0, len(names), AT_ONCE):
            if most is not None and fired >= most:
                return found, names[start:]
            decided = self._decided(connection, names[start : start + AT_ONCE], matched, now, through)
            fired += sum(decision.fires for decision in decided.values())
            found |= decided
        return found, ()

    def _decided(
        self, connection: Connection, names: Sequence[str], matched: Mapping[str, Mapping[str, "_Matching"]], now: int, through: Position
    ) -> dict[str, Decision]:
        views = self._views(connection, names)
        to_count = [(self._flows[name], views[name].place.position) for name in names if name not in matched]
        waiting = _counted(connection, to_count, through) if to_count else {}
        for name in names:
            if name in matched:
                tables, place = matched[name], views[name].place.position
                waiting[name] = [
                    tables[table].after(place) if table in tables else Waiting(table=table) for table in self._trigger(name).tables
                ]
        return {
            name: decide_snapshot(name, self._trigger(name), views[name], tables, now_ms=now, through=through)
            for name, tables in waiting.items()
        }

    def _matched(self, new: Mapping[evidence.TableKey, Sequence[NewEvent]], others: set[str]) -> dict[str, dict[str, "_Matching"]]:
        """Per flow that rested so far, and per table, the new events that match."""
        matched: dict[str, dict[str, _Matching]] = {}
        for table, events in new.items():
            for tags, names in self._by_table.get(table, {}).items():
                if matching := [event for event in events if event.matches(tags)]:
                    found = _Matching(table[1], matching)
                    for name in names:
                        if name not in others:
                            matched.setdefault(name, {})[table[1]] = found
        return matched

    def _trigger(self, name: str) -> SnapshotTrigger:
        trigger = self._flows[name].trigger
        assert isinstance(trigger, SnapshotTrigger)
        return trigger

    def _views(self, connection: Connection, names: Iterable[str]) -> dict[str, LaneView]:
        """What the ledger says of each flow's lane, in one statement; of the place the position only."""
        is_open = sa.and_(ledger.execution.c.lane_id == ledger.lane.c.lane_id, ledger.execution.c.state == ExecutionState.OPEN.value)
        flow, lane, execution = ledger.flow.c, ledger.lane.c, ledger.execution.c
        query = (
            sa.select(flow.flow_id, flow.paused_ts, flow.paused_reason, execution.step, execution.attempt)
            .add_columns(lane.place_tx, lane.place_seq, lane.settled, lane.state, lane.state_reason)
            .select_from(ledger.flow)
            .outerjoin(ledger.lane, sa.and_(ledger.lane.c.flow_id == ledger.flow.c.flow_id, ledger.lane.c.key == ""))
            .outerjoin(ledger.execution, is_open)
        )
        ids = [self.rows[name].flow_id for name in names]
        found = {}
        for chunk in slices(ids, evidence.CHUNK):
            for row in connection.execute(query.where(among(connection, flow.flow_id, chunk))):
                name = self._ids[row.flow_id]
                found[name] = _view(name, self.rows[name], row)
        return found


def _view(name: str, known: FlowRow, row: sa.Row[Any]) -> LaneView:
    blocked = f"paused: {row.paused_reason}" if row.paused_ts is not None else ""
    if row.place_tx is None:
        return LaneView(place=known.start, blocked=blocked)
    blocked = blocked or blocked_sentence(name, name, LaneState(row.state), row.state_reason)
    opened = f"step {row.step} is with attempt {row.attempt}" if row.step is not None else ""
    return LaneView(place=Place(position=Position(row.place_tx, row.place_seq)), settled=row.settled, open=opened, blocked=blocked)


class _Matching:
    """The new events of a table that match some tags, counted once for all flows that ask for these."""

    def __init__(self, table: str, events: Sequence[NewEvent]) -> None:
        self.table = table
        self.events = events
        self.first = min(event.position for event in events)
        self.all = _waiting(table, events)

    def after(self, place: Position) -> Waiting:
        """Those after a place; a flow that rested stands before all of them, unless somebody claimed meanwhile."""
        return self.all if place < self.first else _waiting(self.table, [event for event in self.events if event.position > place])


def _waiting(table: str, events: Sequence[NewEvent]) -> Waiting:
    times = [event.event_ts for event in events]
    return Waiting(table=table, count=len(events), first_ts=min(times, default=None), last_ts=max(times, default=None))


def _new_events(connection: Connection, since: Position, through: Position) -> dict[evidence.TableKey, list[NewEvent]] | None:
    """The new events by table; None when there are too many to look at one by one."""
    query = (
        sa.select(
            dce_table.c.cluster, dce_table.c.name, dce_event.c.tx_id, dce_event.c.seq, dce_event.c.event_ts, dce_event.c.tags,
            dce_event.c.amends_seq, sa.case((is_data, 1), else_=0).label("is_data"),
        )
        .join(dce_table, dce_table.c.table_id == dce_event.c.table_id)
        .where(is_after(since), is_through(through))
        .limit(DELTA + 1)
    )  # fmt: skip
    rows = connection.execute(query).all()
    if len(rows) > DELTA:
        return None
    versions = _versions(connection, sorted({row.amends_seq for row in rows if row.amends_seq is not None}))
    new: dict[evidence.TableKey, list[NewEvent]] = {}
    for row in rows:
        before = [tags for seq, tags in versions.get(row.amends_seq, ()) if seq < row.seq]
        event = NewEvent(Position(row.tx_id, row.seq), row.event_ts, Tags(row.tags), bool(row.is_data), before)
        new.setdefault((row.cluster, row.name), []).append(event)
    return new


def _versions(connection: Connection, firsts: Sequence[int]) -> dict[int, list[tuple[int, Tags]]]:
    """All versions of amended events, folded ones too, by the number of the first."""
    found: dict[int, list[tuple[int, Tags]]] = {}
    for chunk in slices(firsts, evidence.CHUNK):
        one_of = sa.or_(among(connection, dce_event.c.seq, chunk), among(connection, dce_event.c.amends_seq, chunk))
        for row in connection.execute(sa.select(dce_event.c.seq, dce_event.c.amends_seq, dce_event.c.tags).where(one_of)):
            found.setdefault(row.amends_seq or row.seq, []).append((row.seq, Tags(row.tags)))
        for kept in FOLDED_VERSIONS:
            query = sa.select(kept.c.seq, kept.c.tags).where(among(connection, kept.c.seq, chunk), kept.c.tags.is_not(None))
            for row in connection.execute(query):
                found.setdefault(row.seq, []).append((row.seq, Tags(row.tags)))
    return found


def _dirty_tables(connection: Connection, since: Position, through: Position) -> list[evidence.TableKey]:
    query = sa.select(dce_table.c.cluster, dce_table.c.name).join(dce_event, dce_table.c.table_id == dce_event.c.table_id)
    return [(row.cluster, row.name) for row in connection.execute(query.where(is_after(since), is_through(through)).distinct())]


def _counted(connection: Connection, flows: Sequence[tuple[Flow, Position]], through: Position) -> dict[str, list[Waiting]]:
    """Per flow and table what waits after the flow's place, counted by one statement for all of them."""
    ids = evidence.table_ids(connection, list({(flow.cluster, table) for flow, _ in flows for table in flow.trigger.tables}))
    asked: list[tuple[int, Position, Tags]] = []
    places: dict[tuple[str, str], int] = {}
    for flow, place in flows:
        for table in flow.trigger.tables:
            if (flow.cluster, table) in ids:
                places[flow.name, table] = len(asked)
                asked.append((ids[flow.cluster, table][0], place, flow.trigger.tags))
    rows: dict[int, list[sa.Row[Any]]] = {}
    for start, event in itertools.product(range(0, len(asked), evidence.CHUNK), HISTORY):
        for row in connection.execute(_counting(connection, event, asked[start : start + evidence.CHUNK], through)):
            rows.setdefault(start + row.number, []).append(row)
    found: dict[str, list[Waiting]] = {}
    for flow, _ in flows:
        for table in flow.trigger.tables:
            found.setdefault(flow.name, []).append(evidence.waiting_of(table, rows.get(places.get((flow.name, table), -1), ())))
    return found


def _counting(
    connection: Connection, event: sa.FromClause, asked: Sequence[tuple[int, Position, Tags]], through: Position
) -> sa.Select[Any]:
    """Events, or folded ones, after each asked place, by the number of the question."""
    numbered = list(enumerate(asked))
    if connection.dialect.name == "postgresql":
        columns = zip(*((number, table, place.tx_id, place.seq, dict(tags)) for number, (table, place, tags) in numbered), strict=True)
        kinds = (sa.Integer, sa.BigInteger, sa.BigInteger, sa.BigInteger, JSONB)
        arrays = [sa.bindparam(None, list(values), type_=ARRAY(kind)) for values, kind in zip(columns, kinds, strict=True)]
        names = [sa.column(name, kind) for name, kind in zip(("number", "table_id", "tx", "seq", "tags"), kinds, strict=True)]
        q = sa.func.unnest(*arrays).table_valued(*names).render_derived(name="asked").c
        carries = partial(_contains, q.tags)
        tagged = q.tags != sa.cast(sa.literal("{}"), JSONB)
        number, table_id, tx, seq = q.number, q.table_id, q.tx, q.seq
    else:
        wire = json.dumps([[number, table, place.tx_id, place.seq, dict(tags)] for number, (table, place, tags) in numbered])
        value = sa.func.json_each(wire).table_valued("value", name="asked").c.value
        number, table_id, tx, seq = (sa.func.json_extract(value, f"$[{index}]") for index in range(4))
        tags = sa.func.json_extract(value, "$[4]")
        carries = partial(_has_all, tags)
        tagged = tags != "{}"
    matches = sa.case((tagged, for_the_first_time(carries, event)), else_=changes_data(event))
    return (
        sa.select(number.label("number"), *evidence.counted(event, matches))
        .where(event.c.table_id == table_id, sa.tuple_(event.c.tx_id, event.c.seq) > sa.tuple_(tx, seq), is_through(through, event))
        .group_by(number)
    )


def _contains(tags: sa.ColumnElement[Any], event: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether an event has all tags of a JSON map, on PostgreSQL."""
    return sa.cast(event.c.tags, JSONB).contains(tags)


def _has_all(tags: sa.ColumnElement[Any], event: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether an event has all tags of a JSON map, on SQLite."""
    wanted = sa.func.json_each(tags).table_valued("key", "value", name="wanted")
    given = sa.func.json_each(event.c.tags).table_valued("key", "value", name="given")
    is_given = sa.select(1).select_from(given).where(given.c.key == wanted.c.key, given.c.value == wanted.c.value)
    missing = sa.select(1).select_from(wanted).where(~sa.exists(is_given.correlate(wanted)))
    return ~sa.exists(missing)
