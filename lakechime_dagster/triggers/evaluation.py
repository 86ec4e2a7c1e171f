"""Evaluates subscriptions: loads their evidence, decides, and claims what fires."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, now_ms, reading, writing
from lakechime_dagster.dce.events import Position, TableFormat, version_of
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.dce.store import head_within, newest_snapshot, without_snapshot
from lakechime_dagster.errors import InvalidValueError, LaneConflictError
from lakechime_dagster.triggers import evidence, schema
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.consumers import (
    NO_ORDERS,
    Cause,
    Committed,
    Execution,
    ExecutionState,
    LaneId,
    LaneOrders,
    LaneState,
    Place,
)
from lakechime_dagster.triggers.decision import AtomState, Decision, Firing, KeyEvidence, LaneView, decide_partition, decide_snapshot
from lakechime_dagster.triggers.evidence import head_at
from lakechime_dagster.triggers.interventions import Action, PlaceAt
from lakechime_dagster.triggers.ledger import HELD, MAX_ATTEMPTS, Claim, Ledger
from lakechime_dagster.triggers.registry import EXECUTIONS, Attempt, FlowRow, LaneRow, attempt_from, execution_from, lane_from, lanes_of
from lakechime_dagster.triggers.requests import lane_orders
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Flow
from lakechime_dagster.triggers.triggers import FireKey, Late, PartitionTrigger, SnapshotTrigger, StartFrom


@dataclass(frozen=True)
class Moment:
    """The time and head of the store, and a flow as it stands at both."""

    flow: str
    now: int  # milliseconds
    through: Position
    lanes: Mapping[str, LaneRow]
    opened: Mapping[str, Execution]  # by lane
    blocked: str  # why the flow may not fire at all
    orders: Mapping[str, LaneOrders] = field(default_factory=dict)  # by lane

    @property
    def views(self) -> dict[str, LaneView]:
        """What a decision needs of each lane: its place, and whether it is open or may not claim."""
        return {
            key: LaneView(
                place=lane.place,
                settled=lane.settled,
                open=_open_sentence(self.opened[key]) if key in self.opened else "",
                blocked=lane.blocked_sentence(self.flow),
                orders=self.orders.get(key, NO_ORDERS),
            )
            for key, lane in self.lanes.items()
        }


def present(connection: Connection, rows: Sequence[FlowRow]) -> dict[str, Moment]:
    """Flows as they stand now, by the clock of the store."""
    now, through = now_ms(connection), head_within(connection)
    names = {row.flow_id: row.name for row in rows}
    ids = list(names)
    lanes: dict[str, dict[str, LaneRow]] = {row.name: {} for row in rows}
    for lane in connection.execute(sa.select(schema.lane).where(among(connection, schema.lane.c.flow_id, ids))):
        lanes[names[lane.flow_id]][lane.key] = lane_from(lane)
    opened: dict[str, dict[str, Execution]] = {row.name: {} for row in rows}
    is_open = schema.execution.c.state == ExecutionState.OPEN.value
    for execution in map(execution_from, connection.execute(EXECUTIONS.where(among(connection, schema.lane.c.flow_id, ids), is_open))):
        opened[execution.lane.flow][execution.lane.key] = execution
    orders: dict[str, dict[str, LaneOrders]] = {row.name: {} for row in rows}
    for (flow_id, key), order in lane_orders(connection, ids).items():
        orders[names[flow_id]][key] = order
    return {
        row.name: Moment(
            flow=row.name,
            now=now,
            through=through,
            lanes=lanes[row.name],
            opened=opened[row.name],
            blocked=row.blocked_sentence,
            orders=orders[row.name],
        )
        for row in rows
    }


def past(connection: Connection, row: FlowRow, at_ms: int) -> Moment:
    """A past time in milliseconds, as far as it is kept."""
    return Moment(
        flow=row.name,
        now=at_ms,
        through=head_at(connection, at_ms),
        lanes=lanes_at(connection, row, at_ms),
        opened=_open_at(connection, row, at_ms),
        blocked=_paused_at(connection, row, at_ms),
    )


def _open_sentence(execution: Execution) -> str:
    who = f"run {execution.run_id}" if execution.run_id else "a run that has not begun"
    key = f" for {execution.lane.key}" if execution.lane.key else ""
    return f"step {execution.step}{key} is with {who} (attempt {execution.attempt})"


@dataclass(frozen=True)
class _Move:
    """A lane went from one place to another, by settling a step or by a person."""

    ts: int
    key: str
    before: Place
    after: Place


def _paused_at(connection: Connection, row: FlowRow, at_ms: int) -> str:
    """A sentence when the flow was paused then."""
    query = (
        sa.select(schema.intervention.c.action, schema.intervention.c.reason)
        .where(
            schema.intervention.c.flow_id == row.flow_id,
            schema.intervention.c.ts <= at_ms,
            schema.intervention.c.action.in_([Action.PAUSE.value, Action.RESUME.value]),
        )
        .order_by(schema.intervention.c.intervention_id.desc())
        .limit(1)
    )
    newest = connection.execute(query).one_or_none()
    return f"paused: {newest.reason}" if newest is not None and newest.action == Action.PAUSE.value else ""


def _open_at(connection: Connection, row: FlowRow, at_ms: int) -> dict[str, Execution]:
    """The executions that were open then, by lane, each with the attempt and the run of then."""
    return {execution.lane.key: _as_of(execution, attempt, at_ms) for execution, attempt in _attempted(connection, row, at_ms)}


def lanes_at(connection: Connection, row: FlowRow, at_ms: int) -> dict[str, LaneRow]:
    """The lanes that were there then: their places, whether they had fired, and their states as far as that is kept."""
    attempted = {execution.lane.key: (execution, attempt) for execution, attempt in _attempted(connection, row, at_ms)}
    settlings = list(_settlings(connection, row))
    moves = sorted([*settlings, *_seeks(connection, row)], key=lambda move: move.ts)
    steps = Counter(move.key for move in settlings)
    claims = _last_claims(connection, row, at_ms)
    lanes: dict[str, LaneRow] = {}
    for key, lane in lanes_of(connection, row.flow_id).items():
        if lane.created_ts > at_ms:
            continue
        own = [move for move in moves if move.key == key]
        place = next((move.before for move in own if move.ts > at_ms), lane.place)
        put_back = max((move.ts for move in own if move.ts <= at_ms and move.after.position < move.before.position), default=-1)
        # one rebuilt from its target has settled steps that the ledger lost: it had fired when it was made
        fired_ts = claims.get(key, lane.created_ts if lane.settled > steps[key] else -1)
        state, reason = _state_at(lane, *attempted.get(key, (None, None)), at_ms)
        lanes[key] = replace(lane, place=place, fired=fired_ts > put_back, state=state, state_reason=reason)
    return lanes


def _state_at(lane: LaneRow, execution: Execution | None, attempt: Attempt | None, at_ms: int) -> tuple[LaneState, str]:
    """The state of a lane whose execution was open then at this attempt, with its reason.

    That a lane is STALE, or HELD for another reason than its last attempt, is known of today only.
    """
    is_last_lost = attempt is not None and attempt.number >= MAX_ATTEMPTS and attempt.outcome == "lost"
    if execution is not None and attempt is not None and attempt.ended_ts is not None and attempt.ended_ts <= at_ms:
        if is_last_lost:
            return LaneState.HELD, f"attempt {attempt.number} of step {execution.step} failed: {attempt.error}"
        if attempt.outcome == HELD:
            return LaneState.HELD, attempt.error or ""
    is_same = execution is not None and attempt is not None and execution.settled_ts is None and execution.attempt == attempt.number
    if lane.state is LaneState.STALE or (lane.state is LaneState.HELD and is_same and not is_last_lost):
        return lane.state, f"{lane.state_reason} (so it is now; since when is not kept)"
    return LaneState.ACTIVE, ""


def _as_of(execution: Execution, attempt: Attempt | None, at_ms: int) -> Execution:
    if attempt is None:
        return execution
    has_begun = attempt.begun_ts is not None and attempt.begun_ts <= at_ms
    return replace(execution, attempt=attempt.number, run_id=attempt.run_id if has_begun else None)


def _attempted(connection: Connection, row: FlowRow, at_ms: int) -> Iterator[tuple[Execution, Attempt | None]]:
    """The executions that were open then, each with its newest attempt that was due then."""
    was_open = (
        schema.lane.c.flow_id == row.flow_id,
        schema.execution.c.claimed_ts <= at_ms,
        sa.or_(schema.execution.c.settled_ts.is_(None), schema.execution.c.settled_ts > at_ms),
    )
    of_flow = schema.attempt.join(schema.execution).join(schema.lane)
    query = sa.select(schema.attempt).select_from(of_flow).where(*was_open, schema.attempt.c.due_ts <= at_ms)
    attempts = {attempt.execution_id: attempt_from(attempt) for attempt in connection.execute(query.order_by(schema.attempt.c.number))}
    for execution in map(execution_from, connection.execute(EXECUTIONS.where(*was_open))):
        yield execution, attempts.get(execution.execution_id)


def _settlings(connection: Connection, row: FlowRow) -> Iterator[_Move]:
    query = EXECUTIONS.where(schema.lane.c.flow_id == row.flow_id, schema.execution.c.settled_ts.is_not(None))
    for execution in map(execution_from, connection.execute(query)):
        yield _Move(execution.settled_ts or 0, execution.lane.key, execution.start, execution.end)


def _seeks(connection: Connection, row: FlowRow) -> Iterator[_Move]:
    """Where people put lanes, by `seek` or by `resume` from another place."""
    actions = [Action.SEEK.value, Action.RESUME.value]
    query = sa.select(schema.intervention).where(schema.intervention.c.flow_id == row.flow_id, schema.intervention.c.action.in_(actions))
    for one in connection.execute(query.order_by(schema.intervention.c.intervention_id)):
        if one.action == Action.SEEK.value:
            yield _Move(one.ts, one.lane_key, Place.from_json(one.before["place"]), Place.from_json(one.after["place"]))
            continue
        after = dict(one.after["places"])
        for key, before in one.before["places"]:
            yield _Move(one.ts, key, Place.from_json(before), Place.from_json(after[key]))


def _last_claims(connection: Connection, row: FlowRow, at_ms: int) -> dict[str, int]:
    """When each lane was claimed last, until then."""
    query = (
        sa.select(schema.lane.c.key, sa.func.max(schema.execution.c.claimed_ts).label("claimed"))
        .select_from(schema.execution.join(schema.lane))
        .where(schema.lane.c.flow_id == row.flow_id, schema.execution.c.claimed_ts <= at_ms)
        .group_by(schema.lane.c.key)
    )
    return {row.key: row.claimed for row in connection.execute(query)}


EXPLAINED = 3  # keys of which is told what they lack
AskTarget = Callable[[LaneId], Committed | None]  # the newest commit of a lane in the flow's target
Accepts = Callable[[str], bool]  # whether a partition key can be launched


def any_key(key: str) -> bool:
    """Every partition key can be launched."""
    return True


@dataclass(frozen=True)
class Evaluator:
    """Evaluates flows against the store and claims for them; several may run at once."""

    engine: Engine
    ledger: Ledger

    def activate(self, flow: Flow) -> FlowRow:
        """The flow's row; a new flow starts where its declaration says, which is asked once.

        Raises:
            InvalidValueError: for a new flow that starts from a time that has not come yet.
        """
        return self.ledger.ensure_flow(flow, lambda connection: self._start(connection, flow))

    def start_of(self, flow: Flow) -> Place:
        """Where the flow would start, were it activated now."""
        with reading(self.engine) as connection:
            return self._start(connection, flow)

    def place_at(self, flow: Flow, where: StartFrom) -> PlaceAt:
        """How to find the place of a point in the past, or of now, in the transaction that puts a lane there.

        It raises InvalidValueError for a position or a time that the store has not come to yet.
        """

        def place(connection: Connection, lane: LaneRow) -> Place:
            head = head_within(connection)
            if where.position is not None and where.position > head:
                raise InvalidValueError("position", where.where, f"the store has come to {head} only; give a position up to that, or now")
            _check_past(connection, "time", where)
            return self._place(connection, flow, where)

        return place

    def lanes(self, row: FlowRow, at_ms: int | None = None) -> dict[str, LaneRow]:
        """The lanes of a flow by key, now or as they stood at a past time."""
        with reading(self.engine) as connection:
            return lanes_of(connection, row.flow_id) if at_ms is None else lanes_at(connection, row, at_ms)

    def moment(self, row: FlowRow) -> Moment:
        """The time of the store, and how the flow's lanes stand now."""
        with reading(self.engine) as connection:
            return present(connection, [row])[row.name]

    def evaluate(self, flow: Flow, row: FlowRow, *, at_ms: int | None = None, accepts: Accepts = any_key) -> Decision:
        """Whether the flow fires, now or as it was at a past time (milliseconds), and why."""
        if at_ms is not None:
            row = replace(row, looked=Position.ORIGIN)  # up to where it was looked through since says nothing of then
        with reading(self.engine) as connection:
            moments = present(connection, [row]) if at_ms is None else {row.name: past(connection, row, at_ms)}
            decision = self._decided(connection, [(flow, row)], moments, {flow.name: accepts})[flow.name]
            held_back = evidence.held_back_events(connection) if at_ms is None and not decision.fires else ""
            return replace(decision, reasons=(*decision.reasons, held_back)) if held_back else decision

    def evaluate_all(
        self, connection: Connection, flows: Sequence[tuple[Flow, FlowRow]], accepts: Mapping[str, Accepts]
    ) -> dict[str, Decision]:
        """What `evaluate` says of each flow now, by name: a few statements for all of them. `accepts` is by flow."""
        return self._decided(connection, flows, present(connection, [row for _, row in flows]), accepts)

    def fire(self, flow: Flow, row: FlowRow, decision: Decision, ask_target: AskTarget) -> list[Execution]:
        """Claim what the decision fires. What another daemon claimed first is left out."""
        claimed = []
        for firing in decision.firings:
            execution = self.claim(flow, row, firing, ask_target, cause=Cause.TRIGGER)
            if execution is not None:
                claimed.append(execution)
        return claimed

    def claim(
        self, flow: Flow, row: FlowRow, firing: Firing, ask_target: AskTarget, *, cause: Cause, fired: bool = True
    ) -> Execution | None:
        """Claim one lane's next step, up to the newest position or as much as the flow takes, and the orders that wait for it.

        None when somebody moved the lane first, or an order of its inputs must be done before.
        """
        known = self.ledger.lanes(row).get(firing.key)
        atoms = firing.fire_key.atoms if firing.fire_key else ()
        if known is None:
            committed = ask_target(LaneId(self.ledger.deployment, row.name, firing.key))
            known = self.ledger.ensure_lane(row, firing.key, committed, atoms)
            if committed is not None:
                return None  # the ledger was lost; the next evaluation sees what its target already has
        if firing.settled is not None and known.settled != firing.settled:
            return None  # somebody claimed and settled between the decision and this claim: what it saw is consumed
        waiting = self.orders(row, firing.key)  # before the end is read: what the orders of its inputs made is within it
        if waiting.held_back:
            return None
        knows_all = all(table in known.place.sources for table in flow.trigger.tables)
        end = replace(self.end_of(flow, row, known, flow.max_commits if knows_all else None), feed=firing.feed, has_more=firing.has_more)
        try:
            return self.ledger.claim(
                row,
                known,
                Claim(
                    end=end,
                    cause=cause,
                    reason=firing.reason,
                    partition_key=flow.dagster_key(firing.fire_key) if firing.fire_key else None,
                    fired=fired,
                    atoms=atoms,
                    orders=waiting.ids,
                ),
            )
        except LaneConflictError:
            return None

    def end_of(self, flow: Flow, row: FlowRow, lane: LaneRow, most: int | None = None) -> Place:
        """The place that a claim of this lane ends at, now: the newest position, and per source the snapshot to read up to.

        With `most` it is that after so many commits, where more came.
        """
        with reading(self.engine) as connection:
            through = head_within(connection)
            if most is not None:
                tables = [(flow.cluster, table) for table in flow.trigger.tables]
                through = evidence.through_commits(connection, tables, lane.place.position, through, most)
            # what any lane of the flow has seen already need not be searched again for the newest snapshot
            lanes = [lane, *lanes_of(connection, row.flow_id).values()] if flow.is_partitioned else [lane]
            known = max((one.place for one in lanes), key=lambda place: place.position)
            return Place(position=through, sources=self._sources(connection, flow, known, known.position, through))

    def orders(self, row: FlowRow, key: str) -> LaneOrders:
        """The orders of backfills that wait for a lane."""
        with reading(self.engine) as connection:
            return lane_orders(connection, [row.flow_id], key).get((row.flow_id, key), NO_ORDERS)

    def waits(self, flow: Flow, row: FlowRow, lane: LaneRow, key: FireKey | None) -> bool:
        """Whether something waits for a lane, whatever the pace of its trigger and however many others run."""
        if key is None:
            with reading(self.engine) as connection:
                through = head_within(connection)
                tables = [(flow.cluster, table) for table in flow.trigger.tables]
                questions = [evidence.Question(table, lane.place.position, flow.trigger.tags) for table in tables]
                return any(table.count for table in evidence.waiting_events(connection, questions, through))
        return bool(self.ready(flow, row, [key]))

    def ready(self, flow: Flow, row: FlowRow, keys: Sequence[FireKey]) -> list[FireKey]:
        """Those of the keys for which something waits, as `waits` says: first all that have not fired, then what came late."""
        with reading(self.engine) as connection:
            through = head_within(connection)
            lanes = lanes_of(connection, row.flow_id)
            fired = {key.text: lanes[key.text].place.position for key in keys if key.text in lanes and lanes[key.text].fired}
            late = evidence.late_lanes(connection, row.flow_id, min(fired.values(), default=through), through)
            pending = [key for key in keys if key.text not in fired]
            states = evidence.atom_states(connection, [atom for key in pending for atom in key.atoms], flow.trigger.tags, through)
        complete = [key for key in pending if all(_available(states, atom) for atom in key.atoms)]
        return [*complete, *(key for key in keys if key.text in late)]

    def looked_through(self, row: FlowRow, position: Position) -> None:
        """Remember that nothing up to a position can fire this flow any more, but for what its lanes' places say."""
        self.all_looked_through([row], position)

    def all_looked_through(self, rows: Iterable[FlowRow], position: Position) -> None:
        """Remember the same of many flows, in a statement for those that were looked through up to the same position before."""
        behind: dict[Position, list[int]] = {}
        for row in rows:
            if row.looked < position:
                behind.setdefault(row.looked, []).append(row.flow_id)
        if not behind:
            return
        with writing(self.engine) as connection:
            for looked, flow_ids in behind.items():
                connection.execute(
                    sa.update(schema.flow)
                    .where(
                        among(connection, schema.flow.c.flow_id, flow_ids),
                        schema.flow.c.looked_tx == looked.tx_id,
                        schema.flow.c.looked_seq == looked.seq,  # a seek between evaluation and here starts the search anew
                    )
                    .values(looked_tx=position.tx_id, looked_seq=position.seq)
                )

    def _decided(
        self, connection: Connection, flows: Sequence[tuple[Flow, FlowRow]], moments: Mapping[str, Moment], accepts: Mapping[str, Accepts]
    ) -> dict[str, Decision]:
        found: dict[str, Decision] = {}
        snapshots: list[tuple[str, SnapshotTrigger, LaneView]] = []
        questions: list[evidence.Question] = []
        through = Position.ORIGIN
        for flow, row in flows:
            moment, trigger = moments[flow.name], flow.trigger
            through = moment.through
            if blocked := moment.blocked or _unreadable(connection, flow, moment):
                moment = replace(moment, blocked=blocked)
            if isinstance(trigger, PartitionTrigger):
                found[flow.name] = self._partition(connection, flow, trigger, row, moment, accepts.get(flow.name, any_key))
                continue
            lane = moment.views.get("") or LaneView(place=row.start, orders=moment.orders.get("", NO_ORDERS))
            snapshots.append((flow.name, trigger, replace(lane, blocked=moment.blocked) if moment.blocked else lane))
            since = max(lane.place.position, row.looked)
            questions += [
                evidence.Question((flow.cluster, table), since, trigger.tags, flow.unread.get(table, frozenset()))
                for table in trigger.tables
            ]
        answers = iter(evidence.waiting_events(connection, questions, through))
        for name, trigger, lane in snapshots:
            waiting = [next(answers) for _ in trigger.tables]
            found[name] = decide_snapshot(name, trigger, lane, waiting, now_ms=moments[name].now, through=through)
        return found

    def _partition(
        self, connection: Connection, flow: Flow, trigger: PartitionTrigger, row: FlowRow, moment: Moment, accepts: Accepts
    ) -> Decision:
        through, lanes, views = moment.through, moment.lanes, moment.views
        keys = trigger.keys(from_milliseconds(moment.now))
        pending = [key for key in keys if not (key.text in lanes and lanes[key.text].fired)]
        atoms = [atom for key in pending for atom in key.atoms]
        states = evidence.atom_states(connection, atoms, trigger.tags, through)
        absent = [missing for key in pending if (missing := next((a for a in key.atoms if not _available(states, a)), None))]
        for atom, near in evidence.near_misses(connection, [atom for atom in absent if atom not in states][:EXPLAINED]).items():
            states[atom] = AtomState(available=False, near_miss=near)
        late = evidence.late_lanes(connection, row.flow_id, row.looked, through) if trigger.late is Late.REFIRE else {}
        start = LaneView(place=row.start)
        new = {text: replace(start, orders=orders) for text, orders in moment.orders.items()}  # which have no lane yet
        found = [
            KeyEvidence(
                key=key,
                lane=views.get(key.text) or new.get(key.text, start),
                fired=key.text in lanes and lanes[key.text].fired,
                late_events=late.get(key.text, 0),
                atoms=states,
            )
            for key in keys
        ]
        in_flight = sum(1 for view in views.values() if view.open and not view.blocked)
        return decide_partition(
            row.name,
            trigger,
            found,
            in_flight=in_flight,
            activated_ms=row.activated_ts,
            now_ms=moment.now,
            through=through,
            blocked=moment.blocked,
            accepts=lambda firing: (key := flow.key_of(firing)) is None or accepts(key),
        )

    def _start(self, connection: Connection, flow: Flow) -> Place:
        _check_past(connection, "start_from", flow.trigger.start_from)
        return self._place(connection, flow, flow.trigger.start_from)

    def _place(self, connection: Connection, flow: Flow, where: StartFrom) -> Place:
        """The place before whatever was registered from that point on."""
        head = head_within(connection)
        if where.where == "now":
            position = head
        else:
            position = min(where.position, head) if where.position is not None else evidence.place_before(connection, where.time_ms, head)
        if position == Position.ORIGIN:
            return Place()
        return Place(position=position, sources=self._sources(connection, flow, Place(), Position.ORIGIN, position))

    def _sources(self, connection: Connection, flow: Flow, place: Place, after: Position, through: Position) -> dict[str, SnapshotPlace]:
        """Per source the snapshot to read up to: the newest that the trigger's tags vouch for, else where the lane stands."""
        sources: dict[str, SnapshotPlace] = {}
        for table in flow.pinned:
            stands = place.sources.get(table)
            tags = flow.trigger.tags if table in flow.trigger.tables and isinstance(flow.trigger, SnapshotTrigger) else {}
            since = after if stands is not None else Position.ORIGIN
            found = newest_snapshot(connection, (flow.cluster, table), tags, since, through)
            chosen = stands if found is None else newer(stands, *found)
            if chosen is not None:
                sources[table] = chosen
        return sources


