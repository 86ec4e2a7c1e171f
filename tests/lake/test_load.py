"""Loading a lake by the name that the settings give."""

import sys
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.tables.events import owner_of
from lakechime_dagster.tables.load import load_lake


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
from lakechime_dagster import Contract, GroupOptions, JsonLines, Lake, Maintenance, event_group, event_stream
game = event_stream("game", source=JsonLines("in"))
lake = Lake("play", [
    game,
    event_group("shop", game, match="shop.*", types={"shop.buy": Contract(columns="frezee")}),
    event_group("levels", game, match="level.*", contract=Contract(max_types=0)),
    event_group("kept", game, match="kept.*", options=GroupOptions(maintenance=Maintenance(budget=0))),
    event_group("owned", game, match="owned.*", owner="somebody"),
    event_group("fights", game, match="fight.*"),
])
"""


def test_a_group_whose_declaration_is_wrong_fails_alone_and_keeps_its_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "groups_lake.py").write_text(GROUPS)
    monkeypatch.syspath_prepend(tmp_path)
    lake = load_lake("groups_lake:lake")
    monkeypatch.delitem(sys.modules, "groups_lake")
    assert {group.name: group.problem.partition(": ")[0] for group in lake.groups} == {
        "shop": "shop, types['shop.buy']",
        "levels": "levels, contract",
        "kept": "kept, options",
        "owned": "owned, owner",
        "fights": "",
        "game_other": "",
    }
    assert [owner_of(lake.groups, kind).name for kind in ("shop.buy", "level.up", "other")] == ["shop", "levels", "game_other"]
    graph = build_definitions(lake).resolve_asset_graph()
    assert [graph.get(dg.AssetKey(name)).is_executable for name in ("shop", "fights")] == [False, True]
    with pytest.raises(DeclarationError, match="frezee"):
        exec(GROUPS, {})
