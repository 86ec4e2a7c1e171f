"""Loading a lake by the name that the settings give."""

import sys
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.lake.events import owner_of
from lakechime_dagster.lake.load import load_lake


def test_a_lake_is_found_by_module_and_attribute() -> None:
    assert load_lake("tests.e2e.lake:lake").name == "shop"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no.such.package:lake", "names no module no.such.package; is it installed or on PYTHONPATH"),
        ("tests.e2e.lake:pond", "tests.e2e.lake has no Lake of the name pond"),
        ("json:dumps", "json has no Lake of the name dumps"),
    ],
)
def test_what_is_no_lake_is_told_with_its_name(name: str, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        load_lake(name)


GROUPS = """
from lakechime_dagster.lake import Contract, JsonLines, Lake, event_group, event_stream
game = event_stream("game", source=JsonLines("in"))
lake = Lake("play", [
    game,
    event_group("shop", game, match="shop.*", types={"shop.buy": Contract(columns="frezee")}),
    event_group("levels", game, match="level.*", max_types=0),
    event_group("fights", game, match="fight.*"),
    event_group("one", game, match="x.*"),
    event_group("two", game, match="*.x"),
])
"""


def test_a_group_whose_declaration_is_wrong_fails_alone_and_keeps_its_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "groups_lake.py").write_text(GROUPS)
    monkeypatch.syspath_prepend(tmp_path)
    lake = load_lake("groups_lake:lake")
    monkeypatch.delitem(sys.modules, "groups_lake")
    assert {group.name: group.problem.partition(": ")[0] for group in lake.groups} == {
        "shop": "shop, types['shop.buy']", "levels": "levels, max_types", "fights": "", "one": "two, match", "two": "two, match",
        "game_other": "",
    }  # fmt: skip
    assert [owner_of(lake.groups, kind).name for kind in ("shop.buy", "level.up", "other")] == ["shop", "levels", "game_other"]
    with pytest.raises(DeclarationError, match="frezee"):
        exec(GROUPS, {})


WRONG = """
from lakechime_dagster.lake import (
    Contract, JsonLines, Lake, Maintenance, PathRule, SourceTable, event_group, event_stream, personal
)
game, chat = event_stream("game", source=JsonLines("in")), event_stream("chat", source=JsonLines("chats"))
away = event_stream("away", source=JsonLines("away"))
fights, talks = event_group("fights", game, match="fight.*"), event_group("talks", chat, match="talk.*")
{wrong}
lake = Lake("play", [game, {streams} fights, {groups}])
"""


@pytest.mark.parametrize(
    ("wrong", "problems"),
    [
        ('event_group("a-b", game, match="a.*")', {"a_b": "event_group 'a-b', name"}),
        ('event_group(5, game, match="a.*")', {"5": "event_group 5, name"}),
        ('event_group("game", game, match="a.*")', {"game_2": "game, name"}),
        ('event_group("fights", game, match="a.*")', {"fights": "fights, name", "fights_2": "fights, name"}),
        ('event_group("a", "game", match="a.*")', {"a": "a, stream"}),
        ('event_group("a", away, match="a.*")', {"a": "a, stream"}),
        ('event_group("a", game, match="")', {"a": "a, match", "game_other": "game_other, match"}),
        ('event_group("a", game, match=["a.*"])', {"a": "a, match", "game_other": "game_other, match"}),
        ('event_group("a", game, match="a.*", moved={"a.b": "a"})', {"a": "a, moved"}),
        ('event_group("a", game, match="a.*", moved={"a.b": "game"})', {"a": "a, moved"}),
        ('event_group("a", game, match="*.a", moved={"fight.a": "old"})', {"a": "a, moved"}),
        ('event_group("a", game, match="a.*", columns={"/b": "email"})', {"a": "a, columns"}),
        ('event_group("a", game, match="a.*", columns={"/b": personal("E Mail")})', {"a": "a, columns"}),
        ('event_group("a", game, match="a.*", maintenance=Maintenance(budget=0))', {"a": "a, maintenance"}),
        ('event_group("a", game, match="a.*", contract=Contract(paths={"/b": PathRule()}))', {"a": "a, contract"}),
        ('event_group("a-b", None, match=None, max_types=0)', {"a_b": "event_group 'a-b', name", "game_other": "game_other, match"}),
    ],
)  # fmt: skip
def test_each_wrong_value_of_a_group_fails_the_group_and_no_other(
    wrong: str, problems: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong_lake.py").write_text(WRONG.format(wrong=f"wrong = {wrong}", streams="", groups="wrong, wrong.table('a.a')"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wrong_lake", raising=False)
    lake = load_lake("wrong_lake:lake")
    assert {group.name: group.problem.partition(":")[0] for group in lake.groups if group.problem} == problems
    assert build_definitions(lake).resolve_asset_graph().get(dg.AssetKey("fights")).is_executable == ("fights" not in problems)
    assert owner_of([one for one in lake.groups if one.stream.name == "game"], "fight.start").name == "fights"
    with pytest.raises(DeclarationError, match=r", (name|stream|match|moved|columns|category|budget):"):
        exec(WRONG.format(wrong=f"wrong = {wrong}", streams="", groups="wrong"), {})


def test_where_a_groups_stream_is_unknown_what_takes_the_rest_of_any_stream_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two_lake.py").write_text(WRONG.format(wrong='a = event_group("a", 5, match="a.*")', streams="chat,", groups="talks, a"))
    monkeypatch.syspath_prepend(tmp_path)
    assert sorted(one.name for one in load_lake("two_lake:lake").groups if one.problem) == ["a", "chat_other", "game_other"]


def test_personal_paths_of_a_failed_group_stay_personal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = 'a = event_group("a", game, match="a.*", columns={"/b": "email", "/c": personal("phone"), "d": personal("name")})'
    (tmp_path / "personal_lake.py").write_text(WRONG.format(wrong=wrong, streams="", groups="a"))
    monkeypatch.syspath_prepend(tmp_path)
    (failed,) = [one for one in load_lake("personal_lake:lake").groups if one.problem]
    assert {path: tag.category for path, tag in failed.personal.items()} == {"/b": "unknown", "/c": "phone"}


def test_what_is_not_of_a_group_still_stops_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = 'SourceTable("fights.own", columns={"a": personal("A B")})'
    (tmp_path / "table_lake.py").write_text(WRONG.format(wrong="", streams="", groups=table))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeclarationError, match=r"fights\.own, columns"):
        load_lake("table_lake:lake")
