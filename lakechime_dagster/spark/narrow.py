"""Narrows a table to rows whose columns have given values, so that Delta opens few files and reads few rows."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, DateType, NumericType, StringType, TimestampNTZType, TimestampType

MAX_LITERALS = 200
LISTED = (NumericType, StringType, DateType, TimestampType, TimestampNTZType, BooleanType)


def column(name: str) -> Column:
    """A column by its exact name, dots and all."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A column's exact name in SQL."""
    return "`" + name.replace("`", "``") + "`"


def same(left: Column, right: Column) -> Column:
    """Equality under which null equals null."""
    return left.eqNullSafe(right)


def literal_filter(values: DataFrame, targets: Mapping[str, Column]) -> Column | None:
    """A condition with literals that every wanted row meets, by which files are skipped; None when there is none.

    Few values are listed, many are bounded by the smallest and the largest. A column of `values` is compared to
    its target column. How many there are is estimated first, so that no place ever holds many.
    """
    types = {field.name: field.dataType for field in values.schema}
    names = [name for name in targets if isinstance(types[name], LISTED)]
    if not names:
        return None
    wanted = values.select(*[column(name) for name in names])
    measures = [F.count(F.lit(1)).alias("rows")]
    for i, name in enumerate(names):
        value, kind = column(name), types[name]
        measures += [
            F.approx_count_distinct(value).alias(f"count_{i}"), F.max(value.isNull()).alias(f"null_{i}"),
            _plain(F.min(value), kind).alias(f"min_{i}"), _plain(F.max(value), kind).alias(f"max_{i}"),
        ]  # fmt: skip
    found = wanted.agg(*measures).collect()[0]
    if not found["rows"]:
        return F.lit(False)
    few = [name for i, name in enumerate(names) if found[f"count_{i}"] <= MAX_LITERALS]
    listed = _listed(wanted, few)
    conditions = []
    for i, name in enumerate(names):
        target, kind = targets[name], types[name]
        if name in listed:
            within = target.isin(*[_literal(value, kind) for value in listed[name]]) if listed[name] else F.lit(False)
        else:
            within = target.between(_literal(found[f"min_{i}"], kind), _literal(found[f"max_{i}"], kind))
        conditions.append(within | target.isNull() if found[f"null_{i}"] else within)
    return reduce(lambda one, other: one & other, conditions)


def _listed(values: DataFrame, names: Sequence[str]) -> dict[str, list[Any]]:
    """All values of these columns, plain and without null."""
    if not names:
        return {}
    sets = [F.collect_set(_plain(column(name), values.schema[name].dataType)) for name in names]
    return dict(zip(names, values.agg(*sets).collect()[0], strict=True))


def _plain(value: Column, kind: DataType) -> Column:
    """A value as it travels through Python, whose own times depend on the zone of its process and whose years are four digits."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(value)
    return value.cast("string") if isinstance(kind, DateType | TimestampNTZType) else value


def _literal(value: Any, kind: DataType) -> Column:
    """A literal of a value that travelled plain."""
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(F.lit(value))
    return F.lit(value).cast(kind) if isinstance(kind, DateType | TimestampNTZType) else F.lit(value)


def narrowed(frame: DataFrame, values: DataFrame, targets: Mapping[str, Column]) -> DataFrame:
    """The rows of a frame whose target columns hold one of the value rows; null matches null."""
    literals = literal_filter(values, targets)
    rows = frame if literals is None else frame.where(literals)
    keyed = rows.withColumns({f"__narrow_{i}": target for i, target in enumerate(targets.values())})
    wanted = values.select(*[column(name).alias(f"__value_{i}") for i, name in enumerate(targets)]).distinct()
    condition = reduce(lambda a, b: a & b, [same(F.col(f"__narrow_{i}"), F.col(f"__value_{i}")) for i in range(len(targets))])
    return keyed.join(wanted, condition, "left_semi").drop(*[f"__narrow_{i}" for i in range(len(targets))])
