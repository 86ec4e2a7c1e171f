"""Searches tables for the rows of subjects."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
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
from lakechime_dagster.governance.requests import Searched, Subject, TaggedPath
from lakechime_dagster.silver.event import ELEMENT, ROOT, field_path
from lakechime_dagster.spark.driver import SparkFailedError, described
from lakechime_dagster.spark.refresh import AS_TEXT
from lakechime_dagster.spark.session import Batches, column, on_batches, record_batches
from lakechime_dagster.tables.events import is_matched
from lakechime_dagster.tables.names import folded

UNREADABLE = -1  # as the path of a row with a text that cannot be read
LEAVES = pa.schema(
    [("id", pa.int64()), ("at", pa.int32()), ("value", pa.string()), ("row", pa.string())]
)
LEAVES_DDL = "id bigint, at int, value string, row string"
# the first character of a text that is JSON itself; numbers keep their spelling
OPENING = frozenset('{[" \t\n\r')
MAX_DEPTH = 64  # of values in values; what is deeper is not looked into


@dataclass(frozen=True)
class Leaves:
    """Of each row the values that stand where a pattern matches: the pattern's index, the value as
    text, and the row.

    A pattern matches a value at its path, as `schema.variation` writes it, and all values within. A
    row of which one of these columns holds a text that is no JSON, or bytes that are no text in
    `<column>_bytes`, has a leaf `UNREADABLE` too, without the row. Nothing here raises: an error
    would reveal a row.
    """

    patterns: tuple[str, ...]
    texts: tuple[str, ...] = ()

    def __call__(self, batches: Batches) -> Batches:
        """Leaves of batches of ids, columns to search as a JSON object, and whole rows as JSON
        texts.
        """
        for batch in batches:
            rows = zip(*[one.to_pylist() for one in batch.columns], strict=True)
            yield from record_batches(
                [
                    leaf
                    for number, searched, row in rows
                    for leaf in self._of_row(number, searched, row)
                ],
                LEAVES,
            )

    def _of_row(self, number: int, searched: str, row: str) -> list[tuple[Any, ...]]:
        columns, unreadable = _read(searched), [(number, UNREADABLE, "", None)]
        if not isinstance(columns, dict):
            return unreadable
        seen = {
            (at, value) for path, value in leaves(columns) for at in _matching(self.patterns, path)
        }
        found = [(number, at, value, row) for at, value in sorted(seen)]
        return found + (
            unreadable if any(_is_unreadable(columns, name) for name in self.texts) else []
        )


def leaves(value: Any) -> Iterator[tuple[str, str]]:
    """The single values in one, except nulls: the path of each, which leads into texts that are
    JSON, and the value as text.

    Names of fields are among them, at the path of their object, as some are values: of objects by
    address, say.
    """
    waiting: list[tuple[str, Any, int]] = [(ROOT, value, 0)]
    while waiting:
        path, one, depth = waiting.pop()
        if isinstance(one, dict) and depth < MAX_DEPTH:
            for name, inner in one.items():
                yield path, _whole(name)
                waiting.append((field_path(path, name), inner, depth + 1))
        elif isinstance(one, list) and depth < MAX_DEPTH:
            waiting += [(path + ELEMENT, inner, depth + 1) for inner in one]
        elif isinstance(one, str):
            yield path, _whole(one)
            if (
                one[:1] in OPENING
                and isinstance(inner := _read(one), dict | list | str)
                and depth < MAX_DEPTH
            ):
                waiting.append((path, inner, depth + 1))
        elif one is not None and not isinstance(one, dict | list):
            yield path, str(one).lower() if isinstance(one, bool) else str(one)


def _whole(text: str) -> str:
    """A text without half characters, which Arrow does not take."""
    return text if text.isascii() else text.encode(errors="replace").decode()


@lru_cache(maxsize=100_000)
def _matching(patterns: Sequence[str], path: str) -> tuple[int, ...]:
    """Which patterns match a path, or one that leads to it."""
    ends = [at for at in range(1, len(path)) if path[at] == "/" or path.startswith(ELEMENT, at)]
    above = [*(path[:at] for at in ends), path]
    return tuple(
        at for at, pattern in enumerate(patterns) if any(is_matched(pattern, one) for one in above)
    )


def _is_unreadable(row: dict[str, Any], name: str) -> bool:
    text = next((value for column, value in row.items() if folded(column) == folded(name)), None)
    if text is None:
        return row.get(f"{name}_bytes") is not None
    return isinstance(text, str) and _read(text) is None and text.strip() != "null"


def _read(text: str) -> Any:
    """The value of a JSON text, with numbers as they are spelled; None of what is none."""
    try:
        return json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None


KEYS_DDL = "subject int, category string, value string"
SINGLE = (
    NumericType,
    StringType,
    BooleanType,
    DateType,
    TimestampType,
    TimestampNTZType,
    BinaryType,
)
NOBODY = 0  # as the subject of the rows that cannot be read


@dataclass(frozen=True, kw_only=True)
class Match:
    """A row of a table with the subject whose it is, by the number of the line that gave it, and
    the paths that say so.

    Of the rows in which something cannot be read there is one in all, of `NOBODY`, without a row.
    """

    subject: int
    by: tuple[str, ...]
    row: str
    rows: int


def keys_frame(spark: SparkSession, subjects: Sequence[Subject]) -> DataFrame:
    """The values of subjects as data; addresses of e-mail in small letters too."""
    rows = [
        (one.line, category, text)
        for one in subjects
        for category, value in one.values
        for text in sorted({value, value.lower()} if "@" in value else {value})
    ]
    return spark.createDataFrame(rows, KEYS_DDL)


def matches(keys: DataFrame, one: Searched, location: str) -> Iterator[Match]:
    """The rows of a table that are of a subject, each once for each of them.

    Raises:
        TableUnreadableError: Spark could not read the table; only the kind of Spark's error is
            shown, as its message may hold values.
    """
    try:
        with described():
            yield from _matches(keys, one, location)
    except SparkFailedError as error:
        raise TableUnreadableError(
            f"{one.table} cannot be searched: Spark says {_kind(error.__cause__)}"
        ) from None


def _matches(keys: DataFrame, one: Searched, location: str) -> Iterator[Match]:
    rows = keys.sparkSession.read.format("delta").load(location)
    paths = list(dict.fromkeys(one.paths))
    columns = _columns(rows.schema, paths, one.texts)
    if not columns:
        return
    patterns = tuple(pattern_of(path.name, rows.schema) for path in paths)
    searched = F.to_json(F.struct(*map(column, columns)), AS_TEXT)
    whole = F.to_json(F.struct(*map(column, rows.columns)), AS_TEXT)
    numbered = rows.select(
        F.monotonically_increasing_id().alias("id"), searched.alias("searched"), whole.alias("row")
    )
    found = on_batches(numbered, Leaves(patterns, one.texts), LEAVES_DDL)
    joined = found.join(F.broadcast(_needles(keys, paths, rows.schema)), ["at", "value"])
    by = F.sort_array(F.collect_set("at")).alias("by")
    several = joined.groupBy(
        "subject", F.when(F.col("subject") != NOBODY, F.col("id")).alias("row_id")
    )
    for row in several.agg(
        by, F.first("row").alias("row"), F.count_distinct("id").alias("rows")
    ).toLocalIterator():
        names = tuple(dict.fromkeys(paths[at].name for at in row["by"] if at != UNREADABLE))
        yield Match(subject=row["subject"], by=names, row=row["row"] or "", rows=row["rows"])


def _columns(schema: StructType, paths: Sequence[TaggedPath], texts: Sequence[str]) -> list[str]:
    """The columns that are searched, and the bytes of those that may hold no text."""
    outer = [path.name.partition(":")[0] for path in paths]
    wanted = {
        folded(name)
        for whole in (*outer, *texts)
        for name in (whole, whole.partition(".")[0], f"{whole}_bytes")
    }
    return [name for name in schema.names if folded(name) in wanted]


def _kind(error: BaseException | None) -> str:
    """Of what kind Spark's error is, by a name without values."""
    with contextlib.suppress(Exception):
        if isinstance(error, PySparkException):
            return error.getCondition() or type(error).__name__
    return type(error).__name__


