"""A lake as a whole: order, loading, names for other engines, accounts."""

import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.events import owner_of
from lakechime_dagster.tables.lake import Lake, find_cycle, topological
from lakechime_dagster.tables.load import load_lake
from lakechime_dagster.tables.names import Account
from lakechime_dagster.tables.options import Maintenance, Storage
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from tests.tables.tables import REJOIN, flights, joined, make_table, weather

SILVER = make_table(
    compute=joined, keys=["flight"], reads={"flights": REJOIN, "weather": weather.snapshot()}
)


GOLD = sql_table(
    "gold.routes", sql="SELECT * FROM silver.flights JOIN bronze.weather USING (origin)"
)


def test_tables_come_in_an_order_in_which_inputs_are_first() -> None:
    lake = Lake("flights", [GOLD, SILVER, weather, flights])
    names = [table.name for table in lake.tables]
    assert names.index("silver.flights") < names.index("gold.routes")
    assert names.index("bronze.weather") < names.index("silver.flights")
    assert lake.targets == (SILVER, GOLD)
    assert set(lake.sources) == {flights, weather}


GRAPHS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=4), max_size=8
)


@given(GRAPHS)
def test_a_graph_has_either_a_cycle_or_an_order(inputs: dict[str, list[str]]) -> None:
    cycle = find_cycle(inputs)
    if cycle is None:
        order = topological(inputs)
        assert sorted(order) == sorted(inputs)
        assert all(
            order.index(name) < order.index(table)
            for table in order
            for name in inputs[table]
            if name in inputs
        )
    else:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        assert all(following in inputs[table] for table, following in itertools.pairwise(cycle))


def test_alarms_are_urls_or_variables_and_are_not_shown() -> None:
    lake = Lake("shop", [SourceTable("bronze.orders")], alarms=["$OPS", "mailto://ada:secret@mail"])
    assert (lake.alarms, "secret" in repr(lake)) == (("$OPS", "mailto://ada:secret@mail"), False)
    with pytest.raises(
        DeclarationError, match=r"Lake shop, alarms\[1\]: is neither a URL of apprise"
    ) as refused:
        Lake("shop", [], alarms=["$OPS", "my secret"])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "no.such.package:lake",
            "names no module no.such.package; is it installed or on PYTHONPATH",
        ),
        ("tests.e2e.lake:pond", "tests.e2e.lake has no Lake of the name pond"),
        ("json:dumps", "json has no Lake of the name dumps"),
    ],
)
def test_what_is_no_lake_is_reported_with_its_name(name: str, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        load_lake(name)


GROUPS = """
from lakechime_dagster import Contract, JsonLines, Lake, Maintenance, Storage, event_group, event_stream
game = event_stream("game", source=JsonLines("in"))
lake = Lake("play", [
    game,
    event_group("shop", game, match="shop.*", types={"shop.buy": Contract(columns="frezee")}),
    event_group("levels", game, match="level.*", contract=Contract(max_types=0)),
    event_group("kept", game, match="kept.*", storage=Storage(maintenance=Maintenance(budget=0))),
    event_group("owned", game, match="owned.*", owner="somebody"),
    event_group("fights", game, match="fight.*"),
])
"""


def test_a_group_whose_declaration_is_wrong_fails_alone_and_keeps_its_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "groups_lake.py").write_text(GROUPS)
    monkeypatch.syspath_prepend(tmp_path)
    lake = load_lake("groups_lake:lake")
    monkeypatch.delitem(sys.modules, "groups_lake")
    assert {group.name: group.problem.partition(": ")[0] for group in lake.groups} == {
        "shop": "shop, types['shop.buy']",
        "levels": "levels, contract",
        "kept": "kept, maintenance",
        "owned": "owned, owner",
        "fights": "",
        "game_other": "",
    }
    assert [owner_of(lake.groups, kind).name for kind in ("shop.buy", "level.up", "other")] == [
        "shop",
        "levels",
        "game_other",
    ]
    graph = build_definitions(lake).resolve_asset_graph()
    assert [graph.get(dg.AssetKey(name)).is_executable for name in ("shop", "fights")] == [
        False,
        True,
    ]
    with pytest.raises(DeclarationError, match="frezee"):
        exec(GROUPS, {})


