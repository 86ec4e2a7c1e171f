"""What a run is seen to compute: kept once its commit is there, shown on the asset, and compared
with what is declared.
"""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source, Statement
from lakechime_dagster.lineage.graph import Standing
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import spark_table, sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.consumers import ExecutionState
from lakechime_dagster.triggers.ledger import Ledger
from tests.support.tables import write

pytestmark = pytest.mark.spark

ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
RATES = pa.schema([("rate", pa.int64())])

orders, rates, audit = (
    SourceTable(name) for name in ("bronze.orders", "bronze.rates", "silver.audit")
)


@spark_table(
    "silver.paid", keys=["id"], reads={"orders": orders.changes()}, asset=Asset(owner="team:shop")
)
def paid(orders: Any) -> Any:
    return orders.where("amount > 0").select("id", (F.col("amount") * 2).alias("twice"))


@spark_table("silver.rated", reads={"orders": orders.changes()})
def rated(orders: Any) -> Any:
    """Reads a table that it does not declare, and takes a value of it through the driver."""
    path = open_platform().location("bronze.rates")
    rate = orders.sparkSession.read.format("delta").load(path).first()[0]
    return orders.select(
        "id", (F.col("amount") * F.lit(rate)).alias("rated"), F.lit(rate).alias("rate")
    )


@spark_table("silver.kept", reads={"orders": orders.changes()})
def kept(orders: Any) -> Any:
    """Writes to another table beside its result."""
    twice = orders.select("id", (F.col("amount") * 2).alias("twice"))
    twice.write.format("delta").mode("append").save(open_platform().location(audit.name))
    return orders.where("amount > 0")


total = sql_table("gold.total", sql="SELECT sum(twice) AS total FROM silver.paid", refresh="full")


class KilledError(Exception):
    """Stands for the end of a process."""


class Shop:
    """The code location of a shop, whose jobs a person launches."""

    def __init__(self, instance: dg.DagsterInstance, platform: Platform) -> None:
        self.instance, self.platform = instance, platform
        self.definitions = build_definitions(
            Lake("shop", [orders, rates, audit, paid, rated, kept, total])
        )

    def commit(self, table: str, schema: pa.Schema, *rows: tuple[int, ...]) -> None:
        log = self.platform.log(table)
        Path(log.location).mkdir(parents=True, exist_ok=True)
        write(
            log.location,
            pa.Table.from_pylist(
                [dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema
            ),
        )
        self.platform.store.register(log.events_of_commit(log.version))

    def run(self, table: str, *, raise_on_error: bool = True) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_job_def("shop__tables")
        selection = [dg.AssetKey(table.split("."))]
        return job.execute_in_process(
            instance=self.instance, asset_selection=selection, raise_on_error=raise_on_error
        )

    def current(self, table: str) -> Statement:
        """What is kept of the newest run that wrote a table."""
        (reported,) = [
            one.statement for one in standings(self.platform) if one.statement.target == table
        ]
        return reported


def standings(platform: Platform) -> list[Standing]:
    return LineageStandings(platform.store.engine).all()


@pytest.fixture
def shop(home: Path, instance: dg.DagsterInstance, spark_driver: Driver) -> Shop:
    return Shop(instance, open_platform())


def shown(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_a_run_reports_where_its_columns_come_from(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.commit("bronze.orders", ORDERS, (1, 10), (2, -3))
    monkeypatch.setenv("LAKECHIME_LINEAGE_URL", "http://lineage.example/")
    seen = shown(shop.run("silver.paid"))
    assert seen["lineage"] == "http://lineage.example/lineage?table=silver.paid"
    deps = seen["dagster/column_lineage"].deps_by_column
    assert deps["twice"] == [
        dg.TableColumnDep(asset_key=dg.AssetKey(["bronze", "orders"]), column_name="amount")
    ]
    assert "| twice | bronze.orders.amount (transformation) |" in seen["columns come from"]
    statement = shop.current("silver.paid")
    assert [column.column for column in statement.columns] == ["id", "twice"]
    assert statement.columns[0].sources == (
        Source(ColumnRef("bronze.orders", "id"), Kind.IDENTITY),
    )
    assert statement.indirect == (Source(ColumnRef("bronze.orders", "amount"), Kind.FILTER),)
    assert (statement.inputs, statement.unknown) == (("bronze.orders",), ())


def test_a_run_that_dies_when_its_execution_is_completed_has_reported_its_lineage(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.commit("bronze.orders", ORDERS, (1, 10))
    complete = Ledger.complete

    def complete_and_die(*given: Any, **more: Any) -> bool:
        complete(*given, **more)
        raise KilledError

    monkeypatch.setattr(Ledger, "complete", complete_and_die)
    with pytest.raises(KilledError):
        shop.run("silver.paid")
    assert [one.state for one in shop.platform.ledger.executions()] == [ExecutionState.COMPLETED]
    assert [column.column for column in shop.current("silver.paid").columns] == ["id", "twice"]


def test_an_input_that_is_not_declared_is_reported_with_the_line_to_add(shop: Shop) -> None:
    shop.commit("bronze.orders", ORDERS, (1, 10))
    shop.commit("bronze.rates", RATES, (3,))
    result = shop.run("silver.rated")
    (check,) = [
        one
        for one in result.get_asset_check_evaluations()
        if one.check_name == "inputs_are_declared"
    ]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.metadata["bronze.rates"].value == (
        'add "rates": rates.snapshot() to reads=, where rates is the declaration of bronze.rates'
    )
    assert {
        one.check_name: one.passed for one in shop.run("silver.paid").get_asset_check_evaluations()
    }["inputs_are_declared"]


def test_a_write_to_another_table_is_lineage_of_that_table_by_the_same_producer(shop: Shop) -> None:
    shop.commit("bronze.orders", ORDERS, (1, 10), (2, -3))
    seen = shown(shop.run("silver.kept"))
    (standing,) = [one for one in standings(shop.platform) if one.statement.target == audit.name]
    assert (standing.producer.job, standing.statement.inputs, standing.statement.unknown) == (
        "silver.kept",
        ("bronze.orders",),
        (),
    )
    sources = {column.column: column.sources for column in standing.statement.columns}
    assert sources["twice"] == (Source(ColumnRef("bronze.orders", "amount"), Kind.TRANSFORMATION),)
    assert seen["written beside"] == "- silver.audit"
    assert {column.column for column in shop.current("silver.kept").columns} == {"id", "amount"}
