"""Of which columns a Delta table's log tells bounds: never of those that hold personal data, from the table's birth on.

Such a table lists the columns that it tells of (`delta.dataSkippingStatsColumns`), for what it does not name has no bounds: a
new column has none until the table's writer has listed it, which it does before its next write.
"""

from collections.abc import Collection, Iterator

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DataType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakechime_dagster.spark.commit import Target
from lakechime_dagster.spark.literals import text_literal
from lakechime_dagster.spark.names import quoted

LISTED = "delta.dataSkippingStatsColumns"
MAX_LISTED = 32  # leaves, as many as Delta tells of where a table says nothing
_BOUNDED = (NumericType, DateType, TimestampType, TimestampNTZType, StringType)  # which Delta lets be listed


def listed(schema: StructType, personal: Collection[str], partitioned_by: Collection[str] = ()) -> str:
    """The property of a table with these columns, of which some are personal; with none left it is empty, which is no bounds at all.

    Args:
        schema: Of the table.
        personal: Columns, or fields of structs by dotted names; what lies within one is personal too. Of `column:$.path` it is the column.
        partitioned_by: Which need no bounds.
    """
    hidden = {tuple(name.partition(":")[0].lower().split(".")) for name in personal}
    levels = {(name.lower(),) for name in partitioned_by}
    leaves = [leaf for leaf in _leaves(schema) if not _is_within(leaf, hidden) and not _is_within(leaf, levels)]
    return ",".join(".".join(map(quoted, leaf)) for leaf in leaves[:MAX_LISTED])


def properties_of(schema: StructType, target: Target) -> dict[str, str]:
    """The property as a target is made; none where nothing of it is personal."""
    return {LISTED: listed(schema, target.personal, target.partitioned_by)} if target.personal else {}


def keep_listed(spark: SparkSession, target: Target, schema: StructType) -> None:
    """See to it that the log of a table that is there tells no bounds of personal columns, before rows of a schema are written.

    Columns are listed that both have: Delta refuses to write a schema that lacks a listed one.
    """
    if not target.personal or not target.log.exists():
        return
    both = _common(target.read(spark).schema, schema)
    wanted = listed(both, target.personal, target.partitioned_by)
    if target.log.properties().get(LISTED) != wanted:
        spark.sql(f"ALTER TABLE delta.{quoted(target.location)} SET TBLPROPERTIES ('{LISTED}' = {text_literal(wanted)})")


def _leaves(kind: StructType, within: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in kind:
        path = (*within, field.name)
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, path)
        elif isinstance(field.dataType, _BOUNDED):
            yield path


def _is_within(leaf: tuple[str, ...], hidden: Collection[tuple[str, ...]]) -> bool:
    """Whether a leaf, or what it lies in, is hidden, by names in any case; a name with dots in it may be the column's own."""
    lowered = tuple(part.lower() for part in leaf)
    parts = tuple(one for part in lowered for one in part.split("."))
    return any(parts[: len(one)] == one for one in hidden)


def _common(one: StructType, other: StructType) -> StructType:
    """The columns of one that the other has too, of a type that is listed in both."""
    had = {field.name.lower(): field.dataType for field in other}
    fields = []
    for field in one:
        kind = had.get(field.name.lower())
        if isinstance(field.dataType, StructType) and isinstance(kind, StructType):
            fields.append((field.name, _common(field.dataType, kind)))
        elif kind is not None and _is_bounded(kind):
            fields.append((field.name, field.dataType))
    made = StructType()
    for name, kind in fields:
        made.add(name, kind)
    return made


def _is_bounded(kind: DataType) -> bool:
    return isinstance(kind, _BOUNDED)
