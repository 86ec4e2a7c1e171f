"""Ways to bring the changes of a database's table into Delta, from its bronze table: ours, and what
people use instead.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import _orders as orders
from benchmarks._dlt_home import DltHome
from benchmarks._plain import newest_rows
from lakechime_dagster.cdc.job import CDCJob, MessageFormat
from lakechime_dagster.cdc.spark_refresh import refresh_cdc
from lakechime_dagster.dce.events import Position, SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.spark.job import InputJob, TableResult
from lakechime_dagster.tables.cdc import CHANGES, CDCMerge
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.names import HIDDEN
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId

# a table with Delta's defaults, with our properties, with our hidden column too
DEFAULT, EQUAL, OURS = ("default", "equal", "ours")
ROW = "id bigint, customer int, status string, note string, amount string, changed bigint"
ENVELOPE = (
    f"payload struct<before: struct<{ROW}>, after: struct<{ROW}>, op: string, source: "
    f"struct<ts_ms: bigint>>"
)
COLUMNS = ["id", "customer", "status", "note", "amount", "changed"]


@dataclass(frozen=True)
class Merge:
    """A contender: the table that it starts from, and what it does, which says how many seconds it
    took.

    `run` takes a session, the table's folder and the bronze table.
    """

    name: str
    base: str
    run: Callable[[SparkSession, Path, str], float]


def run_ours(spark: SparkSession, table: Path, bronze: str) -> float:
    """It says on standard error how long each phase took."""
    began = time.perf_counter()
    result = refresh_once(spark, table, bronze, 2)
    seconds = time.perf_counter() - began
    print(
        f"ours, {seconds:.2f} s: "
        f"{', '.join(f'{phase} {took:.2f}' for phase, took in result.seconds.items())}",
        file=sys.stderr,
    )
    return seconds


def refresh_once(
    spark: SparkSession, table: Path, bronze: str, number: int, **written: Any
) -> TableResult:
    """The execution of a table that reads the commit of its number in the bronze table; `written` by
    an Iceberg table's `log` and `write_mode`.
    """
    log = DeltaLog(bronze, CHANGES)
    ends = [
        SnapshotCheckpoint(table_uid=log.uid, snapshot_id=SnapshotId(str(version)))
        for version in (number - 1, number)
    ]
    range_ = SnapshotRange(
        table=CHANGES,
        table_uid=log.uid,
        start=ends[0].snapshot_id,
        end=ends[1].snapshot_id,  # pyright: ignore[reportArgumentType]
        start_uid=log.uid,
    )
    job = CDCJob(
        name="orders",
        location=str(table),
        format=MessageFormat(envelope=Debezium(), keys=orders.KEYS),
        merge=CDCMerge(keys=orders.KEYS),
        bronze=InputJob(alias="changes", table=CHANGES, location=bronze, range=range_),
        start=Checkpoint(sources={CHANGES: ends[0]}),
        **written,
    )
    end = Checkpoint(position=Position(0, number), sources={CHANGES: ends[1]})
    return refresh_cdc(
        spark,
        job,
        CommitMetadata(
            consumer=ConsumerId("bench", "orders"),
            number=number,
            attempt=1,
            execution_id=f"e{number}",
            end=end,
        ),
        DeltaLog,
    )


def run_recipe(spark: SparkSession, table: Path, bronze: str) -> float:
    """The recipe of Delta's documentation, "write change data into a Delta table"."""
    began = time.perf_counter()
    reported = (
        spark.read.format("delta")
        .load(bronze)
        .where("value is not null")
        .select(F.from_json("value", ENVELOPE).alias("m"))
    )
    changes = reported.select("m.payload.*").where("op is not null")
    changes = changes.selectExpr(
        "source.ts_ms time", "op = 'd' deleted", "coalesce(after, before) row"
    )
    latest = (
        changes.groupBy("row.id")
        .agg(F.expr("max(struct(time, deleted, row))").alias("latest"))
        .select("latest.*")
    )
    source = latest.select("deleted", *decoded())
    values = {name: f"s.{name}" for name in COLUMNS}
    (
        SparkTable.forPath(spark, str(table))
        .alias("t")
        .merge(source.alias("s"), "s.id = t.id")
        .whenMatchedDelete("s.deleted = true")
        .whenMatchedUpdate(set=values)  # type: ignore[arg-type]
        .whenNotMatchedInsert("s.deleted = false", values)  # type: ignore[arg-type]
        .execute()
    )
    return time.perf_counter() - began


