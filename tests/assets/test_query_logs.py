"""Audit tables are read by subscriptions of their own: sensor, consumer, attempts, and a checkpoint
that moves with what was kept.
"""

import datetime as dt
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lineage.store import SqlReads
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.tables.lake import Lake, QueryLog
from lakechime_dagster.tables.tables import SourceTable

LOG, SUBSCRIPTION, SENSOR = "audit.queries", "audit.queries__read", "audit_queries__read"
SHOP = Lake(
    "shop",
    [SourceTable("shop.orders"), SourceTable(LOG)],
    query_logs=[QueryLog(LOG, user="who", every=None)],
)
READ = "SELECT amount FROM shop.orders"


@dataclass(frozen=True)
class Shop:
    """A code location with an audit table, as the daemon runs it."""

    home: Path
    instance: dg.DagsterInstance
    definitions: dg.Definitions

    @property
    def platform(self) -> Platform:
        return open_platform()

    def reported(self, *statements: tuple[str | None, str]) -> None:
        """A commit of the audit table: SQL and user."""
        at = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
        rows = [{"sql": sql, "at": at, "who": who} for sql, who in statements]
        self.write("audit/queries", pa.Table.from_pylist(rows, schema=SCHEMA))

    def write(self, checkpoint: str, data: pa.Table, mode: str = "append") -> None:
        folder = self.home / "warehouse" / checkpoint
        folder.mkdir(parents=True, exist_ok=True)
        write_deltalake(str(folder), data, mode=mode)  # type: ignore[call-overload]

    def ticked(self, sensor: str = SENSOR) -> Any:
        with dg.build_sensor_context(
            instance=self.instance, definitions=self.definitions
        ) as context:
            return self.definitions.resolve_sensor_def(sensor).evaluate_tick(context)

    def stepped(self) -> list[dict[str, Any]]:
        """What runs reported that the sensor launches by now; it looks at tables itself."""
        self.ticked("shop__events")
        return [
            reported
            for request in self.ticked().run_requests
            for reported in self.ran(dict(request.tags))
        ]

    def ran(self, tags: dict[str, str]) -> list[dict[str, Any]]:
        job = self.definitions.resolve_job_def("shop__query_logs")
        result = job.execute_in_process(instance=self.instance, raise_on_error=False, tags=tags)
        events = result.get_asset_materialization_events() if result.success else []
        return [
            {name: one.value for name, one in event.materialization.metadata.items()}
            for event in events
        ]

    def readers(self) -> list[str]:
        return sorted(
            one.consumer.name
            for one in SqlReads(self.platform.store.engine).of_tables(["shop.orders"])
        )


SCHEMA = pa.schema([("sql", pa.string()), ("at", pa.timestamp("us", "UTC")), ("who", pa.string())])


@pytest.fixture
def shop(home: Path, instance: dg.DagsterInstance) -> Shop:
    shop = Shop(home, instance, build_definitions(SHOP))
    shop.write("shop/orders", pa.table({"id": [1], "amount": [2]}))
    return shop


def test_what_comes_into_an_audit_table_is_read_by_itself_each_statement_once(shop: Shop) -> None:
    assert shop.stepped() == []
    shop.reported((READ, "ann"), ("SELECT jane FROM WHERE", "joe"))
    (first,) = shop.stepped()
    assert (
        first["statements"],
        first["reads recorded"],
        first["rows that could not be read"],
        first["number"],
    ) == (1, 1, 1, 1)
    assert "row 2: sql" in first["refused"]
    assert "jane" not in first["refused"]
    shop.reported((READ, "joe"))
    (second,) = shop.stepped()
    assert (second["statements"], second["number"]) == (1, 2)
    assert shop.readers() == ["ann", "joe"]
    assert shop.stepped() == []


def test_an_execution_reads_what_it_claimed_and_the_next_one_what_came_meanwhile(
    shop: Shop,
) -> None:
    shop.reported((READ, "ann"))
    shop.stepped()
    shop.reported((READ, "bob"))
    shop.ticked("shop__events")
    (request,) = shop.ticked().run_requests
    shop.reported((READ, "joe"))
    shop.ticked("shop__events")
    (reported,) = shop.ran(dict(request.tags))
    assert (reported["statements"], shop.readers()) == (1, ["ann", "bob"])
    (reported,) = shop.stepped()
    assert (reported["statements"], shop.readers()) == (1, ["ann", "bob", "joe"])


def test_a_table_that_cannot_be_read_is_tried_again_and_loses_nothing(shop: Shop) -> None:
    shop.write("audit/queries", pa.table({"sql": [READ], "who": ["ann"]}))
    assert shop.stepped() == []
    assert "attempt 2" in shop.ticked().skip_message
    shutil.rmtree(shop.home / "warehouse" / "audit")
    shop.reported((READ, "ann"), (READ, "joe"))
    (reported,) = shop.ran({})
    assert (reported["number"], reported["attempt"], shop.readers()) == (1, 2, ["ann", "joe"])
