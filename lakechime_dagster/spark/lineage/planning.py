"""What a table's function or SQL would compute, asked of Spark over empty inputs of given schemas, while nothing is executed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakechime_dagster.errors import DeclarationError, LakeChimeError
from lakechime_dagster.spark.job import Seen
from lakechime_dagster.spark.lineage.dumps import PlanDumper
from lakechime_dagster.spark.lineage.guard import PlanGuard, Refused
from lakechime_dagster.spark.lineage.seen import marked
from lakechime_dagster.spark.sql_binder import sql_over

Schema = tuple[tuple[str, Any, bool], ...]  # of columns: name, type as Spark writes it in JSON, whether it may be null


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What was asked: the schema and the plan of what would be computed, or why that is not known until it runs.

    `refused` is what would have been executed on the way, without which nobody knows what is computed.
    """

    schema: Schema = ()
    seen: Seen | None = None
    why: str = ""
    refused: tuple[Refused, ...] = ()


class Planner:
    """Plans computations in one session, whose views and confs are as before after each."""

    def __init__(self, spark: SparkSession) -> None:
        """A planner.

        Raises:
            PlanUnreadableError: the session shows no plans.
        """
        self._spark = spark
        self._dumper = PlanDumper(spark)
        self._guard = PlanGuard(spark, self._dumper)

    def planned(self, compute: Any, sql: str | None, inputs: Mapping[str, tuple[str, Schema]]) -> Planned:
        """The plan of a function, or of SQL, over inputs by alias: the table that each is, and its schema."""
        refused: list[Refused] = []
        try:
            planned = self._asked(compute, sql, inputs, refused)
        except PySparkException as error:
            planned = Planned(why=_said(error))
        except LakeChimeError as error:
            planned = Planned(why=str(error))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything when it meets no rows
            planned = Planned(why=f"{type(error).__name__}: {error}")
        return Planned(refused=tuple(refused)) if refused else planned

    def _asked(self, compute: Any, sql: str | None, inputs: Mapping[str, tuple[str, Schema]], refused: list[Refused]) -> Planned:
        frames = {alias: self._empty(table, alias, schema) for alias, (table, schema) in inputs.items()}
        with self._dumper.watched() as watched, self._guard.refusing(refused):
            computed = self._computed(compute, sql, frames, {alias: table for alias, (table, _) in inputs.items()})
        seen = Seen(result=self._dumper.of(computed, with_texts=True), actions=tuple(watched.dumps))
        return Planned(schema=schema_of(computed.schema), seen=seen)

    def _computed(self, compute: Any, sql: str | None, frames: Mapping[str, DataFrame], tables: Mapping[str, str]) -> DataFrame:
        if sql is not None:
            return sql_over(self._spark, "the query", sql, {tables[alias]: frame for alias, frame in frames.items()})
        computed = compute(**frames)
        if not isinstance(computed, DataFrame):
            raise DeclarationError("the function", "result", f"is a {type(computed).__name__}; return a DataFrame")
        return computed

    def _empty(self, table: str, alias: str, schema: Schema) -> DataFrame:
        return marked(self._spark.createDataFrame([], spark_schema(schema)), table, alias)


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
