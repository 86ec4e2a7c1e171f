"""Reads of several paths, of globs and of parts of tables: each data set of which rows come is a
source.
"""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage.columns import Names, Statement
from lakechime_dagster.lineage.plan_dump import dump_of
from lakechime_dagster.lineage.plan_statements import statements_of
from lakechime_dagster.lineage.spark import dump, watched

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with two tables of the lake, of which one has partitions, and two data sets of
    others.
    """
    folder = str(tmp_path_factory.mktemp("roots"))
    for name in ("lake/orders", "others/prices", "others/rates"):
        spark.range(2).write.parquet(f"{folder}/{name}")
    days = spark.range(3).withColumn("day", F.col("id") % 3)
    for name in ("lake/days", "others/days"):
        days.write.partitionBy("day").parquet(f"{folder}/{name}")
    return folder


def read(frame: DataFrame, folder: str) -> Statement:
    """What the plan of a frame says, where `folder` is short for its path."""
    names = Names(
        ("orders", "days"), {"orders": f"file:{folder}/lake/orders", "days": f"{folder}/lake/days"}
    )
    (statement,) = statements_of([dump_of(dump(frame))], names, "made").statements
    return statement


def sources(statement: Statement, folder: str, column: str = "id") -> set[str]:
    (found,) = [one for one in statement.columns if one.column == column]
    assert found.opaque == statement.unknown == ()
    return {str(source.ref).replace(folder.lstrip("/"), "folder") for source in found.sources}


@pytest.mark.tier1
def test_each_of_several_paths_is_a_source(spark: SparkSession, folder: str) -> None:
    paths = [f"{folder}/lake/orders", f"{folder}/others/prices", f"{folder}/others/rates"]
    reported = {"orders.id", "file/folder/others/prices.id", "file/folder/others/rates.id"}
    assert sources(read(spark.read.parquet(*paths), folder), folder) == reported
    assert sources(read(spark.read.format("parquet").load(paths), folder), folder) == reported
    assert sources(
        read(spark.read.parquet(f"{folder}/others/{{prices,rates}}"), folder), folder
    ) == reported - {"orders.id"}


@pytest.mark.parametrize("glob", ["*", "*/*", "day=1", "day={0,2}"])
def test_a_glob_and_a_partition_are_of_the_table_or_of_the_folder_that_they_are_in(
    spark: SparkSession, folder: str, glob: str
) -> None:
    both = spark.read.parquet(f"{folder}/lake/days/{glob}", f"{folder}/others/days/{glob}")
    assert sources(read(both, folder), folder) == {"days.id", "file/folder/others/days.id"}


def test_a_stream_of_files_is_of_their_folder(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "files" / name).write_text("1\n")
    frame = spark.readStream.schema("id long").csv(f"{tmp_path}/files")
    with watched(spark) as dumps:
        stream = (
            frame.writeStream.format("delta")
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .trigger(availableNow=True)
        )
        stream.start(f"{tmp_path}/made").awaitTermination()
    (statement,) = statements_of(map(dump_of, dumps), Names()).statements
    assert statement.inputs == (f"file{tmp_path}/files",)


def test_of_very_many_files_the_folders_are_reported_and_never_is_a_table_hidden(
    spark: SparkSession, tmp_path: Path
) -> None:
    for part in range(101):
        (tmp_path / "many" / f"{part}.csv").parent.mkdir(exist_ok=True)
        (tmp_path / "many" / f"{part}.csv").write_text("1\n")
    many = dump_of(dump(spark.read.schema("id long").csv(f"{tmp_path}/many/*.csv")))
    reported = {
        where: statements_of([many], Names(("t",), {"t": f"{tmp_path}/{where}"}), "made")
        .statements[0]
        .columns[0]
        for where in WHERE
    }
    assert [str(source.ref) for source in reported["elsewhere"].sources] == [
        f"file{tmp_path}/many.id"
    ]
    assert [str(source.ref) for source in reported["many"].sources] == ["t.id"]
    assert reported["elsewhere"].opaque == reported["many"].opaque == ()
    assert reported["many/7.csv"].opaque == (
        "files in many folders, among which are tables of the lake",
    )


WHERE = ("elsewhere", "many", "many/7.csv")
"""Where a table of the lake may lie."""
