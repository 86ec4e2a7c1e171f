"""What a lake holds of people who ask: the rows that their keys reach, table by table, and where they are not found."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakechime_dagster.dce.event import TableFormat
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.personal.beside import searched_beside
from lakechime_dagster.lineage.personal.keys import Key, OutOfReach, Place, Reached, Searched, out_of_reach, reached, searched
from lakechime_dagster.lineage.personal.planned import planned_ways
from lakechime_dagster.lineage.personal.subjects import Subject
from lakechime_dagster.lineage.personal.tags import followed
from lakechime_dagster.lineage.personal.ways import NO_WAY, Ways, together, told_ways
from lakechime_dagster.lineage.planned.manifest import Manifest
from lakechime_dagster.lineage.plans.dump import Node
from lakechime_dagster.resources.lineage.asked import declared_statements
from lakechime_dagster.resources.lineage.plan import plans_by
from lakechime_dagster.resources.personal.export import Export
from lakechime_dagster.resources.personal.reached import PersonalData
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.streams.event_types import event_types
from lakechime_dagster.store.lineage.network import network_at
from lakechime_dagster.store.lineage.standing import LineageStandings

if TYPE_CHECKING:
    from lakechime_dagster.spark.lineage.planning import Planner

RESCUED = "_rescued"  # of the table of a type: values that have no column


@dataclass(frozen=True, kw_only=True)
class Looked:
    """A table that was looked in: how many rows are of subjects, of how many of these, and in how many something cannot be read.

    `absent` are columns that are said to be personal, or to come of what is, and that the table does not have.
    """

    table: str
    rows: int = 0
    subjects: int = 0
    unreadable: int = 0
    absent: tuple[str, ...] = ()
    is_there: bool = True


@dataclass(frozen=True, kw_only=True)
class NotReached:
    """Where subjects are not found, by the numbers of their lines."""

    place: OutOfReach
    lines: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Known:
    """What was found, without a value of anybody."""

    subjects: int
    tables: tuple[Looked, ...]
    not_reached: tuple[NotReached, ...]

    def document(self) -> dict[str, Any]:
        """As it is printed and kept."""
        return {
            "subjects": self.subjects,
            "rows": sum(one.rows for one in self.tables),
            "tables": [asdict(one) for one in self.tables],
            "out_of_reach": [{**asdict(one.place), "lines": list(one.lines)} for one in self.not_reached],
        }


@dataclass(frozen=True)
class Search:
    """Where a lake's personal data is searched: a plain answer, by which rows may be erased as well as shown.

    `plans` are those of its computed tables, as far as they could be planned.
    """

    platform: Platform
    lake: Lake
    manifest: Manifest
    plans: Mapping[str, Node]

    @cached_property
    def reached(self) -> Reached:
        """By table and column what they have of a subject."""
        types = {ColumnRef(name, one.name): one.type for name, table in self.manifest.tables.items() for one in table.columns}
        return reached(self._data.tags, self._ways(), {ref: str(kind) for ref, kind in types.items()})

    @cached_property
    def searched(self) -> tuple[Searched, ...]:
        """The tables to look in, each once: those that are declared, those beside them, and those of events' types."""
        streams = {group.stream.table.name for group in self.lake.groups}
        beside = searched_beside(self.lake, self.reached.keys)
        known = {one.table for one in beside} | {*self._type_tables}
        of_delta = {table.name for table in self.lake.tables if table.format is TableFormat.DELTA}
        plain = searched(self.reached, of_delta - known)
        several = [replace(one, texts=("payload",)) if one.table in streams else one for one in plain]
        return tuple(sorted([*several, *beside, *self._of_types()], key=lambda one: one.table))

    def location(self, table: str) -> str:
        """Where a table lies, be it declared, beside one that is, or of a type."""
        declared = {one.name: one.location for one in self.lake.tables}
        if table in declared:
            return self.platform.location(table, declared[table])
        outer = max((name for name in declared if table.startswith(f"{name}__")), key=len, default=None)
        if outer is None:
            return self.platform.location(table)
        return self.platform.location(outer, declared[outer]).rstrip("/") + table.removeprefix(outer)

    def out_of_reach(self, given: Collection[str]) -> tuple[OutOfReach, ...]:
        """Where a subject with keys of these categories is not found though personal data is there, or may be."""
        ours = {table.name for table in self.lake.tables} | {*self._type_tables}
        planned = [one.statement for one in self.manifest.tables.values() if one.is_computed]
        network = network_at(self.platform.store.engine, None, [*declared_statements(self.lake), *planned], self.platform.ledger.deployment)
        tagged = followed(network, self._data.tags, self._data.cleared)
        unread = {one.ref.table: "it is outside of the lake" for one in tagged if one.ref.table not in ours}
        unread |= {
            table.name: f"it is a table of {table.format}: only those of Delta are looked in"
            for table in self.lake.tables
            if table.format is not TableFormat.DELTA
        }
        return out_of_reach(self.reached, tagged, given, self.searched, unread)

    @cached_property
    def _data(self) -> PersonalData:
        return PersonalData(self.platform, self.lake)

    def _ways(self) -> dict[str, dict[str, Ways]]:
        """By the plans, and of what no plan tells by what runs recorded; inputs first."""
        names = [table.name for table in self.lake.tables if isinstance(table, LakeTable)]
        standing = LineageStandings(self.platform.store.engine).of_targets(names)
        recorded: dict[str, list[dict[str, Ways]]] = {}
        for one in standing:
            recorded.setdefault(one.statement.target, []).append({column.column: told_ways(column) for column in one.statement.columns})
        ways: dict[str, dict[str, Ways]] = {}
        for name in names:
            told = recorded.get(name, [])
            columns = {column: together(one.get(column, NO_WAY) for one in told) for one in told for column in one}
            if (plan := self.plans.get(name)) is None:
                ways[name] = columns
                continue
            same = {column: Ways(several=one.several) for column, one in columns.items()}
            planned = planned_ways(plan)
            ways[name] = {column: planned.get(column, NO_WAY).beside(same.get(column, NO_WAY)) for column in {**planned, **same}}
        return ways

    @cached_property
    def _type_tables(self) -> Mapping[str, frozenset[str]]:
        """The tables of types of groups with personal paths, each with the categories of its group."""
        return {
            f"{one.home or group.name}.{one.table}": frozenset(tag.category for tag in group.personal.values())
            for group in self.lake.groups
            if group.personal
            for one in event_types(self.platform).types(group.name).values()
        }

    def _of_types(self) -> list[Searched]:
        """Those tables; columns may hold whole values as JSON, and what has no column stands among what was rescued."""
        found = []
        for table, categories in self._type_tables.items():
            places = [Place(name, key) for name, keys in self.reached.keys.get(table, {}).items() for key in keys]
            places += [Place(RESCUED, Key(category)) for category in sorted(categories)]
            found.append(Searched(table=table, places=tuple(places), is_text=True, texts=(RESCUED,)))
        return found


