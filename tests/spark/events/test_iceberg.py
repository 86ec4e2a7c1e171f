"""Tables of types in Iceberg: what only their snapshots show."""

from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import OperationType
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.silver.results import RequestKind
from lakechime_dagster.tables.options import personal
from lakechime_dagster.triggers.consumers import COMMIT_METADATA_KEY, CommitMetadata
from tests.support.iceberg import IcebergWorld
from tests.support.streams import Stream, event, request, stream

pytestmark = pytest.mark.spark
ASKED = {"buy": request("buy", RequestKind.REBUILD)}


@pytest.fixture
def game(spark: SparkSession, tmp_path: Path) -> Stream:
    return stream(spark, tmp_path, "iceberg")


def log_of(game: Stream, kind: str) -> IcebergLog:
    log = game.log_of(f"shop.{kind}")
    assert isinstance(log, IcebergLog)
    return log


def table_of(game: Stream, kind: str) -> Table:
    log = log_of(game, kind)
    return IcebergWorld(dict(log.catalog)).catalog.load_table(log.table)


def commits(game: Stream, kind: str) -> list[tuple[int, int]]:
    """The number and the rows of each commit by the summaries of the snapshots."""
    found = []
    for one in table_of(game, kind).snapshots():
        assert one.summary is not None
        summary = one.summary.additional_properties
        metadata = CommitMetadata.from_text(summary[COMMIT_METADATA_KEY])
        assert metadata is not None
        found.append((metadata.number, int(summary["added-records"])))
    return found


@pytest.mark.tier2
def test_many_types_grow_are_rebuilt_and_go_on_in_one_snapshot_an_execution(game: Stream) -> None:
    game.drop(event("buy", n=1, item={"name": "hat"}), event("sell", n=1))
    first = game.run()
    game.drop(event("buy", n="two", item={"name": "cap", "sizes": [3]}))
    second = game.run()
    assert {name: (one.error, one.written) for name, one in first.items()} == {
        "buy": ("", 1),
        "sell": ("", 1),
    }
    assert (second["buy"].error, second["buy"].written, second["sell"].commits) == ("", 1, ())
    assert game.payloads("buy") == [
        {"type": "buy", "n": 1, "item": {"name": "hat", "sizes": None}},
        {"type": "buy", "n__v_string": "two", "item": {"name": "cap", "sizes": [3]}},
    ]
    fields = table_of(game, "buy").schema().fields
    assert all(not one.required for one in fields)
    done = game.run(replays=ASKED)["buy"]
    assert ([one.replaced for one in done.replayed], done.error) == ([2], "")
    game.drop(event("buy", n=3), event("sell", n=2))
    game.run()
    rows = table_of(game, "buy").scan().to_arrow().sort_by("_ingested_at")
    assert rows.select(["item", "n", "n__v_long"]).to_pylist() == [
        {"item": {"name": "hat", "sizes": None}, "n": None, "n__v_long": 1},
        {"item": {"name": "cap", "sizes": [3]}, "n": "two", "n__v_long": None},
        {"item": None, "n": None, "n__v_long": 3},
    ]
    assert commits(game, "buy") == [(1, 1), (2, 1), (3, 2), (4, 1)]
    assert commits(game, "sell") == [(1, 1), (2, 1)]


def test_a_commit_whose_snapshot_was_expired_is_found_by_who_comes_late(game: Stream) -> None:
    game.drop(event("buy", n=1))
    game.ingest()
    end = game.end()
    game.execute(end, attempt=1, execution="e1").run()  # and dies before it completes
    ours = table_of(game, "buy")
    ours.append(ours.scan().to_arrow().slice(0, 0))  # another program's
    ours.maintenance.expire_snapshots().by_id(ours.snapshots()[0].snapshot_id).commit()
    result = game.execute(end, attempt=2, execution="e1").run()
    game.complete(result, end, "e1")
    (buy,) = result.types
    assert (buy.error, buy.written, len(game.rows("buy"))) == ("", 1, 1)
    game.drop(event("buy", n=2))
    game.run()
    assert [row["n"] for row in game.rows("buy")] == [1, 2]


def test_the_events_of_a_commit_lead_from_snapshot_to_snapshot(game: Stream) -> None:
    found = []
    for number in (1, 2):
        game.drop(event("buy", n=number))
        (committed,) = game.run()["buy"].commits
        found += log_of(game, "buy").events_of(committed)
    first, second = found
    assert (second.prev_snapshot_id, second.operation_type) == (
        first.snapshot_id,
        OperationType.APPEND,
    )
    assert dict(second.tags) == {"schema_version": "1"}


def test_files_have_no_bounds_of_personal_columns(spark: SparkSession, tmp_path: Path) -> None:
    game = stream(spark, tmp_path, "iceberg", columns={"/email": personal("email")})
    game.drop(event("buy", n=1, email="a@b.c", name="Ann"))
    game.run()
    game.drop(event("buy", n=2, email={"work": "x"}, Email="y"))
    assert game.run()["buy"].rescued == 1
    table = table_of(game, "buy")
    bounded = {
        table.schema().find_column_name(number)
        for row in table.inspect.files().to_pylist()
        for number, _ in row["lower_bounds"]
    }
    assert {"n", "name"} <= bounded
    assert not {name for name in bounded if name and "email" in name} | (bounded & {"_rescued"})


def test_a_type_whose_table_is_of_another_format_is_rebuilt_and_not_begun_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    game = stream(spark, tmp_path)
    game.drop(event("buy", n=1))
    game.run()
    game.group = stream(spark, tmp_path, "iceberg").group
    game.spark = spark.newSession()
    game.drop(event("buy", n=2))
    failed = game.run()["buy"]
    assert "there is no Iceberg table of that name" in failed.error
    assert "`lakechime schema replay buy --rebuild --reason …`" in failed.error
    done = game.run(2**60, replays=ASKED)["buy"]
    assert (done.error, [row["n"] for row in game.rows("buy")]) == ("", [1, 2])
    game.drop(event("buy", n=3))
    assert (game.run()["buy"].written, len(game.rows("buy"))) == (1, 3)
