"""From the plans that a program executed to the statements that it made."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lakechime_dagster.lineage.columns import (
    CONSTANT,
    ColumnLineage,
    Kind,
    Names,
    Source,
    Statement,
    Value,
    joined,
    together,
)
from lakechime_dagster.lineage.plan_dump import (
    Dump,
    MissingPartError,
    Node,
    TableLocation,
    Unknown,
    deeply,
    location_of,
)
from lakechime_dagster.lineage.plan_expressions import Frame, Scope
from lakechime_dagster.lineage.plan_nodes import BATCHES, CHECKPOINTS, NODES, Checkpoints, Reading
from lakechime_dagster.tables.names import folded


@dataclass(frozen=True, kw_only=True)
class Write:
    """What a command writes where.

    `looked_up` says that the target is read to find rows in it, which makes it no input unless it
    is among `inputs`, or a column is made of it.
    """

    location: TableLocation
    columns: tuple[ColumnLineage, ...] = ()
    indirect: Value = CONSTANT
    replaces: bool = False
    looked_up: bool = False
    inputs: frozenset[str] = frozenset()


Rule = Callable[[Node, Reading], Write]


def columns_by_name(frame: Frame) -> tuple[ColumnLineage, ...]:
    """The columns of a target are those of the query's output of the same name, wherever they
    stand.

    A dump lacks names that Spark makes of expressions with literals; such a column is called by its
    position.
    """
    return joined(
        column.value.lineage(column.name or f"column {location}")
        for location, column in enumerate(frame.columns, 1)
    )


def location_written(node: Node) -> TableLocation:
    """Where a command writes to, by those of its parameters that show it."""
    found = [_location_in(node.fields.get(key)) for key in LOCATIONS]
    return TableLocation(
        path=next((one.path for one in found if one.path), None),
        identifier=next((one.identifier for one in found if one.identifier), None),
    )


def _location_in(value: object) -> TableLocation:
    if isinstance(value, Node):
        return location_of(next((node.fields for node in value.walk() if not node.plans()), {}))
    if isinstance(value, str):
        return TableLocation(path=value)
    return location_of(value) if isinstance(value, Mapping) else TableLocation()


def without(target: Value, condition: Value) -> Value:
    """A merge's condition without the target's side, where rows are only looked up."""
    own = target.sources | {source.then(Kind.TRANSFORMATION) for source in target.sources}
    return replace(condition, sources=condition.sources - own)


def is_kept(expression: Node, column: int | None) -> bool:
    """Whether a column is assigned itself."""
    while expression.name in ("Alias", "KnownNotNull"):
        expression = expression.node("child")
    return expression.name == "AttributeReference" and expression.number("exprId") == column


LOCATIONS = (
    "table",
    "targetFileIndex",
    "tahoeFileIndex",
    "target",
    "catalogTable",
    "tableDesc",
    "name",
    "outputPath",
    "storage",
    "options",
    "sink",
    "sourceTable",
)
"""The parameters that may show where a command writes to."""


OPERATION = "__row_operation"
ROW_LEVEL_CLAUSES = (
    "matchedInstructions",
    "notMatchedInstructions",
    "notMatchedBySourceInstructions",
)
ASSIGNED: Mapping[str, str | None] = {
    "Keep Copy$": "output",
    "Keep Update$": "output",
    "Keep Insert$": "output",
    "Split": "otherOutput",
    "Keep Delete$": None,
    "Discard": None,
}
"""Which parameter of an instruction holds what rows become; of some rows nothing is left."""


def rewritten(node: Node, reading: Reading) -> Write:
    """`ReplaceData` and `WriteDelta`, which are one statement in two ways."""
    return (
        _row_level_merged(node, reading)
        if node.node("query").name == "MergeRows"
        else _changed(node, reading)
    )


def inserted(node: Node, reading: Reading) -> Write | None:
    """An append that is a MERGE which only inserts, of those rows of the source that the target has
    not; None of any other.

    It looks into the very relation that it writes to, while one that a query names itself has ids
    of its own.
    """
    table, join = node.fields.get("table"), _below(node.node("query"))
    is_merge = (
        isinstance(table, Node)
        and join.fields.get("joinType") == "left anti"
        and join.node("right").output == table.output
    )
    return _row_level_merged(node, reading) if is_merge else None


def deleted(node: Node, reading: Reading) -> Write:
    """A DELETE that a table does by itself: of all rows, or of those that a condition holds for."""
    target, condition = reading.read(node.node("table")), node.node("condition")
    indirect = reading.scope(target).value(condition).then(Kind.FILTER)
    return Write(
        location=location_written(node),
        indirect=indirect,
        replaces=condition.name == "Literal",
        looked_up=True,
    )


def truncated(node: Node, reading: Reading) -> Write:
    """All rows go."""
    return Write(location=location_written(node), replaces=True, looked_up=True)


Assigned = Iterable[tuple[str | None, Node]]
"""What columns of the target become, by name; what is none of its columns has no name."""


Clauses = Iterable[tuple[Node | None, Assigned]]
"""By the condition of a clause, if it has one, what it assigns."""


def _merge(
    node: Node, reading: Reading, sides: tuple[Node, Node], clauses: Clauses, on: Node | None
) -> Write:
    """MERGE of a source into a target: its condition joins the rows, and each clause decides on its
    rows by its own condition.
    """
    source = reading.read(sides[0])
    inputs = frozenset(reading.tables)
    target = reading.read(sides[1])
    here = reading.scope(target, source)
    columns, indirect = list[ColumnLineage](), [source.deciding()]
    if on is not None:
        indirect.append(without(target.value(), here.value(on)).then(Kind.JOIN))
    for condition, assigned in clauses:
        if condition is not None:
            indirect.append(here.value(condition).then(Kind.FILTER))
        columns += _changes(assigned, target, here)
    return Write(
        location=location_written(node),
        columns=joined(columns),
        indirect=together(indirect),
        looked_up=True,
        inputs=inputs,
    )


def _changes(assigned: Assigned, target: Frame, here: Scope) -> list[ColumnLineage]:
    """The columns that get something else than they have."""
    ids = {column.name: column.id for column in target.columns}
    return [
        here.value(one).lineage(name)
        for name, one in assigned
        if name is not None and not is_kept(one, ids.get(name))
    ]


def _row_level_merged(node: Node, reading: Reading) -> Write:
    """MERGE as Spark rewrites it: what rows become is in the instructions of its clauses, by the
    position of each column.

    Of the target's rows those may be left out before that its own part of the condition does not
    hold for.
    """
    query, join = node.node("query"), _below(node.node("query"))
    if join.name != "Join":
        raise MissingPartError(f"{query.name} of {join.name}")
    sides = ("left", "right") if join.text("joinType") == "left anti" else ("right", "left")
    names, clauses = _names(node, query), list[tuple[Node | None, Assigned]]()
    if query.name == "Project":
        clauses.append((None, zip(names, query.nodes("projectList"), strict=True)))
    for instruction in (
        one for key in ROW_LEVEL_CLAUSES if query.name == "MergeRows" for one in query.nodes(key)
    ):
        rows = _instructed(instruction)
        clauses.append(
            (instruction.node("condition"), zip(names, rows, strict=True) if rows else ())
        )
    return _merge(
        node,
        reading,
        (join.node(sides[0]), join.node(sides[1])),
        clauses,
        join.optional("condition"),
    )


def _instructed(instruction: Node) -> tuple[Node, ...]:
    """What an instruction makes of rows; nothing of those that it leaves out."""
    context = instruction.fields.get("context")
    name = (
        f"{instruction.name} {context.name}" if isinstance(context, Unknown) else instruction.name
    )
    if name not in ASSIGNED:
        raise MissingPartError(f"unknown instruction {name}")
    field = ASSIGNED[name]
    return () if field is None else instruction.nodes(field)


def _changed(node: Node, reading: Reading) -> Write:
    """UPDATE and DELETE: their condition decides on the rows; what an UPDATE assigns is what rows
    that it holds for become.
    """
    condition = node.node("condition")
    indirect = (
        reading.scope(reading.read(node.node("originalTable"))).value(condition).then(Kind.FILTER)
    )
    columns: list[ColumnLineage] = []
    for plan, expressions in _updates(node.node("query")):
        below = reading.read(plan.node("child"))
        columns += _changes(
            zip(_names(node, plan), expressions, strict=True), below, reading.scope(below)
        )
    return Write(
        location=location_written(node), columns=joined(columns), indirect=indirect, looked_up=True
    )


def _names(node: Node, plan: Node) -> list[str | None]:
    """By the position of each column that a plan gives its name in the table that is written."""
    names = {folded(one.name): one.name for one in node.node("table").output or ()}
    return [names.get(folded(one.name)) for one in plan.output or ()]


def _below(query: Node) -> Node:
    """What the rows are made of that a MERGE writes."""
    return query.node("child") if query.name in ("MergeRows", "Project") else query


def _updates(query: Node) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """The nodes below which there are the target's rows, and what each makes of them; none of what
    leaves rows as they are.

    Where the condition asks other tables, files are rewritten as those rows that it holds for, and
    the others.
    """
    is_named = query.name == "Project" and any(
        one.fields.get("name") == OPERATION for one in query.nodes("projectList")
    )
    top = query.node("child") if is_named else query
    for plan in top.nodes("children") if top.name == "Union" else (top,):
        if plan.name == "Project":
            yield plan, tuple(map(_where, plan.nodes("projectList")))
        elif plan.name == "Expand":
            yield plan, _second(plan)
        elif plan.name != "Filter":
            raise MissingPartError(f"rows of {plan.name}")


def _where(expression: Node) -> Node:
    """What a column becomes where the condition holds: Spark lets rows that it does not hold for
    keep theirs, by an IF around it.
    """
    value = expression.node("child") if expression.name == "Alias" else expression
    return value.node("trueValue") if value.name == "If" else expression


def _second(plan: Node) -> tuple[Node, ...]:
    """Of an UPDATE that writes what changes: for each row one that takes it away, and one that puts
    another in its place.
    """
    rows = plan.lists("projections")
    if len(rows) != 2 or any(one.name not in ("Literal", "AttributeReference") for one in rows[0]):
        raise MissingPartError("unknown rows of Expand")
    return rows[1]


def _of_query(node: Node, reading: Reading, *, replaces: bool) -> Write:
    """What a command writes of a query."""
    frame = reading.read(node.node("query"))
    return Write(
        location=location_written(node),
        columns=columns_by_name(frame),
        indirect=frame.deciding(),
        replaces=replaces,
    )


def _saved(node: Node, reading: Reading) -> Write:
    """`df.save` in all its modes. With `replaceWhere`, or a dynamic overwrite, rows of the target
    stay.
    """
    return _of_query(node, reading, replaces=_overwrites(node, reading))


def _appended(node: Node, reading: Reading) -> Write:
    """INSERT and the like; a MERGE that only inserts is planned as one too."""
    return inserted(node, reading) or _of_query(node, reading, replaces=False)


def _added(node: Node, reading: Reading) -> Write:
    """Rows, or partitions, that join others."""
    return _of_query(node, reading, replaces=False)


def _overwritten(node: Node, reading: Reading) -> Write:
    """INSERT OVERWRITE, REPLACE WHERE: the rows that a condition on the target holds for are
    replaced, all if it is true.
    """
    return _of_query(node, reading, replaces=node.node("deleteExpr").name == "Literal")


def _created(node: Node, reading: Reading) -> Write:
    return _of_query(node, reading, replaces=True)


def _created_in_session(node: Node, reading: Reading) -> Write:
    """CREATE TABLE … AS of a table of Spark's own formats or of Hive; with IF NOT EXISTS a table
    that exists keeps its rows.
    """
    return _of_query(node, reading, replaces=node.fields.get("mode") not in ("Append", "Ignore"))


def _inserted_by_hive(node: Node, reading: Reading) -> Write:
    """INSERT into a table of Hive: a PARTITION clause gives constants to columns, and an overwrite
    of it replaces partitions alone.
    """
    partition = node.fields.get("partition")
    listed = partition if isinstance(partition, Mapping) else {}
    constants = tuple(
        ColumnLineage(column=name) for name, is_static in listed.items() if is_static is True
    )
    found = _of_query(node, reading, replaces=node.fields.get("overwrite") is True and not listed)
    return replace(found, columns=found.columns + constants)


def _exported(node: Node, reading: Reading) -> Write:
    """INSERT OVERWRITE DIRECTORY."""
    return _of_query(node, reading, replaces=node.fields.get("overwrite") is True)


def _loaded(node: Node, _: Reading) -> Write:
    """LOAD DATA: the rows of files, of whose columns the plan shows nothing."""
    replaces = node.fields.get("isOverwrite") is True and node.fields.get("partition") is None
    return Write(
        location=TableLocation(identifier=node.text("table")),
        indirect=CONSTANT.because("LOAD DATA reads files"),
        replaces=replaces,
    )


def _truncated_in_session(node: Node, _: Reading) -> Write:
    """TRUNCATE of a table of Spark's own formats or of Hive: all rows go, or those of
    partitions.
    """
    return Write(
        location=TableLocation(identifier=node.text("tableName")),
        replaces=node.fields.get("partitionSpec") is None,
        looked_up=True,
    )


def _streamed(node: Node, reading: Reading) -> Write:
    """A batch of a stream; of one whose mode is complete each replaces what was before."""
    mode = node.fields.get("outputMode")
    return _of_query(
        node, reading, replaces=isinstance(mode, Unknown) and mode.name.startswith("Complete")
    )


def _overwritten_by_name(node: Node, reading: Reading) -> Write:
    """`saveAsTable` over a table, which may keep partitions, and CREATE OR REPLACE … AS, which does
    not: they are one command.
    """
    return _of_query(node, reading, replaces=not reading.is_dynamic)


def _updated(node: Node, reading: Reading) -> Write:
    """UPDATE: an expression for each column of the target, of which one that stands for itself is
    kept.
    """
    target = reading.read(node.node("target"))
    here, condition = reading.scope(target), node.optional("condition")
    found = [
        here.value(expression).lineage(column.name)
        for column, expression in zip(target.columns, node.nodes("updateExpressions"), strict=True)
        if not is_kept(expression, column.id)
    ]
    indirect = CONSTANT if condition is None else here.value(condition).then(Kind.FILTER)
    return Write(
        location=location_written(node),
        columns=tuple(found),
        indirect=indirect.merged(target.deciding()),
        looked_up=True,
    )


def _deleted(node: Node, reading: Reading) -> Write:
    """DELETE assigns no column; its condition decides on the rows that stay."""
    target, condition = reading.read(node.node("target")), node.optional("condition")
    if condition is None or condition.name == "Literal":
        return Write(location=location_written(node), replaces=True, looked_up=True)
    return Write(
        location=location_written(node),
        indirect=reading.scope(target).value(condition).then(Kind.FILTER),
        looked_up=True,
    )


def _merged(node: Node, reading: Reading) -> Write:
    """MERGE into a Delta table."""
    clauses = (
        (clause.optional("condition"), _actions(clause))
        for name in CLAUSES
        for clause in node.nodes(name)
    )
    return _merge(
        node, reading, (node.node("source"), node.node("target")), clauses, node.node("condition")
    )


def _actions(clause: Node) -> Iterator[tuple[str, Node]]:
    """What a clause assigns; fields of one struct count as its column."""
    for action in clause.nodes("actions") if clause.name in ASSIGNING else ():
        path = action.names("targetColNameParts")
        if not path:
            raise action.missing("targetColNameParts")
        yield path[0], action.node("expr")


def _restored(node: Node, _: Reading) -> Write:
    """RESTORE: the rows of another version, of which the plan does not show the sources."""
    return Write(
        location=location_written(node),
        indirect=CONSTANT.because("rows of another version of the table"),
    )


def _overwrites(node: Node, reading: Reading) -> bool:
    """Whether `df.save` replaces all rows; partitions alone where the statement says so, or the
    session and the statement does not.

    What has no partitions is replaced whole all the same, which only a write of files shows.
    """
    options = node.fields.get("options")
    said = options if isinstance(options, Mapping) else {}
    mode = said.get("partitionOverwriteMode")
    is_dynamic = str(mode).lower() == "dynamic" if mode is not None else reading.is_dynamic
    partly = "replaceWhere" in said or (is_dynamic and node.fields.get("partitionColumns") != ())
    return (
        node.fields.get("mode") == "Overwrite"
        and not partly
        and not node.fields.get("staticPartitions")
    )


CLAUSES = ("matchedClauses", "notMatchedClauses", "notMatchedBySourceClauses")
ASSIGNING = frozenset(
    {
        "DeltaMergeIntoMatchedUpdateClause",
        "DeltaMergeIntoNotMatchedInsertClause",
        "DeltaMergeIntoNotMatchedBySourceUpdateClause",
    }
)

WRITES: Mapping[str, Rule] = {
    "SaveIntoDataSourceCommand": _saved,
    "InsertIntoHadoopFsRelationCommand": _saved,
    "AppendData": _appended,
    "OverwriteByExpression": _overwritten,
    "OverwritePartitionsDynamic": _added,
    "DeltaDynamicPartitionOverwriteCommand": _added,
    "CreateTableAsSelect": _created,
    "ReplaceTableAsSelect": _overwritten_by_name,
    "SaveAsV1TableCommand": _created,
    "CreateDataSourceTableAsSelectCommand": _created_in_session,
    "CreateHiveTableAsSelectCommand": _created_in_session,
    "InsertIntoHiveTable": _inserted_by_hive,
    "InsertIntoDataSourceDirCommand": _exported,
    "InsertIntoHiveDirCommand": _exported,
    "LoadDataCommand": _loaded,
    "TruncateTableCommand": _truncated_in_session,
    "WriteToMicroBatchDataSourceV1": _streamed,
    "RestoreTableCommand": _restored,
    "MergeIntoCommand": _merged,
    "UpdateCommand": _updated,
    "DeleteCommand": _deleted,
    "ReplaceData": rewritten,
    "WriteDelta": rewritten,
    "DeleteFromTable": deleted,
    "TruncateTable": truncated,
}
"""By the class of the command."""


RESULT = "result"
"""The name of the dump of a frame that a function returned."""

JOB = "job"
"""The name of a dump of a job that ran no statement, such as an action of an RDD; it has no
plan.
"""

COMMANDS = "multi-commands"
"""The name that Spark gives to `FROM … INSERT … INSERT …`, whose plan is the union of the
commands.
"""

DRIVER = "a value that may have gone through the driver"


@dataclass(frozen=True, kw_only=True)
class Written:
    """A statement, and the execution that made it."""

    statement: Statement
    dump: Dump


@dataclass(frozen=True, kw_only=True)
class Found:
    """What dumps say.

    `outside` are the data sets read or written that have no name in the lake; `unknown` says what
    was executed of which nothing is known, each time it was.
    """

    writes: tuple[Written, ...] = ()
    outside: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What was executed, in its order."""
        return tuple(one.statement for one in self.writes)


