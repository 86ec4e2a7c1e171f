"""What of a step's changes a table does not take: messages that cannot be read, values that do not fit, changes that were refused."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.cdc.meaning.merging import Fate
from lakechime_dagster.cdc.schemas.drift import Evolution, widened
from lakechime_dagster.spark.following.change_rows import What
from lakechime_dagster.spark.following.remembered import Seen
from lakechime_dagster.spark.sift import REASON

BAD = ("topic", "partition", "offset", "key", "message", REASON)
FITS_NOT = "its columns are of types that the table cannot hold: "


def is_conflicting(seen: Seen, evolution: Evolution) -> Column:
    """Whether a change is of a schema of which the table cannot hold a column."""
    names = [
        schema.name for schema in seen.schemas if any(_conflicts(schema.types.get(one), one, evolution) for one in evolution.conflicts)
    ]
    return F.coalesce(F.col("schema").isin(names) & F.col("columns").isNotNull(), F.lit(False))


def _conflicts(ddl: str | None, name: str, evolution: Evolution) -> bool:
    holds = evolution.columns.get(name)
    return ddl is not None and (holds is None or widened(holds, ddl) != holds)


def bad_rows(told: DataFrame, conflicting: DataFrame | None, found: DataFrame) -> DataFrame:
    """What is quarantined, with its place and the reason (`BAD`)."""
    unreadable = told.where(F.col("fate") == Fate.QUARANTINED.value).withColumn(REASON, F.col("reason")).select(*BAD)
    refused = found.where(F.col("what") == What.REFUSED).withColumn("message", F.col("columns"))
    bad = unreadable.unionByName(refused.withColumn(REASON, F.col("reason")).select(*BAD))
    if conflicting is None:
        return bad
    why = F.concat(F.lit(FITS_NOT), F.coalesce("types", "schema"))
    return bad.unionByName(conflicting.withColumn("message", F.col("columns")).withColumn(REASON, why).select(*BAD))
