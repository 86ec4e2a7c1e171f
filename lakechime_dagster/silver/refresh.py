"""Refreshes the typed tables of a group."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import SparkSession

from lakechime_dagster.errors import ConsumerConflictError, LakeChimeError, TableUnreadableError
from lakechime_dagster.silver.replay import TypeRebuilder, TypeReplayer
from lakechime_dagster.silver.results import (
    AT_ONCE,
    FROZEN,
    TYPE_CAP,
    GroupJob,
    GroupResult,
    Part,
    Request,
    TypeResult,
    Verified,
    planned,
)
from lakechime_dagster.silver.schema import KnownType, TypeCheckpoint, kept_of, learned
from lakechime_dagster.silver.slices import (
    NOTHING,
    Ahead,
    Arrived,
    Events,
    Slices,
    TypeCount,
    TypeTables,
    arrived,
    counted,
    events_of,
    prototypes,
)
from lakechime_dagster.silver.store import SqlEventTypes
from lakechime_dagster.silver.verify import sampled, unread
from lakechime_dagster.silver.write import ToWrite, TypeWriter
from lakechime_dagster.spark.driver import described
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.session import Phases, in_threads
from lakechime_dagster.tables.events import Mode

WRITERS = 4  # tables that are written at a time
CATCH_UP = "catch up"  # the phase of all that is done for types that are far behind

Phase = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The types that an execution finds.

    Attributes:
        known: All of them, each with the checkpoint of its own table.
        ahead: What tables hold beyond what the store knows.
        failed: Why a type cannot be written, as its table could not be asked, or the stream's table
            was recreated.
        waiting: Why a type that is due gets no table.
        counted: Those that wait whose events earlier executions have counted, so that they are not
            read again.
    """

    known: Mapping[str, KnownType]
    ahead: Mapping[str, Ahead]
    failed: Mapping[str, Exception]
    waiting: Mapping[str, str]
    counted: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class PartDone:
    """What was done for each type of a part, and what is known of those that have something to be
    written, or replayed.
    """

    results: Mapping[str, TypeResult]
    learnt: Mapping[str, ToWrite] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GroupRefresh:
    """One attempt at one execution of a group.

    Attributes:
        open_log: Gives the log of the stream's table.
        start: The version of the stream's table up to which the group has read; a type that is new
            begins there, or with the stream where it is no longer known what arrived since.
    """

    spark: SparkSession
    job: GroupJob
    repository: SqlEventTypes
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
        return TypeWriter(spark=self.spark, slices=self.slices, tables=TypeTables(job=self.job))

    def run(self) -> GroupResult:
        """Do it; again, by whomever, it changes nothing.

        Raises:
            TableUnreadableError: the stream's table cannot be read at all.
            ConsumerConflictError: another attempt has found out something of a type meanwhile.
        """
        phase = Phases(self.spark, self.job.group.name)
        begun = self.slices.start(self.start)
        with phase("look"):
            came, begin = self._arrived(begun)
            self.repository.register(self.job.groups, came.types, begin)
            looked = self._looked(self.repository.types(self.job.group.name))
            rebuilding = self._rebuilding(looked)
            plan = planned(
                self._starts(looked, rebuilding),
                group=begun,
                end=self.slices.version,
                max_catchup=self.job.max_catchup,
            )
        parts = [self._done(plan.shared, looked, phase)]
        parts += (
            []
            if plan.behind is None
            else [self._done_apart(plan.behind, looked, lambda _: phase(CATCH_UP))]
        )
        found = {name: one for part in parts for name, one in part.results.items()}
        found |= {
            name: self._put_off(looked, name)
            for name in looked.known
            if name not in found and name not in rebuilding
        }
        with phase("verify"):
            verified = self._verified(parts)
        with phase("replay"):
            found |= self._replayed(parts, looked, found, rebuilding)
            rebuilder = TypeRebuilder(
                spark=self.spark, slices=self.slices, writer=self.writer, repository=self.repository
            )
            found |= {
                name: rebuilder.rebuilt(looked.known[name], asked, looked.ahead.get(name))
                for name, asked in rebuilding.items()
            }
        unbuilt = {
            name: found[name]
            for name in rebuilding
            if found[name].error and not self.slices.is_recreated(looked.known[name].checkpoint)
        }
        found |= self._read_instead(unbuilt, looked, phase) if unbuilt else {}
        types = tuple(found[name] for name in sorted(found))
        return GroupResult(
            types=types, refused=came.refused, verified=verified, seconds=phase.seconds
        )

    def _arrived(self, begun: int) -> tuple[Arrived, TypeCheckpoint]:
        """What arrived since the group read the stream's table, and from where new types are read.

        Where that is no longer known, as the log was cleaned up, these are all types that are
        there, and the beginning.
        """
        try:
            return arrived(self.slices.rows(begun)), self.start
        except TableUnreadableError:
            return replace(arrived(self.slices.rows(-1)), refused={}), TypeCheckpoint()

    def _looked(self, types: Mapping[str, KnownType]) -> Looked:
        """The types with their checkpoints as their own tables say, where somebody may have written
        there without completing.
        """
        known, ahead, failed = dict(types), dict[str, Ahead](), dict[str, Exception]()
        for name, one in types.items():
            asked = self.job.replays.get(name)
            is_rebuilt = asked is not None and asked.is_rebuild
            if self.slices.is_recreated(one.checkpoint) and not is_rebuilt:
                failed[name] = self._recreated(one)
            elif self.job.attempt > 1 or not one.schema_version or one.failures or is_rebuilt:
                try:
                    if (found := self.writer.tables.ahead(one)) is not None:
                        ahead[name] = found
                        known[name] = replace(
                            self._with_schema(one, found.schema_version),
                            checkpoint=found.checkpoint,
                        )
                except LakeChimeError as error:
                    failed[name] = error
        waiting = {
            name: reason
            for name, one in known.items()
            if not one.is_put_off(self.now_ms) and (reason := self._waits(one, known))
        }
        counted = frozenset(name for name in waiting if self._is_far(known[name]))
        return Looked(known=known, ahead=ahead, failed=failed, waiting=waiting, counted=counted)

    def _with_schema(self, one: KnownType, version: int) -> KnownType:
        """A type as the store knows it by now, where its table was written with a newer schema by
        another attempt.
        """
        if version <= one.schema_version:
            return one
        group = self.job.group.name
        self.repository.hold(group, one.type, version)
        return self.repository.types(group).get(one.type, one)

    def _recreated(self, one: KnownType) -> TableUnreadableError:
        problem = (
            f"{self.slices.table} was recreated since version {one.checkpoint.version}, up to "
            f"which {one.table} has its rows"
        )
        return TableUnreadableError(
            f"{problem}; rebuild that: `lakechime schema replay {shlex.quote(one.type)} --rebuild "
            f"--reason …`"
        )

    def _rebuilding(self, looked: Looked) -> dict[str, Request]:
        """The types whose tables are rebuilt by this execution."""
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
        new = sorted(
            name
            for name, other in known.items()
            if not other.schema_version and not self._is_frozen(other)
        )
        tables = sum(1 for other in known.values() if other.schema_version)
        is_over = tables + new.index(one.type) >= self.job.group.contract.max_types
        return TYPE_CAP if is_over else ""

    def _is_frozen(self, one: KnownType) -> bool:
        return self.job.group.contract_of(one.type).mode("tables") is Mode.FREEZE

    def _is_far(self, one: KnownType) -> bool:
        return (
            self.slices.start(self.start) - self.slices.start(one.checkpoint) > self.job.max_catchup
        )

    def _starts(self, looked: Looked, rebuilding: Collection[str]) -> dict[str, int]:
        """Behind which version each type is read that is due; what was counted of those that wait
        is not read again.

        Of one that failed the events are counted, but where nobody knows which its table has.
        """
        due = {
            name: one
            for name, one in looked.known.items()
            if not one.is_put_off(self.now_ms) and name not in rebuilding
        }
        return {
            name: self.slices.version
            if name in looked.failed and self.slices.is_recreated(one.checkpoint)
            else self.slices.start(self.start if name in looked.counted else one.checkpoint)
            for name, one in due.items()
        }

    def _done(self, part: Part, looked: Looked, phase: Phase) -> PartDone:
        """Write the types of a part; one that cannot be written hinders no other.

        Raises:
            ConsumerConflictError: another attempt has found out something of a type meanwhile.
        """
        with phase("count"):
            events = events_of(self.slices, part)
            counts = {} if events.rows is None else counted(events.rows)
            failed = {**looked.failed, **events.unread}
        with phase("learn"):
            learnt = self._learnt(counts, events, part, looked)
        with phase("write"):
            writing = [
                learnt[name] for name in sorted(counts) if name in learnt and name not in failed
            ]
            done = {
                one.type: one
                for one in in_threads(self.spark, WRITERS, self.writer.written, writing)
            }
        rest = {
            name: self._unwritten(name, counts.get(name), looked, failed, part)
            for name in part.starts
            if name not in done
        }
        return PartDone(
            results={name: self._read_on(one, part) for name, one in {**rest, **done}.items()},
            learnt=learnt,
        )

    def _done_apart(self, part: Part, looked: Looked, phase: Phase) -> PartDone:
        """The same of types that are far behind, of which nothing hinders others: they are tried
        again.
        """
        try:
            with described():
                return self._done(part, looked, phase)
        except ConsumerConflictError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types are written by now
            return PartDone(
                results={
                    name: self.writer.failed(looked.known[name], error) for name in part.starts
                }
            )

    def _read_instead(
        self, unbuilt: Mapping[str, TypeResult], looked: Looked, phase: Phase
    ) -> dict[str, TypeResult]:
        """Types that could not be rebuilt, whose events are read as if nobody had asked; each keeps
        the error.
        """
        types = self.repository.types(self.job.group.name)  # a rebuild may have learnt of them
        known = {
            name: replace(types[name], checkpoint=looked.known[name].checkpoint)
            for name in unbuilt
            if name in types
        }
        starts = {name: self.slices.start(one.checkpoint) for name, one in known.items()}
        part = Part(starts=starts, end=self.slices.version)
        done = self._done_apart(part, replace(looked, known={**looked.known, **known}), phase)
        return {
            name: replace(one, error=unbuilt[name].error, stack=unbuilt[name].stack)
            for name, one in done.results.items()
        }

    def _learnt(
        self, counts: Mapping[str, TypeCount], events: Events, part: Part, looked: Looked
    ) -> dict[str, ToWrite]:
        """What the events show of types that have or get tables, kept by the store before any table
        is touched.
        """
        group = self.job.group
        came = {name for name in part.starts if name in counts or name in self.job.replays} - {
            *looked.waiting,
            *looked.failed,
        }
        variations = self.repository.variations(group.name, came)
        found = {} if events.rows is None else prototypes(events.rows, counts, variations)
        learnings = {
            name: learned(looked.known[name], found.get(name, []), group.contract_of(name))
            for name in sorted(came)
        }
        new = [one for one in learnings.values() if one is not None]
        versions = self.repository.learn(group.name, new) if new else {}
        return {
            name: ToWrite(
                type=looked.known[name]
                if one is None
                else one.known_after(looked.known[name], versions[name]),
                count=counts.get(name, NOTHING),
                variations={**variations[name], **kept_of(found.get(name, []))},
                columns_added=0 if one is None else one.columns_added(looked.known[name]),
                ahead=looked.ahead.get(name),
                end=part.end,
            )
            for name, one in learnings.items()
        }

    def _unwritten(
        self,
        name: str,
        count: TypeCount | None,
        looked: Looked,
        failed: Mapping[str, Exception],
        part: Part,
    ) -> TypeResult:
        """A type that is due and of which nothing is written: as it failed or must wait, or nothing
        arrived.
        """
        one, waits = looked.known[name], looked.waiting.get(name, "")
        if name in failed:
            return self.writer.failed(one, failed[name], None if count is None else count.rows)
        begun = self.writer.begun(one, looked.ahead.get(name))
        if not waits:
            return replace(begun, end=part.end)
        rows = (count.rows if count is not None else 0) + (
            one.pending if name in looked.counted else 0
        )
        return replace(begun, rows=begun.rows + rows, pending=rows, waits=waits)

    def _read_on(self, result: TypeResult, part: Part) -> TypeResult:
        """The result of a type; one that is not at the end of the execution is read on by the next
        one, and was not counted whole.
        """
        if part.end == self.slices.version or result.waits:
            return result
        return replace(result, left=None) if result.error else replace(result, due_ts=AT_ONCE)

    def _put_off(self, looked: Looked, name: str) -> TypeResult:
        """A type that this execution does not read: it failed and is not tried again yet, or
        catches up after others.
        """
        one = looked.known[name]
        if one.error:
            return replace(self.writer.begun(one), put_off=one.error)
        return replace(self.writer.begun(one, looked.ahead.get(name)), due_ts=AT_ONCE)

    def _verified(self, parts: Iterable[PartDone]) -> tuple[Verified, ...]:
        """What a few of the rows that this attempt wrote lack of their events; an error here fails
        no type, whose rows are written.
        """
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
            return tuple(unread(known, error) for known, _ in wrote)

    def _replayed(
        self,
        parts: Iterable[PartDone],
        looked: Looked,
        found: Mapping[str, TypeResult],
        rebuilding: Collection[str],
    ) -> dict[str, TypeResult]:
        """The results of types of which a replay is requested, with that of the replay."""
        learnt = {name: one.type for part in parts for name, one in part.learnt.items()}
        replayer = TypeReplayer(
            spark=self.spark,
            slices=self.slices,
            tables=self.writer.tables,
            repository=self.repository,
        )
        replayed = {}
        for name in sorted((self.job.replays.keys() & found.keys()) - {*rebuilding}):
            known, asked = looked.known[name], self.job.replays[name]
            if not asked.is_rebuild or name in looked.waiting:
                replayed[name] = replayer.replayed(
                    replace(learnt.get(name, known), checkpoint=known.checkpoint),
                    asked,
                    found[name],
                )
        return replayed
