"""The tables that show what is known of types hold each row once, whoever dies between, and are made anew of the store alone."""

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakechime_dagster.capture import projecting as capturing
from lakechime_dagster.dce.store import EventQuery
from lakechime_dagster.errors import LaneConflictError
from lakechime_dagster.lake import JsonLines, Lake, event_group, event_stream
from lakechime_dagster.resources.platform import Platform, open_platform
from lakechime_dagster.resources.reconcile import reconcile
from lakechime_dagster.resources.streams.event_types import event_types
from lakechime_dagster.resources.streams.projecting import Projected, project
from lakechime_dagster.schema.repository import KnownType
from tests.store.test_event_types import learning, prototype

STREAM = event_stream("game", source=JsonLines("in"))
GROUPS = Lake("ev", [STREAM, event_group("shop", STREAM, match="shop.*")]).groups
SCHEMAS, VARIATIONS = STREAM.schemas, STREAM.variations


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> Platform:
    monkeypatch.setenv("LAKECHIME_HOME", str(tmp_path))
    monkeypatch.delenv("LAKECHIME_STORE_URL", raising=False)
    (tmp_path / "dce.sqlite").write_bytes(upgraded_sqlite.read_bytes())
    return open_platform()


def learn(platform: Platform, name: str, group: str = "shop", **fields: Any) -> None:
    """A step of a group finds an event of a type with these fields."""
    known = event_types(platform).types(group).get(name, KnownType(type=name, table=name.replace(".", "__")))
    event_types(platform).learn(group, [learning(known, prototype(**fields))])


def rows(platform: Platform, table: str) -> list[dict[str, Any]]:
    found = pa.table(DeltaTable(platform.location(table)).to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: (row["group"], row["type"], row.get("version", 0), row.get("typed_hash", "")))


def versions(platform: Platform) -> list[tuple[str, str, int]]:
    return [(row["group"], row["type"], row["version"]) for row in rows(platform, SCHEMAS.name)]


def test_a_row_for_each_layout_says_when_by_whom_and_what_it_gained(platform: Platform) -> None:
    learn(platform, "shop.buy", price=3)
    learn(platform, "shop.buy", price="x", more={"a": [1.5]})
    assert project(platform, STREAM, GROUPS) == Projected(layouts=2, variations=2)
    first, second = rows(platform, SCHEMAS.name)
    assert (first["table"], first["version"], first["made_by"], first["gained"]) == ("shop.shop__buy", 1, "lakechime", ["price"])
    assert (second["version"], second["gained"]) == (2, ["more.a[]", "price__v_string"])
    assert "+ price__v_string string" in second["decision"]
    assert [one["name"] for one in json.loads(second["columns"])] == ["price", "more", "price__v_string"]
    assert abs(second["made_at"] - dt.datetime.now(dt.timezone.utc)) < dt.timedelta(hours=1)
    assert not DeltaTable(platform.location(SCHEMAS.name)).protocol().reader_features


def test_a_row_for_each_variation_tells_its_shape_and_no_value(platform: Platform) -> None:
    learn(platform, "shop.buy", card="4111 1111", price=31415)
    project(platform, STREAM, GROUPS)
    (row,) = rows(platform, VARIATIONS.name)
    assert (row["shape"], row["first_src"], row["first_version"]) == ('{"card":"…","price":1}', "a@0", 3)
    text = b"".join(path.read_bytes() for path in Path(platform.location("game.x")).parent.rglob("*") if path.is_file())
    assert b"4111 1111" not in text
    assert b"31415" not in text


def test_what_is_told_is_not_told_again_and_a_step_that_learnt_nothing_writes_nothing(platform: Platform) -> None:
    learn(platform, "shop.buy", price=3)
    assert project(platform, STREAM, GROUPS) == Projected(layouts=1, variations=1)
    assert project(platform, STREAM, GROUPS) == Projected(layouts=0, variations=0)
    assert [platform.log(one.name).version for one in (SCHEMAS, VARIATIONS)] == [0, 0]
    learn(platform, "jump", "game_other", height=1.5)
    assert project(platform, STREAM, GROUPS) == Projected(layouts=1, variations=1)
    assert versions(platform) == [("game_other", "jump", 1), ("shop", "shop.buy", 1)]


def test_what_a_run_that_died_did_not_tell_the_next_one_does_once(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    learn(platform, "shop.buy", price=3)
    calls = []

    def dies(*arguments: Any, **options: Any) -> int:
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        return tell(*arguments, **options)

    tell = capturing.tell
    with monkeypatch.context() as patched:
        patched.setattr(capturing, "tell", dies)
        with pytest.raises(KeyboardInterrupt):
            project(platform, STREAM, GROUPS)  # with the one table written, and the other not
    learn(platform, "shop.sell", n=1)
    assert project(platform, STREAM, GROUPS) == Projected(layouts=1, variations=2)
    assert versions(platform) == [("shop", "shop.buy", 1), ("shop", "shop.sell", 1)]
    assert [row["type"] for row in rows(platform, VARIATIONS.name)] == ["shop.buy", "shop.sell"]


def test_of_two_that_tell_the_same_at_once_one_does(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    learn(platform, "shop.buy", price=3)
    project(platform, STREAM, GROUPS)
    learn(platform, "shop.sell", n=1)

    def overtaken(log: Any, *arguments: Any, **options: Any) -> int:
        monkeypatch.setattr(capturing, "tell", tell)
        held = log.state()
        project(platform, STREAM, GROUPS)
        monkeypatch.setattr(type(log), "state", lambda _: held)
        return tell(log, *arguments, **options)

    tell = capturing.tell
    monkeypatch.setattr(capturing, "tell", overtaken)
    with pytest.raises(LaneConflictError, match="another commit was first"):
        project(platform, STREAM, GROUPS)
    monkeypatch.undo()
    assert versions(platform) == [("shop", "shop.buy", 1), ("shop", "shop.sell", 1)]


def test_the_tables_are_made_anew_of_the_store_alone(platform: Platform) -> None:
    for name in ("shop.buy", "shop.sell"):
        learn(platform, name, n=1)
        project(platform, STREAM, GROUPS)
    before = [rows(platform, one.name) for one in (SCHEMAS, VARIATIONS)]
    DeltaTable(platform.location(SCHEMAS.name)).delete("type = 'shop.buy'")
    assert project(platform, STREAM, GROUPS, anew=True) == Projected(layouts=2, variations=2)
    assert [rows(platform, one.name) for one in (SCHEMAS, VARIATIONS)] == before
    shutil.rmtree(platform.location(SCHEMAS.name))
    assert project(platform, STREAM, GROUPS) == Projected(layouts=2, variations=0)
    assert [rows(platform, one.name) for one in (SCHEMAS, VARIATIONS)] == before


def test_their_commits_are_events_and_other_engines_read_them(platform: Platform) -> None:
    learn(platform, "shop.buy", price=3)
    project(platform, STREAM, GROUPS)
    (event,) = platform.store.fetch(EventQuery(table=SCHEMAS.name))
    assert (event.event.snapshot_id, reconcile(platform, [SCHEMAS, VARIATIONS])) == ("0", ([], []))
    connection = duckdb.connect()
    files = [str(Path(platform.location(SCHEMAS.name)) / path) for path in DeltaTable(platform.location(SCHEMAS.name)).file_uris()]
    assert connection.read_parquet(files).project("type, version").fetchall() == [("shop.buy", 1)]
