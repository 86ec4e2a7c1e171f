"""Where the personal data of a lake is: declared, decided, and where lineage carries it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.errors import LakeChimeError, NotFoundError, TableUnreadableError, needs
from lakechime_dagster.formats.delta_rows import DeltaRows
from lakechime_dagster.governance.following import followed
from lakechime_dagster.governance.scan import Scan, library_validator, scanned
from lakechime_dagster.governance.store import PersonalDecisions
from lakechime_dagster.governance.tags import Decision, Leak, Tagged, declared_tags, leaks, public_tables
from lakechime_dagster.lineage.columns import ColumnRef, Statement, pointer
from lakechime_dagster.lineage.declared import paths_of
from lakechime_dagster.lineage.graph import parts_of
from lakechime_dagster.lineage.network import Network, network_of
from lakechime_dagster.lineage.service import declared_statements, is_of_subscription
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.silver.schema import personal_leaves
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import folded
from lakechime_dagster.tables.options import CATEGORY
from lakechime_dagster.triggers.interventions import By


@dataclass(frozen=True)
class PersonalData:
    """The personal columns of a lake, and what comes of them by a network of lineage."""

    platform: Platform
    lake: Lake

    @cached_property
    def declared(self) -> Mapping[ColumnRef, str]:
        """Categories of the columns that the lake declares, those of the tables of its events' types among them."""
        return declared_tags(self.lake) | _type_tags(self.platform, self.lake)

    @cached_property
    def decided(self) -> Mapping[ColumnRef, Decision]:
        """What people decided of columns that are not declared."""
        known = {_folded(ref) for ref in self.declared}
        holding = PersonalDecisions(self.platform.store.engine).holding()
        return {ref: one for ref, one in holding.items() if _folded(ref) not in known}

    @property
    def tags(self) -> Mapping[ColumnRef, str]:
        """Categories of the columns that are known to be personal."""
        return {**self.declared, **{ref: one.category for ref, one in self.decided.items() if one.category is not None}}

    @property
    def cleared(self) -> Collection[ColumnRef]:
        """The columns that hold nothing personal by what people decided."""
        return [ref for ref, one in self.decided.items() if one.category is None]

    def found(self, network: Network, within: Collection[str] | None = None) -> tuple[Tagged, ...]:
        """All that the known columns lead to, themselves among them, or what of it is in some data sets."""
        return followed(network, self.tags, self.cleared, within) if self.tags else ()

    def leaks(self, found: Iterable[Tagged]) -> tuple[Leak, ...]:
        """What of it is surely wrong."""
        return leaks(found, self.tags, public_tables(self.lake), levels_of(self.lake))

    def network_above(self, table: str, instead: Statement | None = None) -> Network:
        """What leads to a table, as it is known by now, without a look at what does not.

        With `instead` that is taken for all that is known of the table itself: what it is about to be written from.
        """
        known = LineageStandings(self.platform.store.engine)
        declared: dict[str, list[Statement]] = {}
        for one in declared_statements(self.lake):
            declared.setdefault(one.target, []).append(one)
        told, beside, seen, layer, own = list[Statement](), list[Statement](), {table}, {table}, set[str]()
        if instead is not None:
            told, layer, own = [instead], {*parts_of(instead)} - seen, {table}
            seen |= layer
        while layer:
            standing = known.of_targets(layer)
            own |= {one.statement.target for one in standing if is_of_subscription(self.platform, self.lake, one)}
            new = [one.statement for one in standing]
            more = [one for name in layer for one in declared.get(name, ())]
            told, beside = [*told, *new], [*beside, *more]
            layer = {name for one in [*new, *more] for name in parts_of(one)} - seen
            seen |= layer
        return network_of(told, beside, own)

    def decide(self, ref: ColumnRef, category: str | None, by: By) -> None:
        """Keep a person's word about a column.

        Raises:
            LakeChimeError: the lake declares it, or there is no such category.
        """
        if category is not None and not CATEGORY.fullmatch(category):
            raise LakeChimeError(f"{category!r} is no category: write a word of small letters, digits and _, such as email, or not")
        declared = next((one for name, one in self.declared.items() if _folded(name) == _folded(ref)), None)
        if declared is not None:
            raise LakeChimeError(f'{ref} is declared personal("{declared}"); what is declared holds: change the declaration')
        PersonalDecisions(self.platform.store.engine).decide(ref, category, by)


def scan(data: PersonalData, table: str, sample: int) -> Scan:
    """What looks personal in a table's columns and in so many of its rows, but for what is declared or decided.

    Raises:
        NotFoundError: there is no such table.
        TableUnreadableError: it cannot be read.
        MissingExtraError: the validators are not installed.
    """
    with needs("a scan of values", extra="personal"):
        validate = library_validator()
    declared = data.lake.table(table)
    if declared.format is not TableFormat.DELTA:
        raise TableUnreadableError(f"{table} is no Delta table; `lakechime personal show --scan` reads only those")
    log = data.platform.log(table, declared.location)
    rows = DeltaRows(log)
    columns = rows.types()
    if not columns:
        raise NotFoundError(f"{table} does not exist yet: nothing was written at {log.shown_location}")
    known = [str(ref.column) for ref in (*data.declared, *data.decided) if ref.table == table]
    return scanned(columns, rows.select(limit=sample), validate, known)


def levels_of(lake: Lake) -> dict[str, tuple[str, ...]]:
    """The names of the partition levels of each table of a lake."""
    return {name: one.names for name, one in lake.levels.items()}


def _type_tags(platform: Platform, lake: Lake) -> dict[ColumnRef, str]:
    """Columns of the tables of types, and of the events that they are made of, by the paths that their groups declare."""
    tags: dict[ColumnRef, str] = {}
    for group in lake.groups:
        if not group.personal:
            continue
        for one in event_types(platform).types(group.name).values():
            table, paths = f"{one.home or group.name}.{one.table}", paths_of(one.layout)
            for name, pattern in personal_leaves(one.layout, group.personal):
                category = group.personal[pattern].category
                tags[ColumnRef(table, name)] = category
                if len(several := paths.get(name, ())) == 1:
                    tags[ColumnRef(group.stream.table.name, pointer(*several[0]))] = category
    return tags


def _folded(ref: ColumnRef) -> tuple[str, str]:
    return ref.table, folded(ref.column or "")
