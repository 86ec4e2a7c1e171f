"""What is outside of a lake as external assets: joined by keys, harmless whatever names and links
others reported.
"""

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lineage.columns import ACTIVE_MS, Consumer, ConsumerKind
from lakechime_dagster.lineage.external import ExternalTable, Looked, Outside, UsedConsumer
from lakechime_dagster.outside import ACTIVE_TAG, outside_specs
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Database, Debezium, Maxwell
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic
from lakechime_dagster.tables.tables import SourceTable

NOW = 40 * ACTIVE_MS
HOSTILE = '<img src=x onerror="alert(1)">'
lake = Lake(
    "shop",
    [
        SourceTable("bronze.orders"),
        sql_table("gold.days", sql="SELECT * FROM bronze.orders", refresh="full"),
    ],
)


def consumer(
    name: str = "Sales",
    kind: ConsumerKind = ConsumerKind.DASHBOARD,
    namespace: str = "superset",
    **said: object,
) -> UsedConsumer:
    usual: dict[str, object] = {"tables": ("gold.days",), "last_ms": NOW}
    return UsedConsumer(consumer=Consumer(kind, namespace, name), **usual | said)  # type: ignore[arg-type]


def specs(*several: UsedConsumer | ExternalTable, page: str = "") -> dict[str, dg.AssetSpec]:
    outside = Outside(
        consumers=tuple(one for one in several if isinstance(one, UsedConsumer)),
        tables=tuple(one for one in several if isinstance(one, ExternalTable)),
    )
    found = outside_specs(Looked(outside=outside, now_ms=NOW), lake, page)
    dg.Definitions(assets=found).resolve_asset_graph().toposorted_asset_keys  # noqa: B018 - a circle would raise
    return {one.key.to_user_string(): one for one in found}


def parents(spec: dg.AssetSpec) -> set[str]:
    return {dep.asset_key.to_user_string() for dep in spec.deps}


def test_a_dashboard_hangs_on_the_assets_that_it_reads_with_kind_owner_and_link() -> None:
    found = specs(
        consumer(
            owners=("team:sales", "ann"),
            link="https://superset/7",
            tables=("gold.days", "elsewhere.x"),
        )
    )
    one = found["dashboards/superset/Sales"]
    assert (parents(one), one.kinds, list(one.owners)) == (
        {"gold/days", "elsewhere/x"},
        {"dashboard", "superset"},
        ["team:sales"],
    )
    assert (one.metadata["link"], one.metadata["owner"]) == (
        dg.MetadataValue.url("https://superset/7"),
        "ann",
    )
    assert one.tags[ACTIVE_TAG] == "yes"


@pytest.mark.parametrize("link", ["javascript:alert(1)", "data:text/html,x", " https://x"])
def test_a_link_that_is_none_of_the_web_is_only_text(link: str) -> None:
    shown = specs(consumer(link=link))["dashboards/superset/Sales"].metadata["link"]
    # as values a text and a link of the same words are equal
    assert (type(shown), shown.value) == (dg.TextMetadataValue, link)


def test_whatever_names_others_report_the_location_loads() -> None:
    names = [HOSTILE, "a/b", "ä\n", "", "x" * 5_000, '["a"]', "a.b", "a/b", "__", "{{7*7}}"]
    several = [
        *(consumer(name, namespace=name) for name in names),
        *(ExternalTable(table=name or "?", last_ms=NOW) for name in names),
    ]
    found = specs(
        *several, *(ExternalTable(table=f"{name}://{name}", last_ms=NOW) for name in names)
    )
    assert len(found) > 20


def test_what_would_close_a_circle_is_left_out_and_all_else_stays() -> None:
    found = specs(
        ExternalTable(table="x.a", last_ms=NOW, inputs=("x.b", "gold.days", "x.a")),
        ExternalTable(table="x.b", last_ms=NOW, inputs=("x.a",)),
        ExternalTable(table="bronze.back", last_ms=NOW, inputs=("x.a",)),
    )
    assert {name: parents(spec) for name, spec in found.items()} == {
        "x/a": {"gold/days"},
        "x/b": set(),
        "bronze/back": {"x/a"},
    }


def test_what_feeds_a_lake_is_an_input_by_declaration_so_that_a_column_is_followed_from_the_database() -> (
    None
):
    database = Database("$SHOP", "shop.orders")
    topic = KafkaTopic("shop.orders", bootstrap="kafka:9092")
    merge = CDCMerge(keys=("id",))
    followed = Lake(
        "f",
        [
            cdc_table(
                "silver.orders",
                source=topic,
                envelope=Debezium(),
                merge=merge,
                schema=SourceSchema(read_from=database),
            )
        ],
    )
    graph = build_definitions(followed).resolve_asset_graph()
    above = graph.get(dg.AssetKey(["silver", "orders__changes"])).parent_keys
    assert {key.to_user_string() for key in above} == {
        "mysql/shop.orders",
        "kafka:/kafka:9092/shop.orders",
    }
    files = Lake(
        "g",
        [
            cdc_table(
                "silver.orders",
                source=JsonLines("in"),
                envelope=Maxwell(),
                merge=merge,
                schema=SourceSchema(types={"id": "bigint"}),
            )
        ],
    )
    (folder,) = (
        build_definitions(files)
        .resolve_asset_graph()
        .get(dg.AssetKey(["silver", "orders__changes"]))
        .parent_keys
    )
    assert (folder.path[0], folder.path[-1]) == ("file", "*.jsonl")
    back = ExternalTable(table="mysql/shop.orders", last_ms=NOW, inputs=("silver.orders",))
    (spec,) = outside_specs(Looked(outside=Outside(tables=(back,)), now_ms=NOW), followed)
    assert parents(spec) == set()  # written back to where it comes from: a circle
