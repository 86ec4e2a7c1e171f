"""What the commands that write give their targets: a rule for each command."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from lakechime_dagster.lineage.columns import ColumnLineage, Kind, joined
from lakechime_dagster.lineage.plans.dump import Node, Unknown
from lakechime_dagster.lineage.plans.frames import Frame, Scope
from lakechime_dagster.lineage.plans.places import Place
from lakechime_dagster.lineage.plans.reading import Reading
from lakechime_dagster.lineage.plans.row_level import deleted, inserted, rewritten, truncated
from lakechime_dagster.lineage.plans.targets import Rule, Write, columns_by_name, is_kept, place_written, without
from lakechime_dagster.lineage.plans.values import CONSTANT, Value, together


def _query(node: Node, reading: Reading) -> tuple[tuple[ColumnLineage, ...], Value]:
    frame = reading.read(node.node("query"))
    return columns_by_name(frame), frame.deciding()


def _saved(node: Node, reading: Reading) -> Write:
    """`df.save` in all its modes. With `replaceWhere`, or a dynamic overwrite, rows of the target stay."""
    columns, indirect = _query(node, reading)
    return Write(place=place_written(node), columns=columns, indirect=indirect, replaces=_overwrites(node, reading))


def _appended(node: Node, reading: Reading) -> Write:
    """INSERT and the like; a MERGE that only inserts is planned as one too."""
    return inserted(node, reading) or _added(node, reading)


def _added(node: Node, reading: Reading) -> Write:
    columns, indirect = _query(node, reading)
    return Write(place=place_written(node), columns=columns, indirect=indirect)


def _overwritten(node: Node, reading: Reading) -> Write:
    """INSERT OVERWRITE, REPLACE WHERE: the rows that a condition on the target holds for are replaced, all if it is true."""
    columns, indirect = _query(node, reading)
    return Write(place=place_written(node), columns=columns, indirect=indirect, replaces=node.node("deleteExpr").name == "Literal")


def _created(node: Node, reading: Reading) -> Write:
    columns, indirect = _query(node, reading)
    return Write(place=place_written(node), columns=columns, indirect=indirect, replaces=True)


def _created_in_session(node: Node, reading: Reading) -> Write:
    """CREATE TABLE … AS of a table of Spark's own formats or of Hive; with IF NOT EXISTS a table that exists keeps its rows."""
    return replace(_created(node, reading), replaces=node.fields.get("mode") not in ("Append", "Ignore"))


def _inserted_by_hive(node: Node, reading: Reading) -> Write:
    """INSERT into a table of Hive: a PARTITION clause gives constants to columns, and an overwrite of it replaces partitions alone."""
    columns, indirect = _query(node, reading)
    partition = node.fields.get("partition")
    listed = partition if isinstance(partition, Mapping) else {}
    constants = tuple(ColumnLineage(column=name) for name, is_static in listed.items() if is_static is True)
    replaces = node.fields.get("overwrite") is True and not listed
    return Write(place=place_written(node), columns=columns + constants, indirect=indirect, replaces=replaces)


def _exported(node: Node, reading: Reading) -> Write:
    """INSERT OVERWRITE DIRECTORY."""
    columns, indirect = _query(node, reading)
    return Write(place=place_written(node), columns=columns, indirect=indirect, replaces=node.fields.get("overwrite") is True)


def _loaded(node: Node, _: Reading) -> Write:
    """LOAD DATA: the rows of files, of whose columns the plan shows nothing."""
    replaces = node.fields.get("isOverwrite") is True and node.fields.get("partition") is None
    return Write(place=Place(identifier=node.text("table")), indirect=CONSTANT.because("LOAD DATA reads files"), replaces=replaces)


def _truncated_in_session(node: Node, _: Reading) -> Write:
    """TRUNCATE of a table of Spark's own formats or of Hive: all rows go, or those of partitions."""
    return Write(place=Place(identifier=node.text("tableName")), replaces=node.fields.get("partitionSpec") is None, looked_up=True)


