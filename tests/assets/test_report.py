"""Metadata and checks of reported results: what is capped, summed up, and when a check warns."""

import datetime as dt
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.assets.report import Report, check_results, events_table, nothing_new
from lakechime_dagster.dce.events import Position, RegisteredEvent
from lakechime_dagster.spark.job import Counts, Outcome, TableResult
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from tests.factories import make_event
from tests.support.declaring import grouped

NOW = dt.datetime(2024, 5, 2, 12, tzinfo=dt.timezone.utc)
orders = SourceTable("bronze.orders")


def a_table(**fields: Any) -> LakeTable:
    return spark_table(
        "silver.orders", reads={"orders": orders.changes()}, keys=["id"], **grouped(**fields)
    )(lambda orders: orders)


def a_report(watermark: dt.datetime | None = None, **counts: int) -> Report:
    result = TableResult(
        outcome=Outcome.COMMITTED,
        counts=Counts(**counts),
        watermark=None if watermark is None else int(watermark.timestamp() * 1000),
    )
    return Report(
        sentence="",
        metadata={"rows returned": counts.get("returned", 0), "number": 1, "commit": "version 1"},
        result=result,
    )


def passed(table: LakeTable, *reports: Report) -> dict[str, bool]:
    return {str(one.check_name): one.passed for one in check_results(table, reports, NOW)}


def test_rows_that_do_not_add_up_fail_the_check_with_both_sums() -> None:
    lost = check_results(a_table(), [a_report(returned=5, inserted=3, quarantined=1)], NOW)[0]
    assert (lost.check_name, lost.passed, lost.severity) == (
        "rows_add_up",
        False,
        dg.AssetCheckSeverity.ERROR,
    )
    assert {name: value.value for name, value in lost.metadata.items()} == {
        "rows returned": 5,
        "sum of parts": 4,
    }
    assert passed(
        a_table(), a_report(returned=5, inserted=2, updated=1, deleted=1, deduplicated=1)
    )["rows_add_up"]


def test_duplicate_keys_and_quarantined_rows_warn() -> None:
    found = passed(a_table(), a_report(returned=3, inserted=1, deduplicated=1, quarantined=1))
    assert (found["no_duplicate_keys"], found["nothing_quarantined"]) == (False, False)
    assert passed(a_table(), a_report(returned=1, inserted=1)) == dict.fromkeys(found, True)


def test_freshness_is_that_of_the_watermark_not_of_the_run() -> None:
    table = a_table(fresh_within=dt.timedelta(hours=2), watermark="day")
    assert passed(table, a_report(NOW - dt.timedelta(hours=1)))["fresh_by_watermark"]
    assert not passed(table, a_report(NOW - dt.timedelta(hours=3)))["fresh_by_watermark"]
    assert "fresh_by_watermark" not in passed(a_table(), a_report(NOW))


@pytest.mark.parametrize(("hours", "is_fresh"), [(1, True), (3, False), (None, False)])
def test_a_run_that_wrote_nothing_leaves_the_table_as_fresh_as_it_was(
    hours: int | None, is_fresh: bool
) -> None:
    table = a_table(fresh_within=dt.timedelta(hours=2), watermark="day")
    before = None if hours is None else int((NOW - dt.timedelta(hours=hours)).timestamp() * 1000)
    (check,) = [
        one
        for one in check_results(table, [nothing_new("nothing came")], NOW, before)
        if one.check_name == "fresh_by_watermark"
    ]
    assert check.passed == is_fresh


def test_text_from_outside_cannot_break_the_table_of_events() -> None:
    event = RegisteredEvent(
        event=make_event("a|b", tags={"x": "1|2"}),
        event_ts=0,
        position=Position(0, 1),
        canonical="",
    )
    assert (
        str(events_table([event]).value).splitlines()[-1]
        == "| a\\|b | – | UPDATE | marker | x=1\\|2 | 0-1 |"
    )
