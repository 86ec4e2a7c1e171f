"""Answers about lineage: what runs recorded, and what the lake declares."""

import datetime as dt
import heapq
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import reading, slices
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.answers import (
    AffectedConsumer,
    Neighbourhood,
    PathEdge,
    Paths,
    ReachedTables,
    UnaffectedTable,
    affected_consumers,
    neighbourhood,
    nodes_of,
    reached_tables,
    unaffected_tables,
)
from lakechime_dagster.lineage.columns import (
    ColumnLineage,
    ColumnRef,
    Kind,
    Source,
    Statement,
    refs_in,
)
from lakechime_dagster.lineage.graph import Gap, Standing, TableFacts, gap_of, gaps, meant, parts_of
from lakechime_dagster.lineage.manifest import manifest_in, planned_of
from lakechime_dagster.lineage.network import Certainty, Network, network_of, reach
from lakechime_dagster.lineage.recording import MANY
from lakechime_dagster.lineage.store import (
    LineageStandings,
    SqlReads,
    Way,
    columns_of,
    facts_of,
    known_columns,
    known_tables,
    nodes_of_tables,
    recorded_since,
    tables_like,
)
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.settings import project_folder
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import folded
from lakechime_dagster.tables.tables import SourceTable

PRODUCER = "urn:lakechime_dagster"
EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
COLUMN_LINEAGE = "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet"
SYMLINKS = (
    "https://openlineage.io/spec/facets/1-0-1/SymlinksDatasetFacet.json#/$defs/SymlinksDatasetFacet"
)
OWNERSHIP = (
    "https://openlineage.io/spec/facets/1-0-1/OwnershipJobFacet.json#/$defs/OwnershipJobFacet"
)
_SUBTYPES = {Kind.DRIVER: "CONDITIONAL"}  # of ours that OpenLineage has no word for

Address = Callable[[str], tuple[str, str]]


def job_events(standings: Iterable[Standing], address: Address) -> list[dict[str, Any]]:
    """One event a statement; `address` gives namespace and name of a data set."""
    return [_event(one, address) for one in standings]


def address_of(table: str, location: str | None) -> tuple[str, str]:
    """Namespace and name of a data set: of its location, or of an external one by its name."""
    text = location if location is not None else table
    scheme, mark, rest = text.partition("://")
    if mark:
        host, _, name = rest.partition("/")
        return f"{scheme}://{host}", name or table
    if location is not None:
        return "file", location
    namespace, slash, name = text.partition("/")
    return (namespace, name) if slash else ("lakechime", table)


def _event(one: Standing, address: Address) -> dict[str, Any]:
    statement = one.statement
    owners = [{"name": owner} for owner in one.owners]
    return {
        "eventTime": dt.datetime.fromtimestamp(one.last_ms / 1000, dt.timezone.utc).isoformat(),
        "producer": PRODUCER,
        "schemaURL": EVENT,
        "job": {
            "namespace": one.producer.namespace,
            "name": one.producer.job,
            "facets": {
                "ownership": {"_producer": PRODUCER, "_schemaURL": OWNERSHIP, "owners": owners}
            }
            if owners
            else {},
        },
        "inputs": [_dataset(name, address) for name in parts_of(statement)],
        "outputs": [
            _dataset(
                statement.target,
                address,
                columnLineage={
                    "_producer": PRODUCER,
                    "_schemaURL": COLUMN_LINEAGE,
                    "fields": {
                        column.column: _field(column, address) for column in statement.columns
                    },
                    "dataset": [_input(source, address) for source in statement.indirect],
                },
            )
        ],
    }


def _dataset(table: str, address: Address, **facets: dict[str, Any]) -> dict[str, Any]:
    namespace, name = address(table)
    identifiers = [{"namespace": "lakechime", "name": table, "type": "TABLE"}]
    symlinks = (
        {"symlinks": {"_producer": PRODUCER, "_schemaURL": SYMLINKS, "identifiers": identifiers}}
        if name != table
        else {}
    )
    return {"namespace": namespace, "name": name, "facets": symlinks | facets}


def _field(column: ColumnLineage, address: Address) -> dict[str, Any]:
    return {
        "inputFields": [
            _input(source, address) for source in column.sources if source.ref.column is not None
        ]
    }


def _input(source: Source, address: Address) -> dict[str, Any]:
    namespace, name = address(source.ref.table)
    kind = "DIRECT" if source.kind.is_direct else "INDIRECT"
    transformation = {
        "type": kind,
        "subtype": _SUBTYPES.get(source.kind, source.kind.value.upper()),
        "description": "",
        "masking": source.is_masking,
    }
    return {
        "namespace": namespace,
        "name": name,
        "field": source.ref.column or "",
        "transformations": [transformation],
    }


