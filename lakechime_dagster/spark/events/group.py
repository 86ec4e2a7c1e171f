"""One step of a group: what its stream's table has up to the claimed end, each type from its own place on, each into its own table.

The store learns what is new before any table is touched. A type that fails keeps its place, and hinders no other.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.errors import LakeChimeError, TableUnreadableError
from lakechime_dagster.lake.contracts import Mode
from lakechime_dagster.lake.event_names import table_of
from lakechime_dagster.lake.events import owner_of
from lakechime_dagster.schema.learning import columns_of, learned
from lakechime_dagster.schema.repository import KnownType, Learning, SchemaRepository, TypePlace
from lakechime_dagster.schema.results import FROZEN, TYPE_CAP, GroupResult, TypeResult
from lakechime_dagster.schema.shape import covers
from lakechime_dagster.schema.variation import Variation
from lakechime_dagster.spark.commit import Target, commit_at
from lakechime_dagster.spark.delta_files import files_frame
from lakechime_dagster.spark.drivers.failures import described
from lakechime_dagster.spark.events.appending import Held, append_after, place_in
from lakechime_dagster.spark.events.census import TypeCount, counted, prototypes, refused, type_names
from lakechime_dagster.spark.events.job import GroupJob
from lakechime_dagster.spark.events.rows import rows_of
from lakechime_dagster.spark.events.slices import Slices
from lakechime_dagster.spark.phases import Phases
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.triggers.lanes import CommitStamp, Committed, LaneId, Place

WRITERS = 4  # tables that are written at a time
MAX_ROUNDS = 5  # in which others were first at one table


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What a writer knows of its type: its layout, the variations with their kinds, and the rows that were counted."""

    type: KnownType
    variations: Mapping[str, Variation]
    count: TypeCount
    columns_added: int = 0


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

    def run(self) -> GroupResult:
        """Do it; again, by whomever, it changes nothing.

        Raises:
            TableUnreadableError: what is new in the stream's table cannot be told from what is not.
            LaneConflictError: another attempt has found out something of a type meanwhile.
        """
        group = self.job.group
        source = group.stream.table.name
        phase = Phases(self.spark, group.name)
        slices = Slices(self.spark, source, self.open_log(self.job.bronze, source), self.job.end)
        with phase("look"):
            fresh = slices.after(slices.start(self.start))
            known, ahead, unread = self._known([name for name in type_names(fresh) if owner_of(self.job.groups, name).name == group.name])
            refusals = refused(fresh)
        with phase("count"):
            due = {name: one for name, one in known.items() if one.due_ts <= self.now_ms}
            counts, behind = self._counts(slices, due)
            unread |= behind
        with phase("learn"):
            waiting = {name: reason for name, one in due.items() if (reason := self._waits(one, known))}
            learnt = self._learn(slices, {name: one for name, one in due.items() if name in counts}, counts, waiting)
        with phase("write"):
            writing = [one for name, one in sorted(learnt.items()) if name not in waiting and name not in unread]
            with ThreadPoolExecutor(WRITERS) as pool:
                work = inheritable_thread_target(self.spark)(lambda one: self._written(slices, one, ahead.get(one.type.type)))
                done = {one.type: one for one in pool.map(work, writing)}
        rest = [
            self._failed(slices, one, unread[name]) if name in unread and name in due
            else self._unmoved(slices, one, waiting.get(name, ""), counts.get(name), ahead.get(name))
            for name, one in known.items() if name not in done
        ]  # fmt: skip
        return GroupResult(types=tuple(sorted((*done.values(), *rest), key=lambda one: one.type)), refused=refusals, seconds=phase.seconds)

    # Who is there

    def _known(self, names: list[str]) -> tuple[dict[str, KnownType], dict[str, Held], dict[str, str]]:
        """The types, new ones of these names among them; commits that the store does not know; why a table could not be asked.

        The tables are asked where an earlier attempt may have written there, and those of new types, which go on where they end.
        """
        known = self.repository.types(self.job.group.name)
        new = {name: KnownType(type=name, table=table_of(name), place=self.start) for name in names if name not in known}
        ahead, unread = dict[str, Held](), dict[str, str]()
        for name, one in (new if self.job.attempt == 1 else known | new).items():
            try:
                held = place_in(self._target(one).log, self._lane(name), self.job.group.stream.table.name)
            except LakeChimeError as error:
                unread[name] = _told(error)
                continue
            if held is not None and held.place.commits > one.place.commits:
                ahead[name] = held
        placed = {name: replace(one, place=ahead[name].place) if name in ahead else one for name, one in (known | new).items()}
        return placed, ahead, unread

    def _waits(self, one: KnownType, known: Mapping[str, KnownType]) -> str:
        """Why a type gets no table; empty where it has or gets one."""
        if one.place.commits or one.layout_version:
            return ""
        if self.job.group.contract_of(one.type).tables is Mode.FREEZE:
            return FROZEN
        tables = sum(1 for other in known.values() if other.layout_version)
        new = sorted(name for name, other in known.items() if not other.layout_version)
        return TYPE_CAP if tables + new.index(one.type) >= self.job.group.max_types else ""

    # What they bring

    def _counts(self, slices: Slices, due: Mapping[str, KnownType]) -> tuple[dict[str, TypeCount], dict[str, str]]:
        """The events of each type, and why those of some that are far behind cannot be read."""
        found, behind = dict[str, TypeCount](), dict[str, str]()
        for start, names in _by_start(slices, due).items():
            try:
                found |= counted(_of_types(slices.after(start), names))
            except TableUnreadableError as error:
                behind |= dict.fromkeys(names, _told(error))
        return found, behind

    def _learn(
        self, slices: Slices, due: Mapping[str, KnownType], counts: Mapping[str, TypeCount], waiting: Mapping[str, str]
    ) -> dict[str, _Known]:
        """What the slices tell of their types, kept by the store before any table is touched."""
        unknown = {
            name: [one for one in counts[name].variations if one not in known.variations]
            for name, known in due.items()
            if name not in waiting
        }
        found = {}
        for start, names in _by_start(slices, due).items():
            several = {name: hashes for name in names if (hashes := unknown.get(name))}
            found |= prototypes(_of_types(slices.after(start), several), several, slices.version) if several else {}
        learnings: dict[str, Learning] = {}
        for name, known in due.items():
            one = learned(known, found.get(name, []), self.job.group.contract_of(name)) if name not in waiting else _registered(known)
            if one is not None:
                learnings[name] = one
        versions = self.repository.learn(self.job.group.name, list(learnings.values())) if learnings else {}
        return {
            name: _Known(
                type=known if name not in learnings else _with(known, learnings[name], versions[name]), count=counts[name],
                variations={**known.variations, **{one.typed_hash: one.variation for one in found.get(name, [])}},
                columns_added=_added(known, learnings.get(name)),
            )
            for name, known in due.items()
        }  # fmt: skip

    # Where it goes

    def _written(self, slices: Slices, one: _Known, ahead: Held | None) -> TypeResult:
        """A type's rows in its table; what hinders that is told, and the type keeps its place."""
        try:
            with described():
                return self._appended(slices, one, ahead)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types go on
            return self._failed(slices, one.type, _told(error))

    def _appended(self, slices: Slices, one: _Known, ahead: Held | None) -> TypeResult:
        known, target, lane = one.type, self._target(one.type), self._lane(one.type.type)
        place, count, begun = known.place, one.count, slices.start(known.place)
        result = TypeResult(
            type=known.type, table=known.table, start=begun, end=begun, layout=known.layout_version, columns_added=one.columns_added
        )
        result = result if ahead is None else self._with_earlier(result, target, ahead)
        for _ in range(MAX_ROUNDS):
            start = slices.start(place)
            events = _of_types(slices.after(start), [known.type])
            covered, rest = self._covered(one, count)
            rows = rows_of(events, known.layout, known.layout_version, self.job.group.contract_of(known.type), covered)
            stamp = self._stamp(known, place, start, count)
            held = append_after(place, target, rows, count.rows, stamp)
            result = _and(result, held, self._outcome(target, held, count.rows if self._is_own(held) else _rows_of(held), rest))
            if self._is_own(held):
                return replace(result, end=slices.version)
            found = place_in(target.log, lane, slices.table)
            assert found is not None  # as it holds a commit
            place, result = found.place, replace(result, end=slices.start(found.place))
            count = counted(_of_types(slices.after(slices.start(place)), [known.type])).get(known.type, _NONE)
            if not count.rows:
                return replace(result, end=slices.version)
        raise RuntimeError(f"{MAX_ROUNDS} others were first at {target.name}; the next step tries again")

    def _covered(self, one: _Known, count: TypeCount) -> tuple[list[str] | None, int]:
        """The variations that Spark's own reader brings into the layout, None where those are all; and how many rows have others."""
        covered = [name for name in count.variations if name in one.variations and covers(one.type.layout, one.variations[name])]
        rest = count.rows - sum(count.variations[name] for name in covered)
        return (covered if rest else None), rest

    def _outcome(self, target: Target, held: Committed, rows: int, rest: int) -> TypeResult:
        """What a commit did with the rows that were counted for it."""
        record = commit_at(target.log, int(held.version))
        written = int(record.metrics.get("numOutputRows", 0))
        rescued = 0
        if rest and record.added:
            frame = files_frame(self.spark, target.location, int(held.version), record.added)
            rescued = frame.where(F.col("_rescued").isNotNull()).count()
        return TypeResult(type="", table="", start=0, end=0, rows=rows, written=written, rescued=rescued, discarded=rows - written)

    def _with_earlier(self, result: TypeResult, target: Target, ahead: Held) -> TypeResult:
        """What a step does for a type, with the commit of another attempt that the store does not know."""
        rows = _rows_of(ahead.committed)
        return _and(result, ahead.committed, self._outcome(target, ahead.committed, rows, rows))

    def _unmoved(self, slices: Slices, one: KnownType, waits: str, count: TypeCount | None, ahead: Held | None) -> TypeResult:
        """A type of which nothing is written: as nothing came, or it must wait, or failed before."""
        start = slices.start(one.place)
        rows = count.rows if count is not None and waits else 0
        is_due = one.due_ts <= self.now_ms
        result = TypeResult(
            type=one.type, table=one.table, start=start, end=start if waits or not is_due else slices.version, rows=rows, pending=rows,
            layout=one.layout_version, waits=waits, put_off="" if is_due else one.error,
        )  # fmt: skip
        return result if ahead is None or not is_due else self._with_earlier(result, self._target(one), ahead)

    def _failed(self, slices: Slices, one: KnownType, error: str) -> TypeResult:
        start = slices.start(one.place)
        return TypeResult(type=one.type, table=one.table, start=start, end=start, layout=one.layout_version, error=error)

    def _is_own(self, held: Committed) -> bool:
        return (held.stamp.attempt, held.stamp.execution_id) == (self.job.attempt, self.job.execution_id)

    def _stamp(self, known: KnownType, place: TypePlace, start: int, count: TypeCount) -> CommitStamp:
        facts = {"type": known.type, "after": start, "layout": known.layout_version, "rows": count.rows}
        return CommitStamp(
            lane=self._lane(known.type), step=place.commits + 1, attempt=self.job.attempt, execution_id=self.job.execution_id,
            end=Place(sources={self.job.group.stream.table.name: self.job.end}), facts=facts,
            tags={"schema_version": str(known.layout_version)},
        )  # fmt: skip

    def _lane(self, type_name: str) -> LaneId:
        return LaneId(self.job.deployment, self.job.group.name, type_name)

    def _target(self, one: KnownType) -> Target:
        name, location = f"{self.job.group.name}.{one.table}", f"{self.job.folder}/{one.table}"
        return Target(name=name, location=location, log=self.open_log(location, name))


