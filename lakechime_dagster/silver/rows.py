"""The rows of a type's table from its events."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakechime_dagster.silver.event import JsonEvent, event_of
from lakechime_dagster.silver.schema import Column, Holds, KnownType, TypeSchema
from lakechime_dagster.silver.shape import shaped
from lakechime_dagster.tables.events import Contract

_TYPES: dict[Holds, DataType] = {
    Holds.BOOL: BooleanType(),
    Holds.LONG: LongType(),
    Holds.BIGINT: DecimalType(38, 0),
    Holds.FRACTION: DoubleType(),
    Holds.DOUBLE: DoubleType(),
    Holds.HUGE: StringType(),
    Holds.STRING: StringType(),
    Holds.JSON: StringType(),
}


_CORRUPT = "columnNameOfCorruptRecord"
JSON_OPTIONS = {
    _CORRUPT: "\0",  # Spark fills a column of this name itself; no table has one
    "maxStringLen": str(
        2**31 - 1
    ),  # Spark's own bound, 20,000,000 characters, makes the row or the field null
}


def payload_type(schema: TypeSchema) -> StructType:
    """The columns of a payload as its table has them."""
    return _struct(schema.columns, is_by_field=False)


def from_row(text: SparkColumn, schema: TypeSchema) -> SparkColumn:
    """A struct of the columns from a row as `shape.shaped` gives it."""
    return F.from_json(text, payload_type(schema), JSON_OPTIONS)


def from_payload(text: SparkColumn, schema: TypeSchema) -> SparkColumn:
    """The same from the payload of an event whose values are all in the columns of their fields;
    variant columns are null.
    """
    options = JSON_OPTIONS | {_CORRUPT: _unmet(schema.columns)}
    return F.from_json(text, _struct(schema.columns, is_by_field=True), options).cast(
        payload_type(schema)
    )


def _struct(columns: Sequence[Column], *, is_by_field: bool) -> StructType:
    """The type of an object; by the names of fields a variant column has one that no field has."""
    unmet = _unmet(columns)
    names = [
        (unmet + one.name if one.is_variant else one.field) if is_by_field else one.name
        for one in columns
    ]
    return StructType(
        [
            StructField(name, _type(one, is_by_field=is_by_field))
            for name, one in zip(names, columns, strict=True)
        ]
    )


def _unmet(columns: Sequence[Column]) -> str:
    """A name that no field has, nor the beginning of one."""
    return "\0" * (
        1 + max((len(one.field) - len(one.field.lstrip("\0")) for one in columns), default=0)
    )


def _type(column: Column, *, is_by_field: bool) -> DataType:
    if column.holds is Holds.OBJECT:
        return _struct(column.fields, is_by_field=is_by_field)
    if column.holds is Holds.ARRAY:
        assert column.element is not None
        return ArrayType(_type(column.element, is_by_field=is_by_field))
    return _TYPES[column.holds]


RESCUED = "_rescued"
TECHNICAL = ("_src", "_ingested_at", "_hash", "_schema_version", "_rescued")
_SHAPED = StructType(
    [
        StructField("_src", StringType()),
        StructField("_ingested_at", TimestampType()),
        *(StructField(name, StringType()) for name in ("hash", "row", "rescued")),
    ]
)


def rows_of(
    events: DataFrame, known: KnownType, contract: Contract, covered: Collection[str] | None
) -> DataFrame:
    """The rows of a type's events under its schema, whose columns stand behind TECHNICAL.

    Args:
        events: With `_src`, `_ingested_at`, `hash`, `flags` and `payload`.
        known: With the columns of their payload.
        contract: What becomes of values that no column takes.
        covered: The variations whose events without flags are all in the columns of their fields;
            None where all events are so.
    """
    schema, version = known.schema, known.schema_version
    if covered is None:
        return _native(events, schema, version)
    is_covered = F.col("flags").isNull() & F.col("hash").isin(*covered) if covered else F.lit(False)
    others = _shaped(events.where(~is_covered), known, contract)
    return (
        _native(events.where(is_covered), schema, version).unionByName(others)
        if covered
        else others
    )


def _native(events: DataFrame, schema: TypeSchema, version: int) -> DataFrame:
    payload = from_payload(F.col("payload"), schema)
    return _renamed(
        events.withColumn("_payload", payload).withColumn("_rescued", F.lit(None).cast("string")),
        version,
    )


def _shaped(events: DataFrame, known: KnownType, contract: Contract) -> DataFrame:
    read = events.select("_src", "_ingested_at", "hash", "payload")
    schema, version = known.schema, known.schema_version
    shape = _Shape(to_arrow_schema(_SHAPED), schema, contract)
    shaped_rows = read.mapInArrow(shape, _SHAPED)  # type: ignore[arg-type]
    return _renamed(
        shaped_rows.withColumn("_payload", from_row(F.col("row"), schema)).withColumnRenamed(
            "rescued", "_rescued"
        ),
        version,
    )


def _renamed(rows: DataFrame, version: int) -> DataFrame:
    named = rows.withColumnRenamed("hash", "_hash").withColumn("_schema_version", F.lit(version))
    return named.select(*TECHNICAL, "_payload.*")


@dataclass(frozen=True)
class _Shape:
    """Brings events into a schema; those that the contract drops are left out."""

    out: pa.Schema
    schema: TypeSchema
    contract: Contract

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept, rows, rescued = list[int](), list[str](), list[str | None]()
            for at, payload in enumerate(batch.column("payload").to_pylist()):
                event = event_of(payload)
                assert isinstance(event, JsonEvent)  # as its row has no reason
                one = shaped(event, self.schema, self.contract)
                if not one.is_discarded:
                    kept.append(at)
                    rows.append(one.row)
                    rescued.append(one.rescued_json)
            events = batch.take(pa.array(kept, pa.int64()))
            arrays = [
                events.column("_src"),
                events.column("_ingested_at"),
                events.column("hash"),
                pa.array(rows, pa.string()),
            ]
            yield pa.RecordBatch.from_arrays(
                [*arrays, pa.array(rescued, pa.string())], schema=self.out
            )