ORDERS = SourceTable("shop.orders")


def test_a_lake_says_what_other_engines_call_its_tables() -> None:
    lake = Lake("shop", [ORDERS], aliases={"hive.*": "*", "pg.public.orders": "shop.orders"})
    assert lake.aliases["pg.public.orders"] == "shop.orders"
    assert Lake("shop", [ORDERS]).aliases == {}


@pytest.mark.parametrize(
    ("said", "meant", "problem"),
    [
        ("hive.*", "shop.orders", "end both with"),
        ("hive.orders", "*", "end both with"),
        ("hive.orders", "shop.nothing", "which is not in the lake"),
        ("", "shop.orders", "must be a name"),
    ],
)
def test_an_alias_that_means_nothing_is_refused(said: str, meant: str, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        Lake("shop", [ORDERS], aliases={said: meant})


def hive_table(refresh: str, **storage: Any) -> LakeTable:
    return sql_table(
        "gold.orders",
        sql="SELECT id FROM shop.orders",
        keys=["id"],
        refresh=refresh,
        storage=Storage(format="hive", **storage),
    )


def test_a_hive_table_that_whole_partitions_cannot_keep_up_to_date_is_refused() -> None:
    computed = hive_table("rows")
    with pytest.raises(DeclarationError, match="refresh: is rows, and of a Hive table only whole"):
        Lake("shop", [ORDERS, computed])
    with pytest.raises(DeclarationError, match="maintenance: has no effect on a table of Hive"):
        hive_table("full", maintenance=Maintenance())


WRITER = Account(
    "shop-writer", {"fs.s3a.access.key": "$SHOP_KEY", "fs.s3a.endpoint": "https://store"}
)


def test_a_session_gets_the_settings_and_a_file_system_of_its_own() -> None:
    found = WRITER.confs("s3a://lake/shop/orders", {"SHOP_KEY": "secret"})
    assert found == {
        "fs.s3a.impl.disable.cache": "true",
        "fs.s3a.access.key": "secret",
        "fs.s3a.endpoint": "https://store",
    }
    assert "fs.s3a" not in repr(WRITER)


@pytest.mark.parametrize(
    "location", ["/lake/orders", "lake/orders", "file:///lake/orders", "hdfs://names/lake/orders"]
)
def test_an_account_that_has_no_effect_is_refused(location: str) -> None:
    settings = {"fs.permissions.umask-mode": "077", **WRITER.settings}
    writer = Account("shop-writer", settings)
    with pytest.raises(
        DeclarationError,
        match=r"a\.b, write_as: fs\.s3a\.access\.key of Account\('shop-writer'\) has no effect at",
    ):
        sql_table(
            "a.b", sql="SELECT n FROM a.c", storage=Storage(write_as=writer, location=location)
        )
    with pytest.raises(DeclarationError, match="has no effect"):
        writer.confs(location, {"SHOP_KEY": "secret"})
    assert (
        Account("shop-writer", {"fs.permissions.umask-mode": "077"}).confs(location, {})[
            "fs.permissions.umask-mode"
        ]
        == "077"
    )


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Account(" ", {"fs.a": "b"}), "Account, name: ' ' is no name, such as shop-writer"),
    (
        lambda: Account("a", {}),
        "Account, settings: is no map of settings, such as {'fs.s3a.access.key': '$SHOP_KEY'}",
    ),
    (
        lambda: Account("a", {"spark.x": "b"}),
        "Account, settings: 'spark.x' is none of a file system's, which begin with fs.",
    ),
    (
        lambda: Account("a", {"fs.x": 5}),  # pyright: ignore[reportArgumentType]
        "Account, settings: the value of fs.x is no text, or $NAME of a variable",
    ),
    (
        lambda: sql_table("a.b", sql="SELECT n FROM a.c", storage=Storage(write_as="x")),  # pyright: ignore[reportArgumentType]
        "a.b, write_as: 'x' is no Account(name, {'fs.…': …})",
    ),
]


@pytest.mark.parametrize(("declare", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_cannot_work_is_refused(declare: Callable[[], object], said: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(said)):
        declare()
