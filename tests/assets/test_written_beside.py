"""What a table's function writes to other tables beside its result is kept as their lineage."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.graph import Standing
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.runtime.resource import LakeChimeResource
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset
from lakechime_dagster.tables.tables import SourceTable
from tests.assets.test_lineage import ORDERS, Shop, orders, shown, standings
from tests.support.home import local_home

pytestmark = pytest.mark.spark

audit = SourceTable("silver.audit")
TWICE = Source(ColumnRef("bronze.orders", "amount"), Kind.TRANSFORMATION)


def twice(orders: DataFrame) -> DataFrame:
    return orders.select("id", (F.col("amount") * 2).alias("twice"))


def append(frame: DataFrame, path: str, kind: str = "delta") -> None:
    frame.write.format(kind).mode("append").save(path)


@spark_table("silver.kept", reads={"orders": orders.changes()}, asset=Asset(owner="team:shop"))
def kept(orders: Any) -> Any:
    append(twice(orders), open_platform().location(audit.name))
    return orders.where("amount > 0")


@spark_table("silver.told", reads={"orders": orders.changes()})
def told(orders: Any, context: dg.AssetExecutionContext, lakechime: LakeChimeResource) -> Any:
    path = open_platform().location(audit.name)
    with lakechime.lineage(context, orders.sparkSession, {audit.name: path}):
        append(twice(orders), path)
    return orders


@spark_table("silver.broken", reads={"orders": orders.changes()})
def broken(orders: Any) -> Any:
    append(twice(orders), open_platform().location(audit.name))
    raise ValueError("the shop is closed")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path, spark_driver: Driver) -> Iterator[Shop]:
    local_home(tmp_path, monkeypatch, upgraded_sqlite)
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        shop = Shop(instance, open_platform())
        shop.definitions = build_definitions(Lake("shop", [orders, audit, kept, told, broken]))
        shop.commit("bronze.orders", ORDERS, (1, 10), (2, -3))
        yield shop


def of_audit(shop: Shop) -> list[Standing]:
    return [one for one in standings(shop.platform) if one.statement.target == audit.name]


def test_a_write_to_another_table_is_lineage_of_that_table_by_the_same_producer(shop: Shop) -> None:
    seen = shown(shop.run("silver.kept"))
    (standing,) = of_audit(shop)
    assert (standing.producer.job, standing.statement.inputs, standing.statement.unknown) == ("silver.kept", ("bronze.orders",), ())
    assert {column.column: column.sources for column in standing.statement.columns}["twice"] == (TWICE,)
    assert seen["written beside"] == "- silver.audit"
    assert {column.column for column in shop.current("silver.kept").columns} == {"id", "amount"}
