"""Writes what a step made of a table that follows a database: one commit, or none where nothing differs."""

from collections.abc import Callable, Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc.meaning.needs import Need
from lakechime_dagster.cdc.schemas.drift import TEXT
from lakechime_dagster.spark.batches import on_batches
from lakechime_dagster.spark.commit import CHANGE_FEED, Target, append, append_nothing, commit, create_if_missing, merge, replace_all
from lakechime_dagster.spark.compare import OPERATION
from lakechime_dagster.spark.ddl import arrow_of, columns_of, ddl_of, struct_of
from lakechime_dagster.spark.following.change_rows import AsText, What
from lakechime_dagster.spark.following.stages import Merge
from lakechime_dagster.spark.names import column
from lakechime_dagster.spark.narrow import MAX_LISTED, are_listed
from lakechime_dagster.spark.session_confs import session_confs
from lakechime_dagster.spark.statistics import keep_listed, properties_of
from lakechime_dagster.triggers.lanes import CommitStamp, Committed

SMALL = {
    "spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.merge.materializeSource": "none",  # which is for rows that may be others when they are computed again
}  # fmt: skip


def write_rows(
    spark: SparkSession, target: Target, stamp: CommitStamp, merged: Merge, columns: str, *,
    is_new: bool, may_settle_empty: bool, has_deletion_vectors: bool,
) -> Committed | None:  # fmt: skip
    """Bring the table of these columns to the merged rows, and say whose commit the step holds; None where it holds all already.

    Where it `is_new`, what the table held before is replaced. Where columns were widened, all rows are written anew: no reader
    needs to know how Delta widens a column in place. Rows that are all new are appended: a merge would look for their keys again.
    """
    evolution = merged.evolution
    if not evolution.columns:
        return None
    schema = struct_of(columns)
    properties = CHANGE_FEED | {"delta.enableDeletionVectors": str(has_deletion_vectors).lower()} | properties_of(schema, target)
    create_if_missing(spark, target, schema, properties)
    keep_listed(spark, target, schema)
    need = F.col("operation")
    operation = F.when(need.isin(Need.END, Need.RETURN, Need.AMEND), Need.UPDATE).otherwise(need)
    rows = merged.found.where({"what": [What.ROW]}).frame.where(need != Need.NOTHING)
    changes = rows.select("row.*", operation.alias(OPERATION))

    def prepare() -> Callable[[], None] | None:
        if is_new and target.log.version > 0:
            return lambda: replace_all(changes.drop(OPERATION), target)
        if evolution.widened:
            return lambda: replace_all(_rewritten(spark, target, changes, columns, evolution.texts), target)
        if 0 < merged.changed == merged.rows(Need.INSERT):
            return lambda: append(changes.drop(OPERATION), target)
        if merged.changed or (evolution.added and not is_new):
            return lambda: _merge(spark, target, changes, is_small=merged.found.are_here and merged.changed <= MAX_LISTED)
        return None if may_settle_empty else lambda: append_nothing(spark, target)

    return commit(spark, target, stamp, prepare)


def _merge(spark: SparkSession, target: Target, changes: DataFrame, *, is_small: bool) -> None:
    """Few changes whose keys a condition lists meet as few rows: their shuffles have one part, and need no plan of their own."""
    if not is_small or not are_listed([changes.schema[key].dataType for key in target.keys]):
        merge(spark, target, changes, is_bounded=True)
        return
    with session_confs(spark, SMALL):
        merge(spark, target, changes, is_bounded=True, listed=MAX_LISTED)


def _rewritten(spark: SparkSession, target: Target, changes: DataFrame, columns: str, texts: Collection[str]) -> DataFrame:
    """All rows in the types that the columns have now; some became text."""
    now, keys, wanted = target.read(spark), list(target.keys), struct_of(columns)
    before = columns_of(now.schema)
    if any(before.get(name, TEXT) != TEXT for name in texts):
        ddl = ddl_of({name: TEXT if name in texts else kind for name, kind in before.items()})
        now = on_batches(now, AsText(arrow_of(ddl)), ddl)
    cast = [(column(one.name) if one.name in now.columns else F.lit(None)).cast(one.dataType).alias(one.name) for one in wanted]
    stays = now.select(*cast).join(changes.select(*map(column, keys)), keys, "left_anti").select(*map(column, wanted.names))
    return stays.unionByName(changes.where(F.col(OPERATION) != Need.DELETE).drop(OPERATION))