def _needles(keys: DataFrame, paths: Sequence[TaggedPath], schema: StructType) -> DataFrame:
    """By path the values of each subject, as the JSON text of a row has them."""
    nobody = keys.sparkSession.createDataFrame(
        [(NOBODY, UNREADABLE, "")], "subject int, at int, value string"
    )
    several = [nobody]
    for at, path in enumerate(paths):
        _, kind = _resolved(schema, path.name)
        typed = F.col("value").try_cast(_single(kind))
        value = F.get_json_object(F.to_json(F.struct(typed.alias("value")), AS_TEXT), "$.value")
        of_path = keys.where(F.col("category") == path.category)
        several.append(
            of_path.select("subject", F.lit(at).alias("at"), value.alias("value"))
            .where("value IS NOT NULL")
            .distinct()
        )
    return reduce(DataFrame.unionByName, several).coalesce(1)


def _single(kind: DataType | None) -> DataType:
    """The type of the single values that a type has; of one that has several, or any, text."""
    match kind:
        case ArrayType():
            return _single(kind.elementType)
        case MapType():
            return _single(kind.valueType)
        case _:
            return kind if isinstance(kind, SINGLE) else StringType()


def pattern_of(path_name: str, schema: StructType) -> str:
    """The pattern of paths of a name: `payload:$.items[].to` is at `/payload/items[]/to`,
    `value:$..email` at `/value*/email`.
    """
    outer, _, inner = path_name.partition(":")
    path, _ = _resolved(schema, outer)
    for name in (
        inner.removeprefix("$").replace("[*]", ELEMENT).removeprefix(".").split(".")
        if inner
        else ()
    ):
        path = (
            f"{path}*"
            if not name
            else field_path(path, name.removesuffix(ELEMENT)) + ELEMENT * name.endswith(ELEMENT)
        )
    return path


def _resolved(schema: StructType, name: str) -> tuple[str, DataType | None]:
    """The path of a column, or of a field of structs and of structs in arrays, as the table spells
    it, with the type of its values.

    Names match in any case. What the table does not have has a path by its name alone, and no type.
    """
    path, kind = ROOT, schema
    is_whole = any(folded(field.name) == folded(name) for field in schema)
    for part in [name] if is_whole else name.split("."):
        fields = kind if isinstance(kind, StructType) else ()
        found = next((field for field in fields if folded(field.name) == folded(part)), None)
        path = field_path(path, part if found is None else found.name)
        kind = None if found is None else found.dataType
        while isinstance(kind, ArrayType):
            path, kind = path + ELEMENT, kind.elementType
    return path.removesuffix(ELEMENT), kind
