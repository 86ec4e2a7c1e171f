"""What a table's function or SQL would compute."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakechime_dagster.errors import DeclarationError, LakeChimeError
from lakechime_dagster.lineage.spark import Dump, PlanDumper, Watched, marked
from lakechime_dagster.spark.driver import activate
from lakechime_dagster.spark.sql import sql_over

WRITERS = frozenset({"write", "writeTo", "writeStream", "DeltaTable", "foreach", "foreachPartition"})
WRITING = ("INSERT", "MERGE", "UPDATE", "DELETE", "TRUNCATE", "DROP", "ALTER", "CREATE", "REPLACE", "COPY", "OPTIMIZE", "VACUUM")  # SQL
Schema = tuple[tuple[str, Any, bool], ...]  # of columns: name, type as Spark writes it in JSON, whether it may be null


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The schema and the plan of what would be computed, or why that is not known until it runs.

    `actions` are the dumps of what was executed on the way, over no rows.
    """

    schema: Schema = ()
    result: Dump | None = None
    why: str = ""
    actions: tuple[Dump, ...] = ()


class Planner:
    """Plans computations, each in a session of its own, whose temporary views and settings nothing else sees."""

    def __init__(self, spark: SparkSession) -> None:
        """A planner.

        Raises:
            PlanUnreadableError: the session shows no plans.
        """
        self._spark = spark
        PlanDumper(spark)

    def planned(self, compute: Any, sql: str | None, inputs: Mapping[str, tuple[str, Schema]]) -> Planned:
        """The plan of a function, or of SQL, over inputs by alias: the table that each is, and its schema.

        A function that writes is not run: over empty inputs it would empty what it writes.
        """
        if sql is None and (where := writes(compute)):
            return Planned(why=f"not known until it runs: its function writes ({where})")
        session = self._spark.newSession()
        dumper, watched = PlanDumper(session), Watched()
        try:
            frames = {alias: _empty(session, table, alias, schema) for alias, (table, schema) in inputs.items()}
            tables = {alias: table for alias, (table, _) in inputs.items()}
            with dumper.watched() as watched:
                computed = _computed(session, compute, sql, frames, tables)
            result = dumper.of(computed, with_texts=True)
            return Planned(schema=schema_of(computed.schema), result=result, actions=tuple(watched.dumps))
        except PySparkException as error:
            why = _said(error)
        except LakeChimeError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything when it meets no rows
            why = f"{type(error).__name__}: {error}"
        finally:
            activate(self._spark)
        return Planned(why=why, actions=tuple(watched.dumps))


def _computed(spark: SparkSession, compute: Any, sql: str | None, frames: Mapping[str, DataFrame], tables: Mapping[str, str]) -> DataFrame:
    if sql is not None:
        return sql_over(spark, "the query", sql, {tables[alias]: frame for alias, frame in frames.items()})
    computed = compute(**frames)
    if not isinstance(computed, DataFrame):
        raise DeclarationError("the function", "result", f"is a {type(computed).__name__}; return a DataFrame")
    return computed


def writes(function: Any, seen: frozenset[int] = frozenset()) -> str:
    """Where a function, or one of its project that it names, writes, such as "`.write` in `copied`"; "" where its source shows none.

    Source that cannot be read, and code behind other libraries, is not looked at.
    """
    function = inspect.unwrap(function.func if isinstance(function, partial) else function)
    if not inspect.isfunction(function) or id(function) in seen:
        return ""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        named = {**inspect.getclosurevars(function).globals, **inspect.getclosurevars(function).nonlocals}
    except (OSError, SyntaxError, TypeError, ValueError):
        return ""
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
        if name in WRITERS:
            return f"`{name}` in `{function.__name__}`"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sql" and node.args:
            texts = [one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if texts and texts[0].lstrip().upper().startswith(WRITING):
                return f"`{texts[0].split()[0]}` in `{function.__name__}`"
    project = function.__module__.partition(".")[0]
    helpers = [one for one in named.values() if inspect.isfunction(one) and one.__module__.partition(".")[0] == project]
    return next(filter(None, (writes(one, seen | {id(function)}) for one in helpers)), "")


def _empty(spark: SparkSession, table: str, alias: str, schema: Schema) -> DataFrame:
    return marked(spark.createDataFrame([], spark_schema(schema)), table, alias)


def spark_schema(schema: Schema) -> StructType:
    """The schema as Spark has it."""
    fields = [{"name": name, "type": kind, "nullable": nullable, "metadata": {}} for name, kind, nullable in schema]
    return StructType.fromJson({"type": "struct", "fields": fields})


def schema_of(schema: StructType) -> Schema:
    """The columns of a schema of Spark."""
    return tuple((field.name, field.dataType.jsonValue(), field.nullable) for field in schema)


def _said(error: PySparkException) -> str:
    """What Spark says, without the plan that it shows below."""
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    text = next(iter(str(error).splitlines()), "")
    return text if condition is None or condition in text else f"[{condition}] {text}"