def decoded() -> list[Column]:
    """The columns of a row as `from_json` gives them, in the table's types."""
    # of a number that is not negative
    amount = "cast(conv(hex(unbase64(row.amount)), 16, 10) as decimal(20,0)) / 100"
    changed = "cast(timestamp_micros(row.changed) as timestamp_ntz) changed"
    return [
        *[F.col(f"row.{name}") for name in COLUMNS[:4]],
        F.expr(f"cast({amount} as decimal(12,2)) amount"),
        F.expr(changed),
    ]


def run_delta_rs(_: SparkSession, table: Path, bronze: str) -> float:
    began = time.perf_counter()
    merger = DeltaTable(str(table)).merge(
        newest_rows(bronze), "s.id = t.id", source_alias="s", target_alias="t"
    )
    values = {name: f"s.{name}" for name in COLUMNS}
    merger.when_matched_delete("s.deleted").when_matched_update(values).when_not_matched_insert(
        values, "not s.deleted"
    ).execute()
    return time.perf_counter() - began


class Dlt(DltHome):
    """dlt's `upsert`."""

    def run(self, _: SparkSession, table: Path, bronze: str) -> float:
        """The table is moved into a dataset of dlt, and back."""
        folder = table.parent / "dlt"
        with subprocess.Popen(
            [self.python, "-m", "benchmarks._dlt", str(folder), bronze],
            env=self.environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            while (said := process.stdout.readline().strip()) != "ready":
                if not said and process.poll() is not None:
                    raise RuntimeError(f"dlt ended with {process.returncode}")
            shutil.move(table, folder / "shop" / "orders")
            process.stdin.write("\n")
            process.stdin.flush()
            said = process.stdout.read().split()
        if process.returncode:
            raise RuntimeError(f"dlt ended with {process.returncode}")
        shutil.move(folder / "shop" / "orders", table)
        shutil.rmtree(folder)
        return float(said[-1])


def merges() -> list[Merge]:
    """All contenders but dlt."""
    return [
        Merge("ours", OURS, run_ours),
        Merge("Delta's recipe", DEFAULT, run_recipe),
        Merge("Delta's recipe, our properties", EQUAL, run_recipe),
        Merge("delta-rs merge", DEFAULT, run_delta_rs),
        Merge("delta-rs merge, our properties", EQUAL, run_delta_rs),
    ]


def make_bases(spark: SparkSession, folder: Path, rows: DataFrame, seed: str) -> None:
    """The tables that contenders start from, with the same rows in the same files; ours has
    followed one message already.

    Ours, and those with our properties, have the properties of a table that is made by following.
    """
    refresh_once(spark, folder / "made" / "orders", seed, 1)
    properties = DeltaTable(str(folder / "made" / "orders")).metadata().configuration
    reported = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    rows.write.format("delta").save(str(folder / DEFAULT / "orders"))
    shutil.copytree(folder / DEFAULT, folder / EQUAL)
    spark.sql(f"ALTER TABLE delta.`{folder / EQUAL / 'orders'}` SET TBLPROPERTIES ({reported})")
    rows.withColumn(HIDDEN, orders.hidden()).write.format("delta").options(**properties).save(
        str(folder / OURS / "orders")
    )
    refresh_once(spark, folder / OURS / "orders", seed, 1)
