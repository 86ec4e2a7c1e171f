"""Plans of a Spark session as data, and of what a table would compute."""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import uuid4
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakechime_dagster.errors import DeclarationError, LakeChimeError, PlanUnreadableError
from lakechime_dagster.spark.driver import activate
from lakechime_dagster.spark.job import Executed, Seen
from lakechime_dagster.spark.session import kept_in_jvm, sql_over

SOURCES = ("PlanDump", "PlanListener")  # each compiled with those before it
PART = 7_000  # characters: py4j stalls for 44 ms on a text of more than some 8,000
FLUSH = 5_000  # milliseconds to wait for the events of what has ended; it takes a few

Dump = dict[str, Any]
"""The plan of a frame, or of an execution.

It is `{"v": 1, "name", "error", "nodes": [NODE], "plan": NODE}`, with null as plan and the reason
as `error` where there is none; one of an execution has its `id` and whether it `failed` too. A NODE
is `{"n": class, "f": {parameter: value}, "out": [[id, name]]}`, or `{"#": position}` of one of the
`nodes`, each of which stands behind its parts, so that no depth is too deep, and stands there once.
"""


def dump(frame: DataFrame, name: str = "result", *, with_texts: bool = False) -> Dump:
    """The dump of a frame's analyzed plan; an error where it cannot be read.

    `with_texts` keeps literals: for frames over empty inputs only, where none is of a row.
    """
    try:
        listener = listener_of(frame.sparkSession)
        plan = cast(Any, frame)._jdf.queryExecution().analyzed()
        return json.loads(text_of(listener.dump(plan, f'"name":{json.dumps(name)},', with_texts)))
    except (PlanUnreadableError, Py4JError) as error:
        return unread(error)


@contextmanager
def watched(spark: SparkSession) -> Iterator[list[Dump]]:
    """The dumps of what the session executes meanwhile, in the order in which that ended: its
    statements in whichever thread, each once, and this thread's jobs without one. They are complete
    when the body has ended.

    Within another watcher of the same thread both note the same. What a thread executes that
    another watcher is in is that one's alone; of a thread that none is in, while several watch that
    are not within each other, it is not known to any. What cannot be noted is a dump with an error;
    what happens inside is never disturbed.
    """
    dumps: list[Dump] = []
    job = f"lakechime-watched-{uuid4().hex}"
    try:
        listener = listener_of(spark)
        context = cast(Any, spark.sparkContext)._jsc.sc()
        session = f"spark-session-{cast(Any, spark)._jsparkSession.sessionUUID()}"
        listener.open(context, session, job)
        spark.sparkContext.addJobTag(job)  # jobs of RDDs do not have the session's tag
    except (PlanUnreadableError, Py4JError) as error:
        dumps.append(unread(error))
        yield dumps
        return
    try:
        yield dumps
    finally:
        try:
            spark.sparkContext.removeJobTag(job)
            dumps += json.loads(text_of(listener.close(context, job, FLUSH)))
        except Py4JError as error:
            dumps.append(unread(error))


def unread(error: Exception) -> Dump:
    """The dump of what could not be read."""
    return {"v": 1, "name": None, "error": first_line(error), "plan": None}


_listeners: WeakKeyDictionary[SparkContext, Any] = WeakKeyDictionary()
"""What listens in the contexts that this process has met: to look it up in the JVM takes a dozen
calls.
"""


def listener_of(spark: SparkSession) -> Any:
    """The listener of this revision in the session's context, made there once for all clients.

    Raises:
        PlanUnreadableError: the session is one of Spark Connect, or its Spark lacks what it needs.
    """
    try:
        context = spark.sparkContext
        if (found := _listeners.get(context)) is None:
            found = _listeners[context] = _looked_up(spark, context)
        return found
    except PySparkAttributeError:
        raise PlanUnreadableError("a session of Spark Connect shows no plans") from None
    except Py4JError as error:
        raise PlanUnreadableError(
            f"Spark does not load what reads plans: {first_line(error)}"
        ) from error


def _looked_up(spark: SparkSession, context: Any) -> Any:
    sources = [
        Path(__file__).with_name(f"{name}.java").read_text(encoding="utf-8") for name in SOURCES
    ]
    return kept_in_jvm(
        spark,
        "lakechime.lineage.PlanListener",
        sources,
        lambda listener, name: listener.installed(context._jsc.sc(), name),
        of=context.applicationId,  # the events of a context that took its place are others
    )


def text_of(characters: Any) -> str:
    """A long text out of the JVM, in parts."""
    length = characters.length()
    return "".join(
        characters.substring(start, min(start + PART, length)) for start in range(0, length, PART)
    )


def first_line(error: Exception) -> str:
    cause = getattr(error, "java_exception", error)
    return next(iter(str(cause).splitlines()), type(error).__name__)


# the alias of an input, below the one by which it is called: what is below it is the table, however
# it was read
TABLE = "lc:"


def marked(frame: DataFrame, table: str, alias: str) -> DataFrame:
    """A frame that stands for a table of the lake, called by an alias."""
    return frame.alias(TABLE + table).alias(alias)