def _check_past(connection: Connection, field: str, where: StartFrom) -> None:
    """Refuse a time that has not come yet by the store's clock: nobody knows the position that will be the newest then."""
    if where.where != "now" and where.position is None and where.time_ms > now_ms(connection):
        raise InvalidValueError(field, where.where, "lies in the future; give `now` or a time that has passed, or wait until it has")


def _available(states: Mapping[Atom, AtomState], atom: Atom) -> bool:
    return atom in states and states[atom].available


def newer(stands: SnapshotPlace | None, found: SnapshotPlace, table_format: TableFormat) -> SnapshotPlace:
    """The later of a lane's place in a table and the snapshot found after it, of this format.

    Another table uid is always later, an older Delta version never is; the ids of other formats say nothing of their
    order, so that what was registered after the place is later.
    """
    if stands is None or (stands.table_uid != found.table_uid and stands.table_uid is not None and found.table_uid is not None):
        return found
    old, new = version_of(stands.snapshot_id), version_of(found.snapshot_id)
    if table_format is TableFormat.DELTA and old is not None and new is not None and new < old:
        return stands
    return found


def _unreadable(connection: Connection, flow: Flow, moment: Moment) -> str:
    """A sentence when the flow reads a table that has no snapshot yet; asked only until some lane has read them all."""
    if any(set(flow.reads) <= set(lane.place.sources) for lane in moment.lanes.values()):
        return ""
    missing = without_snapshot(connection, [(flow.cluster, table) for table in flow.reads], moment.through)
    return f"{missing[0]} has no snapshot yet, and {flow.name} reads it" if missing else ""