LARGE = 5_000  # data sets: to look for more of them costs more than to read all


def network_around(
    engine: Engine,
    tables: Collection[str],
    *,
    upstream: bool = False,
    depth: int | None = None,
    declared: Sequence[Statement] = (),
    namespace: str | None = None,
    columns: Iterable[ColumnRef] = (),
    large: int = LARGE,
) -> Network | None:
    """What holds of what data sets lead to, or with `upstream` of what leads to them, within so
    many edges.

    What is asked of it in that direction has the answer of the whole network, since all that was
    recorded of each of its data sets is in it. None where more than `large` data sets are found.
    `namespace` and `columns` are as in `network_at`.
    """
    found, layer, edges = set(tables), set(tables), 0
    while layer and edges != depth:
        layer, edges = (
            set[str]().union(*neighbours(engine, layer, declared, upstream=upstream).values())
            - found,
            edges + 1,
        )
        found |= layer
        if len(found) > large:
            return None
    # which name columns of these
    found |= {one.target for one in declared if one.columns and not found.isdisjoint(parts_of(one))}
    return network_at(engine, declared, namespace, columns, tables=found)


def neighbours(
    engine: Engine, tables: Collection[str], declared: Iterable[Statement], *, upstream: bool
) -> dict[str, set[str]]:
    """By data set those that read it, or with `upstream` those that it reads, as it is recorded and
    as it is declared.
    """
    found: dict[str, set[str]] = {}
    for one in declared:
        for name in parts_of(one):
            near, far = (one.target, name) if upstream else (name, one.target)
            if near in tables:
                found.setdefault(near, set()).add(far)
    row, given = schema.writer.c, schema.statement_input.c
    near, far = schema.node.alias("near"), schema.node.alias("far")
    here, there = (row.target_id, given.source_id) if upstream else (given.source_id, row.target_id)
    query = (
        sa.select(near.c.name, far.c.name)
        .distinct()
        .join_from(schema.statement_input, schema.writer, row.statement_id == given.statement_id)
        .join(near, near.c.node_id == here)
        .join(far, far.c.node_id == there)
    )
    with reading(engine) as connection:
        for some in slices(sorted(set(tables)), MANY):
            for name, other in connection.execute(
                query.where(here.in_(nodes_of_tables(connection, some)))
            ):
                found.setdefault(name, set()).add(other)
    return found


def network_at(
    engine: Engine,
    declared: Sequence[Statement] = (),
    namespace: str | None = None,
    columns: Iterable[ColumnRef] = (),
    *,
    tables: Collection[str] | None = None,
) -> Network:
    """What holds now, of all data sets or of some, with all of their columns; what is declared is
    in it beside what runs recorded, and so are more columns.

    `namespace` is that of the subscriptions that write what is declared: what others record says
    nothing of them. None if anybody may.
    """
    with reading(engine) as connection:
        known = columns_of(connection, tables)
    subscriptions = {one.target for one in declared}
    own = set[str]()

    def recorded() -> Iterator[Statement]:
        for one in LineageStandings(engine).each(tables):
            if one.producer.namespace == namespace and one.producer.job in subscriptions:
                own.add(one.statement.target)
            yield one.statement

    return network_of(
        recorded(),
        [one for one in declared if tables is None or one.target in tables],
        None if namespace is None else own,
        [*known, *columns],
    )


def declared_statements(lake: Lake) -> list[Statement]:
    """What the tables of a lake are declared to read, and what their columns derive from where the
    project's manifest says so.
    """
    return [
        *planned_statements(lake).values(),
        *(Statement(target=table.name, inputs=table.inputs) for table in lake.targets),
    ]


def planned_statements(lake: Lake) -> dict[str, Statement]:
    """What the manifest of the project plans of tables whose code is still the one that was
    planned, by name.
    """
    manifest = manifest_in(project_folder())
    return {} if manifest is None else planned_of(lake, manifest)


def is_of_subscription(platform: Platform, lake: Lake, standing: Standing) -> bool:
    """Whether a subscription of the lake recorded it, and not another program that writes the same
    table.
    """
    return standing.producer.namespace == platform.ledger.deployment and standing.producer.job in {
        table.name for table in lake.targets
    }


def declared_facts(lake: Lake) -> dict[str, TableFacts]:
    """Who owns the tables of a lake by their declarations, and which are written externally."""
    return {
        table.name: TableFacts(
            owners=(table.owner,) if table.owner else (),
            is_declared=True,
            is_source=isinstance(table, SourceTable),
        )
        for table in lake.tables
    }


def _each_once(columns: Iterable[str]) -> set[str]:
    """Columns by the first of the spellings of each."""
    found: dict[str, str] = {}
    for name in columns:
        found.setdefault(folded(name), name)
    return set(found.values())


