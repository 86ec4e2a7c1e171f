"""What plan nodes give: a rule for each kind of node. Where a node puts rows of several inputs together, columns go by position."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.plans.dump import Attribute, Node
from lakechime_dagster.lineage.plans.frames import Column, Frame, Scope, columns_of
from lakechime_dagster.lineage.plans.leaves import LEAVES
from lakechime_dagster.lineage.plans.values import Value, together

Rule = Callable[[Node, Scope], Frame]


def _passed(node: Node, scope: Scope) -> Frame:
    """The rows and columns of the child as they are."""
    return scope.frame(node.node("child"))


def _project(node: Node, scope: Scope) -> Frame:
    below = scope.frame(node.node("child"))
    return below.giving(scope.over(below).named(node.nodes("projectList")))


def _view(node: Node, scope: Scope) -> Frame:
    """The columns of a view, which Spark casts to the types that they had when it was made: mostly the same."""
    below = scope.frame(node.node("child"))
    project = node.node("child")
    if project.name != "Project":
        return below
    here = scope.over(scope.frame(project.node("child")))
    return below.giving(
        Column(column.id, column.name, here.value(one.node("child").node("child"))) if _is_cast(one) else column
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
    return below.giving(here.named(node.nodes("aggregateExpressions"))).decided(Kind.GROUP_BY, groups)


def _distinct(node: Node, scope: Scope) -> Frame:
    below = scope.frame(node.node("child"))
    return below.decided(Kind.GROUP_BY, below.value())


def _deduplicate(node: Node, scope: Scope) -> Frame:
    below = scope.frame(node.node("child"))
    return below.decided(Kind.GROUP_BY, scope.over(below).values(node.nodes("keys")))


def _window(node: Node, scope: Scope) -> Frame:
    """The child's columns and those of windows, whose partitions and order count for these alone."""
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
    """The child's columns, and those that a generator makes rows of, which therefore decides which rows there are."""
    below = scope.frame(node.node("child"))
    here, generator, given = scope.over(below), node.node("generator"), node.nodes("generatorOutput")
    if generator.name == "Stack":  # rows of as many values each as there are columns
        arguments = generator.nodes("children")[1:]
        values = [here.values(arguments[place :: len(given)]).then(Kind.TRANSFORMATION) for place in range(len(given))]
        made = below
    else:
        values = [here.value(generator).then(Kind.TRANSFORMATION)] * len(given)
        made = below.decided(Kind.FILTER, here.value(generator))
    columns = [Column(one.number("exprId"), one.text("name"), value) for one, value in zip(given, values, strict=True)]
    return made.giving(scope.over(made.giving((*made.columns, *columns))).column(one) for one in _output(node))


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
    nearest = scope.over(left, right).values((node.node("asOfCondition"), node.node("orderExpression")))
    return both.decided(Kind.JOIN, nearest)


def _joined(node: Node, scope: Scope, left: Frame, right: Frame, condition: Node | None) -> Frame:
    """Rows of two sides; of the right one a semi join gives no columns, and its rows only decide."""
    here = scope.over(left, right)
    rows = left.rows if node.text("joinType") in ("left semi", "left anti") else here.rows
    both = Frame(tuple(here.column(one) for one in _output(node)), left.indirect.beside(right.indirect), rows)
    return both if condition is None else both.decided(Kind.JOIN, here.value(condition))


def _union(node: Node, scope: Scope) -> Frame:
    """All rows; the ids are those of the first input, so columns go by position."""
    frames = [scope.frame(child) for child in node.nodes("children")]
    columns = [together(column.value for column in several) for several in zip(*(frame.columns for frame in frames), strict=True)]
    return Frame(columns_of(_output(node), columns), together(frame.indirect for frame in frames), together(frame.rows for frame in frames))


def _compared(node: Node, scope: Scope) -> Frame:
    """Rows of the left side, as they are or are not among those of the right."""
    left, right = scope.frame(node.node("left")), scope.frame(node.node("right"))
    rows = Frame(left.columns, left.indirect.beside(right.indirect), left.rows).renamed(_output(node))
    return rows.decided(Kind.FILTER, left.value(), right.value())


def _with(node: Node, scope: Scope) -> Frame:
    """A query with common table expressions, which are read where they are referred to."""
    return scope.frame(node.node("plan"))


def _reference(node: Node, scope: Scope) -> Frame:
    """A common table expression; its first reference has the ids of its definition, so columns go by position."""
    return scope.reader.defined(node.number("cteId"), scope).renamed(_output(node))


def _python(node: Node, scope: Scope) -> Frame:
    """Rows that Python makes of all columns of its input: each value, and which rows there are, may come from any of them."""
    inputs = ("left", "right") if "CoGroups" in node.name else ("child",)
    frames = [scope.frame(node.node(one)) for one in inputs]
    value = together(frame.value() for frame in frames).through(PYTHON[node.name])
    below = Frame(indirect=together(frame.indirect for frame in frames), rows=together(frame.rows for frame in frames))
    return below.giving(Column(one.id, one.name, value) for one in node.output or ()).decided(Kind.FILTER, value)


def everything(node: Node, scope: Scope, reason: str) -> Frame:
    """What a node gives of which no more is known than what is below: each column may be made of all of them."""
    frames = [scope.frame(child) for child in node.plans()]
    value = together(frame.value() for frame in frames).then(Kind.TRANSFORMATION).because(reason)
    rows = together(frame.rows for frame in frames).because(reason)
    indirect = together(frame.indirect for frame in frames)
    return Frame(tuple(Column(one.id, one.name, value) for one in node.output or ()), indirect, rows)


def nothing(node: Node, reason: str) -> Frame:
    """What a node gives of which nothing is known."""
    value = Value().because(reason)
    return Frame(tuple(Column(one.id, one.name, value) for one in node.output or ()), rows=value)


def _output(node: Node) -> tuple[Attribute, ...]:
    if node.output is None:
        raise node.missing("out")
    return node.output


PYTHON = MappingProxyType({
    "MapInPandas": "mapInPandas", "MapInArrow": "mapInArrow", "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow", "FlatMapCoGroupsInPandas": "applyInPandas of two inputs",
    "FlatMapCoGroupsInArrow": "applyInArrow of two inputs",
})  # fmt: skip
"""By the class of the node, what a user calls it."""

_PASSED = (
    "SubqueryAlias", "Result", "GlobalLimit", "LocalLimit", "Offset", "Sample", "Repartition", "RepartitionByExpression",
    "RebalancePartitions", "ResolvedHint", "CollectMetrics",
)  # fmt: skip

NODES: Mapping[str, Rule] = MappingProxyType({
    **LEAVES,
    **dict.fromkeys(_PASSED, _passed),
    **dict.fromkeys(PYTHON, _python),
    "Project": _project, "View": _view, "Filter": _filter, "Sort": _sort, "Aggregate": _aggregate,
    "Distinct": _distinct, "Deduplicate": _deduplicate,
    "Window": _window, "Expand": _expand, "Generate": _generate, "Join": _join, "LateralJoin": _lateral, "AsOfJoin": _as_of,
    "Union": _union, "Except": _compared, "Intersect": _compared, "WithCTE": _with, "CTERelationRef": _reference,
    "UnionLoop": lambda node, scope: scope.reader.loop(node, scope),
    "UnionLoopRef": lambda node, scope: scope.reader.looped(node.number("loopId")).renamed(_output(node)),
})  # fmt: skip
"""By the class of the node."""
