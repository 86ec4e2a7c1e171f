"""Why values of rows were rescued, and whose events these are: read back from the files of a commit, beside the slice that it brought."""

from collections import Counter
from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from lakechime_dagster.schema.producers import NOBODY, OTHER
from lakechime_dagster.schema.rescue import Rescue
from lakechime_dagster.schema.results import Sent
from lakechime_dagster.spark.events.census import MAX_PRODUCERS, sender
from lakechime_dagster.spark.events.columns import JSON_OPTIONS

RESCUED = "_rescued"
CODES = "array<struct<r:string>>"  # what is read of it to tell why


def rescues(rows: DataFrame, events: DataFrame | None) -> dict[str, Sent]:
    """What was rescued of rows that all have something in `_rescued`, by who sent their events; of most of them in sum.

    Args:
        rows: With `_src`, each once.
        events: In which their producers are looked up by it; None where no producer is told, and all is NOBODY's.
    """
    codes = rows.select("_src", F.from_json(RESCUED, CODES, JSON_OPTIONS).alias("codes"))
    known = codes if events is None else codes.join(events.select("_src", "producer"), "_src", "left")
    told = known.withColumn("producer", F.lit(NOBODY) if events is None else sender())
    values = (_values(code).alias(code.value) for code in Rescue)
    each = told.rollup("producer").agg(F.grouping("producer").alias("is_total"), F.count(F.lit(1)).alias("rows"), *values)
    most = each.orderBy(F.col("is_total").desc(), F.col("rows").desc(), "producer").limit(MAX_PRODUCERS + 1).collect()
    found = {row["producer"]: _sent(row) for row in most if not row["is_total"]}
    (total,) = (_sent(row) for row in most if row["is_total"])
    others = _less(total, found.values())
    return {**found, OTHER: found.get(OTHER, Sent()) + others} if others.rescued else found


def _values(code: Rescue) -> Column:
    """How many values of a group's rows were rescued for this."""
    return F.sum(F.size(F.filter("codes", lambda one: one["r"] == code.value)))


def _sent(row: Row) -> Sent:
    reasons = {code: row[code.value] for code in Rescue if row[code.value]}
    return Sent(rescued=row["rows"], reasons=reasons)


def _less(total: Sent, told: Iterable[Sent]) -> Sent:
    rows, reasons = total.rescued, Counter(total.reasons)
    for one in told:
        rows -= one.rescued
        reasons -= Counter(one.reasons)
    return Sent(rescued=rows, reasons=reasons)
