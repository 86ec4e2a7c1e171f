"""The manifest of a lake: what its code computes, by plans."""

import hashlib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.lineage.check import Finding, Readers, raised, readers_of
from lakechime_dagster.lineage.columns import (
    RECIPIENT_MS,
    ColumnRef,
    Consumer,
    ConsumerKind,
    Names,
    Read,
    Statement,
)
from lakechime_dagster.lineage.graph import is_unsure
from lakechime_dagster.lineage.manifest import UNTIL_IT_RUNS, Manifest, PlannedColumn, PlannedTable
from lakechime_dagster.lineage.plan_dump import (
    Dump,
    Field,
    Node,
    Unknown,
    deeply,
    dump_of,
    location_of,
)
from lakechime_dagster.lineage.plan_expressions import read_at
from lakechime_dagster.lineage.plan_statements import acts, statements_of
from lakechime_dagster.lineage.runs import names_of
from lakechime_dagster.lineage.service import is_of_subscription
from lakechime_dagster.lineage.store import LineageStandings, SqlReads
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import Lake, Table
from lakechime_dagster.tables.tables import LakeTable, SourceTable, code_digest
from lakechime_dagster.triggers.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakechime_dagster.lineage.spark import Schema

CARRYING = frozenset(
    {
        "Project",
        "SubqueryAlias",
        "View",
        "Window",
        "ResolvedHint",
        "WithCTE",
        "CTERelationDef",
        "CTERelationRef",
        "Repartition",
    }
)
"""Nodes that give the rows of what is below them."""

CHOOSING = frozenset(
    {
        "Filter",
        "Sort",
        "GlobalLimit",
        "LocalLimit",
        "Offset",
        "Sample",
        "Aggregate",
        "Deduplicate",
        "Join",
        "LateralJoin",
        "AsOfJoin",
        "Union",
        "Expand",
        "Generate",
        "RepartitionByExpression",
        "RebalancePartitions",
        "CollectMetrics",
    }
)
"""Nodes whose rows are those below them and what their own expressions say; of others any column
below may decide on them.
"""

COMPARING = frozenset({"Distinct", "Except", "Intersect", "UnionLoop"})
"""Nodes whose rows are decided by the values of all columns, whatever these are called."""

DECIDING = {
    "Aggregate": ("groupingExpressions",),
    "Generate": ("generator", "outer"),
    "LateralJoin": ("joinType", "condition"),
}
"""The parameters that decide on the rows of a node, where these are not all that are no plans."""

SIDES = frozenset({"Join", "LateralJoin", "AsOfJoin"})
"""Nodes of two sides, of which one may be the same table as the other: columns of one are not those
of the other.
"""

BY_POSITION = frozenset({"Union", "Except", "Intersect", "Expand", "CTERelationRef", "UnionLoop"})
UNSAID = frozenset(
    {
        "exprId",
        "cteId",
        "id",
        "rdd",
        "resultId",
        "loopId",
        "resultIds",
        "maxDepth",
        "limit_",
        "rowsOf",
        "rowsId",
        "roots",
        "grouped",
    }
)
"""Parameters that are others each time, or once there are more files."""

DIGITS = 16


@dataclass(frozen=True)
class Digests:
    """Digests of the columns by name, in order, and of the rows."""

    columns: Mapping[str, str]
    rows: str


@dataclass(frozen=True)
class _Frame:
    """What a node gives: its columns by id, and their names in the same order."""

    columns: tuple[tuple[int, str], ...]
    rows: str
    names: tuple[str, ...] = ()

    def whole(self, names: tuple[str, ...] = ()) -> str:
        return _digest(self.rows, *names, *(digest for _, digest in self.columns))

    def right_of(self, left: "_Frame") -> "_Frame":
        """The same as the right side of a join: a column that the left side has too is another one
        here.
        """
        taken = {digest for _, digest in left.columns}
        return _Frame(
            tuple((number, _apart(digest, taken)) for number, digest in self.columns),
            self.rows,
            self.names,
        )


