"""Refreshes the typed tables of a group."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import SparkSession

from lakechime_dagster.errors import ConsumerConflictError, LakeChimeError, TableUnreadableError
from lakechime_dagster.silver.replay import TypeRebuilder, TypeReplayer
from lakechime_dagster.silver.results import AT_ONCE, FROZEN, TYPE_CAP, GroupJob, GroupResult, Part, Replay, TypeResult, Verified, planned
from lakechime_dagster.silver.schema import KnownType, Learning, Prototype, SchemaRepository, TypeCheckpoint, kept_of, learned, registered
from lakechime_dagster.silver.slices import (
    NOTHING,
    Ahead,
    Events,
    Seen,
    Slices,
    TypeCount,
    TypeTables,
    counted,
    events_of,
    prototypes,
    seen,
)
from lakechime_dagster.silver.verify import sampled, unread
from lakechime_dagster.silver.write import ToWrite, TypeWriter
from lakechime_dagster.spark.driver import described
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.session import Phases, in_threads
from lakechime_dagster.tables.events import Mode, owner_of, table_of

WRITERS = 4  # tables that are written at a time

Phase = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The types that a step finds.

    Attributes:
        known: All of them, each with the checkpoint that its own table tells.
        ahead: What tables hold beyond what the store knows.
        failed: Why a type cannot be written, as its table could not be asked, or its events not be read.
        waiting: Why a type that is due gets no table.
        counted: Events of those that wait which earlier steps have counted, so that they are not read again.
        unread: Those that failed as nobody can tell what of the stream's table came since.
    """

    known: Mapping[str, KnownType]
    ahead: Mapping[str, Ahead]
    failed: Mapping[str, Exception]
    waiting: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    def without(self, unread: Mapping[str, Exception]) -> "Looked":
        """The same, with more types of which nobody can tell what came."""
        return replace(self, failed={**self.failed, **unread}, unread=frozenset({*self.unread, *unread}))


@dataclass(frozen=True, kw_only=True)
class PartDone:
    """What was done for each type of a part, and what is known of those that have something to be written, or replayed."""

    results: Mapping[str, TypeResult]
    learnt: Mapping[str, ToWrite] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PartStep:
    """What one attempt at a step does with the types of a part."""

    spark: SparkSession
    job: GroupJob
    repository: SchemaRepository
    slices: Slices
    writer: TypeWriter
    looked: Looked

    def done(self, part: Part, phase: Phase) -> PartDone:
        """Do it; a type that cannot be written hinders no other.

        Raises:
            ConsumerConflictError: another attempt has found out something of a type meanwhile.
        """
        with phase("count"):
            events = events_of(self.slices, part)
            counts = {name: count for frame in events.frames for name, count in counted(frame).items()}
            failed = {**self.looked.failed, **events.unread}
        with phase("learn"):
            told = {name: self.looked.known[name] for name in part.starts if name in counts or name in self.job.replays}
            learnt = self._learnt(told, counts, events, part)
        with phase("write"):
            kept = {*self.looked.waiting, *failed}
            writing = [learnt[name] for name in sorted(counts) if name in learnt and name not in kept]
            done = {one.type: one for one in in_threads(self.spark, WRITERS, self.writer.written, writing)}
        rest = {name: self._unwritten(name, part, counts.get(name), failed) for name in part.starts if name not in done}
        results = rest | {name: self._read_on(one, part) for name, one in done.items()}
        return PartDone(results=results, learnt=learnt)

    def done_apart(self, part: Part, phase: Phase) -> PartDone:
        """The same of types that are far behind, of which nothing hinders others: they are tried again."""
        try:
            with described():
                return self.done(part, phase)
        except ConsumerConflictError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types are written by now
            return PartDone(results={name: self.writer.failed(self.looked.known[name], error, None) for name in part.starts})

    def _learnt(self, told: Mapping[str, KnownType], counts: Mapping[str, TypeCount], events: Events, part: Part) -> dict[str, ToWrite]:
        """What the events tell of their types, kept by the store before any table is touched."""
        group, waiting, found = self.job.group, self.looked.waiting, dict[str, list[Prototype]]()
        variations = self.repository.variations(group.name, [name for name in told if name not in waiting])
        unknown = {name: {*counts[name].variations} - {*known} for name, known in variations.items() if name in counts}
        cut = [name for name in unknown if counts[name].is_cut]
        if cut or any(unknown.values()):
            for frame in events.frames:
                found |= prototypes(frame, unknown, part.end, cut)
        learnings: dict[str, Learning] = {
            name: learning
            for name, one in told.items()
            if (learning := registered(one) if name in waiting else learned(one, found.get(name, []), group.contract_of(name)))
        }
        versions = self.repository.learn(group.name, list(learnings.values())) if learnings else {}
        return {
            name: ToWrite(
                type=learnings[name].known_after(one, versions[name]) if name in learnings else one,
                count=counts.get(name, NOTHING),
                variations={**variations.get(name, {}), **kept_of(found.get(name, []))},
                columns_added=learnings[name].columns_added(one) if name in learnings else 0,
                ahead=self.looked.ahead.get(name),
                end=part.end,
            )
            for name, one in told.items()
        }

    def _unwritten(self, name: str, part: Part, count: TypeCount | None, failed: Mapping[str, Exception]) -> TypeResult:
        """A type that is due and of which nothing is written: as it failed or must wait, or nothing came."""
        one, waits = self.looked.known[name], self.looked.waiting.get(name, "")
        if name in failed:
            return self._read_on(self.writer.failed(one, failed[name], count.rows if count is not None else None), part)
        start = self.slices.start(one.checkpoint)
        rows = (count.rows if count is not None else 0) + self.looked.counted.get(name, 0) if waits else 0
        result = TypeResult(
            type=one.type,
            table=one.table,
            home=one.home,
            start=start,
            end=start if waits else part.end,
            rows=rows,
            pending=rows,
            schema_version=one.schema_version,
            waits=waits,
        )
        return self._read_on(self.writer.with_earlier(result, one, self.looked.ahead.get(name)), part)

    def _read_on(self, result: TypeResult, part: Part) -> TypeResult:
        """What was done for a type; one that is not at the end of the step is read on by the next one, and was not counted whole."""
        if part.end == self.slices.version or result.waits:
            return result
        return replace(result, left=None) if result.error else replace(result, due_ts=AT_ONCE)


