"""From the tables that are hit to an order for each lane: which fire keys need the window, what each waits for, what cannot be ordered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakechime_dagster.lake.lake import Lake, Table
from lakechime_dagster.lake.tables import LakeTable, RefreshMode
from lakechime_dagster.lineage.backfill.partitions import HitPartitions, made_by, untouched
from lakechime_dagster.lineage.backfill.rerun import Rerun, TableHit
from lakechime_dagster.lineage.backfill.window import Window
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.model import FireKey, SnapshotTrigger
from lakechime_dagster.triggers.orders import Order, OrderState


@dataclass(frozen=True, kw_only=True)
class LaneFact:
    """What the ledger says of a lane: whether there is something of it to do again, and why it may not claim, "" where it may."""

    has_run: bool
    blocked: str = ""


@dataclass(frozen=True, kw_only=True)
class FlowFacts:
    """A flow's lanes by key, the keys of its grid up to now and those that come next, and which of these are complete and fire next."""

    flow: Flow
    lanes: Mapping[str, LaneFact]
    keys: Sequence[FireKey] = ()
    upcoming: Sequence[FireKey] = ()
    ready: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class OrderPlan:
    """What a backfill would order.

    Attributes:
        later: Orders of keys that have not fired, as not all of their partitions are there: they fire after what they read is done.
        held: Lanes that wait for a person, which hold back all that reads them, with why.
        pending: By table, what of it is not ordered as it has not run yet: it runs by itself, with what is there then.
        spared: By table that reads what is hit, why nothing of it is.
        refused: By table, why it cannot be ordered, with the remedy.
    """

    orders: tuple[Order, ...] = ()
    later: tuple[Order, ...] = ()
    partitions: Mapping[int, str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    pending: Mapping[str, str] = field(default_factory=dict)
    spared: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def plan_orders(lake: Lake, found: Rerun, facts: Callable[[str], FlowFacts], window: Window) -> OrderPlan:
    """The orders of the tables that are hit, inputs first."""
    planning = _Planning(lake, window, HitPartitions(window, lake.levels))
    for table, hit in found.hits.items():
        declared = lake.table(table)
        if planning.partitions_hit.is_untouched(table, hit.inputs):
            planning.spared[table] = untouched(hit.inputs)
        elif reason := refusal(declared):
            planning.refused[table] = reason
        else:
            assert isinstance(declared, LakeTable)
            planning.add(declared, hit, facts(table))
    return OrderPlan(
        orders=tuple(planning.orders), later=tuple(planning.later), partitions=planning.partitions, held=planning.held,
        pending=planning.pending, spared=planning.spared, refused=planning.refused,
    )  # fmt: skip


def refusal(table: Table) -> str:
    """Why a table cannot be computed again in part, with the remedy; empty where it can."""
    if not isinstance(table, LakeTable):
        return "is made of messages; `lakechime cdc --help` and `lakechime schema --help` tell how these are read again"
    anew = f"make it anew by `lakechime trigger seek {table.name} --to beginning`, or leave it out by --except"
    if table.refresh is RefreshMode.ROWS and not table.keys:
        return f"appends, so that its rows would be there twice; give it keys=, {anew}"
    if isinstance(table.trigger, SnapshotTrigger) and table.trigger.only_matching:
        return f"takes the rows of matching commits alone, whichever days they are of; {anew}"
    return ""


@dataclass
class _Planning:
    lake: Lake
    window: Window
    partitions_hit: HitPartitions
    orders: list[Order] = field(default_factory=list)
    later: list[Order] = field(default_factory=list)
    partitions: dict[int, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    spared: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _of: dict[str, list[tuple[int, str | None]]] = field(default_factory=dict)  # by table: numbers, with the partition that each makes

    def add(self, table: LakeTable, hit: TableHit, facts: FlowFacts) -> None:
        if not facts.flow.is_partitioned:
            self._add_lane(table, hit, facts, None)
            return
        keys = self.partitions_hit.keys(table.name, facts.flow, hit.inputs, (*facts.keys, *facts.upcoming))
        upcoming = {key.text for key in facts.upcoming}
        within = [key for key in keys if key.text not in upcoming]
        ordered = [key for key in within if facts.lanes.get(key.text, NEVER_RAN).has_run or key.text in facts.ready]
        for key in ordered:
            self._add_lane(table, hit, facts, key)
        names = {key.text for key in ordered}
        left = [key for key in within if key.text not in names]
        for key in (*left, *keys[len(within) :]):
            self._add_later(facts.flow, hit, key)
        if left:
            self.pending[table.name] = f"{len(left)} of its keys did not fire yet, and fire by themselves when they are complete"

    def _add_later(self, flow: Flow, hit: TableHit, key: FireKey) -> None:
        """Let a key that is not complete wait for the orders of what it reads, if there are any: it may ignore what comes late."""
        if awaited := self._awaited(hit.inputs, key):
            number = len(self.orders) + len(self.later)
            self.later.append(Order(number=number, flow=flow.name, key=key.text, waits_for=awaited, why=hit.why, state=OrderState.LATER))

    def _add_lane(self, table: LakeTable, hit: TableHit, facts: FlowFacts, key: FireKey | None) -> None:
        text = key.text if key is not None else ""
        lane = facts.lanes.get(text, NEVER_RAN)
        if key is None and not lane.has_run:
            self.pending[table.name] = "has not run yet: its first run reads all"
            return
        number = len(self.orders) + len(self.later)
        partition = facts.flow.partition_of(key) if key is not None else None
        is_whole = table.refresh is RefreshMode.FULL or (table.refresh is RefreshMode.PARTITIONS and partition is not None)
        self.orders.append(
            Order(
                number=number,
                flow=facts.flow.name,
                key=text,
                waits_for=self._awaited(hit.inputs, key),
                span=None if is_whole else self.window.span(hit.inputs or table.inputs),
                why=hit.why,
            )
        )
        self.partitions[number] = facts.flow.dagster_key(key) or text if key is not None else self._described(table)
        self._of.setdefault(table.name, []).append((number, None if key is None else made_by(facts.flow, key)))
        if table.trigger is None:
            self.held[table.name] = "nobody launches it by itself; launch it in Dagster"
        elif lane.blocked:
            self.held[f"{table.name} {text}".strip()] = lane.blocked

    def _described(self, table: LakeTable) -> str:
        if table.refresh is RefreshMode.FULL:
            return "all of it"
        return f"by {table.refresh}, {self.window.describe()}"

    def _awaited(self, inputs: Sequence[str], key: FireKey | None) -> tuple[int, ...]:
        """The orders of the inputs; for a fire key those of an input's partitions alone that it waits for, where it names them."""
        found: list[int] = []
        for table in inputs:
            named = {atom.canonical for atom in key.atoms if atom.table == table} if key is not None else set()
            found += [number for number, made in self._of.get(table, ()) if made is None or not named or made in named]
        return tuple(found)


NEVER_RAN = LaneFact(has_run=False)