def _streamed(node: Node, reading: Reading) -> Write:
    """A batch of a stream; of one whose mode is complete each replaces what was before."""
    columns, indirect = _query(node, reading)
    mode = node.fields.get("outputMode")
    is_whole = isinstance(mode, Unknown) and mode.name.startswith("Complete")
    return Write(place=place_written(node), columns=columns, indirect=indirect, replaces=is_whole)


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
        if not is_kept(expression, column.id)
    ]
    indirect = CONSTANT if condition is None else here.value(condition).then(Kind.FILTER)
    return Write(place=place_written(node), columns=tuple(found), indirect=indirect.beside(target.deciding()), looked_up=True)


def _deleted(node: Node, reading: Reading) -> Write:
    """DELETE assigns no column; its condition decides on the rows that stay."""
    target, condition = reading.read(node.node("target")), node.optional("condition")
    if condition is None or condition.name == "Literal":
        return Write(place=place_written(node), replaces=True, looked_up=True)
    return Write(place=place_written(node), indirect=reading.scope(target).value(condition).then(Kind.FILTER), looked_up=True)


def _merged(node: Node, reading: Reading) -> Write:
    """MERGE: rows are joined by its condition; each clause decides on its rows by its own condition, and assigns by its actions."""
    source = reading.read(node.node("source"))
    inputs = frozenset(reading.tables)
    target = reading.read(node.node("target"))
    here = reading.scope(target, source)
    columns: list[ColumnLineage] = []
    indirect = [source.deciding(), without(target.value(), here.value(node.node("condition"))).then(Kind.JOIN)]
    for clause in (one for clauses in CLAUSES for one in node.nodes(clauses)):
        condition = clause.optional("condition")
        if condition is not None:
            indirect.append(here.value(condition).then(Kind.FILTER))
        columns += _assigned(clause, here, target)
    return Write(place=place_written(node), columns=joined(columns), indirect=together(indirect), looked_up=True, inputs=inputs)


def _assigned(clause: Node, here: Scope, target: Frame) -> list[ColumnLineage]:
    """What a clause assigns; fields of one struct are told as its column."""
    ids = {column.name: column.id for column in target.columns}
    found = []
    for action in clause.nodes("actions") if clause.name in ASSIGNING else ():
        path, expression = action.names("targetColNameParts"), action.node("expr")
        if not path:
            raise action.missing("targetColNameParts")
        if not is_kept(expression, ids.get(path[0])):
            found.append(here.value(expression).lineage(path[0]))
    return found


def _restored(node: Node, _: Reading) -> Write:
    """RESTORE: the rows of another version, of which the plan does not tell where they came from."""
    return Write(place=place_written(node), indirect=CONSTANT.because("rows of another version of the table"))


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


CLAUSES = ("matchedClauses", "notMatchedClauses", "notMatchedBySourceClauses")
ASSIGNING = frozenset({
    "DeltaMergeIntoMatchedUpdateClause", "DeltaMergeIntoNotMatchedInsertClause", "DeltaMergeIntoNotMatchedBySourceUpdateClause",
})  # fmt: skip

WRITES: Mapping[str, Rule] = MappingProxyType({
    "SaveIntoDataSourceCommand": _saved, "InsertIntoHadoopFsRelationCommand": _saved, "AppendData": _appended,
    "OverwriteByExpression": _overwritten, "OverwritePartitionsDynamic": _added, "DeltaDynamicPartitionOverwriteCommand": _added,
    "CreateTableAsSelect": _created, "ReplaceTableAsSelect": _made_anew, "SaveAsV1TableCommand": _created,
    "CreateDataSourceTableAsSelectCommand": _created_in_session, "CreateHiveTableAsSelectCommand": _created_in_session,
    "InsertIntoHiveTable": _inserted_by_hive, "InsertIntoDataSourceDirCommand": _exported, "InsertIntoHiveDirCommand": _exported,
    "LoadDataCommand": _loaded, "TruncateTableCommand": _truncated_in_session,
    "WriteToMicroBatchDataSourceV1": _streamed,
    "RestoreTableCommand": _restored, "MergeIntoCommand": _merged, "UpdateCommand": _updated, "DeleteCommand": _deleted,
    "ReplaceData": rewritten, "WriteDelta": rewritten, "DeleteFromTable": deleted, "TruncateTable": truncated,
})  # fmt: skip
"""By the class of the command."""
