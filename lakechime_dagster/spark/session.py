"""Settings of a session that hold for a few statements; names, types and literals in Spark's
terms; queries over bound inputs, and Java classes that are compiled in its JVM.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import SparkContext, inheritable_thread_target
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.names import folded

One = TypeVar("One")
Result = TypeVar("Result")


@contextmanager
def session_confs(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """These settings inside; afterwards they are what they were, whatever happens."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def in_threads(
    spark: SparkSession, threads: int, function: Callable[[One], Result], several: Iterable[One]
) -> list[Result]:
    """What a function returns of each, called in so many threads at a time.

    Each call has a copy of this thread's Spark properties of its own: `inheritable_thread_target`
    copies them when it wraps a function, and all calls of that wrapper would share the copy, in
    which Spark keeps the ids of a thread's running statement.
    """
    with ThreadPoolExecutor(threads) as pool:
        calls = [pool.submit(inheritable_thread_target(spark)(function), one) for one in several]
        return [call.result() for call in calls]


def column(name: str) -> Column:
    """A column by its exact name, dots and all."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A column's exact name in SQL."""
    return "`" + name.replace("`", "``") + "`"


def spelled(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """The rows with those of their columns that are among the names spelled as these are."""
    spelling = {folded(name): name for name in names}
    wanted = [spelling.get(folded(name), name) for name in rows.columns]
    return rows if wanted == rows.columns else rows.toDF(*wanted)


def require_columns(table: str, rows: DataFrame, names: Iterable[str]) -> None:
    """Ensure that a table's computed rows have each of its key and partition columns, once."""
    for name in names:
        found = [one for one in rows.columns if folded(one) == folded(name)]
        if not found:
            what = (
                f"does not return the column {name}, which is a key or partition of it, only "
                f"{', '.join(rows.columns)}"
            )
            raise DeclarationError(
                table, "columns", f"{what}; return it, or declare a column that is returned"
            )
        if len(found) > 1:
            raise DeclarationError(
                table,
                "columns",
                f"returns {' and '.join(found)}, which are one column to Spark; return one of them",
            )


def ddl_of(columns: Mapping[str, str]) -> str:
    """Columns and their types, as a list of columns."""
    return ", ".join(f"{quoted(name)} {ddl}" for name, ddl in columns.items())


def columns_of(schema: StructType) -> dict[str, str]:
    """The columns of a schema and their types."""
    return {one.name: one.dataType.simpleString() for one in schema}


def struct_of(ddl: str) -> StructType:
    """The schema of a list of columns."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def arrow_of(ddl: str) -> pa.Schema:
    """The same as Arrow has it: times in microseconds, with their zone where they have one."""
    return to_arrow_schema(struct_of(ddl))


MAX_LITERALS = 200
MAX_BYTES = 1_000  # of a text that becomes a literal
KINDS = (NumericType, StringType, DateType, TimestampType, TimestampNTZType, BooleanType)


def has_literals(kind: DataType) -> bool:
    """Whether values of a type can be literals."""
    return isinstance(kind, KINDS)


def few_rows(values: DataFrame, most: int = MAX_LITERALS) -> list[tuple[Any, ...]] | None:
    """The rows as they travel (`plain`); None where they are more or long, which is found out
    without holding many or long ones.

    All columns must be of types that have literals.
    """
    texts = [field.name for field in values.schema if isinstance(field.dataType, StringType)]
    long = [F.coalesce(F.octet_length(column(name)) > MAX_BYTES, F.lit(False)) for name in texts]
    is_long = reduce(lambda a, b: a | b, long, F.lit(False))
    travelling = [
        F.when(~is_long, plain(column(field.name), field.dataType)).alias(field.name)
        for field in values.schema
    ]
    rows = values.select(is_long, *travelling).limit(most + 1).collect()
    if len(rows) > most or any(row[0] for row in rows):
        return None
    return [tuple(row)[1:] for row in rows]


def local(values: DataFrame) -> DataFrame | None:
    """The distinct rows as data of the plan, so that no later question to them and no join with
    them computes them again.

    None where they are many or long, or where their types have no literals.
    """
    if not all(has_literals(field.dataType) for field in values.schema):
        return None
    rows = few_rows(values)
    if rows is None:
        return None
    return local_rows(
        values.sparkSession,
        values.columns,
        [field.dataType for field in values.schema],
        list(dict.fromkeys(rows)),
    )


def local_rows(
    spark: SparkSession,
    names: Sequence[str],
    kinds: Sequence[DataType],
    rows: Sequence[Sequence[Any]],
) -> DataFrame:
    """Rows of plain values as data of a plan, under these names and types."""
    lines = [
        f"({', '.join(sql_literal(value, kind) for value, kind in zip(row, kinds, strict=True))})"
        for row in rows
    ]
    nothing = f"({', '.join(sql_literal(None, kind) for kind in kinds)})"
    found = spark.sql(
        f"VALUES {', '.join(lines or [nothing])} AS t({', '.join(quoted(name) for name in names)})"
    )
    return found if lines else found.limit(0)


def typed_rows(
    spark: SparkSession, fields: Sequence[StructField], rows: Sequence[Sequence[object]]
) -> DataFrame:
    """Rows of values, or of texts of them, in the types of columns; null what is no value there."""
    names = [one.name for one in fields]
    texts = [
        [
            None if one is None else str(one).lower() if isinstance(one, bool) else str(one)
            for one in row
        ]
        for row in rows
    ]
    found = local_rows(spark, names, [StringType()] * len(names), texts)
    return found.select(
        *[column(one.name).try_cast(one.dataType).alias(one.name) for one in fields]
    )


def plain(value: Column, kind: DataType) -> Column:
    """A value as it travels through Python, whose own times depend on the zone of its process and
    whose years are four digits.
    """
    if isinstance(kind, TimestampType):
        return F.unix_micros(value)
    return (
        value if isinstance(kind, NumericType | StringType | BooleanType) else value.cast("string")
    )


def literal(value: Any, kind: DataType) -> Column:
    """A literal of a value that travelled plain."""
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(F.lit(value))
    return (
        F.lit(value).cast(kind) if isinstance(kind, DateType | TimestampNTZType) else F.lit(value)
    )


def sql_literal(value: Any, kind: DataType) -> str:
    """A value that travelled plain, in SQL."""
    if value is not None and isinstance(kind, TimestampType):
        return f"timestamp_micros({int(value)})"
    return f"CAST({'NULL' if value is None else text_literal(value)} AS {kind.simpleString()})"


def text_literal(value: Any) -> str:
    """A value as a SQL string, in which no `${…}` is taken for a variable."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


Batches = Iterator[pa.RecordBatch]
OnBatches = Callable[[Batches], Batches]

CHUNK = 10_000  # rows of a batch that is sent back


def on_batches(rows: DataFrame, function: OnBatches, schema: str | StructType) -> DataFrame:
    """The rows that a plain function over Arrow's batches makes of these, in Spark's workers."""
    return rows.mapInArrow(function, schema)  # type: ignore[arg-type]


def rows_of(batches: Batches) -> Iterator[tuple[Any, ...]]:
    """The rows of batches, one after another."""
    for batch in batches:
        yield from zip(*[column.to_pylist() for column in batch.columns], strict=True)


def record_batches(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> Batches:
    """Rows as batches of a schema."""
    for start in range(0, len(rows), CHUNK):
        columns = zip(*rows[start : start + CHUNK], strict=True)
        arrays = [pa.array(list(values), schema.field(i).type) for i, values in enumerate(columns)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass
class Phases:
    """The clock of an attempt at a table; its jobs are shown in Spark under the table and the
    phase.
    """

    spark: SparkSession
    table: str
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        self.spark.sparkContext.setLocalProperty("spark.job.description", f"{self.table}: {name}")
        try:
            yield
        finally:
            self.spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
            self.seconds[name] = round(self.seconds.get(name, 0) + time.monotonic() - began, 3)


def is_comparable(kind: DataType) -> bool:
    """Whether Spark can compare values of a type: not maps and variants."""
    if isinstance(kind, StructType):
        return all(is_comparable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return is_comparable(kind.elementType)
    return not isinstance(kind, MapType | VariantType)


def comparable(value: Column, kind: DataType) -> Column:
    """A value with its maps as sorted entries and its variants as text; no text of the rest, which
    would lose microseconds.
    """
    if is_comparable(kind):
        return value
    if isinstance(kind, StructType):
        fields = [
            comparable(value.getField(field.name), field.dataType).alias(f"_{i}")
            for i, field in enumerate(kind)
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda item: comparable(item, kind.elementType))
    if isinstance(kind, MapType):
        entry = StructType().add("key", kind.keyType).add("value", kind.valueType)
        return F.array_sort(comparable(F.map_entries(value), ArrayType(entry)))
    return F.to_json(value)


def comparable_row(rows: DataFrame, names: list[str] | None = None) -> Column:
    """The values of a row, of all columns or of these, as one that Spark can compare."""
    fields = [
        comparable(column(name), rows.schema[name].dataType).alias(f"_{i}")
        for i, name in enumerate(names or rows.columns)
    ]
    return F.struct(*fields)


def kept_in_jvm(
    spark: SparkSession,
    class_name: str,
    sources: Sequence[str],
    keep: Callable[[Any, str], Any],
    *,
    of: str = "",
) -> Any:
    """The object of a class that is kept in the session's JVM, made there once for all clients by
    this revision of its sources.

    Args:
        spark: A session of the JVM.
        class_name: The class.
        sources: Each compiled with those before it.
        keep: Keeps a new object in the JVM's properties by a name, and returns what is kept.
        of: Whose it is, where others have one of their own.
    """
    java = cast(Any, spark)._jvm.java.lang
    digest = hashlib.sha256("\0".join((spark.version, *sources)).encode()).hexdigest()
    name = ".".join(filter(None, (class_name, digest[:16], of)))
    found = java.System.getProperties().get(name)
    if found is not None:
        return found
    loader = java.Thread.currentThread().getContextClassLoader()  # which all sessions share
    return keep(made(spark.sparkContext, loader, sources, class_name), name)


def made(context: Any, loader: Any, sources: Iterable[str], name: str) -> Any:
    """A new object of a class of these sources, each compiled with those before it and what the
    loader has.
    """
    for source in sources:
        compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(source)
        loader = compiler.getClassLoader()
    maker = loader.loadClass(name).getDeclaredConstructor(
        context._gateway.new_array(context._jvm.java.lang.Class, 0)
    )
    return maker.newInstance(context._gateway.new_array(context._jvm.java.lang.Object, 0))


SOURCE = Path(__file__).with_name("SqlBinder.java")


def sql_over(
    spark: SparkSession, declared: str, sql: str, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """The query over frames by the names of its tables; in it a frame is called as the query calls
    the table.

    Raises:
        DeclarationError: of what is `declared`: for text that is no query, or that reads anything
            but these tables.
        ParseException: for text that is no Spark SQL.
    """
    binder, session = _binder(spark), cast(Any, spark)._jsparkSession
    plan = binder.parsed(session, sql)
    refused = binder.refused(plan)
    if refused is not None:
        raise DeclarationError(
            declared,
            "sql",
            f"{refused}: write one SELECT over tables of the lake, which the run pins",
        )
    is_exact = spark.conf.get("spark.sql.caseSensitive") == "true"
    plans: dict[str, Any] = {}
    for name in binder.tables(plan):
        if (found := _called(name, frames, is_exact)) is None:
            problem = (
                f"reads {name} as Spark parses it, which is no input; the inputs are "
                f"{', '.join(frames)}"
            )
            raise DeclarationError(
                declared, "sql", f"{problem}. Name it in reads=, or add its declaration to the lake"
            )
        plans[name] = cast(Any, frames[found])._jdf.queryExecution().analyzed()
    return DataFrame(binder.bound(session, plan, plans), spark)


def grouped_by(
    spark: SparkSession, sql: str, columns: Mapping[str, Mapping[str, str]]
) -> dict[str, Column]:
    """Columns of a grouped query as terms over one table: by name, with a column for each that the
    term mentions, in lower case.
    """
    binder = _binder(spark)
    plan = binder.parsed(cast(Any, spark)._jsparkSession, sql)
    return {name: Column(binder.grouped_by(plan, name, dict(own))) for name, own in columns.items()}


def _called(name: str, frames: Iterable[str], is_exact: bool) -> str | None:
    """The frame that a name means, in letters of whatever case unless Spark is exact about that."""
    exact = (one for one in frames if one == name)
    folded = (one for one in frames if not is_exact and one.lower() == name.lower())
    return next(exact, next(folded, None))


_binders: WeakKeyDictionary[SparkContext, Any] = WeakKeyDictionary()
"""What binds in the contexts that this process has met."""


def _binder(spark: SparkSession) -> Any:
    """The binder of this revision in the session's JVM, compiled there once for all clients."""
    context = spark.sparkContext
    if (found := _binders.get(context)) is None:
        found = _binders[context] = _looked_up(spark)
    return found


def _looked_up(spark: SparkSession) -> Any:
    def keep(binder: Any, name: str) -> Any:
        cast(Any, spark)._jvm.java.lang.System.getProperties().put(name, binder)
        return binder

    return kept_in_jvm(spark, "lakechime.sql.SqlBinder", [SOURCE.read_text(encoding="utf-8")], keep)
