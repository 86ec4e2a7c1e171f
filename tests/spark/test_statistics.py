"""What the log of a table with personal columns reports of its rows: never a value of them, from the
first commit on.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType

from lakechime_dagster.spark.commit import LISTED, listed
from lakechime_dagster.spark.job import Outcome
from lakechime_dagster.tables.cdc import STATE
from lakechime_dagster.tables.options import personal
from lakechime_dagster.tables.tables import RefreshMode
from tests.support.iceberg import IcebergWorld
from tests.support.orders import order
from tests.support.refreshes import Source, make_subscription, open_log, read_rows
from tests.support.replica import Replica
from tests.support.streams import event, stream

PEOPLE = pa.schema([("id", pa.int64()), ("email", pa.string()), ("town", pa.string())])
SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("email", StringType()),
        StructField("is_new", BooleanType()),
        StructField(
            "user", StructType([StructField("mail", StringType()), StructField("age", LongType())])
        ),
        StructField("tags", ArrayType(StringType())),
        StructField("a.b", StringType()),
    ]
)


def actions(location: str | Path) -> Iterator[dict[str, Any]]:
    for file in sorted(Path(location, "_delta_log").glob("*.json")):
        yield from map(json.loads, file.read_text().splitlines())


def reported(location: str | Path) -> list[dict[str, Any]]:
    """The statistics of each file that a commit added."""
    return [json.loads(one["add"]["stats"]) for one in actions(location) if "add" in one]


def bounded(location: str | Path) -> list[set[str]]:
    """The columns of which the log reports bounds, of each file that a commit added."""
    return [{*one.get("minValues", {})} for one in reported(location)]


def log_text(location: str | Path) -> str:
    """All that stands in a table's log, checkpoints and sums of commits too."""
    files = [one for one in Path(location, "_delta_log").rglob("*") if one.is_file()]
    return "\n".join(one.read_bytes().decode("latin1") for one in files)


def test_all_columns_are_listed_that_may_be_but_personal_ones() -> None:
    assert listed(SCHEMA, ["email"]) == "`id`,`user`.`mail`,`user`.`age`,`a.b`"
    assert listed(SCHEMA, ["EMAIL", "user.mail"]) == "`id`,`user`.`age`,`a.b`"
    assert listed(SCHEMA, ["user", "a.b"], partitioned_by=["ID"]) == "`email`"
    assert listed(SCHEMA, ["email:$.to", "id", "user", "a.b"]) == ""
    many = StructType([StructField(f"c{at}", LongType()) for at in range(40)])
    assert listed(many, ["c0"]).split(",") == [f"`c{at}`" for at in range(1, 33)]


