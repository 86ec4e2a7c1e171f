"""What columns, expressions and frames of a plan derive from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakechime_dagster.lineage.columns import (
    CONSTANT,
    ColumnRef,
    Kind,
    Names,
    Source,
    Value,
    normalised,
    outside,
    together,
)
from lakechime_dagster.lineage.plan_dump import Attribute, Field, Node, TableLocation

if TYPE_CHECKING:
    from lakechime_dagster.lineage.plan_nodes import Reading

MANY = "files in many folders, among which are tables of the lake"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSets:
    """The data sets that one leaf reads, of which `outside` have no name in the lake; `unknown`
    says why these may not be all.
    """

    names: tuple[str, ...] = ()
    outside: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()


def read_at(location: TableLocation, names: Names) -> DataSets:
    """What is read there. A folder or a file in a table's folder is of that table, as a partition
    is.
    """
    whole = location.named(names)
    if whole is None and not location.roots:
        return DataSets()
    if whole is not None and (whole[1] or not location.roots):
        return DataSets(names=whole[:1], outside=frozenset(() if whole[1] else whole[:1]))
    hidden = {root for root in location.roots if location.is_grouped and names.has_below(root)}
    known = {root: names.holding(root) for root in location.roots}
    found = {
        root: known[root] or outside(_folder(root, location.base))
        for root in location.roots
        if known[root] or root not in hidden
    }
    return DataSets(
        names=tuple(dict.fromkeys(found.values())),
        outside=frozenset(name for root, name in found.items() if known[root] is None),
        unknown=frozenset((MANY,) if hidden else ()),
    )


def _folder(root: str, base: str | None) -> str:
    """The data set that a folder or a file outside of the lake is of: what is above partitions and
    files that Spark named.
    """
    path = normalised(root)
    if base is not None and path.startswith(f"{normalised(base)}/"):
        return base
    above, _, last = path.rpartition("/")
    if last.startswith((*_OWN, ".")) and "=" not in last:
        above, _, last = (path := above).rpartition("/")
    while "=" in last:
        above, _, last = (path := above).rpartition("/")
    return path


_OWN = ("part-", "_")


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a node gives."""

    id: int
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Frame:
    """The columns that a node gives, in order.

    `indirect` is what decides which rows there are, by sources of INDIRECT kinds. `rows` is where
    rows come from: data sets as a whole, which are what a count of rows is made of.
    """

    columns: tuple[Column, ...] = ()
    indirect: Value = CONSTANT
    rows: Value = CONSTANT

    def by_id(self) -> dict[int, Value]:
        return {column.id: column.value for column in self.columns}

    def value(self) -> Value:
        """What all columns together derive from."""
        return together(column.value for column in self.columns)

    def deciding(self) -> Value:
        """What decides on the rows, and why it is not known where they come from."""
        return self.indirect.because(*self.rows.opaque)

    def giving(self, columns: Iterable[Column]) -> "Frame":
        """The same rows with these columns."""
        return Frame(tuple(columns), self.indirect, self.rows)

    def decided(self, kind: Kind, *values: Value) -> "Frame":
        """The same columns of fewer or other rows, on which these values decide."""
        return Frame(
            self.columns,
            together((self.indirect, *(value.then(kind) for value in values))),
            self.rows,
        )

    def because(self, *reasons: str) -> "Frame":
        """The same rows and columns, of all of which something is unknown for these reasons."""
        if not reasons:
            return self
        columns = (Column(one.id, one.name, one.value.because(*reasons)) for one in self.columns)
        return Frame(tuple(columns), self.indirect, self.rows.because(*reasons))

    def renamed(self, output: Iterable[Attribute]) -> "Frame":
        """The same columns by position, under other ids and names."""
        return self.giving(columns_of(output, (column.value for column in self.columns)))