_NONE = TypeCount(rows=0, flagged=0, variations={})


def _by_start(slices: Slices, due: Mapping[str, KnownType]) -> dict[int, list[str]]:
    """The types by the version behind which each is read; those of a step are nearly all at one."""
    found: dict[int, list[str]] = {}
    for name, one in due.items():
        start = slices.start(one.place)
        if start < slices.version:
            found.setdefault(start, []).append(name)
    return found


def _of_types(rows: DataFrame, names: list[str] | Mapping[str, object]) -> DataFrame:
    return rows.where(F.col("reason").isNull() & F.col("type").isin(*names)) if names else rows.limit(0)


def _registered(known: KnownType) -> Learning | None:
    """A type that waits for a table is kept with its place, so that nothing of it is lost once it gets one."""
    if known.variations or known.layout_version:
        return None
    return Learning(
        type=known.type, table=known.table, place=known.place, prototypes=(), observed=known.observed, layout=known.layout,
        is_new_layout=False, before=0,
    )  # fmt: skip


def _with(known: KnownType, one: Learning, version: int) -> KnownType:
    return replace(known, layout=one.layout, layout_version=version, observed=one.observed)


def _added(known: KnownType, one: Learning | None) -> int:
    if one is None:
        return 0
    return len([*columns_of(one.layout.columns)]) - len([*columns_of(known.layout.columns)])


def _rows_of(held: Committed) -> int:
    """How many events its writer counted for a commit."""
    return int(held.stamp.facts.get("rows", 0))


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _and(result: TypeResult, held: Committed, more: TypeResult) -> TypeResult:
    """What a type's commits of one step did together."""
    return replace(
        result, committed=held, rows=result.rows + more.rows, written=result.written + more.written,
        rescued=result.rescued + more.rescued, discarded=result.discarded + more.discarded,
    )  # fmt: skip
