"""Column lineage of the nodes of a plan, from its leaves up."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakechime_dagster.lineage.columns import (
    CONSTANT,
    ColumnLineage,
    Kind,
    Names,
    Statement,
    Value,
    together,
)
from lakechime_dagster.lineage.plan_dump import (
    Attribute,
    Dump,
    MissingPartError,
    Node,
    TableLocation,
    location_of,
)
from lakechime_dagster.lineage.plan_expressions import (
    Column,
    DataSets,
    Frame,
    Scope,
    columns_of,
    of_tables,
    read_at,
    value_of,
)
from lakechime_dagster.tables.names import folded

NAMELESS = "rows of a data source without a name"
# that is shown without its users and passwords
DATABASE = "rows of a query of a database, or of one without an address"
PROGRAM = "rows of the program"

LeafRule = Callable[[Node, Scope], Frame]


def _table(node: Node, scope: Scope) -> Frame:
    found = scope.reader.data_sets(node)
    if not found.names and not found.unknown:
        return _unseen(node, DATABASE if _is_database(node) else NAMELESS)
    return of_tables(found.names, node.output or ()).because(*found.unknown)


def _is_database(node: Node) -> bool:
    relation = node.fields.get("relation")
    name = relation.get("o") if isinstance(relation, Mapping) else getattr(relation, "name", None)
    return name == "JDBCRelation"


def _constant(node: Node, scope: Scope) -> Frame:
    """Rows that stand in the statement itself."""
    return Frame(tuple(Column(one.id, one.name, CONSTANT) for one in node.output or ()))


def _local(node: Node, scope: Scope) -> Frame:
    """Rows that Spark was given: by VALUES in a text, or by a program, which may have them from
    anywhere.
    """
    is_stated = node.text("rowsOf") == "nobody" or scope.reader.is_stated(node.number("rowsId"))
    return _constant(node, scope) if is_stated else _unseen(node, PROGRAM)


def stated_rows(plan: Node) -> frozenset[int]:
    """The numbers of those rows that stand in a text of SQL.

    A self join repeats rows under newer ids, by which it is unknown whose they are: the first to
    have them shows it.
    """
    found: dict[int, Node] = {}
    for node in (node for node in plan.walk() if node.name == "LocalRelation"):
        number = node.fields.get("rowsId")
        if isinstance(number, int) and (
            number not in found or _first_id(node) < _first_id(found[number])
        ):
            found[number] = node
    return frozenset(
        number for number, node in found.items() if node.fields.get("rowsOf") == "text"
    )


def _first_id(node: Node) -> int:
    return min((one.id for one in node.output or ()), default=0)


def _rdd(node: Node, scope: Scope) -> Frame:
    """Rows of an RDD: those of a checkpoint that was made meanwhile, else from a program."""
    return scope.reader.checkpointed(node) or _unseen(node, "rows of an RDD")


def _unseen(node: Node, reason: str) -> Frame:
    value = Value().because(reason)
    return Frame(tuple(Column(one.id, one.name, value) for one in node.output or ()), rows=value)


TABLES = ("Table", "LogicalRelation", "DataSourceV2Relation", "HiveTableRelation")
LEAVES: Mapping[str, LeafRule] = {
    **dict.fromkeys(TABLES, _table),
    "LocalRelation": _local,
    "OneRowRelation": _constant,
    "Range": _constant,
    "LogicalRDD": _rdd,
}
"""By the class of the node."""


Rule = Callable[[Node, Scope], Frame]


def _passed(node: Node, scope: Scope) -> Frame:
    """The rows and columns of the child as they are."""
    return scope.frame(node.node("child"))


def _project(node: Node, scope: Scope) -> Frame:
    below = scope.frame(node.node("child"))
    return below.giving(scope.over(below).named(node.nodes("projectList")))


def _view(node: Node, scope: Scope) -> Frame:
    """The columns of a view, which Spark casts to the types that they had when it was made: mostly
    the same.
    """
    below = scope.frame(node.node("child"))
    project = node.node("child")
    if project.name != "Project":
        return below
    here = scope.over(scope.frame(project.node("child")))
    return below.giving(
        Column(column.id, column.name, here.value(one.node("child").node("child")))
        if _is_cast(one)
        else column
        for column, one in zip(below.columns, project.nodes("projectList"), strict=True)
    )


def _is_cast(named: Node) -> bool:
    return named.name == "Alias" and named.node("child").name in ("Cast", "UpCast")


def _filter(node: Node, scope: Scope) -> Frame:
    below = scope.frame(node.node("child"))
    return below.decided(Kind.FILTER, scope.over(below).value(node.node("condition")))


def _sort(node: Node, scope: Scope) -> Frame:
    below = scope.frame(node.node("child"))
    return below.decided(Kind.SORT, scope.over(below).values(node.nodes("order")))


def _aggregate(node: Node, scope: Scope) -> Frame:
    below = scope.frame(node.node("child"))
    here = scope.over(below)
    groups = here.values(node.nodes("groupingExpressions"))
    return below.giving(here.named(node.nodes("aggregateExpressions"))).decided(
        Kind.GROUP_BY, groups
    )


def _distinct(node: Node, scope: Scope) -> Frame:
    below = scope.frame(node.node("child"))
    return below.decided(Kind.GROUP_BY, below.value())


def _deduplicate(node: Node, scope: Scope) -> Frame:
    below = scope.frame(node.node("child"))
    return below.decided(Kind.GROUP_BY, scope.over(below).values(node.nodes("keys")))


def _window(node: Node, scope: Scope) -> Frame:
    """The child's columns and those of windows, whose partitions and order count for these
    alone.
    """
    below = scope.frame(node.node("child"))
    return below.giving((*below.columns, *scope.over(below).named(node.nodes("windowExpressions"))))


def _expand(node: Node, scope: Scope) -> Frame:
    """Each row several times, such as once a grouping set or once a column of UNPIVOT."""
    below = scope.frame(node.node("child"))
    here = scope.over(below)
    rows = [[here.value(one) for one in projection] for projection in node.lists("projections")]
    columns = [together(several) for several in zip(*rows, strict=True)]
    return below.giving(columns_of(_output(node), columns))


def _generate(node: Node, scope: Scope) -> Frame:
    """The child's columns, and those that a generator makes rows of, which therefore decides which
    rows there are.
    """
    below = scope.frame(node.node("child"))
    here, generator, given = (
        scope.over(below),
        node.node("generator"),
        node.nodes("generatorOutput"),
    )
    if generator.name == "Stack":  # rows of as many values each as there are columns
        arguments = generator.nodes("children")[1:]
        values = [
            here.values(arguments[location :: len(given)]).then(Kind.TRANSFORMATION)
            for location in range(len(given))
        ]
        made = below
    else:
        values = [here.value(generator).then(Kind.TRANSFORMATION)] * len(given)
        made = below.decided(Kind.FILTER, here.value(generator))
    columns = [
        Column(one.number("exprId"), one.text("name"), value)
        for one, value in zip(given, values, strict=True)
    ]
    return made.giving(
        scope.over(made.giving((*made.columns, *columns))).column(one) for one in _output(node)
    )


def _join(node: Node, scope: Scope) -> Frame:
    left = scope.frame(node.node("left"))
    return _joined(node, scope, left, scope.frame(node.node("right")), node.optional("condition"))


def _lateral(node: Node, scope: Scope) -> Frame:
    """A join whose right side sees the columns of the left one."""
    left = scope.frame(node.node("left"))
    right = scope.over(left).inside(node.node("right").node("plan"))
    return _joined(node, scope, left, right, node.optional("condition"))


def _as_of(node: Node, scope: Scope) -> Frame:
    left, right = scope.frame(node.node("left")), scope.frame(node.node("right"))
    both = _joined(node, scope, left, right, node.optional("condition"))
    nearest = scope.over(left, right).values(
        (node.node("asOfCondition"), node.node("orderExpression"))
    )
    return both.decided(Kind.JOIN, nearest)


def _joined(node: Node, scope: Scope, left: Frame, right: Frame, condition: Node | None) -> Frame:
    """Rows of two sides; of the right one a semi join gives no columns, and its rows only
    decide.
    """
    here = scope.over(left, right)
    rows = left.rows if node.text("joinType") in ("left semi", "left anti") else here.rows
    both = Frame(
        tuple(here.column(one) for one in _output(node)), left.indirect.merged(right.indirect), rows
    )
    return both if condition is None else both.decided(Kind.JOIN, here.value(condition))


def _union(node: Node, scope: Scope) -> Frame:
    """All rows; the ids are those of the first input, so columns go by position."""
    frames = [scope.frame(child) for child in node.nodes("children")]
    columns = [
        together(column.value for column in several)
        for several in zip(*(frame.columns for frame in frames), strict=True)
    ]
    return Frame(
        columns_of(_output(node), columns),
        together(frame.indirect for frame in frames),
        together(frame.rows for frame in frames),
    )


def _compared(node: Node, scope: Scope) -> Frame:
    """Rows of the left side, as they are or are not among those of the right."""
    left, right = scope.frame(node.node("left")), scope.frame(node.node("right"))
    rows = Frame(left.columns, left.indirect.merged(right.indirect), left.rows).renamed(
        _output(node)
    )
    return rows.decided(Kind.FILTER, left.value(), right.value())


def _with(node: Node, scope: Scope) -> Frame:
    """A query with common table expressions, which are read where they are referred to."""
    return scope.frame(node.node("plan"))


def _reference(node: Node, scope: Scope) -> Frame:
    """A common table expression; its first reference has the ids of its definition, so columns go
    by position.
    """
    return scope.reader.defined(node.number("cteId"), scope).renamed(_output(node))


def _python(node: Node, scope: Scope) -> Frame:
    """Rows that Python makes of all columns of its input: each value, and which rows there are, may
    come from any of them.
    """
    inputs = ("left", "right") if "CoGroups" in node.name else ("child",)
    frames = [scope.frame(node.node(one)) for one in inputs]
    value = together(frame.value() for frame in frames).through(PYTHON[node.name])
    below = Frame(
        indirect=together(frame.indirect for frame in frames),
        rows=together(frame.rows for frame in frames),
    )
    return below.giving(Column(one.id, one.name, value) for one in node.output or ()).decided(
        Kind.FILTER, value
    )


def everything(node: Node, scope: Scope, reason: str) -> Frame:
    """What a node gives of which no more is known than what is below: each column may be made of
    all of them.
    """
    frames = [scope.frame(child) for child in node.plans()]
    value = together(frame.value() for frame in frames).then(Kind.TRANSFORMATION).because(reason)
    rows = together(frame.rows for frame in frames).because(reason)
    indirect = together(frame.indirect for frame in frames)
    return Frame(
        tuple(Column(one.id, one.name, value) for one in node.output or ()), indirect, rows
    )


def nothing(node: Node, reason: str) -> Frame:
    """What a node gives of which nothing is known."""
    value = Value().because(reason)
    return Frame(tuple(Column(one.id, one.name, value) for one in node.output or ()), rows=value)


def _output(node: Node) -> tuple[Attribute, ...]:
    if node.output is None:
        raise node.missing("out")
    return node.output


PYTHON = {
    "MapInPandas": "mapInPandas",
    "MapInArrow": "mapInArrow",
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapCoGroupsInPandas": "applyInPandas of two inputs",
    "FlatMapCoGroupsInArrow": "applyInArrow of two inputs",
}
"""By the class of the node, what a user calls it."""

_PASSED = (
    "SubqueryAlias",
    "GlobalLimit",
    "LocalLimit",
    "Offset",
    "Sample",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "ResolvedHint",
    "CollectMetrics",
)

NODES: Mapping[str, Rule] = {
    **LEAVES,
    **dict.fromkeys(_PASSED, _passed),
    **dict.fromkeys(PYTHON, _python),
    "Project": _project,
    "View": _view,
    "Filter": _filter,
    "Sort": _sort,
    "Aggregate": _aggregate,
    "Distinct": _distinct,
    "Deduplicate": _deduplicate,
    "Window": _window,
    "Expand": _expand,
    "Generate": _generate,
    "Join": _join,
    "LateralJoin": _lateral,
    "AsOfJoin": _as_of,
    "Union": _union,
    "Except": _compared,
    "Intersect": _compared,
    "WithCTE": _with,
    "CTERelationRef": _reference,
    "UnionLoop": lambda node, scope: scope.reader.loop(node, scope),
    "UnionLoopRef": lambda node, scope: scope.reader.looped(node.number("loopId")).renamed(
        _output(node)
    ),
}
"""By the class of the node."""


EXPRESSION = "delta.generationExpression"


def generated_columns(schema: str) -> dict[str, tuple[str, ...]]:
    """Of a Delta table's schema, as its log has it, each generated column with the columns that it
    is made of.

    One whose expression is not understood is made of all others.
    """
    fields = json.loads(schema)["fields"]
    names = [field["name"] for field in fields]
    return {
        field["name"]: _columns_in(
            field["metadata"][EXPRESSION], [name for name in names if name != field["name"]]
        )
        for field in fields
        if EXPRESSION in field.get("metadata", {})
    }


def column_names(schema: str) -> list[str]:
    """The columns of a Delta table's schema."""
    return [str(field["name"]) for field in json.loads(schema)["fields"]]


