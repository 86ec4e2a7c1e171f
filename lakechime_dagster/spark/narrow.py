"""Narrows a table to rows whose columns have given values, so that Delta opens few files and reads few rows."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DataType, DoubleType, FloatType, IntegerType, LongType, ShortType, StringType

from lakechime_dagster.spark.literals import MAX_LITERALS, few_rows, has_literals, literal, plain
from lakechime_dagster.spark.names import column

MAX_ALTERNATIVES = 20
MAX_LISTED = 5_000  # values of a column that a condition lists where they are data of a plan: more take longer than the rows they spare
ENCODERS = {ByteType: "BYTE", ShortType: "SHORT", IntegerType: "INT", LongType: "LONG", StringType: "STRING"}  # of what is listed at once


def same(left: Column, right: Column) -> Column:
    """Equality under which null equals null."""
    return left.eqNullSafe(right)


def narrowed(frame: DataFrame, values: DataFrame, targets: Mapping[str, Column], most: int = MAX_LITERALS) -> DataFrame:
    """The rows of a frame whose target columns hold one of the value rows; null matches null.

    `values` has the columns that `targets` names. Where no more than `most` values say it all, there is no join.
    """
    values = values.select(*[column(name) for name in targets])
    kinds = {field.name: field.dataType for field in values.schema}
    rows = few_rows(values, most) if all(map(has_literals, kinds.values())) else None
    if rows is not None and (len(rows) <= MAX_LITERALS or are_listed(kinds.values())):
        listed = _listed(values, rows, targets, kinds)
        exact = _exact(rows, targets, kinds)
        if exact is not None:
            return frame.where(listed & exact)
        return _joined(frame.where(listed), values, targets)
    literals = _bounded(values, targets, kinds)
    return _joined(frame if literals is None else frame.where(literals), values, targets)


def literal_filter(values: DataFrame, targets: Mapping[str, Column], most: int = MAX_LITERALS) -> Column | None:
    """A condition with literals that every wanted row meets, by which files are skipped; None when there is none.

    Values that are no more than `most` are listed, many are bounded by the smallest and the largest. A column of `values` is
    compared to its target column. Whether they are few is found out first, so that no place ever holds many.
    """
    kinds = {field.name: field.dataType for field in values.schema if field.name in targets and has_literals(field.dataType)}
    if not kinds:
        return None
    wanted = values.select(*[column(name) for name in kinds])
    rows = few_rows(wanted, most)
    if rows is None or (len(rows) > MAX_LITERALS and not are_listed(kinds.values())):
        return _bounded(wanted, targets, kinds)
    return _listed(wanted, rows, {name: targets[name] for name in kinds}, kinds)


def are_listed(kinds: Iterable[DataType]) -> bool:
    """Whether a condition can list more than `MAX_LITERALS` values of these types."""
    return all(type(kind) in ENCODERS for kind in kinds)


def _listed(values: DataFrame, rows: Sequence[tuple[Any, ...]], targets: Mapping[str, Column], kinds: Mapping[str, DataType]) -> Column:
    """Each target column holds one of its values."""
    conditions = []
    for i, (name, target) in enumerate(targets.items()):
        found = {row[i] for row in rows}
        if len(found) <= MAX_LITERALS:
            conditions.append(_is_one_of(target, found, kinds[name]))
            continue
        within = _is_one_of_many(target, values.select(column(name)).where(column(name).isNotNull()), kinds[name])
        conditions.append(within | target.isNull() if None in found else within)
    return reduce(lambda one, other: one & other, conditions)


def _is_one_of_many(target: Column, values: DataFrame, kind: DataType) -> Column:
    """The same of values that the JVM lists itself: a call for each literal takes longer."""
    spark: Any = values.sparkSession
    frame: Any = values
    encoder = getattr(spark._jvm.org.apache.spark.sql.Encoders, ENCODERS[type(kind)])()
    of_jvm: Any = target
    return type(target)(of_jvm._jc.isInCollection(getattr(frame._jdf, "as")(encoder).collectAsList()))


def _is_one_of(target: Column, values: set[Any], kind: DataType) -> Column:
    listed = [literal(value, kind) for value in values if value is not None]
    within = target.isin(*listed) if listed else F.lit(False)
    return within | target.isNull() if None in values else within


def _exact(rows: Sequence[tuple[Any, ...]], targets: Mapping[str, Column], kinds: Mapping[str, DataType]) -> Column | None:
    """What the listed values of each column leave open: which of them come together; None where only a join tells."""
    if any(isinstance(kind, FloatType | DoubleType) for kind in kinds.values()):
        return None  # of zeros and of what is no number there are several
    if len(targets) == 1:
        return F.lit(True)
    distinct = list(dict.fromkeys(rows))
    if len(distinct) > MAX_ALTERNATIVES:
        return None
    return reduce(lambda a, b: a | b, [_is_row(row, targets, kinds) for row in distinct], F.lit(False))


def _is_row(row: tuple[Any, ...], targets: Mapping[str, Column], kinds: Mapping[str, DataType]) -> Column:
    values = zip(targets.items(), row, strict=True)
    return reduce(lambda a, b: a & b, [same(target, literal(value, kinds[name])) for (name, target), value in values])


def _bounded(values: DataFrame, targets: Mapping[str, Column], kinds: Mapping[str, DataType]) -> Column | None:
    """Each target column holds one of its values where they are few, else one between their smallest and their largest."""
    names = [name for name in targets if name in kinds and has_literals(kinds[name])]
    if not names:
        return None
    measures = [F.count(F.lit(1)).alias("rows")]
    for i, name in enumerate(names):
        value, kind = column(name), kinds[name]
        measures += [
            F.approx_count_distinct(value).alias(f"count_{i}"), F.max(value.isNull()).alias(f"null_{i}"),
            plain(F.min(value), kind).alias(f"min_{i}"), plain(F.max(value), kind).alias(f"max_{i}"),
        ]  # fmt: skip
    found = values.agg(*measures).collect()[0]
    if not found["rows"]:
        return F.lit(False)
    listed = _sets(values, [name for i, name in enumerate(names) if found[f"count_{i}"] <= MAX_LITERALS], kinds)
    conditions = []
    for i, name in enumerate(names):
        target, kind = targets[name], kinds[name]
        if name in listed:
            conditions.append(_is_one_of(target, {*listed[name], *([None] if found[f"null_{i}"] else [])}, kind))
            continue
        within = target.between(literal(found[f"min_{i}"], kind), literal(found[f"max_{i}"], kind))
        conditions.append(within | target.isNull() if found[f"null_{i}"] else within)
    return reduce(lambda one, other: one & other, conditions)


def _sets(values: DataFrame, names: Sequence[str], kinds: Mapping[str, DataType]) -> dict[str, list[Any]]:
    """All values of these columns, plain and without null."""
    if not names:
        return {}
    sets = [F.collect_set(plain(column(name), kinds[name])) for name in names]
    return dict(zip(names, values.agg(*sets).collect()[0], strict=True))


def _joined(rows: DataFrame, values: DataFrame, targets: Mapping[str, Column]) -> DataFrame:
    keyed = rows.withColumns({f"__narrow_{i}": target for i, target in enumerate(targets.values())})
    wanted = values.select(*[column(name).alias(f"__value_{i}") for i, name in enumerate(targets)]).distinct()
    condition = reduce(lambda a, b: a & b, [same(F.col(f"__narrow_{i}"), F.col(f"__value_{i}")) for i in range(len(targets))])
    return keyed.join(wanted, condition, "left_semi").drop(*[f"__narrow_{i}" for i in range(len(targets))])
