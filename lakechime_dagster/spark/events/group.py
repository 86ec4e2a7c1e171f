"""One step of a group: what its stream's table has up to the claimed end, each type from its own place on, each into its own table.

The store learns what is new before any table is touched. A type that fails keeps its place, and hinders no other; one that is far
behind catches up by itself.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import SparkSession

from lakechime_dagster.errors import LakeChimeError, TableUnreadableError
from lakechime_dagster.lake.contracts import Change, Mode
from lakechime_dagster.lake.event_names import table_of
from lakechime_dagster.lake.events import owner_of
from lakechime_dagster.schema.conservation import Verified
from lakechime_dagster.schema.moves import misplaced
from lakechime_dagster.schema.reading import planned
from lakechime_dagster.schema.replay import Replay
from lakechime_dagster.schema.repository import KnownType, SchemaRepository, TypePlace
from lakechime_dagster.schema.results import AT_ONCE, FROZEN, TYPE_CAP, GroupResult, TypeResult
from lakechime_dagster.spark.drivers.failures import described
from lakechime_dagster.spark.events.appending import Ahead
from lakechime_dagster.spark.events.census import Seen, seen
from lakechime_dagster.spark.events.job import GroupJob
from lakechime_dagster.spark.events.parts import Looked, PartDone, PartStep
from lakechime_dagster.spark.events.rebuilding import TypeRebuilder
from lakechime_dagster.spark.events.replaying import TypeReplayer
from lakechime_dagster.spark.events.slices import Slices
from lakechime_dagster.spark.events.tables import TypeTables
from lakechime_dagster.spark.events.verifying import sampled, unread
from lakechime_dagster.spark.events.writing import ToWrite, TypeWriter
from lakechime_dagster.spark.phases import Phases
from lakechime_dagster.spark.refresh import OpenLog

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
    start: TypePlace = field(default_factory=TypePlace)

    @cached_property
    def slices(self) -> Slices:
        """What the stream's table has behind any place."""
        source = self.job.group.stream.table.name
        return Slices(self.spark, source, self.open_log(self.job.bronze, source), self.job.end)

    @cached_property
    def writer(self) -> TypeWriter:
        """Who writes the tables of types."""
        tables = TypeTables(job=self.job, open_log=self.open_log)
        return TypeWriter(spark=self.spark, slices=self.slices, tables=tables, repository=self.repository)

    def run(self) -> GroupResult:
        """Do it; again, by whomever, it changes nothing.

        Raises:
            TableUnreadableError: the stream's table cannot be read at all.
            LaneConflictError: another attempt has found out something of a type meanwhile.
        """
        phase = Phases(self.spark, self.job.group.name)
        begun = self.slices.start(self.start)
        with phase("look"):
            came, is_all = self._came(begun)
            places = dict.fromkeys(came.types, TypePlace() if is_all else self.start)
            places |= dict.fromkeys(self._passed(begun) if self.job.looks_back and not is_all else (), TypePlace())
            looked = self._looked(self._types(places))
            rebuilding = self._rebuilding(looked)
            looked = looked.without(self._unread(looked, rebuilding)) if is_all else looked
            plan = planned(self._starts(looked, rebuilding), group=begun, end=self.slices.version, max_catchup=self.job.group.max_catchup)
            self.slices.cuts = tuple(sorted({start for part in (plan.shared, *plan.apart) for start in part.behind.values()}))
        step = PartStep(
            spark=self.spark, job=self.job, repository=self.repository, slices=self.slices, writer=self.writer, looked=looked,
            now_ms=self.now_ms,
        )  # fmt: skip
        parts = [step.done(plan.shared, phase)]
        parts += [step.done_apart(part, lambda _: phase(CATCH_UP)) for part in plan.apart]
        found = {name: one for part in parts for name, one in part.results.items()}
        found |= {name: self._put_off(looked, name) for name in looked.known if name not in found and name not in rebuilding}
        with phase("verify"):
            verified = self._verified(parts)
        with phase("replay"):
            found |= self._replayed(looked, parts, found)
            rebuilder = TypeRebuilder(spark=self.spark, slices=self.slices, writer=self.writer, repository=self.repository)
            found |= {name: rebuilder.rebuilt(looked.known[name], asked, looked.ahead.get(name)) for name, asked in rebuilding.items()}
        return GroupResult(
            types=tuple(found[name] for name in sorted(found)), refused=came.refused, verified=verified, seconds=phase.seconds
        )

    def _verified(self, parts: Iterable[PartDone]) -> tuple[Verified, ...]:
        """What is found in a few of the rows that this attempt wrote; what hinders that hinders no type, as they are written."""
        tables = self.writer.tables
        wrote = [
            (part.learnt[name].type, one)
            for part in parts
            for name, one in part.results.items()
            if one.committed is not None and tables.is_own(one.committed) and name in part.learnt and name not in part.made_anew
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

    def _passed(self, begun: int) -> tuple[str, ...]:
        """The types of all groups in what the group has read; where nobody can tell that by now also of what came since."""
        try:
            return seen(self.slices.segment(-1, begun)).types if begun >= 0 else ()
        except TableUnreadableError:
            return seen(self.slices.after(-1)).types

    def _types(self, places: Mapping[str, TypePlace]) -> dict[str, KnownType]:
        """The group's types that the store knows, and those that come for the first time, each with where it begins then.

        One that another group is said to have had, of which the store knows nothing, begins with the stream, as nobody can tell
        how far that group came.
        """
        group = self.job.group
        known = {name: one for name, one in self.repository.types(group.name).items() if self._has(name)}
        for name, start in places.items():
            if name not in known and self._has(name):
                home = group.home_of(name)
                place = start if home == group.name else TypePlace()
                known[name] = KnownType(type=name, table=table_of(name), home=home, place=place)
        return known

    def _has(self, type_name: str) -> bool:
        return owner_of(self.job.groups, type_name).name == self.job.group.name

    def _looked(self, types: Mapping[str, KnownType]) -> Looked:
        """The types with their places as their own tables tell them, where somebody may have written there without settling."""
        known, ahead, failed, unread = dict(types), dict[str, Ahead](), dict[str, Exception](), dict[str, Exception]()
        for name, one in types.items():
            asked = self.job.replays.get(name)
            is_rebuilt = asked is not None and asked.is_rebuild
            if self.slices.is_anew(one.place) and not is_rebuilt:
                unread[name] = self._anew(one)
            if self.job.attempt > 1 or not one.layout_version or is_rebuilt:
                try:
                    found = self.writer.tables.ahead(one)
                    one = self.writer.as_its_table(one, found)
                except LakeChimeError as error:
                    failed[name] = error
                    continue
                if found is not None:
                    known[name], ahead[name] = replace(one, place=found.place), found
        waiting = {name: reason for name, one in known.items() if not one.is_put_off(self.now_ms) and (reason := self._waits(one, known))}
        looked = Looked(
            known=known, ahead=ahead, failed=failed, waiting=waiting,
            counted={name: known[name].pending for name in waiting if self._is_far(known[name])},
        )  # fmt: skip
        return looked.without(unread)

    def _anew(self, one: KnownType) -> TableUnreadableError:
        made = f"{self.slices.table} was made anew since version {one.place.version}, up to which the table of {one.type} has its rows"
        return TableUnreadableError(f"{made}; make that anew too: `lakechime schema rebuild {shlex.quote(one.type)} --reason …`")

    def _unread(self, looked: Looked, rebuilding: Collection[str]) -> dict[str, Exception]:
        """Why nobody can tell what came of types since they were read, where the stream's log was cleaned up."""
        found: dict[str, Exception] = {}
        for name in looked.known.keys() - rebuilding:
            start = self.slices.start(looked.known[name].place)
            try:
                _ = self.slices.after(start) if start < self.slices.version else None
            except TableUnreadableError as error:
                found[name] = error
        return found

    def _rebuilding(self, looked: Looked) -> dict[str, Replay]:
        """The types whose tables are made anew by this step, which another attempt has not done already."""
        return {
            name: asked for name, asked in self.job.replays.items()
            if asked.is_rebuild and name in looked.known and not looked.known[name].is_put_off(self.now_ms)
            and name not in looked.failed and name not in looked.waiting and not looked.has(name, asked, self.job.execution_id)
        }  # fmt: skip

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

    def _is_far(self, one: KnownType) -> bool:
        return self.slices.start(self.start) - self.slices.start(one.place) > self.job.group.max_catchup

    def _starts(self, looked: Looked, rebuilding: Collection[str]) -> dict[str, int]:
        """Behind which version each type is read that is due; what was counted of those that wait is not read again.

        One of which nobody can tell what came has nothing there.
        """
        due = {name: one for name, one in looked.known.items() if not one.is_put_off(self.now_ms) and name not in rebuilding}
        return {
            name: self.slices.version if name in looked.unread
            else self.slices.start(self.start if name in looked.counted else one.place)
            for name, one in due.items()
        }  # fmt: skip

    def _put_off(self, looked: Looked, name: str) -> TypeResult:
        """A type that this step does not read: it failed and is not tried again yet, or catches up after others."""
        one = looked.known[name]
        start = self.slices.start(one.place)
        result = TypeResult(
            type=one.type, table=one.table, home=one.home, start=start, end=start, layout=one.layout_version, put_off=one.error,
            due_ts=0 if one.error else AT_ONCE,
        )  # fmt: skip
        return result if one.error else self.writer.with_earlier(result, one, looked.ahead.get(name))

    def _replayed(self, looked: Looked, parts: Iterable[PartDone], found: Mapping[str, TypeResult]) -> dict[str, TypeResult]:
        """What a step did for types of which a replay is asked for, and what came of that."""
        learnt: dict[str, ToWrite] = {name: one for part in parts for name, one in part.learnt.items()}
        replayer = TypeReplayer(spark=self.spark, slices=self.slices, tables=self.writer.tables, repository=self.repository)
        replayed = {}
        made_anew = {name for part in parts for name in part.made_anew}  # these are replayed by the next step
        for name in sorted((self.job.replays.keys() & found.keys()) - made_anew):
            if self.job.replays[name].is_rebuild and name not in looked.waiting:
                continue  # another attempt did it, or it could not be asked
            known = looked.known[name]
            if name in learnt:
                known = replace(learnt[name].type, place=known.place)
            replayed[name] = replayer.replayed(known, self.job.replays[name], found[name])
        return replayed
