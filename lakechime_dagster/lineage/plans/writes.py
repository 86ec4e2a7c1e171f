"""What the commands that write give their targets: a rule for each command."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from lakechime_dagster.lineage.columns import ColumnLineage, Kind, joined
from lakechime_dagster.lineage.plans.dump import Node, Unknown
from lakechime_dagster.lineage.plans.frames import Frame, Scope
from lakechime_dagster.lineage.plans.places import Place, place_of
from lakechime_dagster.lineage.plans.reading import Reading
from lakechime_dagster.lineage.plans.values import CONSTANT, Value, together


@dataclass(frozen=True, kw_only=True)
class Write:
    """What a command writes where.

    `looked_up` says that the target is read to find rows in it, which makes it no input unless it is among `inputs`, or a
    column is made of it.
    """

    place: Place
    columns: tuple[ColumnLineage, ...] = ()
    indirect: Value = CONSTANT
    replaces: bool = False
    looked_up: bool = False
    inputs: frozenset[str] = frozenset()


Rule = Callable[[Node, Reading], Write]


def columns_by_name(frame: Frame) -> tuple[ColumnLineage, ...]:
    """The columns of a target are those of the query's output of the same name, wherever they stand.

    A dump does not tell names that Spark makes of expressions with literals; such a column is called by its place.
    """
    return joined(column.value.lineage(column.name or f"column {place}") for place, column in enumerate(frame.columns, 1))


def _query(node: Node, reading: Reading) -> tuple[tuple[ColumnLineage, ...], Value]:
    frame = reading.read(node.node("query"))
    return columns_by_name(frame), frame.deciding()


def _saved(node: Node, reading: Reading) -> Write:
    """`df.save` in all its modes. With `replaceWhere`, or a dynamic overwrite, rows of the target stay."""
    columns, indirect = _query(node, reading)
    return Write(place=_place(node), columns=columns, indirect=indirect, replaces=_overwrites(node, reading))


def _appended(node: Node, reading: Reading) -> Write:
    columns, indirect = _query(node, reading)
    return Write(place=_place(node), columns=columns, indirect=indirect)


def _overwritten(node: Node, reading: Reading) -> Write:
    """INSERT OVERWRITE, REPLACE WHERE: the rows that a condition on the target holds for are replaced, all if it is true."""
    columns, indirect = _query(node, reading)
    return Write(place=_place(node), columns=columns, indirect=indirect, replaces=node.node("deleteExpr").name == "Literal")


def _created(node: Node, reading: Reading) -> Write:
    columns, indirect = _query(node, reading)
    return Write(place=_place(node), columns=columns, indirect=indirect, replaces=True)


def _streamed(node: Node, reading: Reading) -> Write:
    """A batch of a stream; of one whose mode is complete each replaces what was before."""
    columns, indirect = _query(node, reading)
    mode = node.fields.get("outputMode")
    is_whole = isinstance(mode, Unknown) and mode.name.startswith("Complete")
    return Write(place=_place(node), columns=columns, indirect=indirect, replaces=is_whole)


def _made_anew(node: Node, reading: Reading) -> Write:
    """`saveAsTable` over a table, which may keep partitions, and CREATE OR REPLACE … AS, which does not: they are one command."""
    return replace(_created(node, reading), replaces=not reading.is_dynamic)


def _updated(node: Node, reading: Reading) -> Write:
    """UPDATE: an expression for each column of the target, of which one that stands for itself is kept."""
    target = reading.read(node.node("target"))
    here, condition = reading.scope(target), node.optional("condition")
    found = [
        here.value(expression).lineage(column.name)
        for column, expression in zip(target.columns, node.nodes("updateExpressions"), strict=True)
        if not _is_kept(expression, column.id)
    ]
    indirect = CONSTANT if condition is None else here.value(condition).then(Kind.FILTER)
    return Write(place=_place(node), columns=tuple(found), indirect=indirect.beside(target.deciding()), looked_up=True)


def _deleted(node: Node, reading: Reading) -> Write:
    """DELETE assigns no column; its condition decides on the rows that stay."""
    target, condition = reading.read(node.node("target")), node.optional("condition")
    if condition is None or condition.name == "Literal":
        return Write(place=_place(node), replaces=True, looked_up=True)
    return Write(place=_place(node), indirect=reading.scope(target).value(condition).then(Kind.FILTER), looked_up=True)


def _merged(node: Node, reading: Reading) -> Write:
    """MERGE: rows are joined by its condition; each clause decides on its rows by its own condition, and assigns by its actions."""
    source = reading.read(node.node("source"))
    inputs = frozenset(reading.tables)
    target = reading.read(node.node("target"))
    here = reading.scope(target, source)
    columns: list[ColumnLineage] = []
    indirect = [source.deciding(), _without(target.value(), here.value(node.node("condition"))).then(Kind.JOIN)]
    for clause in (one for clauses in CLAUSES for one in node.nodes(clauses)):
        condition = clause.optional("condition")
        if condition is not None:
            indirect.append(here.value(condition).then(Kind.FILTER))
        columns += _assigned(clause, here, target)
    return Write(place=_place(node), columns=joined(columns), indirect=together(indirect), looked_up=True, inputs=inputs)


def _assigned(clause: Node, here: Scope, target: Frame) -> list[ColumnLineage]:
    """What a clause assigns; fields of one struct are told as its column."""
    ids = {column.name: column.id for column in target.columns}
    found = []
    for action in clause.nodes("actions") if clause.name in ASSIGNING else ():
        path, expression = action.names("targetColNameParts"), action.node("expr")
        if not path:
            raise action.missing("targetColNameParts")
        if not _is_kept(expression, ids.get(path[0])):
            found.append(here.value(expression).lineage(path[0]))
    return found


def _without(target: Value, condition: Value) -> Value:
    """A merge's condition without the target's side, where rows are only looked up."""
    return Value(condition.sources - {source.then(Kind.TRANSFORMATION) for source in target.sources} - target.sources, condition.opaque)


def _is_kept(expression: Node, column: int | None) -> bool:
    """Whether a column is assigned itself."""
    while expression.name in ("Alias", "KnownNotNull"):
        expression = expression.node("child")
    return expression.name == "AttributeReference" and expression.number("exprId") == column


def _place(node: Node) -> Place:
    """Where a command writes to, by those of its parameters that tell it."""
    found = [_place_in(node.fields.get(key)) for key in PLACES]
    return Place(
        path=next((one.path for one in found if one.path), None),
        identifier=next((one.identifier for one in found if one.identifier), None),
    )


def _place_in(value: object) -> Place:
    if isinstance(value, Node):
        return place_of(next((node.fields for node in value.walk() if not node.plans()), {}))
    if isinstance(value, str):
        return Place(path=value)
    return place_of(value) if isinstance(value, Mapping) else Place()


def _overwrites(node: Node, reading: Reading) -> bool:
    """Whether `df.save` replaces all rows; partitions alone where the statement says so, or the session and the statement does not.

    What has no partitions is replaced whole all the same, which only a write of files tells.
    """
    options = node.fields.get("options")
    said = options if isinstance(options, Mapping) else {}
    mode = said.get("partitionOverwriteMode")
    is_dynamic = str(mode).lower() == "dynamic" if mode is not None else reading.is_dynamic
    partly = "replaceWhere" in said or (is_dynamic and node.fields.get("partitionColumns") != ())
    return node.fields.get("mode") == "Overwrite" and not partly and not node.fields.get("staticPartitions")


PLACES = ("table", "targetFileIndex", "tahoeFileIndex", "target", "catalogTable", "tableDesc", "name", "outputPath", "options", "sink")
"""The parameters that may tell where a command writes to."""

CLAUSES = ("matchedClauses", "notMatchedClauses", "notMatchedBySourceClauses")
ASSIGNING = frozenset({
    "DeltaMergeIntoMatchedUpdateClause", "DeltaMergeIntoNotMatchedInsertClause", "DeltaMergeIntoNotMatchedBySourceUpdateClause",
})  # fmt: skip

WRITES: Mapping[str, Rule] = MappingProxyType({
    "SaveIntoDataSourceCommand": _saved, "InsertIntoHadoopFsRelationCommand": _saved, "AppendData": _appended,
    "OverwriteByExpression": _overwritten, "OverwritePartitionsDynamic": _appended, "DeltaDynamicPartitionOverwriteCommand": _appended,
    "CreateTableAsSelect": _created, "ReplaceTableAsSelect": _made_anew, "SaveAsV1TableCommand": _created,
    "WriteToMicroBatchDataSourceV1": _streamed,
    "MergeIntoCommand": _merged, "UpdateCommand": _updated, "DeleteCommand": _deleted,
})  # fmt: skip
"""By the class of the command."""