@pytest.mark.spark
def test_no_file_of_a_computed_table_reports_of_a_personal_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By append, by merge and as a whole; a new column is reported of once its writer has listed it."""
    people = Source(tmp_path / "people", PEOPLE)
    people.write((1, "ann@example.com", "Ulm"), (2, "bob@example.com", "Bonn"))
    extra: list[str] = []

    def computed(people: DataFrame) -> DataFrame:
        return people.select("id", "email", "town", *[F.lit(name).alias(name) for name in extra])

    subscription = make_subscription(
        spark,
        tmp_path,
        {"people": people},
        computed,
        keys=("id",),
        personal=("email",),
        expect={"lives": "town <> ''"},
    )
    subscription.run()
    people.write((1, "ann@example.org", "Ulm"), (3, "cy@example.com", ""))
    subscription.run()
    assert [row[1] for row in read_rows(subscription.job.location)] == [
        "ann@example.org",
        "bob@example.com",
    ]
    assert bounded(subscription.job.location) == [{"id", "town"}] * len(
        reported(subscription.job.location)
    )
    extra.append("country")
    people.write((4, "di@example.com", "Rom"))
    subscription.run()
    assert bounded(subscription.job.location)[-1] == {"id", "town"}
    people.write((5, "ed@example.com", "Wien"))
    subscription.run()
    assert bounded(subscription.job.location)[-1] == {"id", "town", "country"}
    for location in (subscription.job.location, f"{subscription.job.location}__quarantine"):
        assert "example" not in log_text(location)
    assert reported(f"{subscription.job.location}__quarantine")


@pytest.mark.spark
def test_a_whole_table_may_lose_a_listed_column(spark: SparkSession, tmp_path: Path) -> None:
    """Which Delta refuses to write while the column is listed."""
    people = Source(tmp_path / "people", PEOPLE)
    people.write((1, "ann@example.com", "Ulm"))
    columns = ["id", "email", "town"]
    subscription = make_subscription(
        spark,
        tmp_path,
        {"people": people},
        lambda people: people.select(*columns),
        refresh=RefreshMode.FULL,
        personal=("email",),
    )
    subscription.run()
    columns.remove("town")
    people.write((2, "bob@example.com", "Bonn"))
    assert subscription.run().outcome is Outcome.COMMITTED
    assert read_rows(subscription.job.location) == [(1, "ann@example.com"), (2, "bob@example.com")]
    first, *others = bounded(subscription.job.location)
    assert first == {"id", "town"}
    assert others
    assert {*map(frozenset, others)} == {frozenset({"id"})}


@pytest.mark.spark
def test_a_table_that_reported_of_a_column_before_reports_no_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    people = Source(tmp_path / "people", PEOPLE)
    people.write((1, "ann@example.com", "Ulm"))
    subscription = make_subscription(spark, tmp_path, {"people": people}, lambda people: people)
    subscription.run()
    assert LISTED not in open_log(subscription.job.location, "target").properties()
    people.write((2, "bob@example.com", "Bonn"))
    subscription.attempt(2, 1, personal=("email",))
    assert "ann@example.com" in log_text(subscription.job.location)
    assert "bob@example.com" not in log_text(subscription.job.location)


def followed(spark: SparkSession, folder: Path, **options: Any) -> Replica:
    """A table that follows a database, by a personal key, after an insert and a merge."""
    table = Replica(spark, folder, ("name",), options={"personal": ("name",)}, **options)
    table.send([order(1, at=1, name="Xanthippe"), order(2, at=2, name="Yolanda")])
    table.run()
    table.send([order(1, at=3, name="Xanthippe", amount=7), order(3, at=4, name="Zenobia")])
    table.run()
    assert {row["name"]: row["amount"] for row in table.rows} == {
        "Xanthippe": 7,
        "Yolanda": 5,
        "Zenobia": 5,
    }
    return table


@pytest.mark.spark
def test_neither_table_nor_state_of_a_followed_one_reports_of_a_personal_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Be it the key, whose values a merge would name in its condition."""
    table = followed(spark, tmp_path)
    operations = [
        one["commitInfo"]["operation"] for one in actions(table.location) if "commitInfo" in one
    ]
    assert "MERGE" in operations
    for location in (table.location, table.location + STATE):
        assert reported(location)
        assert not {
            name for name in ("Xanthippe", "Yolanda", "Zenobia") if name in log_text(location)
        }
    assert "amount" in bounded(table.location)[0]


@pytest.mark.spark
def test_files_of_an_iceberg_table_that_follows_a_database_hold_no_bounds_of_a_personal_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    followed(spark, tmp_path, write_mode="merge-on-read")
    stored = IcebergWorld.within(tmp_path).catalog.load_table("shop.orders")
    files = [task.file for task in stored.scan().plan_files()]
    bounds = {stored.schema().find_column_name(one) for each in files for one in each.upper_bounds}
    assert bounds == {"id", "amount"}


@pytest.mark.spark
def test_no_file_of_a_types_table_reports_of_a_personal_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whichever of its files are Spark's and which are added by our own hand; nor of what was
    rescued.
    """
    game = stream(
        spark, tmp_path, columns={"/user/email": personal("email"), "/to": personal("email")}
    )
    game.drop(event("buy", user={"email": "ann@example.com", "age": 7}, price=3))
    game.run()
    game.drop(event("buy", user={"email": "bob@example.com", "age": 8}, price=4))
    game.run()
    game.drop(
        event(
            "buy", user={"email": "cy@example.com", "age": 9}, price=5, to="di@example.com", size=2
        )
    )
    game.run()
    game.drop(
        event(
            "buy", user={"email": "ed@example.com", "age": 9}, price=5, to="fi@example.com", size=3
        )
    )
    game.run()
    location = game.location("buy")
    assert len(game.rows("buy")) == 4
    least = [one["minValues"] for one in reported(location)]
    assert [one["user"] for one in least] == [{"age": 7}, {"age": 8}, {"age": 9}, {"age": 9}]
    assert [one.get("size") for one in least] == [None, None, None, 3]
    for one in (location, game.bronze):
        assert "example" not in log_text(one)
