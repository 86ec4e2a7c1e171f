"""Event streams, groups of their types, contracts, and the names of their tables and columns."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError, failures_kept
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.events import (
    MAX_COLUMN,
    MAX_TABLE,
    VARIANT,
    Contract,
    EventGroup,
    EventStream,
    GroupOptions,
    checked_groups,
    column_of,
    event_group,
    event_stream,
    field_of,
    is_matched,
    owner_of,
    specificity,
    table_of,
)
from lakechime_dagster.tables.lake import Lake, foreign_sources, named_types
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.options import Asset, Storage
from lakechime_dagster.tables.sources import JsonLines, TableRows
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.schedule import every
from lakechime_dagster.triggers.triggers import SnapshotTrigger, TableName


def stream(name: str = "game", **declared: Any) -> EventStream:
    return event_stream(name, **{"source": JsonLines("in"), **declared})


def of_rows(table: str = "bronze.raw") -> EventStream:
    return stream(source=TableRows(table))


def replaced() -> LakeTable:
    """A table of raw events that is rewritten as a whole."""
    return sql_table(
        "bronze.raw", sql="SELECT payload FROM a.raw", refresh="full", trigger=SnapshotTrigger()
    )


GAME = stream()


OF_ROWS = of_rows()


def group(name: str = "shop", of: EventStream = GAME, **declared: Any) -> EventGroup:
    return event_group(name, of, **{"match": f"{name}.*", **declared})


def owners(groups: list[EventGroup], *types: str) -> list[str]:
    """The groups that have some types."""
    several = checked_groups(GAME, groups)
    return [owner_of(several, name).name for name in types]


def test_a_stream_brings_a_table_of_its_events_that_its_source_wakes() -> None:
    game = stream(
        type_field="$.header.type",
        producer_field="$.title",
        source=JsonLines("in", every=every(minutes=5)),
        storage=Storage(location="/lake/game"),
        asset=Asset(owner="team:game"),
    )
    table = game.table
    assert (table.name, table.location, table.owner, table.group) == (
        "game.events",
        "/lake/game",
        "team:game",
        "game",
    )
    assert (table.type_field, table.producer_field) == (("header", "type"), ("title",))
    assert (table.inputs, table.trigger.tables, str(table.trigger.every)) == (
        (),
        (),
        "every 5 minutes",
    )


def test_a_type_is_of_the_group_that_says_most_of_its_name() -> None:
    several = [
        group("all", match="*"),
        group("shop"),
        group("buys", match="shop.buy*"),
        group("buy", match="shop.buy"),
    ]
    assert owners(several, "jump", "shop.sell", "shop.buyer", "shop.buy") == [
        "all",
        "shop",
        "buys",
        "buy",
    ]
    assert owners(several[::-1], "jump", "shop.sell", "shop.buyer", "shop.buy") == [
        "all",
        "shop",
        "buys",
        "buy",
    ]


def test_patterns_of_many_stars_are_compared_soon() -> None:
    assert (
        len(
            Lake(
                "ev",
                [
                    GAME,
                    group("first", match="*a" * 20 + "b"),
                    group("second", match="*a" * 20 + "c"),
                ],
            ).groups
        )
        == 3
    )


PATTERNS = st.text("ab*", min_size=1, max_size=5)


@given(patterns=st.lists(PATTERNS, min_size=1, max_size=4), name=st.text("ab", max_size=6))
def test_what_is_taken_leaves_no_type_without_one_owner(patterns: list[str], name: str) -> None:
    try:
        several = checked_groups(
            GAME, [group(f"g{at}", match=pattern) for at, pattern in enumerate(patterns)]
        )
    except DeclarationError:
        return
    matching = sorted(
        (specificity(one.match) for one in several if is_matched(one.match, name)), reverse=True
    )
    assert matching.count(matching[0]) == 1
    assert specificity(owner_of(several, name).match) == matching[0]


def test_the_table_of_a_type_is_a_source_for_others() -> None:
    shop = group(owner="team:shop")
    table = shop.table("shop.buy")
    assert (table.name, table.owner, table.group) == ("shop.shop__buy", "team:shop", "shop")
    total = sql_table("gold.total", sql="SELECT count(*) AS n FROM shop.shop__buy", refresh="full")
    lake = Lake("ev", [GAME, shop, table, total])
    assert [one.name for one in lake.readers("shop.shop__buy")] == ["gold.total"]
    build_definitions(lake)


STREAMS = [
    (
        lambda: stream("my game"),
        "event_stream 'my game', name: is no single word of letters, digits and _, such as 'game'",
    ),
    (
        lambda: stream(source="in"),
        (
            "game, source: 'in' is none of JsonLines(folder), KafkaTopic(topic, bootstrap=…) and "
            "TableRows(table, payload=…)"
        ),
    ),
    (
        lambda: TableRows(TableName("bronze.raw", cluster="eu")),
        "TableRows, table: names bronze.raw of the cluster 'eu'; all tables of a lake",
    ),
    (
        lambda: stream(type_field="type"),
        "game, type_field: 'type' leads to no field; write such as '$.type' or '$.header.type'",
    ),
    (
        lambda: stream(producer_field="$.items[0]"),
        "game, producer_field: '$.items[0]' leads to no field",
    ),
    (
        lambda: stream(storage=Storage(partitioned_by={"day": "date"})),
        "game.events, partitioned_by: PartitionLevels",
    ),
]


GROUPS = [
    (
        lambda: group("my shop"),
        (
            "event_group 'my shop', name: is no single word of at most 40 letters, digits and _, such "
            "as 'shop'"
        ),
    ),
    (
        lambda: group("game"),
        "game, name: is the stream's own name, whose table is game.events; choose another",
    ),
    (lambda: group(match=["a", "b"]), "shop, match: ['a', 'b'] is no pattern of types"),
    (
        lambda: group(options=GroupOptions(spark="second:7077")),
        "GroupOptions, spark: 'second:7077' is no driver; use warm, local, or a",
    ),
    (
        lambda: group(storage=Storage(format="hive")),
        "shop, format: is that of computed tables; name delta or iceberg",
    ),
    (
        lambda: group(storage=Storage(format="iceberg", maintenance=Maintenance())),
        (
            "shop, maintenance: has no effect on Iceberg tables; leave it out, and use Iceberg's "
            "procedures"
        ),
    ),
    (
        lambda: group(storage=Storage(partitioned_by={"day": "date"})),
        "shop, partitioned_by: PartitionLevels",
    ),
    (
        lambda: Contract(pins={"price": "double"}),
        "Contract, pins: 'price' is no path; write such as '/price' or '/items[]/price'",
    ),
    (
        lambda: Contract(pins={"/price": "number"}),
        (
            "Contract, pins: 'number' of /price is none of bool, long, bigint, double, string, json, "
            "ignore"
        ),
    ),
    (
        lambda: group(types={"jump": Contract()}),
        "shop, types: 'jump' is not matched by 'shop.*'; it is of another group",
    ),
]


def lake(*declared: Any) -> Callable[[], object]:
    return lambda: Lake("ev", declared)


LAKES = [
    (lake(group()), "shop, stream: game is not in the lake; add it to the list"),
    (lake(stream("chat"), group()), "shop, stream: game is not in the lake; add it to the list"),
    (
        lake(GAME, group(), group(match="buy.*")),
        "shop, name: is the name of two groups; rename one of them",
    ),
    (
        lake(GAME, group(), group("Shop")),
        "Shop, name: is the name of two groups; rename one of them",
    ),
    (
        lake(GAME, stream("chat"), group("said", match="game*"), group("said", of=stream("chat"))),
        "said, name: is the name of two groups",
    ),
    (
        lake(GAME, stream(type_field="$.kind")),
        "game.events, name: is written by two declarations; keep one",
    ),
    (
        lake(GAME, group(), SourceTable("shop")),
        "shop, name: is the name of a group of types too; rename one of them",
    ),
    (
        lake(GAME, group(), SourceTable("Shop")),
        "Shop, name: is the name of a group of types too; rename one of them",
    ),
    (
        lake(GAME, group(storage=Storage(format="iceberg")), SourceTable("shop.shop__buy")),
        "shop.shop__buy, format: is that of shop, which writes it: iceberg",
    ),
    (
        lake(GAME, SourceTable("game_other")),
        "game_other, name: is the name of a group of types too; rename one of them",
    ),
    (
        lake(
            GAME,
            group(),
            sql_table("shop.total", sql="SELECT count(*) AS n FROM game.events", refresh="full"),
        ),
        (
            "shop.total, name: would lie among the tables of group shop, which has one for each type; "
            "rename one of them"
        ),
    ),
    (
        lake(GAME, stream("chat"), group("chat")),
        (
            "chat.events, name: would lie among the tables of group chat, which has one for each type; "
            "rename one of them"
        ),
    ),
    (
        lake(OF_ROWS),
        (
            "game.events, source: reads bronze.raw, which is not in the lake; declare it as a "
            "SourceTable"
        ),
    ),
    (
        lake(OF_ROWS, SourceTable("bronze.raw", storage=Storage(format="iceberg"))),
        "game.events, source: bronze.raw is of ICEBERG; a stream reads Delta",
    ),
    (
        lake(OF_ROWS, replaced(), SourceTable("a.raw")),
        "game.events, source: rows of bronze.raw are replaced; a stream takes",
    ),
    (
        lake(
            of_rows("shop.shop__buy"),
            group(of=of_rows("shop.shop__buy")),
            SourceTable("shop.shop__buy"),
        ),
        (
            "game.events, source: shop.shop__buy is written from the stream itself; it would wake "
            "itself for ever"
        ),
    ),
    (
        lake(GAME, stream("again", source=TableRows(GAME.table))),
        (
            "again.events, source: game.events is a stream's own table, in which reprocessing adds "
            "payloads again; read in/*.jsonl instead"
        ),
    ),
    (lake(GAME.table), "Lake ev, tables: EventTable("),
]


@pytest.mark.parametrize(
    ("declare", "answer"),
    [*STREAMS, *GROUPS, *LAKES],
    ids=[answer for _, answer in (*STREAMS, *GROUPS, *LAKES)],
)
def test_a_wrong_declaration_says_where_it_is_and_what_to_do(
    declare: Callable[[], object], answer: str
) -> None:
    with pytest.raises(DeclarationError) as raised:
        declare()
    assert str(raised.value).startswith(answer)


def test_a_table_in_the_folder_of_a_group_fails_that_group_alone_when_a_location_is_loaded() -> (
    None
):
    total = sql_table("shop.total", sql="SELECT count(*) AS n FROM game.events", refresh="full")
    with failures_kept():
        loaded = Lake("ev", [GAME, group(), group("jump", match="jump.*"), total])
    assert {one.name: one.problem.partition(";")[0] for one in loaded.groups if one.problem} == {
        "shop": (
            "shop.total, name: would lie among the tables of group shop, which has one for each "
            "type"
        )
    }


PLAIN = event_stream("game", source=JsonLines("in"))


def group_with(contract: Contract, **types: Contract) -> EventGroup:
    return event_group("shop", PLAIN, contract=contract, types=types)


STREAM = event_stream("game", source=JsonLines("in"))


def test_types_are_named_once_by_a_contract_or_in_the_list_of_tables() -> None:
    shop = event_group(
        "shop",
        STREAM,
        match="shop.*",
        types={"shop.buy": Contract(columns="freeze"), "shop.sell": Contract()},
    )
    buy = SourceTable("shop.shop__buy", asset=Asset(owner="team:other"))
    lake = Lake("ev", [STREAM, shop, buy, shop.table("shop.gift"), SourceTable("bronze.orders")])
    found = {table.name: table.owner for table in named_types(lake, shop)}
    assert found == {
        "shop.shop__buy": "team:other",
        "shop.shop__gift": None,
        "shop.shop__sell": None,
    }
    assert [table.name for table in foreign_sources(lake)] == ["bronze.orders"]
    other = next(group for group in lake.groups if group.name == "game_other")
    assert named_types(lake, other) == ()


TYPES = st.text(alphabet="ab_.-A0 é", max_size=8) | st.text()


FIELDS = st.text(alphabet="ax_v 0é[/", max_size=10) | st.text(max_size=20)


@given(TYPES, TYPES)
@example("shop.buy", "shop__buy")
@example("a_.b", "a._b")
@example("A", "a")
@example("a" * 100, "a" * 101)
def test_no_two_types_share_a_table(one: str, other: str) -> None:
    assert (table_of(one) == table_of(other)) == (one == other)


@given(TYPES)
def test_a_table_has_a_name_that_every_catalog_takes(type_name: str) -> None:
    assert re.fullmatch(r"[a-z0-9_]+", table_of(type_name))
    assert len(table_of(type_name)) <= MAX_TABLE


def test_a_name_that_ends_as_one_with_a_digest_gets_its_own() -> None:
    taken = table_of("Buy")
    assert table_of(taken) != taken
    assert table_of(taken.replace("__", ".")) != taken


@given(FIELDS)
def test_a_field_is_read_back_from_its_column(field: str) -> None:
    if VARIANT not in column_of(field) and len(column_of(field)) < MAX_COLUMN:
        assert field_of(column_of(field)) == field


@given(FIELDS, FIELDS, st.sampled_from(["long", "string"]))
def test_no_field_has_the_column_of_another_or_of_a_variant(
    one: str, other: str, kind: str
) -> None:
    assert (column_of(one) == column_of(other)) == (one == other)
    assert column_of(one) != f"{column_of(other)}{VARIANT}{kind}"


@given(FIELDS)
def test_a_column_needs_no_mapping_and_is_no_technical_one(field: str) -> None:
    assert all(letter.isalnum() or letter == "_" for letter in column_of(field))
    assert column_of(field) not in ("_src", "_ingested_at", "_hash", "_schema_version", "_rescued")
    assert len(column_of(field)) <= MAX_COLUMN
