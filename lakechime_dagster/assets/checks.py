"""Checks of a computed table: the rows add up, keys are unique, and it is fresh by its watermark."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from lakechime_dagster.assets.lineage import undeclared
from lakechime_dagster.assets.report import Report
from lakechime_dagster.cdc.messages.bronze import Kind
from lakechime_dagster.lake.change_tables import BronzeTable
from lakechime_dagster.lake.events import EventTable
from lakechime_dagster.lake.lake import Lake, Target
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.schema.event import NoType, Refusal
from lakechime_dagster.triggers.grid import from_milliseconds

ROWS_ADD_UP = "rows_add_up"
NO_DUPLICATE_KEYS = "no_duplicate_keys"
NOTHING_QUARANTINED = "nothing_quarantined"
NOTHING_UNREADABLE = "nothing_unreadable"
NOTHING_REFUSED = "nothing_refused"
FRESH = "fresh_by_watermark"
INPUTS_DECLARED = "inputs_are_declared"


def check_specs(table: Target) -> list[dg.AssetCheckSpec]:
    """The checks that every run of the table reports."""
    key = asset_key(table.name)
    if isinstance(table, EventTable):
        told = "Every payload of the run is an event with a type; one that is none is kept with the reason."
        return [dg.AssetCheckSpec(NOTHING_REFUSED, asset=key, description=told)]
    if isinstance(table, BronzeTable):
        told = "Every message of the run could be read; one that could not is kept with its problem."
        return [dg.AssetCheckSpec(NOTHING_UNREADABLE, asset=key, description=told)]
    specs = [
        dg.AssetCheckSpec(
            ROWS_ADD_UP, asset=key,
            description="Rows returned = inserted + updated + deleted + unchanged + deduplicated + quarantined.",
        ),
        dg.AssetCheckSpec(NOTHING_QUARANTINED, asset=key, description=f"No row of the run went to {table.name}__quarantine."),
    ]  # fmt: skip
    if isinstance(table, LakeTable) and table.keys:
        specs.append(
            dg.AssetCheckSpec(
                NO_DUPLICATE_KEYS,
                asset=key,
                description=f"The query gives one row per key ({', '.join(table.keys)}); what it gives twice is written once.",
            )
        )
    if isinstance(table, LakeTable):
        told = "The run read no table that is not declared: triggers and the order of runs know declared ones alone."
        specs.append(dg.AssetCheckSpec(INPUTS_DECLARED, asset=key, description=told))
    if table.fresh_within is not None:
        specs.append(dg.AssetCheckSpec(FRESH, asset=key, description=f"The watermark is at most {table.fresh_within} behind the clock."))
    return specs


def needs_watermark(table: Target, reports: Sequence[Report]) -> bool:
    """Whether these executions do not tell how fresh the table is, as they wrote nothing."""
    return table.fresh_within is not None and not _watermarks(reports)


def check_results(table: Target, reports: Sequence[Report], now: dt.datetime, before: int | None = None) -> list[dg.AssetCheckResult]:
    """What the checks say of these executions; one with nothing to do leaves the watermark as it was `before`."""
    results = [report.result for report in reports if report.result is not None]
    if isinstance(table, EventTable):
        refused = {reason: sum(result.events.get(reason, 0) for result in results) for reason in (*Refusal, *NoType)}
        told = {f"payloads {reason}": count for reason, count in refused.items() if count}
        return [_warning(NOTHING_REFUSED, not told, {"payloads refused": sum(told.values()), **told})]
    if isinstance(table, BronzeTable):
        unreadable = sum(result.events.get(Kind.UNREADABLE, 0) for result in results)
        return [_warning(NOTHING_UNREADABLE, unreadable == 0, {"messages unreadable": unreadable})]
    counts = [result.counts for result in results]
    returned, quarantined = sum(count.returned for count in counts), sum(count.quarantined for count in counts)
    parts = sum(count.changed + count.unchanged + count.deduplicated + count.quarantined for count in counts)
    checks = [
        dg.AssetCheckResult(
            check_name=ROWS_ADD_UP,
            passed=all(count.is_balanced for count in counts),
            metadata={"rows returned": returned, "sum of parts": parts},
        ),
        _warning(NOTHING_QUARANTINED, quarantined == 0, {"rows quarantined": quarantined}),
    ]
    if isinstance(table, LakeTable) and table.keys:
        twice = sum(count.deduplicated for count in counts)
        checks.append(_warning(NO_DUPLICATE_KEYS, twice == 0, {"rows computed more than once": twice}))
    if table.fresh_within is not None:
        checks.append(_fresh(table.fresh_within, max(_watermarks(reports), default=before), now))
    return checks


def inputs_declared(lake: Lake, table: Target, reports: Sequence[Report]) -> dg.AssetCheckResult:
    """Whether the runs were seen to read no more than is declared."""
    found = undeclared(lake, table, [report.statement for report in reports if report.statement is not None])
    return _warning(INPUTS_DECLARED, not found, {"read and not declared": len(found), **found})


def _watermarks(reports: Sequence[Report]) -> list[int]:
    return [report.result.watermark for report in reports if report.result is not None and report.result.watermark is not None]


def _fresh(within: dt.timedelta, newest: int | None, now: dt.datetime) -> dg.AssetCheckResult:
    if newest is None:
        return _warning(FRESH, False, {"watermark": "unknown: no row with an event time was written yet"})
    watermark = from_milliseconds(newest)
    behind = now - watermark
    metadata = {"watermark": dg.MetadataValue.timestamp(watermark), "seconds behind": behind.total_seconds()}
    return _warning(FRESH, behind <= within, metadata)


def _warning(name: str, passed: bool, metadata: Mapping[str, Any]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(check_name=name, passed=passed, severity=dg.AssetCheckSeverity.WARN, metadata=metadata)