def statements_of(dumps: Iterable[Dump], names: Names, target: str | None = None) -> Found:
    """The statements of a function's call.

    Args:
        dumps: What was executed meanwhile, in its order, and the frame that the function returned
            as one named `result`.
        names: The lake's names of tables.
        target: The table that the returned frame becomes, if its plan does not show it.
    """
    all_dumps = tuple(one for one in dumps if not one.failed)
    return deeply(
        lambda: _found(all_dumps, names, target), max((one.depth for one in all_dumps), default=0)
    )


def _found(dumps: tuple[Dump, ...], names: Names, target: str | None) -> Found:
    writes: list[Written] = []
    outside: set[str] = set()
    unknown: list[str] = []
    driver, checkpoints = CONSTANT, Checkpoints(dumps)
    for dump in dumps:
        if dump.plan is None:
            unknown.append(dump.error or "a dump without a plan")
            driver = driver.because(DRIVER)
            continue
        if _is_for_function(dump.plan):
            # what the function keeps from batch to batch is in no plan
            driver = driver.because(DRIVER)
            continue
        try:
            commands = dump.plan.nodes("children") if dump.name == COMMANDS else (dump.plan,)
        except MissingPartError as problem:
            unknown.append(f"{dump.plan.name}: {problem}")
            continue
        for plan in commands:
            try:
                reading = Reading(dump.plan, names, checkpoints, is_dynamic=dump.is_dynamic)
                statement, fetched = _read(dump, plan, reading, target)
                outside |= reading.outside
            except (MissingPartError, ValueError) as problem:
                statement, fetched = None, CONSTANT
                unknown.append(f"{plan.name}: {problem}")
            if statement is not None:
                writes.append(Written(statement=after_driver(statement, driver), dump=dump))
            driver = driver if fetched is CONSTANT else driver.merged(through_driver(fetched))
    return Found(writes=tuple(writes), outside=tuple(sorted(outside)), unknown=tuple(unknown))