def columns_of(output: Iterable[Attribute], values: Iterable[Value]) -> tuple[Column, ...]:
    """The columns of an output, whose values come in its order."""
    return tuple(Column(one.id, one.name, value) for one, value in zip(output, values, strict=True))


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a rule looks things up: `columns` are those of the children, `outer` those around a
    subquery.
    """

    reader: "Reading"
    outer: Mapping[int, Value]
    columns: Mapping[int, Value]
    rows: Value = CONSTANT

    def frame(self, plan: Node) -> Frame:
        """What a child gives."""
        return self.reader.frame(plan, self)

    def over(self, *frames: Frame) -> "Scope":
        """For the expressions of a node whose children give these frames."""
        if len(frames) == 1:
            return Scope(self.reader, self.outer, frames[0].by_id(), frames[0].rows)
        columns = {column.id: column.value for frame in frames for column in frame.columns}
        return Scope(self.reader, self.outer, columns, together(frame.rows for frame in frames))

    def inside(self, plan: Node) -> Frame:
        """What the plan of a subquery gives, for which the columns here are outer ones."""
        return self.reader.frame(plan, Scope(self.reader, {**self.outer, **self.columns}, {}))

    def having(self, parts: Mapping[int, Value]) -> "Scope":
        """For an expression in which these have a number of their own."""
        return Scope(self.reader, self.outer, {**self.columns, **parts}, self.rows)

    def value(self, expression: Node) -> Value:
        return self.reader.value(expression, self)

    def values(self, expressions: Iterable[Node]) -> Value:
        """What these expressions together derive from."""
        return together(self.reader.value(one, self) for one in expressions)

    def named(self, expressions: Iterable[Node]) -> tuple[Column, ...]:
        """The columns that named expressions give."""
        return tuple(
            Column(one.number("exprId"), one.text("name"), self.reader.value(one, self))
            for one in expressions
        )

    def column(self, attribute: Attribute) -> Column:
        """The child's column of this id."""
        value = self.columns.get(attribute.id)
        return Column(
            attribute.id,
            attribute.name,
            Value().because(f"column {attribute.name} is not below") if value is None else value,
        )


def of_tables(tables: Iterable[str], output: Iterable[Attribute]) -> Frame:
    """The columns of a table as they are, or of several that are read as one."""
    names = tuple(tables)
    return Frame(
        tuple(Column(one.id, one.name, _reference(names, one.name)) for one in output),
        rows=_reference(names, None),
    )


def _reference(tables: Iterable[str], column: str | None) -> Value:
    return Value(frozenset(Source(ColumnRef(table, column), Kind.IDENTITY) for table in tables))


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
"""Functions from whose outcome a value cannot be recovered."""

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
"""Expressions that come from no column, as long as they have no arguments. A rank is decided by its
window alone.
"""

UDFS = {
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
        "structExpr",
        "fieldOps",
        "valExpr",
    }
)
"""Parameters that hold expressions: one that does not was not dumped, and is no lack of sources."""

_NAMES = ("name", "udfName", "functionName", "aggregatorName")


def value_of(node: Node, scope: Scope) -> Value:
    """What an expression derives from: by its rule, or as a function of its arguments."""
    rule = EXPRESSIONS.get(node.name)
    return rule(node, scope) if rule else _function(node, scope)


def _function(node: Node, scope: Scope) -> Value:
    is_masking = node.name in MASKING
    # what stands for the function when it is evaluated
    if isinstance(node.fields.get("replacement"), Node):
        replaced = scope.value(node.node("replacement"))
        return replaced.then(Kind.TRANSFORMATION, is_masking) if is_masking else replaced
    arguments = _arguments(node, scope)
    if arguments is None:
        return (
            CONSTANT if node.name in CONSTANTS else Value().because(f"unknown function {node.name}")
        )
    return arguments.then(Kind.TRANSFORMATION, is_masking)


def _arguments(node: Node, scope: Scope) -> Value | None:
    """What all arguments together derive from, and that the dump has lost some; None where there
    are none.
    """
    children = node.children()
    lost = next(
        (
            field
            for field, value in node.fields.items()
            if field in ARGUMENTS and not _holds_nodes(value)
        ),
        None,
    )
    if lost is not None:
        return scope.values(children).because(str(node.missing(lost)))
    return scope.values(children) if children else None


def _holds_nodes(field: Field) -> bool:
    return isinstance(field, Node) or (
        isinstance(field, tuple) and all(isinstance(one, Node) for one in field)
    )


def _attribute(node: Node, scope: Scope) -> Value:
    """A column of the children."""
    value = scope.columns.get(node.number("exprId"))
    return (
        Value().because(f"column {node.fields.get('name')} is not below")
        if value is None
        else value
    )


def _outer(node: Node, scope: Scope) -> Value:
    """A column around a subquery, which may have the id of one inside."""
    inner = node.node("e")
    value = scope.outer.get(inner.number("exprId"))
    return (
        Value().because(f"outer column {inner.fields.get('name')} is not around")
        if value is None
        else value
    )


