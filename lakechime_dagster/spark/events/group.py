"""One step of a group: what its stream's table has up to the claimed end, each type from its own place on, each into its own table.

The store learns what is new before any table is touched. A type that fails keeps its place, and hinders no other.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from lakechime_dagster.errors import LakeChimeError, TableUnreadableError
from lakechime_dagster.lake.contracts import Change, Mode
from lakechime_dagster.lake.event_names import table_of
from lakechime_dagster.lake.events import owner_of
from lakechime_dagster.schema.learning import learned, registered
from lakechime_dagster.schema.moves import misplaced
from lakechime_dagster.schema.repository import KnownType, SchemaRepository, TypePlace
from lakechime_dagster.schema.results import FROZEN, TYPE_CAP, GroupResult, TypeResult
from lakechime_dagster.spark.events.appending import BOUNDED_TIMES, Ahead
from lakechime_dagster.spark.events.census import NOTHING, TypeCount, counted, prototypes, refused, type_names
from lakechime_dagster.spark.events.job import GroupJob
from lakechime_dagster.spark.events.replaying import TypeReplayer
from lakechime_dagster.spark.events.slices import Slices, of_types
from lakechime_dagster.spark.events.tables import TypeTables
from lakechime_dagster.spark.events.writing import ToWrite, TypeWriter
from lakechime_dagster.spark.phases import Phases
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.session_confs import session_confs

WRITERS = 4  # tables that are written at a time


@dataclass(frozen=True, kw_only=True)
class _Looked:
    """The types that a step finds.

    Attributes:
        known: All of them, each with the place that its own table tells.
        ahead: What tables hold beyond what the store knows.
        failed: Why a type cannot be written, as its table could not be asked, or its events not be read.
    """

    known: Mapping[str, KnownType]
    ahead: Mapping[str, Ahead]
    failed: Mapping[str, Exception]


@dataclass(frozen=True, kw_only=True)
class GroupStep:
    """One attempt at one step of a group.

    Attributes:
        start: The version of the stream's table up to which the group has read; a type that is new begins there.
    """

    spark: SparkSession
    job: GroupJob
    repository: SchemaRepository
    open_log: OpenLog
    now_ms: int
    start: TypePlace = field(default_factory=TypePlace)

    @cached_property
    def slices(self) -> Slices:
        """What the stream's table has behind any place."""
        source = self.job.group.stream.table.name
        return Slices(self.spark, source, self.open_log(self.job.bronze, source), self.job.end)

    @cached_property
    def writer(self) -> TypeWriter:
        """Who writes the tables of types."""
        return TypeWriter(spark=self.spark, slices=self.slices, tables=TypeTables(job=self.job, open_log=self.open_log))

    def run(self) -> GroupResult:
        """Do it; again, by whomever, it changes nothing.

        Raises:
            TableUnreadableError: what is new in the stream's table cannot be told from what is not.
            LaneConflictError: another attempt has found out something of a type meanwhile.
        """
        phase = Phases(self.spark, self.job.group.name)
        with phase("look"):
            fresh = self.slices.after(self.slices.start(self.start))
            looked = self._looked(self._types(type_names(fresh)))
            refusals = refused(fresh)
        with phase("count"):
            due = {name: one for name, one in looked.known.items() if one.due_ts <= self.now_ms}
            counts, unread = self._counts(due)
            looked = replace(looked, failed={**looked.failed, **unread})
        with phase("learn"):
            waiting = {name: reason for name, one in due.items() if (reason := self._waits(one, looked.known))}
            told = {name: one for name, one in due.items() if name in counts or name in self.job.replays}
            learnt = self._learnt(told, counts, waiting, looked.ahead)
        with phase("write"):
            writing = [learnt[name] for name in sorted(counts) if name in learnt and name not in waiting and name not in looked.failed]
            with session_confs(self.spark, BOUNDED_TIMES), ThreadPoolExecutor(WRITERS) as pool:
                done = {one.type: one for one in pool.map(inheritable_thread_target(self.spark)(self.writer.written), writing)}
        rest = [self._unwritten(looked, name, waiting.get(name, ""), counts.get(name)) for name in looked.known if name not in done]
        found = {one.type: one for one in (*done.values(), *rest)}
        with phase("replay"):
            found |= {name: self._replayed(looked.known[name], learnt, one) for name, one in found.items() if name in self.job.replays}
        return GroupResult(types=tuple(found[name] for name in sorted(found)), refused=refusals, seconds=phase.seconds)

    def _replayed(self, known: KnownType, learnt: Mapping[str, ToWrite], result: TypeResult) -> TypeResult:
        """What a step did for a type of which a replay is asked for, and what came of that."""
        if result.type in learnt:
            known = replace(learnt[result.type].type, place=known.place)
        tables = self.writer.tables
        replayer = TypeReplayer(spark=self.spark, slices=self.slices, tables=tables, repository=self.repository)
        return replayer.replayed(known, self.job.replays[result.type], result)

    def _types(self, names: list[str]) -> dict[str, KnownType]:
        """The group's types that the store knows, and those of these names that come for the first time.

        These begin where the group stands. One that another group is said to have had, of which the store knows nothing, begins with
        the stream, as nobody can tell how far that group came.
        """
        group = self.job.group
        known = {name: one for name, one in self.repository.types(group.name).items() if self._has(name)}
        for name in names:
            if name not in known and self._has(name):
                home = group.home_of(name)
                place = self.start if home == group.name else TypePlace()
                known[name] = KnownType(type=name, table=table_of(name), home=home, place=place)
        return known

    def _has(self, type_name: str) -> bool:
        return owner_of(self.job.groups, type_name).name == self.job.group.name

    def _looked(self, types: Mapping[str, KnownType]) -> _Looked:
        """The types with their places as their own tables tell them, where somebody may have written there without settling."""
        known, ahead, failed = dict(types), dict[str, Ahead](), dict[str, Exception]()
        for name, one in types.items():
            if self.job.attempt > 1 or not one.layout_version:
                try:
                    found = self.writer.tables.ahead(one)
                except LakeChimeError as error:
                    failed[name] = error
                    continue
                if found is not None:
                    known[name], ahead[name] = replace(one, place=found.place), found
        return _Looked(known=known, ahead=ahead, failed=failed)

    def _waits(self, one: KnownType, known: Mapping[str, KnownType]) -> str:
        """Why a type gets no table, or not its rows; empty where it has or gets one."""
        if reason := misplaced(self.job.group, one):
            return reason
        if one.place.commits or one.layout_version:
            return ""
        if self._is_frozen(one):
            return FROZEN
        group = self.job.group
        new = sorted(name for name, other in known.items() if not other.layout_version and not self._is_frozen(other))
        waiting = [name for name in new if name not in group.allowed]
        tables = sum(1 for other in known.values() if other.layout_version) + len(new) - len(waiting)
        return TYPE_CAP if one.type in waiting and tables + waiting.index(one.type) >= group.max_types else ""

    def _is_frozen(self, one: KnownType) -> bool:
        return self.job.group.contract_of(one.type).mode(Change.TABLE) is Mode.FREEZE

    def _by_start(self, due: Mapping[str, KnownType]) -> dict[int, list[str]]:
        """The types by the version behind which each is read; those of a step are nearly all at one."""
        found: dict[int, list[str]] = {}
        for name, one in due.items():
            start = self.slices.start(one.place)
            if start < self.slices.version:
                found.setdefault(start, []).append(name)
        return found

    def _counts(self, due: Mapping[str, KnownType]) -> tuple[dict[str, TypeCount], dict[str, Exception]]:
        """The events of each type, and why those of some that are far behind cannot be read."""
        found, unread = dict[str, TypeCount](), dict[str, Exception]()
        for start, names in self._by_start(due).items():
            try:
                found |= counted(of_types(self.slices.after(start), names))
            except TableUnreadableError as error:
                unread |= dict.fromkeys(names, error)
        return found, unread

    def _learnt(
        self, due: Mapping[str, KnownType], counts: Mapping[str, TypeCount], waiting: Mapping[str, str], ahead: Mapping[str, Ahead]
    ) -> dict[str, ToWrite]:
        """What the slices tell of their types, kept by the store before any table is touched; of those that wait their places."""
        group = self.job.group
        variations = self.repository.variations(group.name, [name for name in due if name not in waiting])
        unknown = {name: {*counts[name].variations} - {*known} for name, known in variations.items() if name in counts}
        found = {}
        for start, names in self._by_start(due).items():
            wanted = {name: hashes for name in names if (hashes := unknown.get(name))}
            found |= prototypes(of_types(self.slices.after(start), wanted), wanted, self.slices.version) if wanted else {}
        learnings = {
            name: learning for name, one in due.items()
            if (learning := registered(one) if name in waiting else learned(one, found.get(name, []), group.contract_of(name)))
        }  # fmt: skip
        versions = self.repository.learn(group.name, list(learnings.values())) if learnings else {}
        return {
            name: ToWrite(
                type=learnings[name].known_after(one, versions[name]) if name in learnings else one, count=counts.get(name, NOTHING),
                variations={**variations.get(name, {}), **{each.typed_hash: each.variation for each in found.get(name, [])}},
                columns_added=learnings[name].columns_added(one) if name in learnings else 0, ahead=ahead.get(name),
            )
            for name, one in due.items()
        }  # fmt: skip

    def _unwritten(self, looked: _Looked, name: str, waits: str, count: TypeCount | None) -> TypeResult:
        """A type of which nothing is written: as it failed, now or before, or must wait, or nothing came."""
        one, is_due = looked.known[name], looked.known[name].due_ts <= self.now_ms
        if is_due and name in looked.failed:
            return self.writer.failed(one, looked.failed[name], count.rows if count is not None else None)
        start = self.slices.start(one.place)
        rows = count.rows if count is not None and waits else 0
        result = TypeResult(
            type=one.type, table=one.table, home=one.home, start=start, end=start if waits or not is_due else self.slices.version,
            rows=rows, pending=rows, layout=one.layout_version, waits=waits, put_off="" if is_due else one.error,
        )  # fmt: skip
        return self.writer.with_earlier(result, one, looked.ahead.get(name)) if is_due else result