def _columns_in(expression: str, others: Sequence[str]) -> tuple[str, ...]:
    try:
        parsed = sqlglot.parse_one(expression, dialect="spark")
    except SqlglotError:
        return tuple(others)
    used = {folded(column.parts[0].name) for column in parsed.find_all(exp.Column)}
    return tuple(name for name in others if folded(name) in used)


def with_generated(statement: Statement, generated: Mapping[str, tuple[str, ...]]) -> Statement:
    """A statement with those columns that its target makes of the ones it assigns; not every plan
    has them.

    Args:
        statement: What a plan says.
        generated: The target's generated columns, each with those that it is made of.
    """
    by_name = {one.column: one for one in statement.columns}
    made = [
        ColumnLineage(
            column=name,
            sources=tuple(
                source.then(Kind.TRANSFORMATION) for column in used for source in column.sources
            ),
            opaque=tuple(reason for column in used for reason in column.opaque),
            udfs=tuple(code for column in used for code in column.udfs),
        )
        for name, sources in generated.items()
        if name not in by_name
        and (used := [by_name[source] for source in sources if source in by_name])
    ]
    return replace(statement, columns=(*statement.columns, *made)) if made else statement


CHECKPOINTS = frozenset({"checkpoint", "localCheckpoint"})
"""The names of actions that keep rows, which later statements read without their plan."""