def know(
    lake: Lake, platform: Platform, subjects: Sequence[Subject], export: Export, log: Callable[[str], None]
) -> Known:  # fmt: skip
    """Find the rows of subjects and write them down.

    Args:
        lake: The lake.
        platform: Where its tables are.
        subjects: Who asks.
        export: Takes the rows.
        log: Told which Spark is used.

    Raises:
        PlanUnreadableError: this Spark shows no plans.
        SparkFailedError: what Spark said before it was told of anybody.
        TableUnreadableError: naming the table that cannot be looked in.
    """
    from lakechime_dagster.spark.drivers.driver import open_driver  # only who asks for this needs Spark
    from lakechime_dagster.spark.drivers.failures import described
    from lakechime_dagster.spark.lineage.planning import Planner

    settings = platform.settings
    with open_driver(settings.spark, settings.home, jars=settings.jars, log=log) as driver:
        with described():
            search = search_by(Planner(driver.spark), lake, platform)
        from lakechime_dagster.spark.personal_search import keys_frame

        keys = keys_frame(driver.spark, subjects)
        tables = tuple(_looked(search, one, keys, subjects, export) for one in search.searched)
    absent = {one.table for one in tables if not one.is_there}
    not_reached = tuple(one for one in _not_reached(search, subjects) if one.place.table not in absent)
    return Known(subjects=len(subjects), tables=tables, not_reached=not_reached)


def search_by(planner: "Planner", lake: Lake, platform: Platform) -> Search:
    """Where personal data is searched, by a planner."""
    manifest, plans = plans_by(planner, lake, platform)
    return Search(platform, lake, manifest, plans)


def _looked(search: Search, one: Searched, keys: Any, subjects: Sequence[Subject], export: Export) -> Looked:
    """Look in one table; one that nobody can be in by the keys that are given is not read."""
    from lakechime_dagster.spark.personal_search import NOBODY, absent, matches

    location = search.location(one.table)
    if not search.platform.log_at(location, one.table).exists():
        return Looked(table=one.table, is_there=False)
    if not any(one.categories & subject.categories for subject in subjects):
        return Looked(table=one.table)
    lacking = tuple(name for name in absent(keys.sparkSession, one, location) if name != RESCUED)
    found, rows, unreadable = set[int](), 0, 0
    for match in matches(keys, one, location):
        if match.subject == NOBODY:
            unreadable = match.rows
            continue
        export.add(one.table, match.subject, match.by, match.row)
        found.add(match.subject)
        rows += 1
    return Looked(table=one.table, rows=rows, subjects=len(found), unreadable=unreadable, absent=lacking)


def _not_reached(search: Search, subjects: Sequence[Subject]) -> tuple[NotReached, ...]:
    """Where subjects are not found; those who give the same categories are found at the same places."""
    lines: dict[OutOfReach, list[int]] = {}
    for given in sorted({one.categories for one in subjects}, key=sorted):
        of_these = [one.line for one in subjects if one.categories == given]
        for place in search.out_of_reach(given):
            lines.setdefault(place, []).extend(of_these)
    return tuple(NotReached(place=place, lines=tuple(sorted(lines[place]))) for place in lines)
