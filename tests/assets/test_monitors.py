"""Whether a table that follows a database keeps up with it, as its check says it; without Spark."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.assets.cdc import same
from lakechime_dagster.cdc.compare import LAKE_LACKS, Fault, Monitored
from lakechime_dagster.cdc.job import format_of
from lakechime_dagster.cdc.record import Message, bronze_row
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema
from lakechime_dagster.tables.databases import Database, Limits, Monitor
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from tests.cdc.factories import make_record
from tests.cli.shop import NAME, Shop, orders
from tests.cli.test_cdc import MARIADB, completed, held, reported
from tests.sensors.test_tick import ReportedRuns
from tests.support.cli import Cli
from tests.support.replica import BRONZE

MINUTE = 60_000
DATABASE = "mysql+pymysql://reader@127.0.0.1:1/shop"
Clock = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets the store's clock to so many minutes after the newest change."""

    def to(minutes: float) -> None:
        monkeypatch.setattr(DCEStore, "now", lambda _: int(MARIADB["ts_ms"] + minutes * MINUTE))

    to(1)
    return to


@pytest.fixture
def shop(lakechime: Cli, clock: Clock, tmp_path: Path) -> Shop:
    """A table whose consumer has read all that came."""
    (tmp_path / "in").mkdir()
    return a_shop(lakechime, tmp_path, Monitor(limits=Limits(quiet=dt.timedelta(minutes=30))))


def a_shop(lakechime: Cli, folder: Path, monitor: Monitor) -> Shop:
    shop = Shop.declared(lakechime, monitor=monitor, source=JsonLines(str(folder / "in")))
    shop.send(reported(1, 10), reported(2, 11))
    completed(lakechime, ReportedRuns())
    return shop


def looked(shop: Shop) -> tuple[bool, dict[str, Any]]:
    """Whether the check `keeps_up` passes, and its metadata."""
    definitions = build_definitions(Lake("shop", [shop.table]))
    with dg.DagsterInstance.ephemeral() as instance:
        run = definitions.resolve_job_def("shop__monitors").execute_in_process(instance=instance)
    (found,) = run.get_asset_check_evaluations()
    assert (found.check_name, found.severity) == ("keeps_up", dg.AssetCheckSeverity.WARN)
    return found.passed, {name: value.value for name, value in found.metadata.items()}


def test_nothing_is_beyond_the_limits_where_all_is_read(shop: Shop) -> None:
    passed, metadata = looked(shop)
    assert (passed, metadata["beyond limits"]) == (True, "nothing")
    assert (
        metadata["lag of the messages in seconds"],
        metadata["lag of the table in seconds"],
    ) == (60.0, 60.0)
    assert (
        metadata["unread in the source"],
        metadata["rows waiting"],
        metadata["rows quarantined"],
    ) == (0, 0, 0)
    assert "| m.shop.orders | 60 | 60 |" in metadata["seconds since the newest change, by source"]


def test_a_source_that_reports_nothing_is_named(shop: Shop, clock: Clock) -> None:
    clock(60)
    passed, metadata = looked(shop)
    assert (passed, metadata["lag of the messages in seconds"]) == (False, 3600.0)
    assert metadata["beyond limits"] == (
        "- m.shop.orders has sent nothing for 1:00:00, not even a heartbeat: is its connector "
        "stuck?"
    )


def heartbeat(shop: Shop, minutes: float) -> None:
    """One that came so many minutes after the newest change."""
    topic = "__debezium-heartbeat.m"
    beat = replace(make_record({"ts_ms": 1}, key=None), topic=topic, topic_id=topic)
    arrived = dt.datetime.fromtimestamp(MARIADB["ts_ms"] / 1000 + minutes * 60, dt.timezone.utc)
    reader = format_of(shop.table.bronze).reader()
    shop.write(
        "__changes",
        [bronze_row(Message(beat, (), round(arrived.timestamp() * 1000)), reader)],
        BRONZE,
    )
    completed(shop.lakechime, ReportedRuns())


def test_a_heartbeat_distinguishes_a_quiet_source_from_a_stuck_one(
    shop: Shop, clock: Clock
) -> None:
    heartbeat(shop, 50)
    clock(60)
    passed, metadata = looked(shop)
    assert (passed, metadata["beyond limits"]) == (True, "nothing")
    assert (
        "| m.shop.orders | 3,600 | 3,600 | 600 |"
        in metadata["seconds since the newest change, by source"]
    )


def test_rows_that_wait_and_a_source_that_nobody_reads_are_reported(
    shop: Shop, tmp_path: Path
) -> None:
    (tmp_path / "in" / "a.jsonl").write_text("{}\n")
    shop.send(reported(3, 12, "u", name="__debezium_unavailable_value"))
    completed(shop.lakechime, ReportedRuns())
    passed, metadata = looked(shop)
    assert (passed, metadata["unread in the source"], metadata["rows waiting"]) == (False, 3, 1)
    assert metadata["beyond limits"].splitlines() == [
        (
            "- shop.orders__changes has something to read, and its sensor has never ticked: it is "
            "stopped, or no daemon runs"
        ),
        "- 1 rows wait outside of shop.orders for a column that nobody sent",
    ]