BATCHES = frozenset({"WriteToMicroBatchDataSourceV1", "WriteToMicroBatchDataSource"})
"""The commands that write a batch of a stream, or hand it to a function, which reads it without its
plan too.
"""


class Checkpoints:
    """The plans of what was checkpointed, and of batches of streams.

    An RDD is known by the ids of its columns, which a self join renews on one side.
    """

    def __init__(self, dumps: Iterable[Dump]) -> None:
        plans = [dump.plan for dump in dumps if dump.plan]
        kept = {
            _ids(dump.plan.output or ()): dump.plan
            for dump in dumps
            if dump.plan and dump.name in CHECKPOINTS
        }
        batches = [plan.fields.get("query") for plan in plans if plan.name in BATCHES]
        kept |= {_ids(batch.output or ()): batch for batch in batches if isinstance(batch, Node)}
        self._by_ids = kept
        self._by_rdd: dict[int, Node] = {}
        for node in (
            (node for plan in plans for node in plan.walk() if node.name == "LogicalRDD")
            if kept
            else ()
        ):
            rdd, plan = rdd_of(node), kept.get(_ids(node.output or ()))
            if rdd is not None and plan:
                self._by_rdd[rdd] = plan

    def plan(self, leaf: Node) -> Node | None:
        """The plan whose rows this leaf reads."""
        rdd = rdd_of(leaf)
        return self._by_ids.get(_ids(leaf.output or ())) or (
            None if rdd is None else self._by_rdd.get(rdd)
        )


