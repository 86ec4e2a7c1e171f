"""A rebuild makes a type's table again, the same in whatever order its events came: once, in one
commit, whoever is at it.
"""

from pathlib import Path
from shutil import rmtree

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import OperationType
from lakechime_dagster.silver import replay
from lakechime_dagster.silver.results import RequestKind, TypeResult
from lakechime_dagster.silver.schema import TypeCheckpoint
from tests.support.streams import BOTH, Stream, event, late, request, stream

pytestmark = pytest.mark.spark

ASKED = {"buy": request("buy", RequestKind.REBUILD)}


@pytest.fixture
def game(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Stream:
    return stream(spark, tmp_path, getattr(request, "param", "delta"))


def rebuild(game: Stream, now_ms: int = 0) -> TypeResult:
    return game.run(now_ms, replays=ASKED)["buy"]


def reported(one: TypeResult) -> tuple[int, int, int]:
    (done,) = one.replayed
    return done.replaced, done.added, done.removed


def number_first(game: Stream) -> None:
    game.drop(event("buy", price=3), event("sell", n=1))
    game.run()
    game.drop(event("buy", price="four"))
    game.run()


def table(game: Stream) -> tuple[list[str], list[str]]:
    """The columns of a type's table and its rows, but for where and when each event came."""
    rows = game.rows("buy")
    reported = [
        {
            name: value
            for name, value in row.items()
            if name not in ("_src", "_ingested_at", "_schema_version")
        }
        for row in rows
    ]
    return [*rows[0]], sorted(map(str, reported))


@BOTH
def test_columns_and_rows_are_those_of_all_events_at_once(game: Stream) -> None:
    number_first(game)
    assert game.payloads("buy") == [
        {"type": "buy", "price": 3},
        {"type": "buy", "price__v_string": "four"},
    ]
    before = game.commits("buy")
    done = rebuild(game)
    assert (reported(done), done.rows, done.is_balanced, done.error) == ((2, 0, 0), 0, True, "")
    assert game.payloads("buy") == [
        {"type": "buy", "price__v_long": 3},
        {"type": "buy", "price": "four"},
    ]
    assert ({row["_schema_version"] for row in game.rows("buy")}, game.commits("buy")) == (
        {3},
        before + 1,
    )
    game.drop(event("buy", price="five", item="hat"), event("buy", price=6))
    assert game.run()["buy"].written == 2
    assert game.payloads("buy")[2:] == [
        {"type": "buy", "price": "five", "item": "hat"},
        {"type": "buy", "price__v_long": 6},
    ]
    known = game.types.types("shop")["buy"]
    assert (known.schema_version, known.checkpoint.commits) == (4, 4)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_in_whatever_order_and_split_events_came_the_tables_are_equal(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    events = [
        event("buy", price=3, more={"a": 1}),
        event("buy", price="four", more={"b": [1]}),
        event("buy", more="x"),
        event("buy", price=1.5, z=None),
        event("buy", sizes=[1]),
        event("buy", sizes=["x"], Price=3),
        event("buy", more={"b": [{"c": 1}]}),
    ]
    tables = []
    for name, executions in (
        ("one", [events[:1], events[1:3], events[3:]]),
        ("other", [events[6:2:-1], events[2::-1]]),
    ):
        (tmp_path / name).mkdir()
        game = stream(spark, tmp_path / name, table_format)
        for several in executions:
            game.drop(*several)
            game.run()
        before = table(game)
        rebuild(game)
        tables.append((before, table(game)))
        assert rebuild(game).commits == ()
    (before, after), (other_before, other_after) = tables
    assert before != other_before
    assert after == other_after


@BOTH
def test_events_that_no_execution_has_read_are_in_the_same_commit_and_never_again(
    game: Stream,
) -> None:
    number_first(game)
    before = game.commits("buy")
    game.drop(event("buy", price=5), event("buy", Price=6), event("sell", n=2))
    done = rebuild(game)
    assert (done.rows, done.written, done.rescued, reported(done), len(done.commits)) == (
        2,
        2,
        1,
        (2, 0, 0),
        1,
    )
    assert (game.commits("buy"), len(game.rows("buy"))) == (before + 1, 4)
    assert (game.run()["buy"].rows, len(game.rows("buy")), len(game.rows("sell"))) == (0, 4, 2)


@BOTH
def test_the_commit_says_that_the_table_was_replaced(game: Stream) -> None:
    number_first(game)
    (committed,) = rebuild(game).commits
    (event_,) = game.log_of("shop.buy").events_of(committed)
    assert event_.operation_type is OperationType.UPDATE
    assert dict(event_.tags) == {"schema_version": "3", "cause": "rebuild", "breaking": "true"}


def test_a_table_goes_on_whose_stream_was_recreated(game: Stream) -> None:
    number_first(game)
    rmtree(game.bronze)
    game.checkpoint, game.executions = None, 0
    game.drop(event("buy", price=9), name="b.jsonl")
    (game.folder / "in" / "a.jsonl").unlink()
    failed = game.run()["buy"]
    assert "game.events was recreated since version" in failed.error
    assert "`lakechime schema replay buy --rebuild --reason …`" in failed.error
    assert len(game.rows("buy")) == 2
    done = rebuild(game, now_ms=2**60)
    assert (done.error, reported(done), game.payloads("buy")) == (
        "",
        (0, 0, 2),
        [{"type": "buy", "price__v_long": 9}],
    )
    game.drop(event("buy", price=10), name="b.jsonl")
    assert game.run()["buy"].written == 1
    assert [row["price__v_long"] for row in game.rows("buy")] == [9, 10]


def test_a_table_goes_on_whose_stream_can_no_longer_report_what_came(game: Stream) -> None:
    number_first(game)
    uid = game.end().table_uid
    game.types.register([game.group], ["coin"], TypeCheckpoint(uid=uid, version=2))
    game.drop(event("buy", price=5), event("gift", n=1), event("coin", n=2))
    game.ingest()
    game.drop(event("sell", n=2))
    game.ingest()
    clean_up(game)
    failed = game.run()
    assert (
        "rebuild the table of each such type: `lakechime schema replay TYPE --rebuild --reason …`"
        in failed["buy"].error
    )
    assert failed["gift"].written == 1
    coin = request("coin", RequestKind.REBUILD)
    done = game.run(2**60, replays={**ASKED, "coin": coin})
    assert (done["buy"].error, [row.get("price__v_long") for row in game.rows("buy")]) == (
        "",
        [3, None, 5],
    )
    assert failed["coin"].error == failed["buy"].error  # and it had no table
    assert (done["coin"].error, game.payloads("coin")) == ("", [{"type": "coin", "n": 2}])
    game.drop(event("buy", price=6))
    assert game.run()["buy"].written == 1


def clean_up(game: Stream) -> None:
    """Of the log of the stream's table its state alone is left, and none of the commits that led
    there.
    """
    made = DeltaTable(game.bronze)
    made.create_checkpoint()
    for log in Path(game.bronze, "_delta_log").glob("*.json"):
        if int(log.stem) < made.version():
            log.unlink()


@BOTH
def test_a_rebuild_of_an_attempt_that_died_is_found_with_its_schema(game: Stream) -> None:
    number_first(game)
    # it dies before it completes
    assert game.execute(attempt=1, execution="e8", replays=ASKED).run().types[0].commits
    game.drop(event("buy", price="five", item="hat"))
    game.ingest()
    before = game.commits("buy")
    result = game.execute(attempt=2, execution="e8", replays=ASKED).run()
    game.complete(result, game.end(), "e8")
    buy = result.types[0]
    assert (
        [one.replaced for one in buy.replayed],
        buy.rows,
        buy.is_balanced,
        len(buy.commits),
    ) == ([2, 2], 1, True, 2)
    assert game.commits("buy") == before + 1
    assert game.payloads("buy")[1:] == [
        {"type": "buy", "price": "four"},
        {"type": "buy", "price": "five", "item": "hat"},
    ]


def test_an_execution_that_is_not_let_in_behind_a_rebuild_goes_on_with_its_schema(
    game: Stream,
) -> None:
    number_first(game)
    game.drop(event("buy", price=5))
    game.ingest()
    game.execute(execution="lost", replays=ASKED).run()  # and nobody completes it
    game.drop(event("buy", price="six"))
    assert "shop.buy has a newer schema than was read" in game.run()["buy"].error
    done = game.run(now_ms=2**60)["buy"]
    assert (done.error, done.rows, done.written, len(done.replayed)) == ("", 2, 2, 1)
    assert [(row["price"], row["price__v_long"]) for row in game.rows("buy")] == [
        (None, 3),
        ("four", None),
        (None, 5),
        ("six", None),
    ]


def test_events_of_a_type_that_cannot_be_rebuilt_are_read_all_the_same(
    game: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    number_first(game)
    game.drop(event("buy", price=5, item="hat"), event("sell", n=2))
    with monkeypatch.context() as patched:
        patched.setattr(replay, "commit", fails)
        failed = game.run(replays=ASKED)["buy"]
    assert (failed.error, failed.written) == ("rebuild: OSError: no space", 1)
    assert game.payloads("buy")[2:] == [{"type": "buy", "price": 5, "item": "hat"}]
    assert (reported(rebuild(game, now_ms=2**60)), len(game.rows("buy"))) == ((3, 0, 0), 3)


def fails(*_: object) -> None:
    raise OSError("no space")


@BOTH
def test_an_attempt_that_lives_on_is_not_let_in_by_its_rebuild(game: Stream) -> None:
    number_first(game)
    zombie = late(game.execute(attempt=1, execution="e8", replays=ASKED), game.types)
    game.drop(event("buy", price=5))
    game.run()
    before = game.commits("buy")
    result = zombie.run()
    assert "rebuild: ConsumerConflictError" in result.types[0].error
    assert (game.commits("buy"), len(game.rows("buy"))) == (before, 3)
    assert game.types.types("shop")["buy"].schema_version == 2
