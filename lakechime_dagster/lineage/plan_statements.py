"""From the plans that a program executed to the statements that it made, and the commits of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lakechime_dagster.lineage.columns import ColumnLineage, Kind, Names, Source, Statement, joined
from lakechime_dagster.lineage.plan_dump import Dump, MissingPartError, Node, Unknown, deeply, place_of
from lakechime_dagster.lineage.plan_expressions import EXPRESSIONS
from lakechime_dagster.lineage.plan_expressions import Rule as ExpressionRule
from lakechime_dagster.lineage.plan_nodes import BATCHES, CHECKPOINTS, NODES, Checkpoints, Reading
from lakechime_dagster.lineage.plan_nodes import Rule as NodeRule
from lakechime_dagster.lineage.plan_values import CONSTANT, Frame, Value, together
from lakechime_dagster.lineage.plan_writes import WRITES, Write, columns_by_name
from lakechime_dagster.lineage.plan_writes import Rule as WriteRule

RESULT = "result"
"""The name of the dump of a frame that a function returned."""

JOB = "job"
"""The name of a dump of a job that ran no statement, such as an action of an RDD; it has no plan."""

COMMANDS = "multi-commands"
"""The name that Spark gives to `FROM … INSERT … INSERT …`, whose plan is the union of the commands."""

DRIVER = "a value that may have gone through the driver"


@dataclass(frozen=True)
class Rules:
    """What nodes, expressions and commands mean, by their class."""

    nodes: Mapping[str, NodeRule]
    expressions: Mapping[str, ExpressionRule]
    writes: Mapping[str, WriteRule]


RULES = Rules(NODES, EXPRESSIONS, WRITES)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A statement, and the execution that made it."""

    statement: Statement
    dump: Dump


@dataclass(frozen=True, kw_only=True)
class Found:
    """What dumps say.

    `outside` are the data sets read or written that have no name in the lake; `unknown` says what was executed of which
    nothing could be told, each time it was.
    """

    writes: tuple[Written, ...] = ()
    outside: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What was executed, in its order."""
        return tuple(one.statement for one in self.writes)


def statements_of(dumps: Iterable[Dump], names: Names, target: str | None = None, rules: Rules = RULES) -> Found:
    """The statements of a function's call.

    Args:
        dumps: What was executed meanwhile, in its order, and the frame that the function returned as one named `result`.
        names: The lake's names of tables.
        target: The table that the returned frame becomes, if its plan does not tell it.
        rules: What nodes mean.
    """
    all_dumps = tuple(one for one in dumps if not one.failed)
    return deeply(lambda: _found(all_dumps, names, target, rules), max((one.depth for one in all_dumps), default=0))


def _found(dumps: tuple[Dump, ...], names: Names, target: str | None, rules: Rules) -> Found:
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
            driver = driver.because(DRIVER)  # what the function keeps from batch to batch is in no plan
            continue
        try:
            commands = dump.plan.nodes("children") if dump.name == COMMANDS else (dump.plan,)
        except MissingPartError as problem:
            unknown.append(f"{dump.plan.name}: {problem}")
            continue
        for plan in commands:
            try:
                reading = Reading(dump.plan, names, checkpoints, rules.nodes, rules.expressions, is_dynamic=dump.is_dynamic)
                statement, fetched = _read(dump, plan, reading, target, rules)
                outside |= reading.outside
            except (MissingPartError, ValueError) as problem:
                statement, fetched = None, CONSTANT
                unknown.append(f"{plan.name}: {problem}")
            if statement is not None:
                writes.append(Written(statement=after_driver(statement, driver), dump=dump))
            driver = driver if fetched is CONSTANT else driver.beside(through_driver(fetched))
    return Found(writes=tuple(writes), outside=tuple(sorted(outside)), unknown=tuple(unknown))


def _read(dump: Dump, plan: Node, reading: Reading, target: str | None, rules: Rules) -> tuple[Statement | None, Value]:
    """The statement of a dump; of an action, what it fetched to the driver."""
    is_write, marks = plan.name in rules.writes, [node for node in plan.walk() if node.name == "Result"]
    if marks:
        return (_marked(marks, reading) if is_write or dump.name == RESULT else None), CONSTANT
    if is_write:
        return _written(rules.writes[plan.name](plan, reading), reading), CONSTANT
    if dump.name == RESULT:
        frame = reading.read(plan)
        return _statement(target or "", columns_by_name(frame), frame.deciding(), reading.tables), CONSTANT
    if dump.name in CHECKPOINTS or is_silent(plan) or _is_of_log(dump, plan):
        return None, CONSTANT
    if plan.name in VARIABLES:
        return None, _kept(plan, reading)
    if plan.name in rules.nodes:
        return None, _fetched(reading.read(plan))
    if any(node.name == CLONE for node in plan.walk()):
        raise MissingPartError("a clone, whose plan does not tell what it is of")
    if any(node.name in rules.nodes for node in plan.walk()):
        raise MissingPartError("an unknown command")
    return None, CONSTANT


def _is_for_function(plan: Node) -> bool:
    """Whether a batch of a stream is handed to a function, whose own statements follow."""
    sink = plan.fields.get("sink")
    return plan.name in BATCHES and isinstance(sink, Unknown) and sink.name.startswith("ForeachBatch")


def _is_of_log(dump: Dump, plan: Node) -> bool:
    """Whether Delta itself asks a table's log, as it does when a frame is planned without being executed, such as by `cache()`.

    What a program in Python asks of the log is the program's.
    """
    if str(dump.name).endswith("ToPython"):
        return False
    leaves = [node for node in plan.walk() if node.output is not None and not node.plans()]
    return any(_is_log(leaf) for leaf in leaves) and all(_is_log(leaf) or leaf.name in ("LocalRelation", "Range") for leaf in leaves)


def _is_log(leaf: Node) -> bool:
    """Whether a leaf reads the files of a log, or what Delta keeps of them."""
    roots = place_of(leaf.fields).roots
    names = {one.name for one in leaf.output or ()}
    is_kept = leaf.name == "LogicalRDD" and any(columns <= names for columns in LOG_COLUMNS)
    return is_kept or (bool(roots) and all("/_delta_log/" in f"{root}/" for root in roots))


ANALYSIS = "analyze"  # what Spark calls a statement of which the analysis failed, so that nothing was executed


def acts(dump: Dump) -> bool:
    """Whether an execution writes, or brings rows or what comes of them to the program."""
    plan = dump.plan
    if plan is None:
        return dump.name != ANALYSIS
    if dump.name in CHECKPOINTS or is_silent(plan) or _is_of_log(dump, plan):
        return False
    return plan.name in {*WRITES, *VARIABLES} or any(node.name in NODES for node in plan.walk())


def is_silent(plan: Node) -> bool:
    """Whether a command moves no rows: it names, lists or alters tables, views and settings."""
    return plan.name in SILENT or (plan.name.endswith("Command") and not plan.output and not plan.plans())


def _marked(marks: list[Node], reading: Reading) -> Statement:
    """The statement of a frame with a mark, whatever is done with it above: an engine's own comparing is none of its meaning."""
    frames = [reading.read(mark) for mark in marks]
    columns = joined(column for frame in frames for column in columns_by_name(frame))
    return _statement(marks[0].text("name"), columns, together(frame.deciding() for frame in frames), reading.tables)


