"""Searches tables for the rows of subjects. Their values are data of a frame, never literals: they are in no plan, log or message."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.lake.names import folded
from lakechime_dagster.lineage.personal.requests import Form, Place, Searched, Subject
from lakechime_dagster.schema.event import ELEMENT, ROOT, field_path
from lakechime_dagster.spark.batches import on_batches
from lakechime_dagster.spark.drivers.failures import SparkFailedError, described
from lakechime_dagster.spark.names import column
from lakechime_dagster.spark.personal_leaves import LEAVES_DDL, UNREADABLE, Leaves
from lakechime_dagster.spark.quarantine import AS_TEXT

KEYS_DDL = "subject int, category string, form string, value string"
DIGESTS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
SINGLE = (NumericType, StringType, BooleanType, DateType, TimestampType, TimestampNTZType, BinaryType)
NOBODY = 0  # as the subject of the rows that cannot be read


@dataclass(frozen=True, kw_only=True)
class Match:
    """A row of a table with the subject whose it is, by the number of the line that gave it, and the places that say so.

    Of the rows in which something cannot be read there is one in all, of `NOBODY`, without a row.
    """

    subject: int
    by: tuple[str, ...]
    row: str
    rows: int


def keys_frame(spark: SparkSession, subjects: Sequence[Subject]) -> DataFrame:
    """The values of subjects as data, in each form in which columns have them."""
    rows = [
        (one.line, category, form.value, text)
        for one in subjects
        for category, value in one.values
        for form, text in sorted(forms_of(value))
    ]  # fmt: skip
    return spark.createDataFrame(rows, KEYS_DDL)


def forms_of(value: str) -> set[tuple[Form, str]]:
    """The forms of a value: nobody else has the same.

    Addresses of e-mail are searched in small letters, too, and in what functions have made of them. Another value may become that of
    somebody else by a function, such as a number that is cut off.
    """
    spellings = {value, value.lower()} if "@" in value else {value}
    digests = {(Form.DIGEST, hashlib.new(name, one.encode()).hexdigest()) for one in spellings for name in DIGESTS}
    derived = {(Form.DERIVED, one) for one in spellings if "@" in value}
    return {(Form.VALUE, one) for one in spellings} | derived | digests


def matches(keys: DataFrame, one: Searched, location: str) -> Iterator[Match]:
    """The rows of a table that are of a subject, each once for each of them.

    Raises:
        TableUnreadableError: Spark could not read the table; of what Spark said it has the kind alone, as its words may hold values.
    """
    try:
        with described():
            yield from _matches(keys, one, location)
    except SparkFailedError as error:
        raise TableUnreadableError(f"{one.table} cannot be searched: Spark says {_kind(error.__cause__)}") from None


def _matches(keys: DataFrame, one: Searched, location: str) -> Iterator[Match]:
    rows = keys.sparkSession.read.format("delta").load(location)
    places = [place for place in dict.fromkeys(one.places) if one.is_text or _typed(rows.schema, place.name)]
    if not places:
        return
    inner = {(place.category, place.form, place.name.rpartition(".")[0]) for place in places}
    places = [place for place in places if (place.category, place.form, place.name) not in inner]  # of a struct the field alone
    needles = _needles(keys, places, rows.schema, is_text=one.is_text)
    found = _texts(rows, places, one.texts) if one.is_text else _values(rows, places)
    joined = found.join(F.broadcast(needles), ["at", "value"])
    by = F.sort_array(F.collect_set("at")).alias("by")
    several = joined.groupBy("subject", F.when(F.col("subject") != NOBODY, F.col("id")).alias("row_id"))
    told = several.agg(by, F.first("row").alias("row"), F.count_distinct("id").alias("rows"))
    for row in told.toLocalIterator():
        names = tuple(dict.fromkeys(places[at].name for at in row["by"] if at != UNREADABLE))
        yield Match(subject=row["subject"], by=names, row=row["row"] or "", rows=row["rows"])


def _kind(error: BaseException | None) -> str:
    """Of what kind Spark's error is, by a name without values."""
    with contextlib.suppress(Exception):
        if isinstance(error, PySparkException):
            return error.getCondition() or type(error).__name__
    return type(error).__name__


def _needles(keys: DataFrame, places: Sequence[Place], schema: StructType, *, is_text: bool) -> DataFrame:
    """By place what it has of each subject."""
    nobody = keys.sparkSession.createDataFrame([(NOBODY, UNREADABLE, "")], "subject int, at int, value string")
    several = [nobody]
    for at, place in enumerate(places):
        found = _typed(schema, place.name)
        kind = _single(found[1]) if found else StringType()
        typed = F.col("value").try_cast(kind)
        value = _as_in_rows(typed) if is_text else _as_text(typed, kind)
        told = keys.where((F.col("category") == place.category) & (F.col("form") == place.form.value))
        several.append(told.select("subject", F.lit(at).alias("at"), value.alias("value")).where("value IS NOT NULL").distinct())
    return reduce(DataFrame.unionByName, several).coalesce(1)


