"""The types of a group in their tables: each event once with all that it says, whatever comes and
whoever dies.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.formats.delta import DeltaLog, table_files
from lakechime_dagster.silver import slices
from lakechime_dagster.silver.event import JsonEvent, event_of
from lakechime_dagster.silver.metrics import TypeMeasures, measures
from lakechime_dagster.silver.refresh import GroupRefresh
from lakechime_dagster.silver.results import TYPE_CAP, TypeResult, leaves_of, read_back
from lakechime_dagster.silver.schema import TypeCheckpoint
from lakechime_dagster.silver.shape import Rescue
from lakechime_dagster.tables.events import Contract, EventGroup, checked_groups, event_group
from lakechime_dagster.tables.names import folded
from lakechime_dagster.triggers.consumers import CommitMetadata, ConsumerId
from tests.support.streams import BOTH, GAME, Stream, event, late, repository, stream

pytestmark = pytest.mark.spark


@pytest.fixture
def game(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Stream:
    return stream(spark, tmp_path, getattr(request, "param", "delta"))


def sources(game: Stream, kind: str) -> list[str]:
    return [row["_src"] for row in game.rows(kind)]


@BOTH
def test_each_type_gets_a_table_when_its_first_event_comes(game: Stream) -> None:
    game.drop(
        event("buy", item="hat", price=3),
        event("jump", height=1.5),
        event("buy", item="cap", price=4),
    )
    done = game.run()
    assert {name: (one.rows, one.written) for name, one in done.items()} == {
        "buy": (2, 2),
        "jump": (1, 1),
    }
    assert game.payloads("buy") == [
        {"type": "buy", "item": "hat", "price": 3},
        {"type": "buy", "item": "cap", "price": 4},
    ]
    assert game.payloads("jump") == [{"type": "jump", "height": 1.5}]
    game.drop(event("fly", far=True), event("buy", item="bag", price=5))
    assert {name: one.rows for name, one in game.run().items()} == {"buy": 1, "fly": 1, "jump": 0}
    assert len(game.rows("buy")) == 3


def test_what_contracts_keep_out_of_columns_is_counted_by_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    game = stream(
        spark,
        tmp_path,
        types={
            "a": Contract(columns="freeze", kinds="freeze"),
            "b": Contract(columns="rescue", kinds="rescue"),
        },
    )
    game.drop(event("a", n=1), event("b", n=1))
    game.run()
    game.drop(event("a", n="x", m=1), event("b", n="x", m=1, o=1), event("b", n=2**70))
    done = game.run()
    assert {name: one.reasons for name, one in done.items()} == {
        "a": {Rescue.FROZEN: 2},
        "b": {Rescue.MISMATCH: 1, Rescue.UNKNOWN: 2, Rescue.OVERFLOW: 1},
    }
    assert [measured(game, name).conflicts for name in "ab"] == [0, 0]


def measured(game: Stream, kind: str) -> TypeMeasures:
    (found,) = (one for one in measures(game.types).types if one.type == kind)
    return found


def drifting(random: Random, number: int) -> bytes:
    """An event of a few types, with all that ever goes wrong in some of them."""
    kind = random.choice(["buy", "sell", "Jump", "a b", "deep"])
    fields: dict[str, Any] = {"n": number, "x": random.random()}
    numbers = [1, 2**53 + 1, 2**70, 10**50, 1.5, -0.0, 1e300]
    odd = random.choice(
        [None, *numbers, "x", "é", [], {}, [1], ["x", 1, None], {"a": 1}, {"a": {"b": [{"c": 1}]}}]
    )
    fields[random.choice(["v", "V", "w w", "_src", "", "v__v_long", "ids"])] = odd
    if kind == "deep":
        fields["deep"] = json.loads('{"a":' * 40 + "1" + "}" * 40)
    if random.random() < 0.1:
        fields["ids"] = {str(random.randrange(10**6)): 1 for _ in range(3)}
    text = event(kind, **fields).decode()
    twist = random.random()
    if twist < 0.05:
        text = text[:-1] + ',"v":"again","v":{"b":1e400}}'
    elif twist < 0.1:
        text = text[:-1] + ',"half":"\\ud800 x"}'
    return text.encode()


def test_every_leaf_of_every_event_is_in_its_table_or_reported_there(game: Stream) -> None:
    random = Random(5)
    sent: dict[str, bytes] = {}
    for _ in range(3):
        at = (game.folder / "in" / "a.jsonl").stat().st_size if sent else 0
        for number in range(150):
            payload = drifting(random, number) if random.random() > 0.05 else b"{garbage"
            sent[f"a.jsonl@{at}"] = payload
            at += len(payload) + 1
            game.drop(payload)
        assert all(one.is_balanced and not one.error for one in game.run().values())
    accepted = {
        source: found
        for source, payload in sent.items()
        if isinstance(found := event_of(payload), JsonEvent)
    }
    for kind, known in game.types.types("shop").items():
        rows = {row["_src"]: row for row in game.rows(kind)}
        mine = {source: one for source, one in accepted.items() if dict(one.fields)["type"] == kind}
        assert rows.keys() == mine.keys()
        assert len(game.rows(kind)) == len(rows)
        for source, one in mine.items():
            assert read_back(rows[source], rows[source]["_rescued"], known.schema) == leaves_of(
                one.fields
            ), source


@BOTH
def test_an_attempt_tried_again_writes_what_is_missing_and_nothing_twice(game: Stream) -> None:
    game.drop(event("buy", n=1), event("sell", n=1))
    game.ingest()
    end = game.end()
    game.execute(end, attempt=1, execution="e1").run()  # and dies before it completes
    game.drop(event("buy", n=2), event("fly", n=1))
    game.ingest()
    result = game.execute(game.end(), attempt=2, execution="e1").run()
    game.complete(result, game.end(), "e1")
    assert [len(game.rows(kind)) for kind in ("buy", "sell", "fly")] == [2, 1, 1]
    assert game.run()["buy"].rows == 0
    assert [len(game.rows(kind)) for kind in ("buy", "sell", "fly")] == [2, 1, 1]


@BOTH
def test_an_attempt_that_lives_on_after_its_execution_is_let_into_no_table(game: Stream) -> None:
    game.drop(event("buy", n=1))
    game.ingest()
    refresh = game.execute(game.end(), attempt=1, execution="e0")
    game.types.register(refresh.job.groups, ["buy"])
    zombie = late(refresh, game.types)
    game.drop(event("buy", n=2))
    game.run()
    game.drop(event("buy", n=3))
    game.run()
    zombie.run()
    assert len(sources(game, "buy")) == len({*sources(game, "buy")}) == 3


def overtaken(refresh: GroupRefresh, by: Callable[[], object], where: str) -> GroupRefresh:
    """An attempt of whose Delta logs one, when it is asked to take a folder, has another come first:
    before it looks at its table, or behind.
    """
    others = [by]

    class Overtaken(DeltaLog):
        def add_folder(self, folder: str, commit_metadata: CommitMetadata) -> bool:
            if where == "before":
                self._let()
            is_adding.append(True)
            try:
                return super().add_folder(folder, commit_metadata)
            finally:
                is_adding.clear()

        def _open(self, version: int | None = None) -> DeltaTable:
            state = super()._open(version)
            if is_adding and where == "behind":
                self._let()
            return state

        def _let(self) -> None:
            if others:
                others.pop()()

    def log_of(table: str) -> DeltaLog:
        log = refresh.job.log_of(table)
        assert isinstance(log, DeltaLog)
        return Overtaken(log.location, table)

    is_adding = list[bool]()
    return replace(refresh, job=replace(refresh.job, log_of=log_of))


@pytest.mark.parametrize("where", ["before", "behind"])
def test_of_two_attempts_that_append_at_the_same_time_one_is_let_in(
    game: Stream, where: str
) -> None:
    game.drop(event("buy", n=1))
    game.run()
    game.drop(event("buy", n=2), event("buy", n=3))
    game.ingest()
    end = game.end()
    # which any thread may ask
    other = late(game.execute(end, attempt=2, execution="e2"), game.types)
    one = overtaken(game.execute(end, attempt=1, execution="e2"), other.run, where)
    result = one.run()
    game.complete(result, end, "e2")
    (done,) = result.types
    assert (
        done.rows,
        done.written,
        done.error,
        [commit.commit_metadata.attempt for commit in done.commits],
    ) == (2, 2, "", [2])
    assert [row["n"] for row in game.rows("buy")] == [1, 2, 3]
    # which a vacuum removes
    assert len(table_files(DeltaLog(game.location("buy"), "buy")).orphans) == (where == "behind")
    assert game.run()["buy"].rows == 0


def test_rows_of_known_columns_report_the_same_bounds_as_those_that_made_the_table(
    game: Stream,
) -> None:
    game.drop(event("buy", n=1, price=1.5, item={"name": "hat"}))
    game.run()
    game.drop(event("buy", n=2, price=2.5, item={"name": "cap"}), event("buy", n=3))
    game.run()
    table = DeltaTable(game.location("buy"))
    assert [one["operation"] for one in table.history()] == ["WRITE", "WRITE"]
    files = sorted(
        pa.table(table.get_add_actions(flatten=True)).to_pylist(),
        key=lambda one: one["num_records"],
    )
    reported = [
        {name for name, value in one.items() if value is not None and name.startswith("m")}
        for one in files
    ]
    assert reported[0] == reported[1]
    assert (
        files[1]["min.n"],
        files[1]["max.n"],
        files[1]["max.item.name"],
        files[1]["null_count.price"],
    ) == (2, 3, "cap", 1)
    found = game.spark.read.format("delta").load(game.location("buy"))
    assert [
        row.n for row in found.where("item.name = 'cap' and _ingested_at > '2020-01-01'").collect()
    ] == [2]


@BOTH
def test_the_tables_report_where_to_go_on_when_the_store_is_lost(game: Stream) -> None:
    game.drop(event("buy", n=1), event("sell", n=1))
    game.run()
    lost = replace(game, types=repository(), start=replace(game.start, uid=None, version=-1))
    lost.drop(event("buy", n=2))
    done = lost.run()
    assert (len(lost.rows("buy")), len(lost.rows("sell"))) == (2, 1)
    # with those of its last commit, of which the store learns again
    assert (done["buy"].rows, done["buy"].written) == (2, 2)


@pytest.mark.tier2
def test_a_type_that_cannot_be_written_hinders_no_other_and_loses_nothing(game: Stream) -> None:
    location = Path(game.location("buy"))
    location.parent.mkdir(parents=True)
    location.write_text("in the way")
    game.drop(event("buy", n=1), event("sell", n=1))
    done = game.run()
    assert (bool(done["buy"].error), done["buy"].written, done["sell"].written) == (True, 0, 1)
    assert [measured(game, kind).behind for kind in ("buy", "sell")] == [1, 0]
    game.drop(event("buy", n=2), event("sell", n=2))
    # the other rests for a while
    assert (game.run()["sell"].written, len(game.rows("sell"))) == (1, 2)
    assert measured(game, "buy").behind == 1  # as it was counted when it was tried
    location.unlink()
    game.drop(event("sell", n=3))
    done = game.run(now_ms=10**15)
    assert (done["buy"].rows, len(game.rows("buy")), len(game.rows("sell"))) == (2, 2, 3)
    assert measured(game, "buy").behind == 0


def test_types_beyond_the_cap_wait_and_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    game = stream(spark, tmp_path, contract=Contract(max_types=1))
    game.drop(event("a", n=1), event("b", n=1))
    done = game.run()
    assert (done["a"].written, done["b"].pending, done["b"].waits) == (1, 1, TYPE_CAP)
    game.drop(event("b", n=2))
    assert game.run()["b"].pending == measured(game, "b").behind == 2
    game.group = replace(game.group, contract=Contract(max_types=2))
    game.drop(event("a", n=2), event("c", n=1))
    done = game.run()
    assert (done["b"].written, done["c"].waits, len(game.rows("a")), len(game.rows("b"))) == (
        2,
        TYPE_CAP,
        2,
        2,
    )


def test_values_are_kept_whatever_spark_itself_makes_of_their_names_and_lengths(
    game: Stream,
) -> None:
    long = "x" * 20_000_001  # Spark's reader of JSON refuses such a text by default
    game.drop(
        event("i", kapi=1, kapı=2, İ=3, i=4, maße=5, masse=6, σ=7, ς=8),
        event("mine", _corrupt_record="mine", a=1),
        event("number", _corrupt_record=1, a=1),
        event("nul", **{"\0": "mine", "\0\0": 1}),
        event("long", text=long),
        b'{"type":"long","a":1,"a":2,"text":"%s"}' % long.encode(),
    )
    assert {one.error for one in game.run().values()} == {""}
    (kept,) = game.rows("i")
    rescued = {one["p"][1:]: one["v"] for one in json.loads(kept["_rescued"])}
    columns = {name: value for name, value in kept.items() if not name.startswith("_")}
    assert rescued | columns == {
        "type": "i",
        "kapi": 1,
        "kapı": 2,
        "İ": 3,
        "i": 4,
        "maße": 5,
        "masse": 6,
        "σ": 7,
        "ς": 8,
    }
    assert len(rescued) == 3
    assert game.payloads("mine") == [{"type": "mine", "_x5f_corrupt_record": "mine", "a": 1}]
    assert game.payloads("number") == [{"type": "number", "_x5f_corrupt_record": 1, "a": 1}]
    assert game.payloads("nul") == [{"type": "nul", "_x0_": "mine", "_x0__x0_": 1}]
    assert [row.get("text") == long for row in game.payloads("long")] == [True, True]


def test_names_fold_as_java_compares_them(spark: SparkSession) -> None:
    upper = "int(java_method('java.lang.Character', 'toUpperCase', int(id)))"
    lower = f"int(java_method('java.lang.Character', 'toLowerCase', {upper}))"
    rows = (
        spark.range(0x110000)
        .where(f"id not between {0xD800} and {0xDFFF}")
        .selectExpr("id", f"{lower} as other")
        .where("id != other")
    )
    assert [
        chr(row["id"])
        for row in rows.collect()
        if folded(chr(row["id"])) != folded(chr(row["other"]))
    ] == []


def test_odd_and_many_events_of_one_execution_bring_their_columns(
    game: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "MAX_LOOKED", 2)
    monkeypatch.setattr(slices, "MAX_COUNTED", 4)
    game.drop(
        b'{"type":"odd","a":1,"a":2,"text":"\\ud800","b":[]}',
        b'{"type":"odd","\\ud800":1,"c":[12,55.5],"d":{}}',
        *(event("many", title=f"p{number % 2}", **{f"f{number}": number}) for number in range(8)),
    )
    done = game.run()
    assert {name: (one.error, one.rescued) for name, one in done.items()} == {
        "odd": ("", 2),
        "many": ("", 0),
    }
    assert game.payloads("odd") == [{"type": "odd", "a": 2}, {"type": "odd", "c": [12.0, 55.5]}]
    reasons = [
        [(one["p"], one["r"]) for one in json.loads(row["_rescued"])] for row in game.rows("odd")
    ]
    assert reasons == [[("/a", "duplicate"), ("/text", "inexact")], [("/\ud800", "inexact")]]
    assert sorted(game.payloads("many")[5].items()) == [
        ("f5", 5),
        ("title", "p1"),
        ("type", "many"),
    ]
    assert game.types.types("shop")["many"].schema.leaves == 10
    game.drop(event("odd", text="x"), event("odd", c=[1, 2]))
    assert {one.rescued for one in game.run().values()} == {0}
    assert game.payloads("odd")[2:] == [
        {"type": "odd", "text": "x"},
        {"type": "odd", "c": [1.0, 2.0]},
    ]


SHOP = event_group("shop", GAME)
VIP = event_group("vip", GAME, match="buy")


def other(
    game: Stream, group: EventGroup, *groups: EventGroup, start: TypeCheckpoint | None = None
) -> Stream:
    """Another group of the stream, which is declared with these groups from now on."""
    declared = checked_groups(GAME, [group, *groups])
    game.groups = declared
    return replace(
        game, group=group, groups=declared, start=start or TypeCheckpoint(), executions=100
    )


def execute(one: Stream) -> dict[str, TypeResult]:
    """An execution of a group up to where the stream's table stands."""
    one.executions += 1
    end, execution = one.end(), f"{one.group.name}{one.executions}"
    result = one.execute(end, execution=execution).run()
    one.complete(result, end, execution)
    return {each.type: each for each in result.types}


