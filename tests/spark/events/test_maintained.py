"""Tables of types that are kept meanwhile: each event once, whoever appends, comes too late, or has
lost the store.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.formats.delta import DeltaLog, table_files
from lakechime_dagster.silver.maintenance import remove_empty_folders
from lakechime_dagster.spark.maintain import maintain
from lakechime_dagster.tables.maintenance import Kind, Maintained, Maintenance, plan
from lakechime_dagster.triggers.schedule import DAY_MS
from tests.spark.events.test_group import overtaken
from tests.support.older import make_older
from tests.support.streams import Stream, event, late, stream

pytestmark = pytest.mark.spark

POLICY = Maintenance(min_files=2)


@pytest.fixture
def game(spark: SparkSession, tmp_path: Path) -> Stream:
    """A stream of whose type `buy` three executions have written an event each."""
    game = stream(spark, tmp_path)
    for number in (1, 2, 3):
        game.drop(event("buy", n=number))
        game.run()
    return game


def log_of(game: Stream) -> DeltaLog:
    return DeltaLog(game.location("buy"), "shop.buy")


def newest(location: str) -> int:
    """The time of a table's newest commit, and a little later."""
    return (
        max(one.stat().st_mtime_ns for one in (Path(location) / "_delta_log").iterdir())
        // 1_000_000
        + 60_000
    )


def keep(game: Stream) -> Maintained:
    log = log_of(game)
    now = newest(log.location)
    return maintain(game.spark, log, plan(table_files(log), [], POLICY, now), POLICY, lambda: now)


def numbers(game: Stream) -> list[int]:
    return [row["n"] for row in game.rows("buy")]


def forget(spark: SparkSession) -> None:
    """Spark looks at the logs of tables again."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def test_what_was_joined_is_removed_later_with_the_folders_of_its_appends(game: Stream) -> None:
    assert [one.kind for one in keep(game).done] == [Kind.COMPACT]
    make_older(Path(game.location("buy")), days=9)
    forget(game.spark)
    game.drop(event("buy", n=4))
    game.run()
    assert [(one.kind, one.files_removed) for one in keep(game).done] == [
        (Kind.COMPACT, 2),
        (Kind.VACUUM, 3),
    ]
    folders = [
        one
        for one in Path(game.location("buy")).iterdir()
        if one.is_dir() and one.name != "_delta_log"
    ]
    # of the appends behind the first, one of which still holds a file that was joined now
    assert len(folders) == 3
    for folder in folders:
        moment = (newest(game.location("buy")) - 2 * DAY_MS) * 1_000_000
        os.utime(folder, ns=(moment, moment))
    assert remove_empty_folders(game.location("buy"), newest(game.location("buy")) - DAY_MS) == 2
    game.drop(event("buy", n=5))
    assert game.replay("buy")["buy"].replayed[0].replaced == 0
    assert (numbers(game), len(table_files(log_of(game)).live)) == ([1, 2, 3, 4, 5], 2)


@pytest.mark.parametrize("where", ["before", "behind"])
def test_an_append_that_meets_maintenance_half_way_is_done_once(game: Stream, where: str) -> None:
    game.drop(event("buy", n=4))
    game.ingest()
    end = game.end()
    result = overtaken(game.execute(end, execution="e4"), lambda: keep(game), where).run()
    game.complete(result, end, "e4")
    (done,) = result.types
    assert (done.rows, done.written, done.error) == (1, 1, "")
    operations = [one["operation"] for one in reversed(DeltaTable(game.location("buy")).history())]
    assert (operations, numbers(game)) == (["WRITE"] * 3 + ["OPTIMIZE", "WRITE"], [1, 2, 3, 4])


def test_an_attempt_that_lives_on_is_let_in_no_more_behind_maintenance(game: Stream) -> None:
    game.drop(event("buy", n=4))
    game.ingest()
    zombie = late(game.execute(game.end(), attempt=1, execution="e0"), game.types)
    game.run()
    keep(game)
    zombie.run()
    assert numbers(game) == [1, 2, 3, 4]