def test_a_consumer_that_waits_for_a_person_is_reported_with_its_reason(shop: Shop) -> None:
    shop.send(reported(4, 13))
    held(shop.lakechime, ReportedRuns())
    passed, metadata = looked(shop)
    assert (
        passed,
        "is BLOCKED" in metadata["beyond limits"],
        "goes back from [3, 20] to [1, 4]" in metadata["beyond limits"],
    ) == (False, True, True)


def compared(**declared: Any) -> Monitored:
    whole = {
        "table": NAME,
        "snapshot": "binlog 1:4",
        "version": 3,
        "source_rows": 9,
        "lake_rows": 9,
        "faults": {},
        "unchecked": {},
        "seconds": 0.5,
    }
    return Monitored(**{**whole, **declared})


WRONG = {("2",): Fault.DIFFERENT, ("11",): Fault.MISSING}


@pytest.mark.parametrize(
    ("found", "passed", "severity", "reported"),
    [
        (compared(), True, "WARN", None),
        (compared(unchecked={"doc": "it is JSON"}, left_out=3), True, "WARN", None),
        (compared(faults=WRONG, is_passed=True), False, "ERROR", "rows: 1 missing, 1 different"),
        (
            compared(faults=WRONG),
            False,
            "WARN",
            (
                "rows: 1 missing, 1 different; may be on its way: the lake has not read past the "
                "snapshot"
            ),
        ),
        (compared(unresolved=2), False, "ERROR", "2 ranges differ too much to be compared"),
        (
            compared(faults=WRONG, is_passed=True, is_truncated=True),
            False,
            "WARN",
            "the table was truncated after the snapshot, so that its rows cannot be compared",
        ),
        (
            compared(unchecked={"extra": LAKE_LACKS}),
            False,
            "WARN",
            "the lake lacks columns of the database: extra",
        ),
    ],
)
def test_a_comparison_is_an_error_where_it_is_sure_that_rows_differ(
    found: Monitored, passed: bool, severity: str, reported: str | None
) -> None:
    result = same(found, orders())
    assert (result.passed, result.severity.value, result.description) == (
        passed,
        severity,
        reported,
    )


def test_a_renamed_column_that_the_lake_lacks_is_lacking() -> None:
    found = compared(unchecked={"amt": LAKE_LACKS, "doc": LAKE_LACKS})
    table = orders()
    renamed = replace(
        table,
        schema=SourceSchema(names={"amt": "amount", "doc": "text"}),
        merge=CDCMerge(keys=("id",), except_column_list=("text",)),
    )
    assert same(found, renamed).description == "the lake lacks columns of the database: amt"


def test_where_a_topic_reports_transactions_a_check_counts_their_changes(
    lakechime: Cli, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    source = JsonLines(str(tmp_path / "in"), records=True, transactions="m.transaction")
    shop = Shop.declared(lakechime, source=source)
    end = {
        "status": "END",
        "id": "0-1-2",
        "event_count": 2,
        "data_collections": [{"data_collection": "shop.orders", "event_count": 2}],
    }
    change = reported(
        1, 10, transaction={"id": "0-1-2", "total_order": 1, "data_collection_order": 1}
    )
    later = reported(
        1, 11, "u", transaction={"id": "0-1-3", "total_order": 1, "data_collection_order": 1}
    )
    now, reader = lakechime.platform.store.now(), format_of(shop.table.bronze).reader()
    came = [
        (change, -3000),
        (replace(make_record(end, key=None), topic="m.transaction"), -2000),
        (later, -1000),
    ]
    shop.write(
        "__changes", [bronze_row(Message(one, (), now + at), reader) for one, at in came], BRONZE
    )
    definitions = build_definitions(Lake("shop", [shop.table]))
    with dg.DagsterInstance.ephemeral() as instance:
        run = definitions.resolve_job_def("shop__monitors").execute_in_process(instance=instance)
    found = {one.check_name: one for one in run.get_asset_check_evaluations()}
    assert set(found) == {"keeps_up", "nothing_lost"}
    lost = found["nothing_lost"]
    assert (lost.passed, lost.severity, lost.metadata["changes"].value) == (
        False,
        dg.AssetCheckSeverity.ERROR,
        2,
    )
    assert "| 0-1-2 | m.shop.orders | m.transaction[0]@7 | 2 | 1 | yes |" in str(
        lost.metadata["lacking"].value
    )
    assert lost.description is not None
    assert (
        "of transaction 0-1-2, which ended at m.transaction[0]@7, 1 of 2 changes arrived"
        in lost.description
    )


def test_the_job_of_tables_leaves_the_checks_of_monitors_out() -> None:
    table = orders(monitor=Monitor(database=Database(DATABASE, "shop.orders")))
    definitions = build_definitions(Lake("shop", [table]))
    nodes = {
        name: {node.name for node in definitions.resolve_job_def(name).nodes}
        for name in ("shop__tables", "shop__monitors")
    }
    assert nodes["shop__monitors"] == {"shop__orders_keeps_up", "shop__orders_same_as_database"}
    assert nodes["shop__tables"] == {"shop__orders", "shop__orders__changes"}
