"""Tables of types beside the events of the stream's table: a row that is lost, doubled, changed or
of no event is found.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.silver import write
from lakechime_dagster.silver.results import Fault, GroupResult, TypeResult, Verified
from lakechime_dagster.silver.slices import Slices, TypeTables
from lakechime_dagster.silver.verify import GroupVerifier
from lakechime_dagster.tables.events import Contract
from tests.support.streams import Stream, event, stream

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def played(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    game = stream(spark, tmp_path_factory.mktemp("played"))
    game.drop(
        *(event("buy", n=number, item={"name": f"hat {number}"}) for number in range(4)),
        event("sell", n=0),
        b"{garbage",
    )
    game.run()
    game.drop(event("buy", n="four", N=4), event("sell", n=1))
    game.run()
    return game


@pytest.fixture
def game(played: Stream, tmp_path: Path) -> Stream:
    """A copy of its tables beside the same store, of which the tests change nothing."""
    shutil.copytree(played.folder, tmp_path / "game")
    return replace(played, folder=tmp_path / "game")


def found(game: Stream, *, sample: int = 100, names: set[str] | None = None) -> dict[str, Verified]:
    number = game.execute()
    discarded = {name: known.discarded for name, known in game.types.types("shop").items()}
    verifier = GroupVerifier(
        spark=game.spark,
        slices=Slices(game.spark, "game.events", DeltaLog(game.bronze, "game.events"), game.end()),
        tables=TypeTables(job=number.job),
        repository=game.types,
        discarded=discarded,
        sample=sample,
    )
    return {one.type: one for one in verifier.verified(names)}


def examples(one: Verified) -> list[tuple[Fault, str, str]]:
    return [(each.fault, each.source, each.pointer) for each in one.examples]


def source_of(game: Stream, number: int) -> str:
    return next(row["_src"] for row in game.rows("buy") if row["n"] == number)


def test_what_executions_wrote_is_whole_also_when_more_has_come_since(game: Stream) -> None:
    game.drop(event("buy", n=5), event("new", n=0))
    game.ingest()
    reported = found(game)
    assert {
        name: (one.events, one.rows, one.sampled, dict(one.faults), one.unread)
        for name, one in reported.items()
    } == {"buy": (5, 5, 5, {}, ""), "sell": (2, 2, 2, {}, "")}
    assert [*found(game, names={"sell"})] == ["sell"]


def test_a_commit_that_nobody_has_completed_is_looked_at_with_its_own_events(game: Stream) -> None:
    game.drop(event("buy", n=5))
    game.ingest()
    game.execute(execution="e9").run()  # and dies before it completes
    one = found(game)["buy"]
    assert (one.events, one.rows, one.is_whole) == (6, 6, True)


def lose(game: Stream) -> None:
    DeltaTable(game.location("buy")).delete("n = 2")


def double(game: Stream) -> None:
    table = DeltaTable(game.location("buy"))
    write_deltalake(table, table.to_pyarrow_table(filters=[("n", "=", 2)]), mode="append")


def invent(game: Stream) -> None:
    table = DeltaTable(game.location("buy"))
    row = table.to_pyarrow_table(filters=[("n", "=", 2)]).to_pylist()
    write_deltalake(
        table,
        pa.Table.from_pylist(
            [{**row[0], "_src": "a.jsonl@99999"}], schema=table.to_pyarrow_table().schema
        ),
        mode="append",
    )


def swap(game: Stream) -> None:
    DeltaTable(game.location("buy")).update(updates={"_hash": "'0'"}, predicate="n = 2")


@pytest.mark.parametrize(
    ("damage", "fault"),
    [(lose, Fault.LOST), (double, Fault.DOUBLED), (invent, Fault.FOREIGN), (swap, Fault.OTHER)],
)
def test_a_row_that_is_lost_doubled_invented_or_of_another_variation_is_named(
    game: Stream, damage: Callable[[Stream], None], fault: Fault
) -> None:
    source = "a.jsonl@99999" if damage is invent else source_of(game, 2)
    damage(game)
    reported = found(game, sample=0)
    assert (dict(reported["buy"].faults), examples(reported["buy"]), reported["sell"].is_whole) == (
        {fault: 1},
        [(fault, source, "")],
        True,
    )


def test_a_value_that_is_changed_by_hand_is_named_where_its_row_is_looked_into(
    game: Stream,
) -> None:
    source = source_of(game, 2)
    DeltaTable(game.location("buy")).update(updates={"n": "7"}, predicate="n = 2")
    one = found(game)["buy"]
    assert (one.events, one.rows, examples(one)) == (
        5,
        5,
        [(Fault.LACKS, source, "/n"), (Fault.DIFFERS, source, "/n")],
    )
    assert [each.value for each in one.examples] == ["2", "7"]
    assert "7" not in repr(one.examples)
    assert found(game, sample=0)["buy"].is_whole


def test_what_a_contract_discards_is_no_loss_and_a_row_beside_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    game = stream(spark, tmp_path, contract=Contract(kinds="discard_row"))
    game.drop(event("buy", n=1))
    game.run()
    game.drop(event("buy", n="x"), event("buy", n=2))
    game.run()
    one = found(game)["buy"]
    assert (one.events, one.rows, one.discarded, one.is_whole) == (3, 2, 1, True)
    # under which it would have a row, and has none until a replay
    game.group = replace(game.group, contract=Contract())
    one = found(game)["buy"]
    assert (one.events, one.rows, one.discarded, one.is_whole) == (3, 2, 1, True)
    DeltaTable(game.location("buy")).delete("n = 2")
    assert dict(found(game)["buy"].faults) == {Fault.LOST: 1}


def test_rows_of_events_that_the_stream_no_longer_has_are_no_fault(
    spark: SparkSession, tmp_path: Path
) -> None:
    game = stream(spark, tmp_path)
    game.drop(event("sell", n=0), event("sell", n=1))
    game.run()
    newest = (
        game.spark.read.format("delta")
        .load(game.bronze)
        .agg({"_ingested_at": "max"})
        .collect()[0][0]
    )
    game.drop(event("sell", n=2))
    game.run()
    game.spark.sql(
        f"alter table delta.`{game.bronze}` set tblproperties (delta.appendOnly = false)"
    )
    game.spark.sql(f"delete from delta.`{game.bronze}` where _ingested_at <= timestamp'{newest}'")
    end = game.end()
    moved = TypeResult(type="sell", table="shop.sell", start=0, end=int(end.snapshot_id or 0))
    game.complete(GroupResult(types=(moved,)), end, "e9")
    one = found(game)["sell"]
    assert (one.events, one.rows, one.gone, one.is_whole) == (1, 3, 2, True)


def test_an_execution_finds_what_a_few_of_its_rows_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = stream(spark, tmp_path)

    def execute(name: str) -> dict[str, Verified]:
        game.ingest()
        end = game.end()
        result = game.execute(end, execution=name).run()
        game.complete(result, end, name)
        return {one.type: one for one in result.verified}

    game.drop(event("buy", n=1, **{"a.b": [1, "x"]}), event("sell", n=1))
    assert {name: (one.sampled, one.faults, one.unread) for name, one in execute("e1").items()} == {
        "buy": (1, {}, ""),
        "sell": (1, {}, ""),
    }
    rows_of = write.rows_of
    monkeypatch.setattr(
        write, "rows_of", lambda *given: rows_of(*given).withColumn("n", F.lit(None).cast("long"))
    )
    game.drop(event("buy", n=2), event("buy", m=2))
    broken = execute("e2")["buy"]
    assert (broken.sampled, broken.faults, broken.unread) == (2, {Fault.LACKS: 1}, "")
    assert [one.pointer for one in broken.examples] == ["/n"]
