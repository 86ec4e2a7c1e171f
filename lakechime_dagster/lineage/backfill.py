"""Backfills: what a change of columns requires to be computed again, as requests, and from what a
person asks.
"""

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.partitions import LevelType, PartitionLevels, canonical_partition
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError
from lakechime_dagster.lineage.answers import ReachedTable, reached_tables, unaffected_tables
from lakechime_dagster.lineage.columns import ColumnRef, Statement
from lakechime_dagster.lineage.network import Certainty, network_of
from lakechime_dagster.lineage.service import is_of_subscription, planned_statements
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import Lake, Table, topological
from lakechime_dagster.tables.tables import LakeTable, RefreshMode, code_digest
from lakechime_dagster.triggers.backfills import Backfills
from lakechime_dagster.triggers.consumers import (
    BackfillRequest,
    RequestState,
    Span,
    first_day_after,
)
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionKey, PartitionTrigger


@dataclass(frozen=True, kw_only=True)
class TableToRecompute:
    """A table that is to be computed again.

    Attributes:
        inputs: The inputs by which it is affected; none for a table whose own columns were named.
        waits_for: The inputs that are computed again before it.
        is_sure: Its lineage is known; one of which it is not counts as affected.
        why: In words.
    """

    table: str
    inputs: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    is_sure: bool = True
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """The affected tables, inputs before their readers, and for each other table downstream why it
    is unaffected.
    """

    tables: Mapping[str, TableToRecompute] = field(default_factory=dict)
    unaffected: Mapping[str, str] = field(default_factory=dict)


def rerun(
    graph: Mapping[str, Sequence[str]],
    statements: Iterable[Statement],
    columns: Collection[ColumnRef],
    *,
    planned: Iterable[Statement] = (),
    leave_out: Collection[str] = (),
) -> Rerun:
    """What follows from a change of columns, or of all of a table where a column is None.

    Args:
        graph: The inputs of each table; one without inputs is written externally, and is not
            computed.
        statements: What runs recorded of how tables are written; of one of which nothing is known,
            its inputs may lead to all of it.
        columns: What changed; a column of a computed table is to be computed there first.
        planned: What is known of those that no run recorded.
        leave_out: Tables that a person wants to leave as they are, so that nothing is affected
            through them.
    """
    declared = [
        *planned,
        *(
            Statement(target=table, inputs=tuple(inputs))
            for table, inputs in graph.items()
            if inputs
        ),
    ]
    network = network_of(_but(statements, leave_out), _but(declared, leave_out), columns=columns)
    found = reached_tables(network, columns)
    reached = {one.table: one for one in found.tables}
    changed = {ref.table for ref in columns}
    chosen: dict[str, TableToRecompute] = {}
    for table in topological(graph):
        before = tuple(name for name in dict.fromkeys(graph[table]) if name in chosen)
        if table in changed and graph[table] and table not in leave_out:
            named = ", ".join(sorted(str(ref) for ref in columns if ref.table == table))
            chosen[table] = TableToRecompute(
                table=table, waits_for=before, why=f"{named} is computed here"
            )
        elif table in reached and table not in changed:
            through = tuple(
                name for name in dict.fromkeys(graph[table]) if name in changed or name in chosen
            )
            wanted = reached[table]
            chosen[table] = TableToRecompute(
                table=table,
                inputs=through,
                waits_for=before,
                is_sure=wanted.certainty < Certainty.UNSURE,
                why=_why(wanted),
            )
    unaffected = {
        one.table: one.reason
        for one in unaffected_tables(network, columns, found)
        if one.table in graph
    }
    return Rerun(
        tables=chosen,
        unaffected=unaffected
        | dict.fromkeys(graph.keys() & set(leave_out), "left out, as was asked"),
    )


def _but(statements: Iterable[Statement], leave_out: Collection[str]) -> list[Statement]:
    return [one for one in statements if one.target not in leave_out]


def _why(wanted: ReachedTable) -> str:
    """The last edge of the path by which a table is affected."""
    if not wanted.path:
        return ""
    edge = wanted.path[-1]
    what = "which rows there are" if edge.target.column is None else edge.target.column
    doubt = "unsure: " if wanted.certainty >= Certainty.UNSURE else ""
    return f"{doubt}{what} comes from {edge.source} ({', '.join(edge.kinds)})"