def _values(rows: DataFrame, places: Sequence[Place]) -> DataFrame:
    """What stands at the places of each row."""
    told = [_at(rows.schema, place.name, at) for at, place in enumerate(places)]
    row = F.to_json(F.struct(*[column(name) for name in rows.columns]), AS_TEXT)
    numbered = rows.select(F.monotonically_increasing_id().alias("id"), row.alias("row"), F.flatten(F.array(*told)).alias("several"))
    return numbered.select("id", "row", F.explode("several").alias("one")).select("id", "one.at", "one.value", "row")


def _at(schema: StructType, name: str, at: int) -> Column:
    """The values of a place as texts with its number."""
    found = _typed(schema, name)
    assert found is not None
    texts = _flat(found[0], found[1])
    return F.transform(F.array_distinct(texts), lambda text: F.struct(F.lit(at).alias("at"), text.alias("value")))


def _flat(value: Column, kind: DataType) -> Column:
    """All single values of a column, in an array of texts."""
    match kind:
        case ArrayType():
            return F.coalesce(F.flatten(F.transform(value, lambda one: _flat(one, kind.elementType))), _none())
        case MapType():
            return _flat(F.map_values(value), ArrayType(kind.valueType))
        case StructType():
            parts = [_flat(value[field.name], field.dataType) for field in kind]
            return F.flatten(F.array(*parts)) if parts else _none()
        case _:
            return F.array(_as_text(value, kind))


def _none() -> Column:
    return F.array().cast("array<string>")


def _as_text(value: Column, kind: DataType) -> Column:
    return F.hex(value) if isinstance(kind, BinaryType) else value.try_cast("string")


def _as_in_rows(value: Column) -> Column:
    """A value as the JSON text of a row has it."""
    return F.get_json_object(F.to_json(F.struct(value.alias("value")), AS_TEXT), "$.value")


def _single(kind: DataType) -> DataType:
    """The type of the single values that a type has; of one that has several, or any, text."""
    match kind:
        case ArrayType():
            return _single(kind.elementType)
        case MapType():
            return _single(kind.valueType)
        case _:
            return kind if isinstance(kind, SINGLE) else StringType()


def _typed(schema: StructType, name: str) -> tuple[Column, DataType] | None:
    """A column, or a field of structs and of structs in arrays, by a name in any case; None of what is none, such as in a JSON text."""
    whole = next((field for field in schema if folded(field.name) == folded(name)), None)
    if whole is not None:
        return column(whole.name), whole.dataType
    head, *parts = name.split(".")
    outer = next((field for field in schema if folded(field.name) == folded(head)), None)
    if outer is None:
        return None
    value, kind = column(outer.name), outer.dataType
    for part in parts:
        within: Any = kind.elementType if isinstance(kind, ArrayType) else kind
        inner = next((field for field in within if folded(field.name) == folded(part)), None) if isinstance(within, StructType) else None
        if inner is None:
            return None
        value, kind = value[inner.name], ArrayType(inner.dataType) if isinstance(kind, ArrayType) else inner.dataType
    return value, kind


def _texts(rows: DataFrame, places: Sequence[Place], texts: Sequence[str]) -> DataFrame:
    """What stands at the places of each row, looked into as a text."""
    row = F.to_json(F.struct(*[column(name) for name in rows.columns]), AS_TEXT)
    numbered = rows.select(F.monotonically_increasing_id().alias("id"), row.alias("row"))
    patterns = tuple(pattern_of(place.name, rows.schema) for place in places)
    return on_batches(numbered, Leaves(patterns, tuple(texts)), LEAVES_DDL)


def pattern_of(place: str, schema: StructType) -> str:
    """The pattern of paths of a place: `payload:$.items[].to` is at `/payload/items[]/to`, `value:$..email` at `/value*/email`."""
    outer, _, inner = place.partition(":")
    path = _outer_path(schema, outer)
    for name in inner.removeprefix("$").replace("[*]", ELEMENT).removeprefix(".").split(".") if inner else ():
        path = f"{path}*" if not name else field_path(path, name.removesuffix(ELEMENT)) + ELEMENT * name.endswith(ELEMENT)
    return path


def _outer_path(schema: StructType, name: str) -> str:
    """The path of a column, or of a field of structs and of structs in arrays, as the table spells it; of none by the name alone."""
    whole, kind, path = next((field for field in schema if folded(field.name) == folded(name)), None), schema, ROOT
    for part in [name] if whole is not None else name.split("."):
        fields = kind if isinstance(kind, StructType) else ()
        found = next((field for field in fields if folded(field.name) == folded(part)), None)
        path = field_path(path, part if found is None else found.name)
        kind = None if found is None else found.dataType
        while isinstance(kind, ArrayType):
            path, kind = path + ELEMENT, kind.elementType
    return path.removesuffix(ELEMENT) if path.endswith(ELEMENT) else path