def _read(
    dump: Dump, plan: Node, reading: Reading, target: str | None
) -> tuple[Statement | None, Value]:
    """The statement of a dump; of an action, what it fetched to the driver."""
    if plan.name in WRITES:
        return _written(WRITES[plan.name](plan, reading), reading), CONSTANT
    if dump.name == RESULT:
        frame = reading.read(plan)
        return _statement(
            target or "", columns_by_name(frame), frame.deciding(), reading.tables
        ), CONSTANT
    if dump.name in CHECKPOINTS or is_silent(plan) or _is_of_log(dump, plan):
        return None, CONSTANT
    if plan.name in NODES:
        return None, _fetched(reading.read(plan))
    if any(node.name == CLONE for node in plan.walk()):
        raise MissingPartError("a clone, whose plan does not show of what")
    if any(node.name in NODES for node in plan.walk()):
        raise MissingPartError("an unknown command")
    return None, CONSTANT


def _is_for_function(plan: Node) -> bool:
    """Whether a batch of a stream is handed to a function, whose own statements follow."""
    sink = plan.fields.get("sink")
    return (
        plan.name in BATCHES and isinstance(sink, Unknown) and sink.name.startswith("ForeachBatch")
    )


def _is_of_log(dump: Dump, plan: Node) -> bool:
    """Whether Delta itself asks a table's log, as it does when a frame is planned without being
    executed, such as by `cache()`.

    What a program in Python asks of the log is the program's.
    """
    if str(dump.name).endswith("ToPython"):
        return False
    leaves = [node for node in plan.walk() if node.output is not None and not node.plans()]
    return any(_is_log(leaf) for leaf in leaves) and all(
        _is_log(leaf) or leaf.name in ("LocalRelation", "Range") for leaf in leaves
    )