def _written(write: Write, reading: Reading) -> Statement:
    target = reading.named(write.place)
    if target is None:
        raise MissingPartError("the plan does not tell where it writes to")
    used = {source.ref.table for column in write.columns for source in column.sources} | write.inputs
    inputs = {table for table in reading.tables if table != target or not write.looked_up or table in used}
    found = _statement(target, write.columns, write.indirect, inputs)
    return replace(found, replaces=write.replaces)


def _statement(target: str, columns: tuple[ColumnLineage, ...], indirect: Value, inputs: Iterable[str]) -> Statement:
    return Statement(
        target=target,
        columns=columns,
        indirect=tuple(indirect.sources),
        inputs=tuple(inputs),
        unknown=tuple(indirect.opaque),
        foreign=tuple(indirect.foreign),
    )


def _fetched(frame: Frame) -> Value:
    """What an action brings to the driver: values, and how many rows there are, on which others decide."""
    found = frame.value().beside(frame.indirect)
    return found if found.sources or found.opaque else Value().because(DRIVER)


def _kept(plan: Node, reading: Reading) -> Value:
    """What a variable of the session is given: statements that use it tell its name alone, as if it had gone through the driver.

    The default of one that is declared is an expression; what stands in it as a query is not looked into.
    """
    if plan.name == "SetVariable":
        frame = reading.read(plan.node("sourceQuery"))
        found = frame.value().beside(frame.indirect)
        return CONSTANT if found.is_constant else found
    has_query = any(node.name.endswith("Subquery") for node in plan.walk())
    return CONSTANT.because("the default of a variable") if has_query else CONSTANT


def through_driver(fetched: Value) -> Value:
    """What was fetched to the driver, of whatever kind it was there."""
    sources = frozenset(Source(source.ref, Kind.DRIVER, source.is_masking) for source in fetched.sources)
    return Value(sources, fetched.opaque | {DRIVER})


def after_driver(statement: Statement, driver: Value) -> Statement:
    """A statement after actions of the same program: what they fetched may be in any of its values, and in its constants.

    It may be in code that nobody looks into as well, as a UDF takes with it what the program has at hand.

    Where it assigns none, as a DELETE, they decide on its rows.
    """
    if not driver.opaque:
        return statement
    reasons = tuple(driver.opaque)
    columns = tuple(
        replace(one, sources=one.sources + tuple(driver.sources), opaque=one.opaque + (reasons if one.is_constant or one.foreign else ()))
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

VARIABLES = frozenset({"CreateVariable", "SetVariable"})
CLONE = "CloneTableCommand"
