"""Evaluation: load the evidence of one flow, decide, and claim what the decision fires."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.event import TableFormat, version_of
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.errors import InvalidValueError, LaneConflictError
from lakechime_dagster.store import evidence
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.dialect import among, now_ms
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.events import head_within
from lakechime_dagster.store.interventions import PlaceAt
from lakechime_dagster.store.ledger import Claim, Ledger
from lakechime_dagster.store.ledger_rows import FlowRow, LaneRow
from lakechime_dagster.store.moment import Moment, lanes_at, past, present
from lakechime_dagster.store.orders import lane_orders
from lakechime_dagster.store.registry import lanes_of
from lakechime_dagster.store.snapshots import newest_snapshot, without_snapshot
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.decision import AtomState, Decision, Firing, KeyEvidence, LaneView, decide_partition, decide_snapshot
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.grid import from_milliseconds
from lakechime_dagster.triggers.lanes import Cause, Committed, Execution, LaneId, Place
from lakechime_dagster.triggers.model import FireKey, Late, PartitionTrigger, SnapshotTrigger, StartFrom
from lakechime_dagster.triggers.orders import NO_ORDERS, LaneOrders

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
            held_back = evidence.held_back(connection) if at_ms is None and not decision.fires else ""
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
                return any(table.count for table in evidence.waiting(connection, questions, through))
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
        answers = iter(evidence.waiting(connection, questions, through))
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
                key=key, lane=views.get(key.text) or new.get(key.text, start), fired=key.text in lanes and lanes[key.text].fired,
                late_events=late.get(key.text, 0), atoms=states,
            )
            for key in keys
        ]  # fmt: skip
        in_flight = sum(1 for view in views.values() if view.open and not view.blocked)
        return decide_partition(
            row.name, trigger, found, in_flight=in_flight, activated_ms=row.activated_ts, now_ms=moment.now, through=through,
            blocked=moment.blocked, accepts=lambda firing: (key := flow.key_of(firing)) is None or accepts(key),
        )  # fmt: skip

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