def _is_log(leaf: Node) -> bool:
    """Whether a leaf reads the files of a log, or what Delta keeps of them."""
    roots = location_of(leaf.fields).roots
    names = {one.name for one in leaf.output or ()}
    is_kept = leaf.name == "LogicalRDD" and any(columns <= names for columns in LOG_COLUMNS)
    return is_kept or (bool(roots) and all("/_delta_log/" in f"{root}/" for root in roots))


# what Spark calls a statement of which the analysis failed, so that nothing was executed
ANALYSIS = "analyze"


def acts(dump: Dump) -> bool:
    """Whether an execution writes, or brings rows or what comes of them to the program."""
    plan = dump.plan
    if plan is None:
        return dump.name != ANALYSIS
    if dump.name in CHECKPOINTS or is_silent(plan) or _is_of_log(dump, plan):
        return False
    return plan.name in WRITES or any(node.name in NODES for node in plan.walk())


def is_silent(plan: Node) -> bool:
    """Whether a command moves no rows: it names, lists or alters tables, views and settings."""
    return plan.name in SILENT or (
        plan.name.endswith("Command") and not plan.output and not plan.plans()
    )


def _written(write: Write, reading: Reading) -> Statement:
    target = reading.named(write.location)
    if target is None:
        raise MissingPartError("the plan does not show where it writes to")
    used = {
        source.ref.table for column in write.columns for source in column.sources
    } | write.inputs
    inputs = {
        table for table in reading.tables if table != target or not write.looked_up or table in used
    }
    found = _statement(target, write.columns, write.indirect, inputs)
    return replace(found, replaces=write.replaces)