@dataclass(frozen=True, kw_only=True)
class Window:
    """From `since`, included, to `until`, excluded: ISO dates or times as the tables write them,
    None for no bound.

    `column` is the one by which rows are of a day. A day of which a part is within the window is.

    Raises:
        InvalidValueError: a bound that is none, or bounds with nothing between.
    """

    since: str | None = None
    until: str | None = None
    column: str | None = None

    def __post_init__(self) -> None:
        since, until = _bound("since", self.since), _bound("until", self.until)
        if since is not None and until is not None and since >= until:
            raise InvalidValueError(
                "until",
                self.until,
                f"is not after since ({self.since}); a window ends where nothing of it is left",
            )

    @property
    def is_bounded(self) -> bool:
        return self.since is not None or self.until is not None

    def span(self, tables: tuple[str, ...]) -> Span:
        """The rows of tables that are within."""
        return Span(
            tables=tables,
            column=self.column if self.is_bounded else None,
            since=self.since,
            until=self.until,
        )

    def describe(self) -> str:
        """In words, as the end of a sentence."""
        bounds = [
            f"{name} {bound}"
            for name, bound in (("from", self.since), ("to before", self.until))
            if bound is not None
        ]
        return f"{self.column or 'all rows'} {' '.join(bounds)}".strip() if bounds else "all rows"

    def holds(self, canonical: str, levels: PartitionLevels) -> bool | None:
        """Whether a partition, by its canonical text, is within; None where it has no level of
        time.
        """
        if not self.is_bounded:
            return True
        at = next(
            (
                at
                for at, kind in enumerate(levels.types)
                if kind in (LevelType.DATE, LevelType.TIMESTAMP)
            ),
            None,
        )
        moment = None if at is None else _moment(json.loads(canonical)[at])
        if at is None or moment is None:
            return None
        since, until = _bound("since", self.since), _bound("until", self.until)
        if levels.types[at] is LevelType.DATE:
            since = since and dt.datetime.combine(since.date(), dt.time())
            until = until and dt.datetime.combine(first_day_after(until), dt.time())
        return (since is None or moment >= since) and (until is None or moment < until)


def time_level(levels: PartitionLevels) -> str | None:
    """The name of the first level that is a day or a time."""
    named = zip(levels.names, levels.types, strict=True)
    return next(
        (name for name, kind in named if kind in (LevelType.DATE, LevelType.TIMESTAMP)), None
    )


def _bound(name: str, text: str | None) -> dt.datetime | None:
    try:
        moment = None if text is None else datetime_of_iso(text)
    except ValueError:
        moment = dt.datetime.max.replace(tzinfo=dt.timezone.utc)
    if moment is not None and moment.tzinfo is not None:
        raise InvalidValueError(
            name,
            text,
            "is neither a date nor a time without a zone; write such as 2013-01-02 or "
            "2013-01-02T06:00",
        )
    return moment


