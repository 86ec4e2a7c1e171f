"""Column lineage of the expressions of a plan."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.plan_dump import Field, Node
from lakechime_dagster.lineage.plan_values import CONSTANT, Scope, Value, together

Rule = Callable[[Node, Scope], Value]

MASKING = frozenset(
    {
        "Sha1",
        "Sha2",
        "Md5",
        "Crc32",
        "Murmur3Hash",
        "XxHash64",
        "HiveHash",
        "CollationAwareMurmur3Hash",
        "CollationAwareXxHash64",
        "Mask",
        "Count",
        "CountMinSketchAgg",
        "HyperLogLogPlusPlus",
        "HllSketchAgg",
        "RegrCount",
        "BitmapConstructAgg",
        "ThetaSketchAgg",
    }
)
"""Functions from whose outcome a value cannot be told."""

CONSTANTS = frozenset(
    {
        "Literal",
        "CurrentDate",
        "CurrentTimestamp",
        "CurrentTime",
        "Now",
        "LocalTimestamp",
        "CurrentTimeZone",
        "CurrentUser",
        "CurrentDatabase",
        "CurrentCatalog",
        "CurrentBatchTimestamp",
        "Rand",
        "Randn",
        "Uuid",
        "SparkVersion",
        "Pi",
        "EulerNumber",
        "MonotonicallyIncreasingID",
        "SparkPartitionID",
        "RowNumber",
        "CumeDist",
        "VariableReference",
        "CreateArray",
        "CreateMap",
        "Concat",
        "DropField",
        "NamedLambdaVariable",
        "SpecifiedWindowFrame",
        "UnspecifiedFrame$",
        "UnboundedPreceding$",
        "UnboundedFollowing$",
        "CurrentRow$",
    }
)
"""Expressions that come from no column, as long as they have no arguments. A rank is decided by its window alone."""

FOREIGN = MappingProxyType(
    {
        "PythonUDF": "Python UDF",
        "PythonUDAF": "Python UDF",
        "PythonUDTF": "Python UDTF",
        "ScalaUDF": "Scala UDF",
        "ScalaAggregator": "Scala UDF",
        "TypedAggregateExpression": "Scala UDF",
        "HiveSimpleUDF": "Hive UDF",
        "HiveGenericUDF": "Hive UDF",
        "HiveGenericUDTF": "Hive UDF",
        "HiveUDAFFunction": "Hive UDF",
        "ApplyFunctionExpression": "function of a catalog",
        "V2Aggregator": "function of a catalog",
    }
)
"""Code that nobody looks into: its arguments are sources, what it does with them is not known."""

ARGUMENTS = frozenset(
    {
        "left",
        "right",
        "child",
        "children",
        "arguments",
        "argument",
        "function",
        "values",
        "query",
        "input",
        "str",
        "expr",
        "zero",
        "merge",
        "finish",
        "replacement",
    }
)
"""Parameters that hold expressions: one that does not was not dumped, and is no lack of sources."""

_NAMES = ("name", "udfName", "functionName", "aggregatorName")


def value_of(node: Node, scope: Scope, rules: Mapping[str, Rule]) -> Value:
    """What an expression came from: by its rule, or as a function of its arguments."""
    rule = rules.get(node.name)
    return rule(node, scope) if rule else _function(node, scope)


def _function(node: Node, scope: Scope) -> Value:
    is_masking = node.name in MASKING
    if isinstance(node.fields.get("replacement"), Node):  # what stands for the function when it is evaluated
        replaced = scope.value(node.node("replacement"))
        return replaced.then(Kind.TRANSFORMATION, is_masking) if is_masking else replaced
    arguments = _arguments(node, scope)
    if arguments is None:
        return CONSTANT if node.name in CONSTANTS else Value().because(f"unknown function {node.name}")
    return arguments.then(Kind.TRANSFORMATION, is_masking)


def _arguments(node: Node, scope: Scope) -> Value | None:
    """What all arguments together came from, and that the dump has lost some; None where there are none."""
    children = node.children()
    lost = next((field for field, value in node.fields.items() if field in ARGUMENTS and not _holds_nodes(value)), None)
    if lost is not None:
        return scope.values(children).because(str(node.missing(lost)))
    return scope.values(children) if children else None


def _holds_nodes(field: Field) -> bool:
    return isinstance(field, Node) or (isinstance(field, tuple) and all(isinstance(one, Node) for one in field))


def _attribute(node: Node, scope: Scope) -> Value:
    """A column of the children."""
    value = scope.columns.get(node.number("exprId"))
    return Value().because(f"column {node.fields.get('name')} is not below") if value is None else value


def _outer(node: Node, scope: Scope) -> Value:
    """A column around a subquery, which may have the id of one inside."""
    inner = node.node("e")
    value = scope.outer.get(inner.number("exprId"))
    return Value().because(f"outer column {inner.fields.get('name')} is not around") if value is None else value


def _child(node: Node, scope: Scope) -> Value:
    """The value as it is."""
    return scope.value(node.node("child"))


def _either(node: Node, scope: Scope) -> Value:
    """The first of several that is not null: each gives the value, and whether it is null decides which of them does."""
    values = scope.values(node.nodes("children"))
    return values.beside(values.then(Kind.CONDITIONAL))


def _if(node: Node, scope: Scope) -> Value:
    condition = scope.value(node.node("predicate")).then(Kind.CONDITIONAL)
    return together((condition, scope.value(node.node("trueValue")), scope.value(node.node("falseValue"))))


def _case(node: Node, scope: Scope) -> Value:
    found = []
    for condition, value in node.lists("branches"):
        found += [scope.value(condition).then(Kind.CONDITIONAL), scope.value(value)]
    otherwise = node.optional("elseValue")
    return together(found if otherwise is None else [*found, scope.value(otherwise)])


def _struct(node: Node, scope: Scope) -> Value:
    """A struct keeps what each of its fields came from."""
    fields = tuple(scope.value(one) for one in node.nodes("children")[1::2])
    whole = together(fields).then(Kind.TRANSFORMATION)
    return replace(whole, fields=fields)


def _field(node: Node, scope: Scope) -> Value:
    whole = scope.value(node.node("child"))
    return whole.fields[node.number("ordinal")] if whole.fields else whole.then(Kind.TRANSFORMATION)


def _aggregated(node: Node, scope: Scope) -> Value:
    """An aggregate function of the rows that its own filter leaves."""
    function, condition = scope.value(node.node("aggregateFunction")).then(Kind.AGGREGATION), node.optional("filter")
    return function if condition is None else function.beside(scope.value(condition).then(Kind.FILTER))


def _count(node: Node, scope: Scope) -> Value:
    """How many rows have values; a count of all is made of the data sets as a whole."""
    arguments = scope.values(node.nodes("children"))
    return (arguments if arguments.sources or arguments.opaque else arguments.beside(scope.rows)).then(Kind.AGGREGATION, is_masking=True)


def _distinct(node: Node, scope: Scope) -> Value:
    """About how many values there are."""
    return _function(node, scope).then(Kind.AGGREGATION, is_masking=True)


def _by(node: Node, scope: Scope) -> Value:
    """The value of one column in the row where another has its largest or least."""
    return scope.value(node.node("valueExpr")).beside(scope.value(node.node("orderingExpr")).then(Kind.CONDITIONAL))


def _pivoted(node: Node, scope: Scope) -> Value:
    """The value in those rows where the pivot column has one value."""
    return scope.value(node.node("valueColumn")).beside(scope.value(node.node("pivotColumn")).then(Kind.CONDITIONAL))


def _with(node: Node, scope: Scope) -> Value:
    """An expression with parts that have a number, since they stand in it several times."""
    parts = {_number(one): scope.value(one.node("child")) for one in node.nodes("defs")}
    return scope.having(parts).value(node.node("child"))


def _part(node: Node, scope: Scope) -> Value:
    value = scope.columns.get(_number(node))
    if value is None:
        raise node.missing("definition")
    return value


def _number(node: Node) -> int:
    """The number of a part of an expression, below those of columns."""
    return -1 - node.number("id")


def _window(node: Node, scope: Scope) -> Value:
    """A function of the rows of a window, which others decide on."""
    window = node.node("windowSpec")
    specification = scope.values((*window.nodes("partitionSpec"), *window.nodes("orderSpec"), window.node("frameSpecification")))
    specification = specification.then(Kind.WINDOW)
    return scope.value(node.node("windowFunction")).beside(specification)


def _none(node: Node, scope: Scope) -> Value:
    """No column's value, whatever it is made with: a rank, which repeats its window's order, or a null of some type."""
    return CONSTANT


def _foreign(node: Node, scope: Scope) -> Value:
    name = next((str(node.fields[key]) for key in _NAMES if isinstance(node.fields.get(key), str)), "")
    return (_arguments(node, scope) or CONSTANT).through(f"{FOREIGN[node.name]} {name}".rstrip())


def _scalar(node: Node, scope: Scope) -> Value:
    """The one value of a query, which what decides on the query's rows decides on too."""
    frame = scope.inside(node.node("plan"))
    return frame.value().beside(frame.indirect)


def _exists(node: Node, scope: Scope) -> Value:
    """Whether a query has rows, whatever their columns."""
    frame = scope.inside(node.node("plan"))
    return frame.rows.beside(frame.indirect).then(Kind.TRANSFORMATION)


EXPRESSIONS: Mapping[str, Rule] = MappingProxyType(
    {
        "AttributeReference": _attribute,
        "OuterReference": _outer,
        "Alias": _child,
        "AssertNotNull": _child,
        "Coalesce": _either,
        "If": _if,
        "CaseWhen": _case,
        "CreateNamedStruct": _struct,
        "GetStructField": _field,
        "With": _with,
        "CommonExpressionRef": _part,
        "AggregateExpression": _aggregated,
        "Count": _count,
        "HyperLogLogPlusPlus": _distinct,
        "MaxBy": _by,
        "MinBy": _by,
        "PivotFirst": _pivoted,
        "WindowExpression": _window,
        "Rank": _none,
        "DenseRank": _none,
        "PercentRank": _none,
        "TypedNullLiteral": _none,
        "ScalarSubquery": _scalar,
        "Exists": _exists,
        "ListQuery": _scalar,
        **dict.fromkeys(FOREIGN, _foreign),
    }
)
"""By the class of the expression."""