@dataclass(frozen=True)
class LineageObserver:
    """Sees what a table's computation executes: `ended` gets it, also where it fails; `agree` may
    end the attempt by it.
    """

    ended: Callable[[Executed], None]
    agree: Callable[[Seen], None]

    def stand_in(self, frame: DataFrame, table: str) -> DataFrame:
        """A frame that is known as a table, however it was read."""
        return frame.alias(TABLE + table)

    def computed(
        self, spark: SparkSession, compute: Callable[[], DataFrame]
    ) -> tuple[DataFrame, Seen]:
        """What a computation gives, and what was seen of it. Where Spark shows no plans it is
        computed all the same.
        """
        dumps: list[Dump] = []
        try:
            with watched(spark) as dumps:
                frame = compute()
        finally:
            self.ended(Executed(actions=tuple(dumps)))
        seen = Seen(result=dump(frame), actions=tuple(dumps))
        self.agree(seen)
        return frame, seen


WRITERS = frozenset(
    {"write", "writeTo", "writeStream", "DeltaTable", "foreach", "foreachPartition"}
)
# SQL
WRITING = (
    "INSERT",
    "MERGE",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "DROP",
    "ALTER",
    "CREATE",
    "REPLACE",
    "COPY",
    "OPTIMIZE",
    "VACUUM",
)
# of columns: name, type as Spark writes it in JSON, whether it may be null
Schema = tuple[tuple[str, Any, bool], ...]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The schema and the plan of what would be computed, or why that is not known until it runs.

    `actions` are the dumps of what was executed on the way, over no rows.
    """

    schema: Schema = ()
    result: Dump | None = None
    why: str = ""
    actions: tuple[Dump, ...] = ()


def planned(
    spark: SparkSession, compute: Any, sql: str | None, inputs: Mapping[str, tuple[str, Schema]]
) -> Planned:
    """The plan of a function, or of SQL, over inputs by alias: the table that each is, and its
    schema. It has a session of its own, whose temporary views and settings nothing else sees.

    A function that writes is not run: over empty inputs it would empty what it writes.

    Raises:
        PlanUnreadableError: the session shows no plans.
    """
    listener_of(spark)
    if sql is None and (where := writes(compute)):
        return Planned(why=f"not known until it runs: its function writes ({where})")
    session, actions = spark.newSession(), list[Dump]()
    try:
        frames = {
            alias: _empty(session, table, alias, schema)
            for alias, (table, schema) in inputs.items()
        }
        tables = {alias: table for alias, (table, _) in inputs.items()}
        with watched(session) as actions:
            computed = _computed(session, compute, sql, frames, tables)
        result = dump(computed, with_texts=True)
        return Planned(schema=schema_of(computed.schema), result=result, actions=tuple(actions))
    except PySparkException as error:
        why = _said(error)
    except LakeChimeError as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything when it meets no rows
        why = f"{type(error).__name__}: {error}"
    finally:
        activate(spark)
    return Planned(why=why, actions=tuple(actions))


def _computed(
    spark: SparkSession,
    compute: Any,
    sql: str | None,
    frames: Mapping[str, DataFrame],
    tables: Mapping[str, str],
) -> DataFrame:
    if sql is not None:
        return sql_over(
            spark, "the query", sql, {tables[alias]: frame for alias, frame in frames.items()}
        )
    computed = compute(**frames)
    if not isinstance(computed, DataFrame):
        raise DeclarationError(
            "the function", "result", f"is a {type(computed).__name__}; return a DataFrame"
        )
    return computed


def writes(function: Any, seen: frozenset[int] = frozenset()) -> str:
    """Where a function, or one of its project that it names, writes, such as "`.write` in
    `copied`"; "" where its source shows none.

    Source that cannot be read, and code behind other libraries, is not looked at.
    """
    function = inspect.unwrap(function.func if isinstance(function, partial) else function)
    if not inspect.isfunction(function) or id(function) in seen:
        return ""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        named = {
            **inspect.getclosurevars(function).globals,
            **inspect.getclosurevars(function).nonlocals,
        }
    except (OSError, SyntaxError, TypeError, ValueError):
        return ""
    for node in ast.walk(tree):
        name = (
            node.attr
            if isinstance(node, ast.Attribute)
            else node.id
            if isinstance(node, ast.Name)
            else None
        )
        if name in WRITERS:
            return f"`{name}` in `{function.__name__}`"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "sql"
            and node.args
        ):
            texts = [
                one.value
                for one in ast.walk(node.args[0])
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            if texts and texts[0].lstrip().upper().startswith(WRITING):
                return f"`{texts[0].split()[0]}` in `{function.__name__}`"
    project = function.__module__.partition(".")[0]
    helpers = [
        one
        for one in named.values()
        if inspect.isfunction(one) and one.__module__.partition(".")[0] == project
    ]
    return next(filter(None, (writes(one, seen | {id(function)}) for one in helpers)), "")


def _empty(spark: SparkSession, table: str, alias: str, schema: Schema) -> DataFrame:
    return marked(spark.createDataFrame([], spark_schema(schema)), table, alias)


def spark_schema(schema: Schema) -> StructType:
    """The schema as Spark has it."""
    fields = [
        {"name": name, "type": kind, "nullable": nullable, "metadata": {}}
        for name, kind, nullable in schema
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


def schema_of(schema: StructType) -> Schema:
    """The columns of a schema of Spark."""
    return tuple((field.name, field.dataType.jsonValue(), field.nullable) for field in schema)


def _said(error: PySparkException) -> str:
    """What Spark says, without the plan that it shows below."""
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    text = next(iter(str(error).splitlines()), "")
    return text if condition is None or condition in text else f"[{condition}] {text}"