def _moment(value: object) -> dt.datetime | None:
    """A canonical value of a partition as a moment without a zone, of UTC where it has one; None
    for what is none.
    """
    try:
        moment = datetime_of_iso(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return (
        moment.astimezone(dt.timezone.utc).replace(tzinfo=None)
        if moment is not None and moment.tzinfo is not None
        else moment
    )


@dataclass
class AffectedPartitions:
    """Affected partitions, as far as they are known so far.

    `known` are canonical partitions by table: of what changed those that were given, of a table
    that was looked at those that its keys make. Of other tables the window says whether a partition
    is affected, by its day or time; of `unknown` ones it is unknown, as their keys stand for no
    partitions, such as one of a week of days.
    """

    window: Window
    levels: Mapping[str, PartitionLevels]
    known: dict[str, frozenset[str]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def keys(
        self,
        table: str,
        subscription: Subscription,
        inputs: Sequence[str],
        keys: Sequence[PartitionKey],
    ) -> list[PartitionKey]:
        """Those of a table's keys that are affected through these inputs; without inputs those
        whose own partition is within the window.
        """
        within = [key for key in keys if self._is_affected(subscription, key, inputs)]
        made = [made_by(subscription, key) for key in within]
        if None in made:
            self.unknown.add(table)
        else:
            self.known[table] = frozenset(one for one in made if one is not None)
        return within

    def is_untouched(self, table: str, inputs: Sequence[str]) -> bool:
        """Whether nothing of any of the inputs is affected, so that nothing of the table is
        either.
        """
        if not inputs or any(self.known.get(one) != frozenset() for one in inputs):
            return False
        self.known[table] = frozenset()
        return True

    def _is_affected(
        self, subscription: Subscription, key: PartitionKey, inputs: Sequence[str]
    ) -> bool:
        """A key is affected by its partitions of what is affected, else by any of its; one that
        names no day or time is.
        """
        own = made_by(subscription, key) if not inputs else None
        if own is not None:
            return self.window.holds(own, subscription.target_levels) is not False
        atoms = [atom for atom in key.atoms if atom.table in inputs] or list(key.atoms)
        held = [self._holds(atom.table, atom.canonical) for atom in atoms]
        return any(held) or all(one is None for one in held)

    def _holds(self, table: str, canonical: str) -> bool | None:
        if table in self.known:
            return canonical in self.known[table]
        if table in self.unknown and self.window.is_bounded:
            return None
        return self.window.holds(canonical, self.levels.get(table, PartitionLevels()))


def made_by(subscription: Subscription, key: PartitionKey) -> str | None:
    """The canonical partition that a key makes, None where it stands for none."""
    partition = subscription.partition_of(key)
    return None if partition is None else canonical_partition(partition, subscription.target_levels)  # pyright: ignore[reportArgumentType]


def untouched(inputs: Sequence[str]) -> str:
    """Why a table is unaffected of whose inputs nothing is affected, in words."""
    return f"no partition of {', '.join(inputs)} is affected"


@dataclass(frozen=True, kw_only=True)
class ConsumerFact:
    """What the ledger says of a consumer: whether there is something of it to do again, and why it
    may not claim, "" where it may.
    """

    has_run: bool
    blocked: str = ""


@dataclass(frozen=True, kw_only=True)
class SubscriptionFacts:
    """A subscription's consumers by key, the keys of its grid up to now and those that come next,
    and which of these are complete and fire next.
    """

    subscription: Subscription
    consumers: Mapping[str, ConsumerFact]
    keys: Sequence[PartitionKey] = ()
    upcoming: Sequence[PartitionKey] = ()
    ready: frozenset[str] = frozenset()


@dataclass(kw_only=True)
class RequestPlan:
    """What a backfill would request.

    Attributes:
        later: Requests of keys that have not fired, as not all of their partitions exist: they fire
            after what they read is done.
        partitions: By the number of a request what it is of, in words.
        blocked: Consumers that wait for a person, for which all that reads them waits, with why.
        pending: By table, what of it is not requested as it has not run yet: it runs by itself,
            with what exists then.
        unaffected: By table that reads what is affected, why nothing of it is.
        refused: By table, why it cannot be recomputed, with the remedy.
    """

    requests: list[BackfillRequest] = field(default_factory=list)
    later: list[BackfillRequest] = field(default_factory=list)
    partitions: dict[int, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    unaffected: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def plan_requests(
    lake: Lake, found: Rerun, facts: Callable[[str], SubscriptionFacts], window: Window
) -> RequestPlan:
    """The requests of the affected tables, inputs first."""
    planning = _Planning(window, AffectedPartitions(window, lake.levels), RequestPlan())
    for table, wanted in found.tables.items():
        declared = lake.table(table)
        if planning.affected_partitions.is_untouched(table, wanted.inputs):
            planning.plan.unaffected[table] = untouched(wanted.inputs)
        elif reason := refusal(declared):
            planning.plan.refused[table] = reason
        else:
            assert isinstance(declared, LakeTable)
            planning.add(declared, wanted, facts(table))
    return planning.plan


def refusal(table: Table) -> str:
    """Why a table cannot be computed again in part, with the remedy; empty where it can."""
    if not isinstance(table, LakeTable):
        return (
            "is made of messages; `lakechime cdc --help` and `lakechime schema --help` show how "
            "these are read again"
        )
    remedy = (
        f"rebuild it by `lakechime trigger seek {table.name} --to beginning`, or leave it out by "
        f"--except"
    )
    if table.refresh is RefreshMode.ROWS and not table.keys:
        return f"appends, so that its rows would be there twice; give it keys=, {remedy}"
    return ""


@dataclass
class _Planning:
    window: Window
    affected_partitions: AffectedPartitions
    plan: RequestPlan
    # by table: numbers, with the partition that each makes
    _of: dict[str, list[tuple[int, str | None]]] = field(default_factory=dict)

    def add(self, table: LakeTable, wanted: TableToRecompute, facts: SubscriptionFacts) -> None:
        if not facts.subscription.is_partitioned:
            self._add_consumer(table, wanted, facts, None)
            return
        keys = self.affected_partitions.keys(
            table.name, facts.subscription, wanted.inputs, (*facts.keys, *facts.upcoming)
        )
        upcoming = {key.text for key in facts.upcoming}
        within = [key for key in keys if key.text not in upcoming]
        ordered = [
            key
            for key in within
            if facts.consumers.get(key.text, NEVER_RAN).has_run or key.text in facts.ready
        ]
        for key in ordered:
            self._add_consumer(table, wanted, facts, key)
        names = {key.text for key in ordered}
        left = [key for key in within if key.text not in names]
        for key in (*left, *keys[len(within) :]):
            self._add_later(facts.subscription, wanted, key)
        if left:
            self.plan.pending[table.name] = (
                f"{len(left)} of its keys did not fire yet, and fire by themselves when they are "
                f"complete"
            )

    def _add_later(
        self, subscription: Subscription, wanted: TableToRecompute, key: PartitionKey
    ) -> None:
        """Let a key that is not complete wait for the requests of what it reads, if there are any:
        it may ignore what comes late.
        """
        if awaited := self._awaited(wanted.waits_for, key):
            number = len(self.plan.requests) + len(self.plan.later)
            self.plan.later.append(
                BackfillRequest(
                    number=number,
                    subscription=subscription.name,
                    key=key.text,
                    waits_for=awaited,
                    why=wanted.why,
                    state=RequestState.LATER,
                )
            )

    def _add_consumer(
        self,
        table: LakeTable,
        wanted: TableToRecompute,
        facts: SubscriptionFacts,
        key: PartitionKey | None,
    ) -> None:
        text = key.text if key is not None else ""
        consumer = facts.consumers.get(text, NEVER_RAN)
        if key is None and not consumer.has_run:
            self.plan.pending[table.name] = "has not run yet: its first run reads all"
            return
        number = len(self.plan.requests) + len(self.plan.later)
        partition = facts.subscription.partition_of(key) if key is not None else None
        is_whole = table.refresh is RefreshMode.FULL or (
            table.refresh is RefreshMode.PARTITIONS and partition is not None
        )
        self.plan.requests.append(
            BackfillRequest(
                number=number,
                subscription=facts.subscription.name,
                key=text,
                waits_for=self._awaited(wanted.waits_for, key),
                span=None if is_whole else self.window.span(wanted.inputs or table.inputs),
                why=wanted.why,
            )
        )
        self.plan.partitions[number] = (
            facts.subscription.dagster_key(key) or text
            if key is not None
            else self._described(table)
        )
        self._of.setdefault(table.name, []).append(
            (number, None if key is None else made_by(facts.subscription, key))
        )
        if table.trigger is None:
            self.plan.blocked[table.name] = "nobody launches it by itself; launch it in Dagster"
        elif consumer.blocked:
            self.plan.blocked[f"{table.name} {text}".strip()] = consumer.blocked

    def _described(self, table: LakeTable) -> str:
        if table.refresh is RefreshMode.FULL:
            return "all of it"
        return f"by {table.refresh}, {self.window.describe()}"

    def _awaited(self, inputs: Sequence[str], key: PartitionKey | None) -> tuple[int, ...]:
        """The requests of the inputs; for a partition key those of an input's partitions alone that
        it waits for, where it names them.
        """
        found: list[int] = []
        for table in inputs:
            named = (
                {atom.canonical for atom in key.atoms if atom.table == table}
                if key is not None
                else set()
            )
            found += [
                number
                for number, made in self._of.get(table, ())
                if made is None or not named or made in named
            ]
        return tuple(found)


NEVER_RAN = ConsumerFact(has_run=False)


# keys of the time to come that wait for what a backfill requests of their inputs
AHEAD = dt.timedelta(days=7)
MAX_AHEAD = 1_000


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person asks for: columns that changed; tables to be left as they are; days."""

    columns: tuple[ColumnRef, ...] = ()
    leave_out: tuple[str, ...] = ()
    window: Window = field(default_factory=Window)

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": [str(ref) for ref in self.columns],
            "except": list(self.leave_out),
            "since": self.window.since,
            "until": self.window.until,
            "time_column": self.window.column,
        }


@dataclass(frozen=True, kw_only=True)
class BackfillPlan:
    """What is asked for, what follows from it, and `everything`: what it would be to run all that
    is downstream.
    """

    asked: Asked
    found: Rerun
    requests: RequestPlan
    everything: RequestPlan


def plan(
    platform: Platform, lake: Lake, subscriptions: Mapping[str, Subscription], asked: Asked
) -> BackfillPlan:
    """What a backfill would run; nothing is written.

    Raises:
        InvalidValueError: nothing is asked for, or it is not known by which column rows are of a
            day.
    """
    if not asked.columns:
        raise InvalidValueError("columns", "none", "say which columns changed")
    asked = replace(asked, window=with_time_column(lake, asked))
    found = affected_readers(platform, lake, asked)
    facts = cache(lambda table: _facts(platform, subscriptions[table]))
    everything = rerun(lake.graph(), (), asked.columns)
    return BackfillPlan(
        asked=asked,
        found=found,
        requests=plan_requests(lake, found, facts, asked.window),
        everything=plan_requests(lake, everything, facts, asked.window),
    )


def run(platform: Platform, planned: BackfillPlan, by: By, *, max_in_flight: int) -> str:
    """Write the requests of a plan, and give the id of the backfill; the sensors launch its runs.

    Raises:
        LakeChimeError: an affected table cannot be recomputed.
        NotFoundError: there is nothing to run.
    """
    if planned.requests.refused:
        table, reason = next(iter(planned.requests.refused.items()))
        raise LakeChimeError(f"{table} {reason}; nothing was ordered")
    if not planned.requests.requests:
        raise NotFoundError("nothing is to be run; `lakechime backfill run --dry-run` says why")
    return Backfills(platform.ledger).request(
        (*planned.requests.requests, *planned.requests.later),
        planned.asked.to_json(),
        by,
        max_in_flight=max_in_flight,
    )


def with_time_column(lake: Lake, asked: Asked) -> Window:
    """The window with the column by which rows are of a day: that of the first table upstream that
    is partitioned by time.
    """
    window = asked.window
    if window.column is not None or not window.is_bounded:
        return window
    graph = lake.graph()
    queue = [ref.table for ref in asked.columns]
    for table in queue:  # which grows meanwhile
        if (name := time_level(lake.levels.get(table, PartitionLevels()))) is not None:
            return replace(window, column=name)
        queue += [one for one in graph.get(table, ()) if one not in queue]
    remedy = (
        "no table upstream is partitioned by a date or time; give --time-column, or leave out "
        "--since and --until"
    )
    raise InvalidValueError("time column", "none", remedy)


def affected_readers(platform: Platform, lake: Lake, asked: Asked) -> Rerun:
    """The tables that the columns of a question affect, by the code of now."""
    planned = planned_statements(lake).values()
    return rerun(
        lake.graph(),
        _statements(platform, lake),
        asked.columns,
        planned=planned,
        leave_out=asked.leave_out,
    )


def _statements(platform: Platform, lake: Lake) -> list[Statement]:
    """What runs recorded of how tables are written, and of those that older code wrote last what
    the manifest plans by the code of now.

    Where it plans nothing, the table may read all that it is declared to read, as the code of now
    may read other columns. So may one of which no subscription of the lake has a record, whatever
    others that write it have.
    """
    tables, found, planned = (
        {table.name: table for table in lake.computed},
        [],
        planned_statements(lake),
    )
    standings = LineageStandings(platform.store.engine).all()
    own = {one.statement.target for one in standings if is_of_subscription(platform, lake, one)}
    for name in {one.statement.target for one in standings} & tables.keys() - own:
        found.append(
            planned.get(name)
            or Statement(
                target=name,
                inputs=tables[name].inputs,
                unknown=("no run of its subscription is recorded yet",),
            )
        )
    for standing in standings:
        table = tables.get(standing.statement.target)
        is_older = (
            table is not None
            and is_of_subscription(platform, lake, standing)
            and standing.code not in (None, code_digest(table))
        )
        if table is not None and is_older:
            found.append(planned.get(table.name) or _of_older_code(table))
        found.append(standing.statement)  # also of older code, whose rows are there
    return found


def _of_older_code(table: LakeTable) -> Statement:
    return Statement(
        target=table.name,
        inputs=table.inputs,
        unknown=("its code is another than that of the newest run",),
    )


def _facts(platform: Platform, subscription: Subscription) -> SubscriptionFacts:
    row = platform.ledger.subscription(subscription.name)
    consumers = platform.ledger.consumers(row) if row is not None else {}
    facts = {
        key: ConsumerFact(
            has_run=consumer.fired if subscription.is_partitioned else consumer.completed > 0,
            blocked=(row.blocked_sentence if row is not None else "")
            or consumer.blocked_sentence(subscription.name),
        )
        for key, consumer in consumers.items()
    }
    if not isinstance(subscription.trigger, PartitionTrigger):
        return SubscriptionFacts(subscription=subscription, consumers=facts)
    now = from_milliseconds(platform.store.now())
    keys = subscription.trigger.keys(now)
    upcoming = subscription.trigger.keys(now + AHEAD)[len(keys) :][:MAX_AHEAD]
    pending = [key for key in keys if not facts.get(key.text, ConsumerFact(has_run=False)).has_run]
    ready = platform.evaluator.ready(subscription, row, pending) if row is not None else []
    return SubscriptionFacts(
        subscription=subscription,
        consumers=facts,
        keys=keys,
        upcoming=upcoming,
        ready=frozenset(key.text for key in ready),
    )