def _child(node: Node, scope: Scope) -> Value:
    """The value as it is."""
    return scope.value(node.node("child"))


def _either(node: Node, scope: Scope) -> Value:
    """The first of several that is not null: each gives the value, and whether it is null decides
    which of them does.
    """
    values = scope.values(node.nodes("children"))
    return values.merged(values.then(Kind.CONDITIONAL))


def _if(node: Node, scope: Scope) -> Value:
    condition = scope.value(node.node("predicate")).then(Kind.CONDITIONAL)
    return together(
        (condition, scope.value(node.node("trueValue")), scope.value(node.node("falseValue")))
    )


def _case(node: Node, scope: Scope) -> Value:
    found = []
    for condition, value in node.lists("branches"):
        found += [scope.value(condition).then(Kind.CONDITIONAL), scope.value(value)]
    otherwise = node.optional("elseValue")
    return together(found if otherwise is None else [*found, scope.value(otherwise)])


def _struct(node: Node, scope: Scope) -> Value:
    """A struct keeps what each of its fields derives from."""
    fields = tuple(scope.value(one) for one in node.nodes("children")[1::2])
    whole = together(fields).then(Kind.TRANSFORMATION)
    return replace(whole, fields=fields)


def _field(node: Node, scope: Scope) -> Value:
    whole = scope.value(node.node("child"))
    return whole.fields[node.number("ordinal")] if whole.fields else whole.then(Kind.TRANSFORMATION)


def _aggregated(node: Node, scope: Scope) -> Value:
    """An aggregate function of the rows that its own filter leaves."""
    function, condition = (
        scope.value(node.node("aggregateFunction")).then(Kind.AGGREGATION),
        node.optional("filter"),
    )
    return (
        function if condition is None else function.merged(scope.value(condition).then(Kind.FILTER))
    )


def _count(node: Node, scope: Scope) -> Value:
    """How many rows have values; a count of all is made of the data sets as a whole."""
    arguments = scope.values(node.nodes("children"))
    return (
        arguments if arguments.sources or arguments.opaque else arguments.merged(scope.rows)
    ).then(Kind.AGGREGATION, is_masking=True)


def _distinct(node: Node, scope: Scope) -> Value:
    """About how many values there are."""
    return _function(node, scope).then(Kind.AGGREGATION, is_masking=True)


def _by(node: Node, scope: Scope) -> Value:
    """The value of one column in the row where another has its largest or least."""
    return scope.value(node.node("valueExpr")).merged(
        scope.value(node.node("orderingExpr")).then(Kind.CONDITIONAL)
    )


def _pivoted(node: Node, scope: Scope) -> Value:
    """The value in those rows where the pivot column has one value."""
    return scope.value(node.node("valueColumn")).merged(
        scope.value(node.node("pivotColumn")).then(Kind.CONDITIONAL)
    )


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
    specification = scope.values(
        (
            *window.nodes("partitionSpec"),
            *window.nodes("orderSpec"),
            window.node("frameSpecification"),
        )
    )
    specification = specification.then(Kind.WINDOW)
    return scope.value(node.node("windowFunction")).merged(specification)


def _none(node: Node, scope: Scope) -> Value:
    """No column's value, whatever it is made with: a rank, which repeats its window's order, or a
    null of some type.
    """
    return CONSTANT


def _udf(node: Node, scope: Scope) -> Value:
    name = next(
        (str(node.fields[key]) for key in _NAMES if isinstance(node.fields.get(key), str)), ""
    )
    return (_arguments(node, scope) or CONSTANT).through(f"{UDFS[node.name]} {name}".rstrip())


def _scalar(node: Node, scope: Scope) -> Value:
    """The one value of a query, which what decides on the query's rows decides on too."""
    frame = scope.inside(node.node("plan"))
    return frame.value().merged(frame.indirect)


def _exists(node: Node, scope: Scope) -> Value:
    """Whether a query has rows, whatever their columns."""
    frame = scope.inside(node.node("plan"))
    return frame.rows.merged(frame.indirect).then(Kind.TRANSFORMATION)


EXPRESSIONS: Mapping[str, Rule] = {
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
    **dict.fromkeys(UDFS, _udf),
}
"""By the class of the expression."""
