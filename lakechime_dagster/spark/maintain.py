"""Executes a table's maintenance plan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructType

from lakechime_dagster.dce.snapshots import TableLog
from lakechime_dagster.spark.commit import CONFLICTS
from lakechime_dagster.spark.session import quoted, session_confs, sql_literal, text_literal
from lakechime_dagster.tables.maintenance import (
    Action,
    Done,
    Kind,
    Maintained,
    Maintenance,
    Partition,
    Plan,
    Refused,
)

AT_ONCE = 50  # partitions in one statement, which is one commit: what is lost to another writer
HOUR_MS = 3_600_000
MIN_FILE, MAX_FILE, MAX_DELETED = (
    f"spark.databricks.delta.optimize.{name}"
    for name in ("minFileSize", "maxFileSize", "maxDeletedRowsRatio")
)
LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
NOT_IN_LOG = "DELTA_CANNOT_VACUUM_LITE"  # the log was cleaned up past files that were never removed
GAVE_WAY = "another writer of the table was first; the next run plans it again"


def maintain(
    spark: SparkSession, log: TableLog, plan: Plan, policy: Maintenance, now: Callable[[], int]
) -> Maintained:
    """Carry out a plan; the session's settings are as before when this returns. `now` gives
    milliseconds since the epoch.
    """
    done: list[Done] = []
    refused: list[Refused] = []
    for together in _statements(plan.actions):
        try:
            done.append(_carried_out(spark, log, together, policy, now))
        except CONFLICTS:
            refused += [Refused(action=action, why=GAVE_WAY) for action in together]
        except PySparkException as error:
            if error.getCondition() != NOT_IN_LOG:
                raise
            why = (
                "its log no longer names all removed files; Maintenance(remove_orphans=True) lets "
                "a run look for them in its folder"
            )
            refused += [Refused(action=action, why=why) for action in together]
    return Maintained(done=tuple(done), refused=tuple(refused))


def _statements(actions: Sequence[Action]) -> Iterator[list[Action]]:
    """Actions that one statement does: rewrites of the same kind and size, some partitions at
    once.
    """
    for _, group in groupby(sorted(actions, key=_statement), key=_statement):
        members = list(group)
        for start in range(0, len(members), AT_ONCE):
            yield members[start : start + AT_ONCE]


def _statement(action: Action) -> tuple[int, int]:
    return list(Kind).index(action.kind), action.below


def _carried_out(
    spark: SparkSession,
    log: TableLog,
    actions: Sequence[Action],
    policy: Maintenance,
    now: Callable[[], int],
) -> Done:
    first = actions[0]
    match first.kind:
        case Kind.RAISE | Kind.LOWER | Kind.PROPERTIES:
            _set_properties(spark, log.location, first.properties)
            return Done(kind=first.kind)
        case Kind.COMPACT:
            builder = DeltaTable.forPath(spark, log.location).optimize()
            predicate = _predicate(spark, log, actions)
            sizes = {
                MIN_FILE: str(first.below),
                MAX_FILE: str(policy.target_file),
                MAX_DELETED: "1.0",
            }
            with session_confs(spark, sizes):
                found = (
                    (builder.where(predicate) if predicate else builder)
                    .executeCompaction()
                    .collect()
                )
            return _rewritten(first.kind, found[0].asDict(recursive=True)["metrics"])
        case Kind.PURGE:
            predicate = _predicate(spark, log, actions)
            where = f" WHERE {predicate}" if predicate else ""
            with session_confs(spark, {MAX_FILE: str(policy.target_file)}):
                found = spark.sql(
                    f"REORG TABLE {_path(log.location)}{where} APPLY (PURGE)"
                ).collect()
            return _rewritten(first.kind, found[0].asDict(recursive=True)["metrics"])
        case Kind.VACUUM | Kind.ORPHANS:
            return _vacuumed(spark, log, first, now)


def _vacuumed(spark: SparkSession, log: TableLog, action: Action, now: Callable[[], int]) -> Done:
    """What is removed was removed before the plan's own time, however long the statements before
    this one took.
    """
    hours = -((action.before - now()) // HOUR_MS)
    lite = "LITE " if action.kind is Kind.VACUUM else ""
    before = log.version
    with session_confs(spark, {LOGGING: "true"}):
        spark.sql(f"VACUUM {_path(log.location)} {lite}RETAIN {hours} HOURS")
    metrics = {commit.operation: commit.metrics for commit in log.commits(before, log.version)}
    freed = int(metrics.get("VACUUM START", {}).get("sizeOfDataToDelete", 0))
    return Done(
        kind=action.kind,
        files_removed=int(metrics.get("VACUUM END", {}).get("numDeletedFiles", 0)),
        freed=freed,
    )


def _rewritten(kind: Kind, metrics: Mapping[str, Any]) -> Done:
    return Done(
        kind=kind,
        files_removed=metrics["numFilesRemoved"],
        files_added=metrics["numFilesAdded"],
        rewritten=metrics["filesRemoved"]["totalSize"] or 0,
        written=metrics["filesAdded"]["totalSize"] or 0,
    )


def _set_properties(
    spark: SparkSession, location: str, properties: Mapping[str, str | None]
) -> None:
    sets = [
        f"{text_literal(name)} = {text_literal(value)}"
        for name, value in properties.items()
        if value is not None
    ]
    unsets = [text_literal(name) for name, value in properties.items() if value is None]
    if sets:
        spark.sql(f"ALTER TABLE {_path(location)} SET TBLPROPERTIES ({', '.join(sets)})")
    if unsets:
        spark.sql(
            f"ALTER TABLE {_path(location)} UNSET TBLPROPERTIES IF EXISTS ({', '.join(unsets)})"
        )


def _predicate(spark: SparkSession, log: TableLog, actions: Sequence[Action]) -> str:
    """SQL that is true of just the partitions of these actions; empty for the whole table."""
    names = log.levels().names
    if any(action.partition is None for action in actions):
        return ""
    schema = DeltaTable.forPath(spark, log.location).toDF().schema
    return " OR ".join(_is_partition(schema, names, action.partition) for action in actions)


def _is_partition(schema: StructType, names: Sequence[str], values: Partition) -> str:
    """Values are spelled as in the log, so that Spark reads them as it reads the log."""
    parts = [
        f"{quoted(name)} <=> CAST({sql_literal(value, StringType())} AS "
        f"{schema[name].dataType.simpleString()})"
        for name, value in zip(names, values or (), strict=True)
    ]
    return "(" + " AND ".join(parts) + ")"


def _path(location: str) -> str:
    return f"delta.{quoted(location)}"