def _apart(digest: str, taken: Collection[str]) -> str:
    while digest in taken:
        digest = _digest(digest, "again")
    return digest


def digests_of(plan: Node) -> Digests:
    """The digests of a plan that was dumped with its texts."""
    frame = deeply(lambda: _Digesting(plan).frame(plan, {}), plan.depth)
    names = [one.name for one in plan.output or ()]
    return Digests(
        dict(zip(names, (digest for _, digest in frame.columns), strict=True)), frame.rows
    )


@dataclass
class _Digesting:
    plan: Node
    definitions: dict[int, Node] = field(default_factory=dict)
    defined: dict[int, _Frame] = field(default_factory=dict)
    # which keeps what has the second id
    framed: dict[tuple[int, int], tuple[_Frame, Mapping[int, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.definitions = {
            node.number("id"): node for node in self.plan.walk() if node.name == "CTERelationDef"
        }

    def frame(self, node: Node, outer: Mapping[int, str]) -> _Frame:
        """What a node gives, each column with its digest; a node that several have as a part is
        looked at once.
        """
        key = id(node), id(outer)
        if key not in self.framed:
            self.framed[key] = self._frame(node, outer), outer
        return self.framed[key][0]

    def _frame(self, node: Node, outer: Mapping[int, str]) -> _Frame:
        below = [self.frame(child, outer) for child in node.plans()]
        if node.name == "CTERelationRef":
            below = [self._cte(node, outer)]
        if node.name == "WithCTE":
            below = [self.frame(node.node("plan"), outer)]
        if not below:
            return self._leaf(node, outer)
        if node.name == "LateralJoin":  # its right side sees the columns of the left one
            below.append(self.frame(node.node("right").node("plan"), _known(outer, below)))
        if node.name in SIDES:
            below[1:] = [one.right_of(below[0]) for one in below[1:]]
        known = _known(outer, below)
        own = self._own(node, below, known)
        output = node.output or ()
        columns = tuple(
            (one.id, self._column(node, location, one.id, own, below, known))
            for location, one in enumerate(output)
        )
        return _Frame(columns, self._rows(node, below, known), tuple(one.name for one in output))

    def _rows(self, node: Node, below: list[_Frame], known: Mapping[int, str]) -> str:
        if node.name in CARRYING and len(below) == 1:
            return below[0].rows
        return _digest(self._deciding(node, known), *(_counting(node, one) for one in below))

    def _cte(self, node: Node, outer: Mapping[int, str]) -> _Frame:
        number = node.number("cteId")
        if number not in self.defined:
            definition = self.definitions.get(number)
            # until it is known: a recursive one refers to itself
            self.defined[number] = _Frame((), "recursive")
            self.defined[number] = (
                self.frame(definition.node("child"), outer)
                if definition is not None
                else _Frame((), "undefined")
            )
        return self.defined[number]

    def _leaf(self, node: Node, outer: Mapping[int, str]) -> _Frame:
        name = (
            node.text("name")
            if node.name == "Table"
            else self._said(_without(node, "output"), outer) + _folders(node)
        )
        output = node.output or ()
        columns = tuple((one.id, _digest(node.name, name, one.name)) for one in output)
        return _Frame(columns, _digest(node.name, name), tuple(one.name for one in output))

    def _own(self, node: Node, below: list[_Frame], known: Mapping[int, str]) -> dict[int, str]:
        """The columns that a node itself makes; of an aggregate what it groups by is part of each
        value.

        What it makes by no expression that has the column's id, as Python does of a frame, may rest
        on all that is below it.
        """
        if node.name == "Generate":
            said = self._deciding(node, known)
            return {
                one.number("exprId"): _digest(said, str(location))
                for location, one in enumerate(node.nodes("generatorOutput"))
            }
        groups = (
            self._said(node.fields.get("groupingExpressions"), known)
            if node.name == "Aggregate"
            else ""
        )
        made = [one for one in _named(node) if one.name != "AttributeReference"]
        own = {
            number: self._made(one, groups, known)
            for one in made
            if isinstance(number := one.fields.get("exprId"), int)
        }
        others = [
            (location, one.id)
            for location, one in enumerate(node.output or ())
            if one.id not in own and one.id not in known
        ]
        if node.name in BY_POSITION or not others:
            return own
        whole = _digest(self._deciding(node, known), *(one.whole(one.names) for one in below))
        return own | {number: _digest(whole, str(location)) for location, number in others}

    def _made(self, named: Node, groups: str, known: Mapping[int, str]) -> str:
        """The digest of an expression; one that only gives a column another name has that of the
        column.
        """
        value = named
        while value.name == "Alias" and isinstance(child := value.fields.get("child"), Node):
            value = child
        said = self._said(value, known)
        return said if value.name == "AttributeReference" and not groups else _digest(said, groups)

    def _column(
        self,
        node: Node,
        location: int,
        number: int,
        own: Mapping[int, str],
        below: list[_Frame],
        known: Mapping[int, str],
    ) -> str:
        if node.name in BY_POSITION:
            said = [one.columns[location][1] for one in below if location < len(one.columns)]
            if node.name == "CTERelationRef" and said:
                return said[0]
            return _digest(
                node.name,
                str(location),
                self._deciding(node, known) if node.name == "Expand" else "",
                *said,
            )
        return own[number] if number in own else known[number]

    def _deciding(self, node: Node, known: Mapping[int, str]) -> str:
        """What of a node decides on its rows, as a text."""
        said = (
            {name: node.fields.get(name) for name in DECIDING[node.name]}
            if node.name in DECIDING
            else _without(node)
        )
        return f"{node.name}({self._said(said, known)})"

    def _said(self, value: Field, known: Mapping[int, str]) -> str:
        """A value as a text without ids: a column by its digest, an alias by what it names."""
        if isinstance(value, Node):
            return self._expression(value, known)
        if isinstance(value, Unknown):
            return value.name
        if isinstance(value, tuple):
            return f"[{','.join(self._said(one, known) for one in value)}]"
        if isinstance(value, Mapping):
            said = (
                f"{name}={self._said(one, known)}"
                for name, one in sorted(value.items())
                if name not in UNSAID
            )
            return f"{{{','.join(said)}}}"
        return repr(value)

    def _expression(self, node: Node, known: Mapping[int, str]) -> str:
        number = node.fields.get("exprId")
        if node.name in ("AttributeReference", "OuterReference") and isinstance(number, int):
            return known.get(number, f"column {node.fields.get('name')}")
        if node.name == "Alias":
            return self._said(node.fields.get("child"), known)
        if node.output is not None or node.plans():
            frames = (
                [self.frame(node, known)]
                if node.output is not None
                else [self.frame(child, known) for child in node.plans()]
            )
            inside = ",".join(
                f"{one.rows}:{','.join(digest for _, digest in one.columns)}" for one in frames
            )
            return (
                f"{node.name}<{inside}>({self._said(_without(node), known)})"
                if node.output is None
                else f"plan<{inside}>"
            )
        return f"{node.name}({self._said(node.fields, known)})"


def _counting(node: Node, below: _Frame) -> str:
    """What of a frame below a node decides on the node's rows; what has no rule may go by the names
    of columns.
    """
    if node.name in CHOOSING:
        return below.rows
    return below.whole() if node.name in COMPARING else below.whole(below.names)


def _known(outer: Mapping[int, str], below: Iterable[_Frame]) -> Mapping[int, str]:
    """The columns that the expressions of a node may name."""
    return {**outer, **{number: digest for one in below for number, digest in one.columns}}


def _without(node: Node, *names: str) -> Mapping[str, Field]:
    """The parameters of a node that are no plans, without some."""
    return {
        name: value
        for name, value in node.fields.items()
        if name not in names and not _has_plan(value)
    }


def _folders(node: Node) -> str:
    """The folders of a leaf that reads several paths; which partitions and files are there is none
    of what it says.
    """
    location = location_of(node.fields)
    return ",".join(sorted(read_at(location, Names()).names)) if len(location.roots) > 1 else ""


def _has_plan(value: Field) -> bool:
    if isinstance(value, tuple):
        return any(_has_plan(one) for one in value)
    return isinstance(value, Node) and value.output is not None


def _named(node: Node) -> Iterable[Node]:
    for value in node.fields.values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Node) and one.output is None:
                yield one


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:DIGITS]


def planned_manifest(
    lake: Lake,
    platform: Platform,
    log: Callable[[str], None],
    before: Manifest | None = None,
    *,
    only_manifest: bool = False,
) -> Manifest:
    """What the code of a lake says now.

    Args:
        lake: The lake.
        platform: Where its tables are.
        log: Gets which Spark is used.
        before: An earlier manifest, of which what was accepted and the schemas of tables that are
            not there are kept.
        only_manifest: Take no schema from tables, so that the answer is the same wherever it is
            asked.

    Raises:
        PlanUnreadableError: this Spark shows no plans.
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.spark.driver import described, open_driver

    settings = platform.settings
    with (
        open_driver(settings.spark, settings.home, jars=settings.jars, log=log) as driver,
        described(),
    ):
        return manifest_by(driver.spark, lake, platform, before, only_manifest=only_manifest)


def manifest_by(
    spark: "SparkSession",
    lake: Lake,
    platform: Platform,
    before: Manifest | None = None,
    *,
    only_manifest: bool = False,
) -> Manifest:
    """The same by a session of Spark."""
    from lakechime_dagster.runtime.resource import declared_subscriptions  # which has Dagster

    names = names_of(platform, lake)
    return _Planning(
        lake, platform, spark, before, only_manifest, names, declared_subscriptions()
    ).manifest()


@dataclass
class _Planning:
    lake: Lake
    platform: Platform
    spark: "SparkSession"
    before: Manifest | None
    only_manifest: bool
    names: Names
    subscriptions: Mapping[str, Subscription]
    tables: dict[str, PlannedTable] = field(default_factory=dict)

    def manifest(self) -> Manifest:
        """All tables, inputs first, as a reader is asked over what its inputs would be."""
        for table in self.lake.tables:
            planned = self._computed(table) if isinstance(table, LakeTable) else self._found(table)
            planned = self._written(planned) if isinstance(table, SourceTable) else planned
            self.tables[table.name] = replace(planned, owner=table.owner or "")
        return Manifest(
            lake=self.lake.name,
            tables=self.tables,
            accepted=self.before.accepted if self.before is not None else {},
        )

    def _found(self, table: Table) -> PlannedTable:
        """A table that no function of the lake computes, by its log or as it was known before."""
        name = table.name
        schema = () if self.only_manifest else self._columns(table)
        if schema:
            return PlannedTable(
                target=name,
                columns=tuple(
                    PlannedColumn(column=one, type=kind, nullable=can) for one, kind, can in schema
                ),
            )
        known = self.before.tables.get(name) if self.before is not None else None
        if known is not None and known.columns:
            return PlannedTable(target=name, columns=known.columns)
        return PlannedTable(
            target=name, unknown=(f"{name} is not there yet, so that its columns are not known",)
        )

    def _written(self, found: PlannedTable) -> PlannedTable:
        """A table with the reason why nothing of its columns is known, if a subscription declares
        that a plain asset or job writes it.
        """
        by = next(
            (
                subscription.name
                for subscription in self.subscriptions.values()
                if subscription.target == found.target
            ),
            None,
        )
        if by is not None:
            return replace(
                found, unknown=(*found.unknown, f"{UNTIL_IT_RUNS}: the job of {by} writes it")
            )
        known = (
            self.before.tables.get(found.target)
            if self.only_manifest and self.before is not None
            else None
        )
        return found if known is None or found.unknown else replace(found, unknown=known.unknown)

    def _computed(self, table: LakeTable) -> PlannedTable:
        from lakechime_dagster.lineage import spark

        code, laid_out = code_digest(table), laid_out_of(table)
        plain = PlannedTable(target=table.name, code=code, laid_out=laid_out, inputs=table.inputs)
        if why := self._hindered(table):
            return _unknown(plain, why)
        inputs = {
            alias: (read.table, self._schema(read.table)) for alias, read in table.reads.items()
        }
        planned = spark.planned(self.spark, table.compute, table.sql, inputs)
        try:
            actions = [dump_of(one) for one in planned.actions]
            if why := acted(actions, self.names):
                return _unknown(
                    plain, "; ".join(filter(None, (why, planned.why))), self._as_it_is(table, code)
                )
            if planned.result is None:
                return _unknown(plain, planned.why)
            return self._read(plain, planned.schema, dump_of(planned.result), actions)
        except Exception as error:  # noqa: BLE001 - a plan of any form that nobody met yet makes its own table unknown and no other
            return _unknown(
                plain,
                f"not known: its plan could not be read: {type(error).__name__}: {error}",
                planned.schema,
            )

    def _columns(self, table: Table) -> "Schema":
        """The columns that a table has now; none of a Hive table, whose metastore is not asked."""
        table_format = self.platform.format_of(table.name, table.format)
        if table_format is TableFormat.HIVE:
            return ()
        return self.platform.log_of(table.name, table_format, table.location).columns()

    def _as_it_is(self, table: LakeTable, code: str) -> "Schema":
        """The columns that a table has already, or had by equal code: what reads it can be asked
        though its code cannot.
        """
        schema = () if self.only_manifest else self._columns(table)
        known = self.before.tables.get(table.name) if self.before is not None else None
        if schema or known is None or known.code != code:
            return schema
        return tuple((one.column, one.type, one.nullable) for one in known.columns)

    def _hindered(self, table: LakeTable) -> str:
        """Why a table cannot be asked for: an input is not known, or its function wants what only a
        run has.
        """
        for name in table.inputs:
            if not self.tables[name].columns:
                return f"not known until {name} is"
        if table.compute is None:
            return ""
        wanted = {one.name for one in table.injected}
        parameters = inspect.signature(table.compute).parameters.values()
        required = [
            one.name
            for one in parameters
            if one.name in wanted and one.default is inspect.Parameter.empty
        ]
        return (
            f"{UNTIL_IT_RUNS}: its function wants {', '.join(required)}; give it a default"
            if required
            else ""
        )

    def _schema(self, name: str) -> "Schema":
        return tuple(
            (column.column, column.type, column.nullable) for column in self.tables[name].columns
        )

    def _read(
        self, plain: PlannedTable, schema: "Schema", result: Dump, actions: list[Dump]
    ) -> PlannedTable:
        found = statements_of([*actions, result], self.names, plain.target)
        statement = next(
            (one for one in reversed(found.statements) if one.target == plain.target), None
        )
        if statement is None or result.plan is None:
            return _unknown(
                plain,
                f"not known: {'; '.join(found.unknown) or 'its plan could not be read'}",
                schema,
            )
        digests = digests_of(result.plan)
        columns = tuple(
            PlannedColumn(
                column=name,
                type=kind,
                nullable=can,
                sources=lineage.sources,
                opaque=lineage.opaque,
                udfs=lineage.udfs,
                digest=digest,
            )
            for (name, kind, can), lineage, digest in zip(
                schema, statement.columns, digests.columns.values(), strict=True
            )
        )
        return replace(
            plain,
            inputs=(*plain.inputs, *statement.inputs),
            columns=columns,
            indirect=statement.indirect,
            rows=digests.rows,
            unknown=(*statement.unknown, *found.unknown),
            udfs=statement.udfs,
        )


def acted(actions: Iterable[Dump], names: Names) -> str:
    """Why what a function computes is not known until it runs: it writes, or acts on rows, of which
    it may make anything.
    """
    done: dict[str, None] = {}
    for one in filter(acts, actions):
        targets = [statement.target for statement in statements_of([one], names).statements]
        done |= dict.fromkeys(
            f"writes {target if target in names.tables else _outside(target)}" for target in targets
        )
        done |= {} if targets else {"acts on rows": None}
    return f"{UNTIL_IT_RUNS}: its function {' and '.join(done)}" if done else ""


def _outside(target: str) -> str:
    """What is outside of the lake, without the folders above it, which differ from machine to
    machine.
    """
    return target.rstrip("/").rsplit("/", 1)[-1]


def laid_out_of(table: LakeTable) -> Mapping[str, str]:
    """How a table is kept: what of it changes its rows though its code does not."""
    said = {
        "keys": ", ".join(table.keys),
        "partitioned by": ", ".join(
            f"{name} {kind}" for name, kind in table.levels.as_dict().items()
        ),
        "refresh": table.refresh.value,
    }
    said |= {f"expect {name}": condition for name, condition in table.expect.items()}
    return {name: value for name, value in said.items() if value}


def _unknown(plain: PlannedTable, why: str, schema: "Schema" = ()) -> PlannedTable:
    columns = tuple(
        PlannedColumn(column=name, type=kind, nullable=can, opaque=(why,))
        for name, kind, can in schema
    )
    return replace(plain, columns=columns, unknown=(why,))


@dataclass(frozen=True, kw_only=True)
class ReadFindings:
    """Findings and, by the key of each, who reads what it is about; `not_known` is why others may
    read it too.
    """

    findings: tuple[Finding, ...]
    readers: Readers = field(default_factory=dict)
    not_known: str = ""


def gate_readers(platform: Platform, lake: Lake, findings: tuple[Finding, ...]) -> ReadFindings:
    """The findings as they are for those who read: what is gone breaks who read it in the last 35
    days.

    An external job reads what it writes something of, by the record of its newest run.
    """
    reads, tables = SqlReads(platform.store.engine), {one.table for one in findings}
    several = [*reads.of_tables(tables), *_external_jobs(platform, lake, tables)]
    found = raised(findings, several, platform.store.now() - RECIPIENT_MS)
    not_known = "" if reads.ways() else "no audit log is configured"
    return ReadFindings(findings=found, readers=readers_of(found, several), not_known=not_known)


def _external_jobs(platform: Platform, lake: Lake, tables: Collection[str]) -> Iterable[Read]:
    """What programs that are no subscription of the lake read of tables to write others, when a run
    recorded it last.
    """
    for one in LineageStandings(platform.store.engine).of_inputs(tables):
        if not is_of_subscription(platform, lake, one):
            consumer = Consumer(ConsumerKind.JOB, one.producer.namespace, one.producer.job)
            link = next(iter(one.links.values()), "")
            yield Read(
                consumer=consumer,
                refs=_refs(one.statement, tables),
                at_ms=one.last_ms,
                owners=one.owners,
                link=link,
            )


def _refs(statement: Statement, tables: Collection[str]) -> tuple[ColumnRef, ...]:
    """What a statement reads of tables: the columns, and a table itself where it may be others of
    it too, or none is known.
    """
    found = {
        one.ref
        for one in statement.sources
        if one.ref.table in tables and one.ref.column is not None
    }
    named = {one.table for one in found}
    whole = {
        ColumnRef(table)
        for table in statement.inputs
        if table in tables and (is_unsure(statement) or table not in named)
    }
    return tuple(sorted(found | whole, key=lambda ref: (ref.table, ref.column or "")))