@dataclass(frozen=True)
class AskedLineage:
    """The lineage of a store and a lake."""

    platform: Platform
    lake: Lake

    @cached_property
    def network(self) -> Network:
        """All that is known. Questions about few data sets read less."""
        return network_at(
            self.platform.store.engine, self._declared, self.platform.ledger.deployment
        )

    @cached_property
    def _declared(self) -> list[Statement]:
        return declared_statements(self.lake)

    @cached_property
    def _parts(
        self,
    ) -> dict[tuple[frozenset[ColumnRef], frozenset[ColumnRef], bool, int | None], Network]:
        """What was read for questions before."""
        return {}

    def part(
        self,
        refs: Collection[ColumnRef],
        *,
        upstream: bool = False,
        depth: int | None = None,
        to: Collection[ColumnRef] = (),
    ) -> Network:
        """As much of the network as questions about columns in one direction need, with nodes for
        these and others.
        """
        question = frozenset(refs), frozenset(to), upstream, depth
        if (found := self._parts.get(question)) is None:
            engine, namespace = self.platform.store.engine, self.platform.ledger.deployment
            around = network_around(
                engine,
                {ref.table for ref in refs},
                upstream=upstream,
                depth=depth,
                declared=self._declared,
                namespace=namespace,
                columns=(*refs, *to),
            )
            found = (
                around
                if around is not None
                else network_at(engine, self._declared, namespace, (*refs, *to))
            )
            self._parts[question] = found
        return found

    @cached_property
    def since_ms(self) -> int | None:
        """When the first run that is recorded succeeded; reads before it are not known."""
        return recorded_since(self.platform.store.engine)

    @cached_property
    def now_ms(self) -> int:
        """The store's clock."""
        return self.platform.store.now()

    def is_stale(self, facts: TableFacts) -> bool:
        """Whether no run recorded a write of a data set for so long that it may no longer be
        written.
        """
        return facts.is_stale(self.now_ms, self.platform.settings.lineage_stale_days)

    def ref(self, text: str) -> ColumnRef:
        """The data set or column that a person means.

        Raises:
            NotFoundError: naming what is nearest.
        """
        near = [text, *(text[:at] for at, character in enumerate(text) if character == ".")]
        declared = {
            *(table.name for table in self.lake.tables),
            *(ref.table for ref in self._declared_refs),
        }
        engine = self.platform.store.engine
        known = known_tables(engine, near) | declared.intersection(near)
        return meant(text, known or known_tables(engine) | declared, self.columns)

    @cached_property
    def _declared_refs(self) -> set[ColumnRef]:
        """The data sets and columns that are declared, or planned."""
        return {ref for one in self._declared for ref in refs_in(one)}

    def names(self, like: str, most: int) -> list[str]:
        """The names of data sets with this text in them, and of the columns of one that it begins
        with; those that begin so first.
        """
        engine, wanted = self.platform.store.engine, like.casefold()
        declared = {
            *(table.name for table in self.lake.tables),
            *(ref.table for ref in self._declared_refs),
        }
        tables = [like[:at] for at, character in enumerate(like) if character == "."]
        columns = {
            f"{table}.{column}" for table in tables for column in known_columns(engine, table)
        }
        found = (
            name
            for name in {*tables_like(engine, like, most), *declared, *columns}
            if wanted in name.casefold()
        )
        return heapq.nsmallest(
            most, found, key=lambda name: (not name.casefold().startswith(wanted), name)
        )

    def columns(self, table: str) -> set[str]:
        """The columns of a data set that lineage knows, and those of its log now."""
        declared_names = sorted(
            ref.column
            for ref in self._declared_refs
            if ref.table == table and ref.column is not None
        )
        recorded = sorted(known_columns(self.platform.store.engine, table))
        known = _each_once([*recorded, *declared_names])
        declared = next((one for one in self.lake.tables if one.name == table), None)
        if declared is None:
            return known
        try:
            table_format = self.platform.format_of(table, declared.format)
            log = self.platform.log_of(table, table_format, declared.location)
            return _each_once([*known, *(name for name, _, _ in log.columns())])
        except TableUnreadableError:
            return known

    def reached(
        self,
        refs: Collection[ColumnRef],
        *,
        upstream: bool = False,
        depth: int | None = None,
        kind: Certainty | None = None,
        limit: int | None = None,
    ) -> ReachedTables:
        """What columns lead to, or with `upstream` what leads to them."""
        network = self.part(refs, upstream=upstream, depth=depth)
        return reached_tables(network, refs, upstream=upstream, depth=depth, kind=kind, limit=limit)

    def unaffected(
        self, refs: Collection[ColumnRef], found: ReachedTables
    ) -> tuple[UnaffectedTable, ...]:
        """What is further down and is unaffected by columns, with the reason; `found` are all
        affected ones.
        """
        return unaffected_tables(self.part(refs), refs, found)

    def consumers(
        self, refs: Collection[ColumnRef], found: ReachedTables
    ) -> tuple[AffectedConsumer, ...]:
        """Who reads columns, or what they lead to, and writes nothing: dashboards, people, external
        jobs. `found` are all affected ones.
        """
        tables = {ref.table for ref in refs} | {one.table for one in found.tables}
        reads = SqlReads(self.platform.store.engine).of_tables(tables)
        return affected_consumers(refs, found, reads)

    @cached_property
    def read_ways(self) -> tuple[Way, ...]:
        """The ways by which other programs report reads; without one it is unknown who reads."""
        return tuple(SqlReads(self.platform.store.engine).ways())

    def path(
        self, source: ColumnRef, target: ColumnRef, kind: Certainty = Certainty.UNSURE
    ) -> tuple[PathEdge, ...] | None:
        """A shortest path from one column or data set to another, by what is at least so sure; None
        if there is none.

        One of which each edge is known goes before all that are not sure, however long it is.
        """
        network = self.part([source], to=[target])
        start, end = nodes_of(network, [source]), nodes_of(network, [target])
        for certainty in dict.fromkeys((min(kind, Certainty.INDIRECT), kind)):
            found = reach(network, start, certainty)
            ways = [
                way
                for node in end.tolist()
                if (way := Paths(network, found, certainty).of(node)) is not None
            ]
            if ways:
                return min(ways, key=len)
        return None

    def around(self, table: str, *, up: int = 1, down: int = 1, limit: int = 150) -> Neighbourhood:
        """What is around a data set, to be drawn."""
        engine, declared, namespace = (
            self.platform.store.engine,
            self._declared,
            self.platform.ledger.deployment,
        )
        return neighbourhood(
            table,
            lambda tables, is_upstream: neighbours(engine, tables, declared, upstream=is_upstream),
            lambda tables: network_at(engine, declared, namespace, tables=tables),
            up=up,
            down=down,
            limit=limit,
        )

    def facts(self, tables: Iterable[str]) -> dict[str, TableFacts]:
        """What is known of data sets apart from their edges; something of each."""
        names = list(tables)
        recorded, declared = facts_of(self.platform.store.engine, names), declared_facts(self.lake)
        nothing = TableFacts()
        return {
            name: declared.get(name, nothing).joined(recorded.get(name, nothing)) for name in names
        }

    def unknown(self, refs: Collection[ColumnRef], *, upstream: bool = False) -> tuple[str, ...]:
        """Why more may lead to these columns, or come from them, than is known; none where all
        is.
        """
        if not upstream:
            nothing = "no run has recorded lineage yet: only declared reads are known"
            return () if self.since_ms is not None else (nothing,)
        recorded, declared, planned = (
            self._statements({ref.table for ref in refs}),
            declared_facts(self.lake),
            self._planned,
        )
        reasons = (
            gaps(
                ref,
                recorded.get(ref.table, ()),
                declared.get(ref.table, TableFacts()),
                planned.get(ref.table),
            )
            for ref in refs
        )
        return tuple(dict.fromkeys(chain.from_iterable(reasons)))

    def gaps(self, tables: Collection[str]) -> dict[str, Gap]:
        """Why more may lead to data sets than is known, by data set; those of which all is known
        are left out.
        """
        recorded, declared, planned = (
            self._statements(tables),
            declared_facts(self.lake),
            self._planned,
        )
        found = {
            one: gap_of(
                one, recorded.get(one, ()), declared.get(one, TableFacts()), planned.get(one)
            )
            for one in tables
        }
        return {table: gap for table, gap in found.items() if gap is not None}

    def _statements(self, tables: Collection[str]) -> dict[str, list[Statement]]:
        """What runs recorded of data sets, the oldest first."""
        found: dict[str, list[Statement]] = {}
        standings = LineageStandings(self.platform.store.engine).of_targets(tables)
        for one in sorted(standings, key=lambda one: one.last_ms):
            found.setdefault(one.statement.target, []).append(one.statement)
        return found

    @cached_property
    def _planned(self) -> dict[str, Statement]:
        return planned_statements(self.lake)

    def job_events(self, table: str | None = None, depth: int = 1) -> list[dict[str, Any]]:
        """What runs recorded, as events of OpenLineage; of one table with what is around it within
        so many edges.
        """
        known = LineageStandings(self.platform.store.engine)
        if table is None:
            standings = known.all()
        else:
            several = self.around(table, up=depth, down=depth, limit=sys.maxsize).tables
            standings = known.of_targets([one.table for one in several])
        declared = {
            one.name: self.platform.location(one.name, one.location) for one in self.lake.tables
        }
        return job_events(standings, lambda name: address_of(name, declared.get(name)))
