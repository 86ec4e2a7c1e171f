"""Types of one group at several checkpoints: failed ones, and those that catch up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.silver.metrics import TypeMeasures, measures
from lakechime_dagster.silver.results import FROZEN, TypeResult
from lakechime_dagster.spark.session import session_confs
from lakechime_dagster.tables.events import Contract
from tests.support.streams import Stream, event, late, request, stream

pytestmark = pytest.mark.spark

EVER_MS = 10**15


@pytest.fixture
def game(spark: SparkSession, tmp_path: Path) -> Stream:
    return stream(spark, tmp_path)


def numbers(game: Stream, kind: str) -> list[int]:
    return [row["n"] for row in game.rows(kind)]


def known(game: Stream, kind: str) -> Any:
    return game.types.types("shop")[kind]


def measured(game: Stream, kind: str) -> TypeMeasures:
    (found,) = (one for one in measures(game.types).types if one.type == kind)
    return found


class Blocked:
    """A type whose next commit cannot be written until it is `freed`."""

    def __init__(self, game: Stream, kind: str) -> None:
        folder = Path(game.location(kind)) / "_delta_log"
        self.file = folder / f"{len([*folder.glob('*.json')]):020}.json"
        self.file.write_text("in the way")

    def freed(self) -> None:
        self.file.unlink()


def put_behind(game: Stream, kind: str, executions: int) -> Blocked:
    """A type has one row and fails from then on, and others go on for so many versions, with each
    of which a row of it comes.
    """
    game.drop(event(kind, n=0), event("other", n=0))
    game.run()
    blocked = Blocked(game, kind)
    for number in range(1, executions + 1):
        game.drop(event(kind, n=number), event("other", n=number))
        if number < executions:
            game.ingest()
    game.run()
    return blocked


def test_a_version_between_that_is_gone_hinders_nobody_while_the_end_has_its_rows(
    game: Stream,
) -> None:
    location = Path(game.location("a"))
    location.parent.mkdir(parents=True)
    location.write_text("no folder")
    for number in range(2):
        game.drop(event("a", n=number), event("b", n=number))
        game.run()
    before = DeltaLog(game.bronze, "game.events").commits(0, 1)
    game.spark.sql(f"optimize delta.`{game.bronze}` full")
    with session_confs(
        game.spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
    ):
        game.spark.sql(f"vacuum delta.`{game.bronze}` retain 0 hours")
    assert not Path(game.bronze, before[0].added[0].path).exists()
    location.unlink()
    game.drop(event("a", n=2), event("b", n=2))
    done = game.run(now_ms=EVER_MS)
    assert [(one.written, one.error) for one in done.values()] == [(3, ""), (1, "")]
    assert [numbers(game, kind) for kind in "ab"] == [[0, 1, 2]] * 2


def far(game: Stream, max_catchup: int = 1) -> Stream:
    game.max_catchup = max_catchup
    return game


def reported(done: dict[str, TypeResult], kind: str) -> tuple[int, int, int, str]:
    return done[kind].start, done[kind].end, done[kind].written, done[kind].error


def test_a_type_far_behind_catches_up_by_parts_and_others_go_on(game: Stream) -> None:
    blocked = put_behind(far(game), "buy", executions=3)
    blocked.freed()
    game.drop(event("buy", n=4), event("other", n=4))
    done = game.run(now_ms=EVER_MS)
    assert (reported(done, "buy"), reported(done, "other")) == ((1, 3, 2, ""), (4, 5, 1, ""))
    assert (
        known(game, "buy").checkpoint.version,
        measured(game, "buy").behind_ts is None,
        done["buy"].is_balanced,
    ) == (3, False, True)
    (left,) = game.types.left("shop")
    assert (left.type, left.has_failed, left.is_due) == ("buy", False, True)
    done = game.run(now_ms=EVER_MS)  # as its sensor launches it though nothing came
    assert (reported(done, "buy"), reported(done, "other")) == ((3, 4, 1, ""), (5, 5, 0, ""))
    game.drop(event("buy", n=5), event("other", n=5))
    done = game.run(now_ms=EVER_MS)
    assert (reported(done, "buy"), numbers(game, "buy"), numbers(game, "other")) == (
        (4, 6, 2, ""),
        [*range(6)],
        [*range(6)],
    )
    assert (game.types.left("shop"), measured(game, "buy").behind_ts) == ([], None)


def test_an_old_file_that_cannot_be_read_hinders_the_type_alone_that_is_far_behind(
    game: Stream,
) -> None:
    blocked = put_behind(far(game), "buy", executions=3)
    blocked.freed()
    (old,) = DeltaLog(game.bronze, "game.events").commits(1, 2)
    file = Path(game.bronze) / old.added[0].path
    kept = file.read_bytes()
    file.write_bytes(b"damaged")
    game.drop(event("buy", n=4), event("other", n=4))
    done = game.run(now_ms=EVER_MS)
    assert (
        bool(done["buy"].error),
        known(game, "buy").checkpoint.version,
        reported(done, "other"),
    ) == (True, 1, (4, 5, 1, ""))
    file.write_bytes(kept)
    assert reported(game.run(now_ms=EVER_MS), "buy") == (1, 2, 1, "")
    assert (numbers(game, "buy"), numbers(game, "other")) == ([0, 1], [*range(5)])


def test_a_part_of_an_attempt_that_died_is_found_and_read_on_from_its_own_end(game: Stream) -> None:
    blocked = put_behind(far(game), "buy", executions=3)
    blocked.freed()
    game.drop(event("buy", n=4))
    game.ingest()
    first = game.execute(attempt=1, execution="e9", now_ms=EVER_MS)
    zombie = late(first, game.types)
    first.run()  # and dies before it completes
    result = game.execute(attempt=2, execution="e9", now_ms=EVER_MS).run()
    game.complete(result, game.end(), "e9")
    (done,) = (one for one in result.types if one.type == "buy")
    assert ([one.commit_metadata.attempt for one in done.commits], done.end, done.written) == (
        [1, 2],
        5,
        4,
    )
    zombie.run()
    assert numbers(game, "buy") == [*range(5)]


def test_a_replay_waits_for_a_type_that_catches_up(game: Stream) -> None:
    blocked = put_behind(far(game), "buy", executions=2)
    blocked.freed()
    asked = {"buy": request("buy")}
    assert game.run(now_ms=EVER_MS, replays=asked)["buy"].replayed == ()
    done = game.run(now_ms=EVER_MS, replays=asked)["buy"]
    assert (len(done.replayed), numbers(game, "buy")) == (1, [*range(3)])


def test_events_that_wait_for_a_table_are_counted_once_and_all_are_there_when_it_gets_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    game = far(stream(spark, tmp_path, types={"b": Contract(tables="freeze")}))
    for number in range(3):
        game.drop(event("a", n=number), event("b", n=number))
        done = game.run()
        assert (done["b"].waits, done["b"].pending, done["b"].is_balanced) == (
            FROZEN,
            number + 1,
            True,
        )
    assert measured(game, "b").behind == 3
    game.group = replace(far(game, 2).group, contracts={})
    assert game.run(now_ms=EVER_MS)["b"].end == 1
    assert game.run(now_ms=EVER_MS)["b"].end == 3
    assert (numbers(game, "b"), numbers(game, "a")) == ([*range(3)], [*range(3)])