def _statement(
    target: str, columns: tuple[ColumnLineage, ...], indirect: Value, inputs: Iterable[str]
) -> Statement:
    return Statement(
        target=target,
        columns=columns,
        indirect=tuple(indirect.sources),
        inputs=tuple(inputs),
        unknown=tuple(indirect.opaque),
        udfs=tuple(indirect.udfs),
    )


def _fetched(frame: Frame) -> Value:
    """What an action brings to the driver: values, and how many rows there are, on which others
    decide.
    """
    found = frame.value().merged(frame.indirect)
    return found if found.sources or found.opaque else Value().because(DRIVER)


def through_driver(fetched: Value) -> Value:
    """What was fetched to the driver, of whatever kind it was there."""
    sources = frozenset(
        Source(source.ref, Kind.DRIVER, source.is_masking) for source in fetched.sources
    )
    return Value(sources, fetched.opaque | {DRIVER})


def after_driver(statement: Statement, driver: Value) -> Statement:
    """A statement after actions of the same program: what they fetched may be in any of its values,
    and in its constants.

    It may be in code that nobody looks into as well, as a UDF takes with it what the program has at
    hand.

    Where it assigns none, as a DELETE, they decide on its rows.
    """
    if not driver.opaque:
        return statement
    reasons = tuple(driver.opaque)
    columns = tuple(
        replace(
            one,
            sources=one.sources + tuple(driver.sources),
            opaque=one.opaque + (reasons if one.is_constant or one.udfs else ()),
        )
        for one in statement.columns
    )
    tables = tuple({source.ref.table for source in driver.sources})
    indirect = statement.indirect if columns else statement.indirect + tuple(driver.sources)
    return replace(statement, columns=columns, indirect=indirect, inputs=statement.inputs + tables)