def numbers(game: Stream, kind: str = "buy") -> list[int]:
    return [row["n"] for row in game.rows(kind)]


def test_a_type_that_moved_goes_on_in_its_table(game: Stream) -> None:
    game.drop(event("buy", n=1), event("sell", n=1))
    game.run()
    game.drop(event("buy", n=2), event("sell", n=2))
    game.ingest()
    vip = other(game, VIP, SHOP)
    done = execute(vip)
    assert {name: (one.rows, one.written, one.table) for name, one in done.items()} == {
        "buy": (1, 1, "shop.buy")
    }
    assert {name: one.rows for name, one in execute(game).items()} == {"sell": 1}
    assert (numbers(game), numbers(game, "sell"), (game.folder / "vip").exists()) == (
        [1, 2],
        [1, 2],
        False,
    )
    log = DeltaLog(game.location("buy"), "shop.buy")
    last = log.last_committed(ConsumerId("test", "shop", "buy"))
    assert last is not None
    assert (last.commit_metadata.number, done["buy"].commits) == (2, (last,))


def test_a_group_that_is_renamed_goes_on_in_all_tables(game: Stream) -> None:
    game.drop(event("buy", n=1), event("sell", n=1))
    game.run()
    game.drop(event("buy", n=2), event("sell", n=2), event("gift", n=2))
    game.ingest()
    kiosk = other(game, event_group("kiosk", GAME), start=game.start)
    assert {name: one.written for name, one in execute(kiosk).items()} == {
        "buy": 1,
        "sell": 1,
        "gift": 1,
    }
    assert [numbers(kiosk, name) for name in ("buy", "sell", "gift")] == [[1, 2], [1, 2], [2]]
    assert sorted(path.name for path in (game.folder / "shop").iterdir()) == ["buy", "sell"]
    assert [path.name for path in (game.folder / "kiosk").iterdir()] == ["gift"]


def test_an_execution_of_the_former_group_that_is_under_way_neither_loses_nor_doubles_a_row(
    game: Stream,
) -> None:
    game.drop(event("buy", n=1))
    game.run()
    game.drop(event("buy", n=2))
    game.ingest()
    end = game.end()
    late, later = game.execute(end, execution="late"), game.execute(end, execution="later")
    found = late.run()  # commits, and has not completed
    vip = other(game, VIP, SHOP, start=game.start)
    game.drop(event("buy", n=3))
    game.ingest()
    assert execute(vip)["buy"].rows == 2  # that of the other group, and its own
    game.complete(found, end, "late")
    assert numbers(game) == [1, 2, 3]
    assert (vip.types.types("vip")["buy"].checkpoint.commits, vip.types.types("shop")) == (3, {})
    later.run()
    assert numbers(game) == [1, 2, 3]
    game.drop(event("buy", n=4))
    game.ingest()
    assert (execute(vip)["buy"].written, numbers(game)) == (1, [1, 2, 3, 4])
