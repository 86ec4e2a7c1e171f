"""The dumps of the zoo's shapes; as a program it makes those again that plain tests read: `python -m
tests.support.zoo_dumps`.

`python -m tests.support.zoo_dumps hive` makes those of tables of Hive again, for which a session
needs a metastore from its start.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from lakechime_dagster.lineage.spark import Dump, dump, watched
from lakechime_dagster.spark.driver import open_driver
from tests.support.spark import REPOSITORY, small_settings
from tests.support.tpcds import queries, store_dumps, tables
from tests.support.zoo import SCHEMAS, SHAPES, Tables
from tests.support.zoo_writes import (
    HIVE,
    MERGES,
    SCRIPTS,
    STATEMENTS,
    WRITES,
    Write,
    make_others,
    make_target,
)

FOLDER = REPOSITORY / "tests" / "lineage" / "zoo"


def empty_tables(spark: SparkSession) -> Tables:
    """The zoo's tables without rows, as a run would give them to a function."""
    frames = {
        name: spark.createDataFrame([], schema).alias(f"lc:{name}").alias(name)
        for name, schema in SCHEMAS.items()
    }
    return Tables(spark, **frames)


def frame_dumps(spark: SparkSession) -> dict[str, Dump]:
    """A dump for each shape."""
    tables = empty_tables(spark)
    return {name: dump(shape(tables)) for name, shape in SHAPES.items()}


def write_dumps(
    spark: SparkSession,
    folder: str,
    names: Iterable[str] = (),
    writes: Mapping[str, Write] | None = None,
) -> dict[str, list[Dump]]:
    """The dumps of each writing statement, which is executed; of these names only, if any are
    given.
    """
    tables = empty_tables(spark)
    make_others(tables, folder)
    found: dict[str, list[Dump]] = {}
    for name, write in (every_write() if writes is None else writes).items():
        if names and name not in names:
            continue
        make_target(spark, folder)
        with watched(spark) as dumps:
            write(tables, folder)
        found[name] = [placed(one, folder) for one in dumps]
    return found


def every_write() -> dict[str, Write]:
    """All writing statements, those in SQL as functions too."""
    scripts = {name: (text,) for name, text in (MERGES | STATEMENTS).items()} | SCRIPTS
    return {**{name: _executed(*texts) for name, texts in scripts.items()}, **WRITES}


def _executed(*texts: str) -> Write:
    return lambda tables, folder: [
        tables.spark.sql(text.replace("{folder}", folder)) for text in texts
    ]


def placed(dump: Dump, folder: str) -> Dump:
    """The dump as if its tables were in a folder that is the same everywhere."""
    return json.loads(json.dumps(dump).replace(folder, "/lake"))


def tpcds_dumps(spark: SparkSession) -> dict[str, Dump]:
    """A dump for each query of TPC-DS."""
    for table, columns in tables().items():
        frame = spark.createDataFrame(
            [], ", ".join(f"{name} {kind}" for name, kind in columns.items())
        )
        frame.alias(f"lc:{table}").alias(table).createOrReplaceTempView(table)
    return {number: dump(spark.sql(query)) for number, query in queries().items()}


METASTORE = {
    "spark.sql.catalogImplementation": "hive",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
    "spark.hadoop.hive.metastore.schema.verification": "false",
    "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
}
"""A metastore of Hive in memory."""


def main(part: str) -> None:
    conf = METASTORE if part == "hive" else {}
    with (
        tempfile.TemporaryDirectory() as home,
        open_driver(
            small_settings(conf=conf), Path(home), jars=REPOSITORY / ".lakechime" / "jars"
        ) as driver,
    ):
        if part == "hive":
            writes = {name: _executed(*texts) for name, texts in HIVE.items()}
            keep("hive", write_dumps(driver.spark, f"{home}/tables", writes=writes))
            return
        store_dumps(tpcds_dumps(driver.spark))
        keep("frames", frame_dumps(driver.spark))
        keep("writes", write_dumps(driver.spark, f"{home}/tables"))


def keep(name: str, dumps: Mapping[str, object]) -> None:
    """Store one part of the zoo, a shape a line."""
    lines = (
        f"{json.dumps(shape)}: {json.dumps(dump, separators=(',', ':'))}"
        for shape, dump in dumps.items()
    )
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:] or ("",))
