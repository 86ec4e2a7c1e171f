"""Metadata and checks of told results: what is capped, summed up, and when a check warns."""

import datetime as dt
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.assets.checks import check_results
from lakechime_dagster.assets.report import MAX_EVENTS, Report, combined, events_table, late_changes, nothing_new, superseded
from lakechime_dagster.dce.events import Position, RegisteredEvent
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.spark.job import Counts, Outcome, TableResult
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from tests.factories import make_event
from tests.support.declaring import grouped
from tests.support.world import World, a_subscription, committed, one

NOW = dt.datetime(2024, 5, 2, 12, tzinfo=dt.timezone.utc)
orders = SourceTable("bronze.orders")


def a_table(**fields: Any) -> LakeTable:
    return spark_table("silver.orders", reads={"orders": orders.changes()}, keys=["id"], **grouped(**fields))(lambda orders: orders)


def a_report(watermark: dt.datetime | None = None, **counts: int) -> Report:
    result = TableResult(
        outcome=Outcome.COMMITTED, counts=Counts(**counts), watermark=None if watermark is None else int(watermark.timestamp() * 1000)
    )
    return Report(sentence="", metadata={"rows returned": counts.get("returned", 0), "step": 1, "commit": "version 1"}, result=result)


def passed(table: LakeTable, *reports: Report) -> dict[str, bool]:
    return {str(one.check_name): one.passed for one in check_results(table, reports, NOW)}


def consumed(count: int) -> list[RegisteredEvent]:
    return [
        RegisteredEvent(event=make_event(snapshot_id=str(number)), event_ts=0, position=Position(0, number), canonical="")
        for number in range(count)
    ]


def test_of_many_hours_with_late_changes_the_newest_are_shown() -> None:
    shown = str(late_changes({hour: 1_000 + hour for hour in range(MAX_EVENTS + 5)}).value)
    assert shown.splitlines()[0] == "- 1970-01-01 05:00: 1,005"
    assert shown.splitlines()[-1] == "- and 5 earlier hours"


def test_rows_that_do_not_add_up_fail_the_check_with_both_sums() -> None:
    lost = check_results(a_table(), [a_report(returned=5, inserted=3, quarantined=1)], NOW)[0]
    assert (lost.check_name, lost.passed, lost.severity) == ("rows_add_up", False, dg.AssetCheckSeverity.ERROR)
    assert {name: value.value for name, value in lost.metadata.items()} == {"rows returned": 5, "sum of parts": 4}
    assert passed(a_table(), a_report(returned=5, inserted=2, updated=1, deleted=1, deduplicated=1))["rows_add_up"]


def test_one_unbalanced_partition_is_not_hidden_by_another_that_has_too_many() -> None:
    assert not passed(a_table(), a_report(returned=2, inserted=1), a_report(returned=1, inserted=2))["rows_add_up"]


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
def test_a_run_that_wrote_nothing_leaves_the_table_as_fresh_as_it_was(hours: int | None, is_fresh: bool) -> None:
    table = a_table(fresh_within=dt.timedelta(hours=2), watermark="day")
    before = None if hours is None else int((NOW - dt.timedelta(hours=hours)).timestamp() * 1000)
    (check,) = [one for one in check_results(table, [nothing_new("nothing came")], NOW, before) if one.check_name == "fresh_by_watermark"]
    assert check.passed == is_fresh


@pytest.mark.parametrize(
    ("mine", "by", "told"),
    [
        (1, 2, "superseded by run late (attempt 2): version 7 is its commit; this run, attempt 1, wrote nothing"),
        (2, 1, "committed before by run early (attempt 1): version 7 is its commit; this run, attempt 2, wrote nothing"),
    ],
)
def test_a_run_that_was_overtaken_names_the_run_that_committed(world: World, platform: Platform, mine: int, by: int, told: str) -> None:
    subscription = a_subscription(target="silver.orders")
    world.change(version=0)
    first = world.ledger.begin(one(world.fire(subscription)).execution_id, "early")
    second = world.ledger.lose(first, "gave no sign of life", immediately=True)
    assert second is not None
    attempts = {1: first, 2: world.ledger.begin(second.execution_id, "late")}
    running = RunningExecution(platform, subscription, attempts[mine])
    assert superseded(running, TableResult(outcome=Outcome.SKIPPED, committed=committed(attempts[by]))) == told


def test_the_table_of_consumed_events_is_capped_and_says_how_many_there_were() -> None:
    few, many = str(events_table(consumed(2)).value), str(events_table(consumed(MAX_EVENTS + 30)).value)
    assert few.startswith("2 events:")
    assert many.startswith(f"{MAX_EVENTS + 30} events, the newest {MAX_EVENTS} of them:")
    assert many.count("| bronze.orders |") == MAX_EVENTS
    assert (f"| {MAX_EVENTS + 29} |" in many, "| 29 |" in many) == (True, False)


def test_text_from_outside_cannot_break_the_table_of_events() -> None:
    event = RegisteredEvent(event=make_event("a|b", tags={"x": "1|2"}), event_ts=0, position=Position(0, 1), canonical="")
    assert str(events_table([event]).value).splitlines()[-1] == "| a\\|b | – | UPDATE | mark | x=1\\|2 | 0-1 |"


def test_a_run_over_several_partitions_sums_its_numbers() -> None:
    merged = combined([a_report(returned=2), a_report(returned=3)])
    assert (merged["rows returned"], merged["step"], merged["partitions"]) == (5, 1, 2)


def test_a_run_over_several_partitions_is_as_far_behind_as_the_farthest_and_says_what_ran_last() -> None:
    ran = [replace(a_report(returned=1), metadata={"lag in commits": lag, "last fired because": f"day {lag}"}) for lag in (2, 3, 1)]
    merged = combined([*ran, nothing_new("nothing came")])
    assert (merged["lag in commits"], merged["last fired because"], merged["partitions"]) == (3, "day 1", 4)