CATCH_UP = "catch up"  # the phase of all that is done for types that are far behind


@dataclass(frozen=True, kw_only=True)
class GroupStep:
    """One attempt at one step of a group.

    Attributes:
        start: The version of the stream's table up to which the group has read; a type that is new begins there, or with
            the stream where the step looks back.
    """

    spark: SparkSession
    job: GroupJob
    repository: SchemaRepository
    open_log: OpenLog
    now_ms: int
    start: TypeCheckpoint = field(default_factory=TypeCheckpoint)

    @cached_property
    def slices(self) -> Slices:
        """What the stream's table has behind any checkpoint."""
        source = self.job.group.stream.table.name
        return Slices(self.spark, source, self.open_log(self.job.bronze, source), self.job.end)

    @cached_property
    def writer(self) -> TypeWriter:
        """Who writes the tables of types."""
        tables = TypeTables(job=self.job, open_log=self.open_log)
        return TypeWriter(spark=self.spark, slices=self.slices, tables=tables)

    def run(self) -> GroupResult:
        """Do it; again, by whomever, it changes nothing.

        Raises:
            TableUnreadableError: the stream's table cannot be read at all.
            ConsumerConflictError: another attempt has found out something of a type meanwhile.
        """
        phase = Phases(self.spark, self.job.group.name)
        begun = self.slices.start(self.start)
        with phase("look"):
            came, is_all = self._came(begun)
            looked = self._looked(self._types(came.types, TypeCheckpoint() if is_all else self.start))
            rebuilding = self._rebuilding(looked)
            looked = looked.without(self._unread(looked, rebuilding)) if is_all else looked
            plan = planned(self._starts(looked, rebuilding), group=begun, end=self.slices.version, max_catchup=self.job.max_catchup)
            wanted = [plan.shared, *([plan.behind] if plan.behind is not None else [])]
            self.slices.cuts = tuple(sorted({start for part in wanted for start in part.behind.values()}))
        step = PartStep(spark=self.spark, job=self.job, repository=self.repository, slices=self.slices, writer=self.writer, looked=looked)
        parts = [step.done(plan.shared, phase)]
        parts += [] if plan.behind is None else [step.done_apart(plan.behind, lambda _: phase(CATCH_UP))]
        found = {name: one for part in parts for name, one in part.results.items()}
        found |= {name: self._put_off(looked, name) for name in looked.known if name not in found and name not in rebuilding}
        with phase("verify"):
            verified = self._verified(parts)
        with phase("replay"):
            found |= self._replayed(parts, looked, found, rebuilding)
            rebuilder = TypeRebuilder(spark=self.spark, slices=self.slices, writer=self.writer, repository=self.repository)
            found |= {name: rebuilder.rebuilt(looked.known[name], asked, looked.ahead.get(name)) for name, asked in rebuilding.items()}
        types = tuple(found[name] for name in sorted(found))
        return GroupResult(types=types, refused=came.refused, verified=verified, seconds=phase.seconds)

    def _verified(self, parts: Iterable[PartDone]) -> tuple[Verified, ...]:
        """What a few of the rows that this attempt wrote lack of their events; an error here fails no type, whose rows are written."""
        tables = self.writer.tables
        wrote = [
            (part.learnt[name].type, one)
            for part in parts
            for name, one in part.results.items()
            if one.committed is not None and tables.is_own(one.committed) and name in part.learnt
        ]
        try:
            with described():
                return sampled(self.spark, self.slices, tables, wrote, self.slices.version)
        except Exception as error:  # noqa: BLE001 - whatever it is, the rows are written
            return tuple(unread(known, tables, error) for known, _ in wrote)

    def _came(self, begun: int) -> tuple[Seen, bool]:
        """What came since the group read the stream's table; all types that are there, where nobody can tell that by now."""
        try:
            return seen(self.slices.after(begun)), False
        except TableUnreadableError:
            return replace(seen(self.slices.after(-1)), refused={}), True  # each type tells for itself what it cannot read

    def _types(self, came: Collection[str], begin: TypeCheckpoint) -> dict[str, KnownType]:
        """The group's types that the store knows, and those that arrive for the first time.

        Each of these begins where this step does, be it another group's: whichever group reads a type first registers it, so that none
        of its events is missed when a change of the patterns gives it to a group that has read further.
        """
        new: dict[str, list[KnownType]] = {}
        for name in sorted({*came} - self.repository.known_names()):
            owner = owner_of(self.job.groups, name).name
            new.setdefault(owner, []).append(KnownType(type=name, table=table_of(name), home=owner, checkpoint=begin))
        if others := {owner: types for owner, types in new.items() if owner != self.job.group.name}:
            self.repository.register(others)
        known = {one.type: one for one in new.get(self.job.group.name, [])} | self.repository.types(self.job.group.name)
        return {name: one for name, one in known.items() if self._has(name)}

    def _has(self, type_name: str) -> bool:
        return owner_of(self.job.groups, type_name).name == self.job.group.name

    def _looked(self, types: Mapping[str, KnownType]) -> Looked:
        """The types with their checkpoints as their own tables tell them, where somebody may have written there without completing."""
        known, ahead, failed, unread = dict(types), dict[str, Ahead](), dict[str, Exception](), dict[str, Exception]()
        for name, one in types.items():
            asked = self.job.replays.get(name)
            is_rebuilt = asked is not None and asked.is_rebuild
            if self.slices.is_anew(one.checkpoint) and not is_rebuilt:
                unread[name] = self._anew(one)
            if self.job.attempt > 1 or not one.schema_version or is_rebuilt:
                try:
                    found = self.writer.tables.ahead(one)
                    if found is not None and found.schema_version > one.schema_version:  # another attempt has found out more meanwhile
                        one = self.repository.types(self.job.group.name).get(name, one)
                except LakeChimeError as error:
                    failed[name] = error
                    continue
                if found is not None:
                    known[name], ahead[name] = replace(one, checkpoint=found.checkpoint), found
        waiting = {name: reason for name, one in known.items() if not one.is_put_off(self.now_ms) and (reason := self._waits(one, known))}
        looked = Looked(
            known=known,
            ahead=ahead,
            failed=failed,
            waiting=waiting,
            counted={name: known[name].pending for name in waiting if self._is_far(known[name])},
        )
        return looked.without(unread)

    def _anew(self, one: KnownType) -> TableUnreadableError:
        made = f"{self.slices.table} was made anew since version {one.checkpoint.version}, up to which the table of {one.type} has its rows"
        return TableUnreadableError(f"{made}; make that anew too: `lakechime schema replay {shlex.quote(one.type)} --rebuild --reason …`")

    def _unread(self, looked: Looked, rebuilding: Collection[str]) -> dict[str, Exception]:
        """Why nobody can tell what came of types since they were read, where the stream's log was cleaned up."""
        found: dict[str, Exception] = {}
        for name in looked.known.keys() - rebuilding:
            start = self.slices.start(looked.known[name].checkpoint)
            try:
                _ = self.slices.after(start) if start < self.slices.version else None
            except TableUnreadableError as error:
                found[name] = error
        return found

    def _rebuilding(self, looked: Looked) -> dict[str, Replay]:
        """The types whose tables are made anew by this step, which another attempt has not done already."""
        return {
            name: asked
            for name, asked in self.job.replays.items()
            if asked.is_rebuild
            and name in looked.known
            and not looked.known[name].is_put_off(self.now_ms)
            and name not in looked.failed
            and name not in looked.waiting
        }

    def _waits(self, one: KnownType, known: Mapping[str, KnownType]) -> str:
        """Why a type gets no table; empty where it has or gets one."""
        if one.checkpoint.commits or one.schema_version:
            return ""
        if self._is_frozen(one):
            return FROZEN
        group = self.job.group
        new = sorted(name for name, other in known.items() if not other.schema_version and not self._is_frozen(other))
        waiting = [name for name in new if name not in group.allowed]
        tables = sum(1 for other in known.values() if other.schema_version) + len(new) - len(waiting)
        return TYPE_CAP if one.type in waiting and tables + waiting.index(one.type) >= group.contract.max_types else ""

    def _is_frozen(self, one: KnownType) -> bool:
        return self.job.group.contract_of(one.type).mode("tables") is Mode.FREEZE

    def _is_far(self, one: KnownType) -> bool:
        return self.slices.start(self.start) - self.slices.start(one.checkpoint) > self.job.max_catchup

    def _starts(self, looked: Looked, rebuilding: Collection[str]) -> dict[str, int]:
        """Behind which version each type is read that is due; what was counted of those that wait is not read again.

        One of which nobody can tell what came has nothing there.
        """
        due = {name: one for name, one in looked.known.items() if not one.is_put_off(self.now_ms) and name not in rebuilding}
        return {
            name: self.slices.version
            if name in looked.unread
            else self.slices.start(self.start if name in looked.counted else one.checkpoint)
            for name, one in due.items()
        }

    def _put_off(self, looked: Looked, name: str) -> TypeResult:
        """A type that this step does not read: it failed and is not tried again yet, or catches up after others."""
        one = looked.known[name]
        start = self.slices.start(one.checkpoint)
        result = TypeResult(
            type=one.type,
            table=one.table,
            home=one.home,
            start=start,
            end=start,
            schema_version=one.schema_version,
            put_off=one.error,
            due_ts=0 if one.error else AT_ONCE,
        )
        return result if one.error else self.writer.with_earlier(result, one, looked.ahead.get(name))

    def _replayed(
        self, parts: Iterable[PartDone], looked: Looked, found: Mapping[str, TypeResult], rebuilding: Collection[str]
    ) -> dict[str, TypeResult]:
        """What a step did for types of which a replay is asked for, and what came of that."""
        learnt = {name: one.type for part in parts for name, one in part.learnt.items()}
        replayer = TypeReplayer(spark=self.spark, slices=self.slices, tables=self.writer.tables, repository=self.repository)
        replayed = {}
        for name in sorted((self.job.replays.keys() & found.keys()) - {*rebuilding}):
            known, asked = looked.known[name], self.job.replays[name]
            if not asked.is_rebuild or name in looked.waiting:
                replayed[name] = replayer.replayed(replace(learnt.get(name, known), checkpoint=known.checkpoint), asked, found[name])
        return replayed