SILENT = frozenset(
    {
        "CreateViewCommand",
        "AlterViewAsCommand",
        "ExplainCommand",
        "DescribeQueryCommand",
        "DropTable",
        "DropView",
        "DropTempViewCommand",
        "CreateTable",
        "ReplaceTable",
        "CreateNamespace",
        "DropNamespace",
        "SetCatalogAndNamespace",
        "SetNamespaceCommand",
        "RefreshTable",
        "UncacheTable",
        "CacheTable",
        "CacheTableAsSelect",
        "AddColumns",
        "AlterColumns",
        "RenameColumn",
        "DropColumns",
        "SetTableProperties",
        "UnsetTableProperties",
        "SetTableLocation",
        "RenameTable",
        "ShowTables",
        "ShowNamespaces",
        "ShowColumns",
        "ShowTableProperties",
        "ShowPartitions",
        "DescribeRelation",
        "DescribeColumn",
        "DescribeNamespace",
        "AddPartitions",
        "DropPartitions",
        "RepairTable",
        "CommentOnTable",
        "CommentOnNamespace",
        "AddCheckConstraint",
        "DropConstraint",
        "CreateVariable",
        "SetVariable",
        "DropVariable",
        "OptimizeTableCommand",
        "VacuumTableCommand",
        "CommandResult",
        "NoopCommand",
    }
)
"""Commands that move no rows between tables."""

LOG_COLUMNS = (
    frozenset({"txn", "add", "remove", "metaData", "protocol"}),
    frozenset({"path", "partitionValues", "size", "modificationTime", "dataChange"}),
)
"""The columns of a log's actions, and those of the files that a table has by them."""

CLONE = "CloneTableCommand"