class Reading:
    """Reads the plans of one dump.

    `tables` are the data sets that were met, `outside` those of them that have no name in the lake.
    `is_dynamic` says that an overwrite replaced partitions alone, where the statement does not say
    otherwise.
    """

    def __init__(
        self, plan: Node, names: Names, checkpoints: Checkpoints, *, is_dynamic: bool = False
    ) -> None:
        self.is_dynamic = is_dynamic
        self.tables: set[str] = set()
        self.outside: set[str] = set()
        self._names = names
        self._checkpoints = checkpoints
        self._definitions = {
            node.number("id"): node for node in plan.walk() if node.name == "CTERelationDef"
        }
        self._stated = stated_rows(plan)
        self._defined: dict[int, Frame] = {}
        self._loops: dict[int, Frame] = {}

    def read(self, plan: Node) -> Frame:
        """What a whole plan gives."""
        return self.frame(plan, self.scope())

    def scope(self, *frames: Frame) -> Scope:
        """For expressions of a command over these frames."""
        return Scope(self, {}, {}).over(*frames) if frames else Scope(self, {}, {})

    def frame(self, plan: Node, scope: Scope) -> Frame:
        """What a node gives; of one without a rule, and of one whose dump lacks a part, that it is
        not known.
        """
        here = Scope(self, scope.outer, {})
        rule = NODES.get(plan.name)
        if rule is None:
            reason = f"unknown plan node {plan.name}"
            return everything(plan, here, reason) if plan.plans() else nothing(plan, reason)
        try:
            found = rule(plan, here)
        except MissingPartError as problem:
            return everything(plan, here, str(problem))
        except ValueError:  # lists that must be of one length are not
            return everything(plan, here, f"the dump of {plan.name} does not fit together")
        if plan.output is not None and len(found.columns) != len(plan.output):
            return everything(plan, here, f"the dump of {plan.name} does not fit together")
        return found

    def value(self, expression: Node, scope: Scope) -> Value:
        """What an expression derives from."""
        try:
            return value_of(expression, scope)
        except MissingPartError as problem:
            return scope.values(expression.children()).because(str(problem))

    def data_sets(self, leaf: Node) -> DataSets:
        """The data sets that a leaf reads, as far as it shows them."""
        found = (
            DataSets(names=(leaf.text("name"),))
            if leaf.name == "Table"
            else read_at(location_of(leaf.fields), self._names)
        )
        self.tables.update(found.names)
        self.outside.update(found.outside)
        return found

    def is_stated(self, rows: int) -> bool:
        """Whether the rows of this number stand in a text of SQL."""
        return rows in self._stated

    def named(self, location: TableLocation) -> str | None:
        """The name of a data set, which is counted if it is outside the lake."""
        name, is_known = location.named(self._names) or (None, True)
        if name is not None and not is_known:
            self.outside.add(name)
        return name

    def defined(self, cte: int, scope: Scope) -> Frame:
        """What a common table expression gives, read once."""
        if cte not in self._defined:
            definition = self._definitions.get(cte)
            if definition is None:
                raise MissingPartError(
                    f"the dump has no definition of the common table expression {cte}"
                )
            self._defined[cte] = self.frame(definition.node("child"), scope)
        return self._defined[cte]

    def loop(self, plan: Node, scope: Scope) -> Frame:
        """What a recursive query gives: what its first part gives, and what comes of it by the
        other as long as that is more.
        """
        anchor = scope.frame(plan.node("anchor")).renamed(plan.output or ())
        number = plan.number("id")
        found, before = anchor, None
        while found != before:
            before = self._loops[number] = found
            again = scope.frame(plan.node("recursion")).renamed(plan.output or ())
            columns = (
                one.value.merged(other.value)
                for one, other in zip(found.columns, again.columns, strict=True)
            )
            merged = Frame(
                found.columns, found.indirect.merged(again.indirect), found.rows.merged(again.rows)
            )
            found = merged.giving(columns_of(plan.output or (), columns))
        return found

    def looped(self, number: int) -> Frame:
        """What a recursive query has given so far."""
        if number not in self._loops:
            raise MissingPartError(f"the dump has no recursive query {number}")
        return self._loops[number]

    def checkpointed(self, leaf: Node) -> Frame | None:
        """What the plan gave whose rows this leaf reads, if they were checkpointed meanwhile."""
        plan = self._checkpoints.plan(leaf)
        return None if plan is None else self.read(plan).renamed(leaf.output or ())


def rdd_of(leaf: Node) -> int | None:
    """The id of the RDD that a leaf reads."""
    rdd = leaf.fields.get("rdd")
    number = rdd.get("rdd") if isinstance(rdd, Mapping) else rdd
    return number if isinstance(number, int) else None


def _ids(output: Iterable[Attribute]) -> tuple[int, ...]:
    return tuple(one.id for one in output)
