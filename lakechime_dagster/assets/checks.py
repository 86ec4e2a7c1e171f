"""Checks of a computed table: the rows add up, keys are unique, and it is fresh by its watermark."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from lakechime_dagster.assets.report import Report
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.resources.names import asset_key

ROWS_ADD_UP = "rows_add_up"
NO_DUPLICATE_KEYS = "no_duplicate_keys"
NOTHING_QUARANTINED = "nothing_quarantined"
FRESH = "fresh_by_watermark"


def check_specs(table: LakeTable) -> list[dg.AssetCheckSpec]:
    """The checks that every run of the table reports."""
    key = asset_key(table.name)
    specs = [
        dg.AssetCheckSpec(
            ROWS_ADD_UP, asset=key,
            description="Rows returned = inserted + updated + deleted + unchanged + deduplicated + quarantined.",
        ),
        dg.AssetCheckSpec(NOTHING_QUARANTINED, asset=key, description=f"No row of the run went to {table.name}__quarantine."),
    ]  # fmt: skip
    if table.keys:
        specs.append(
            dg.AssetCheckSpec(
                NO_DUPLICATE_KEYS,
                asset=key,
                description=f"The query gives one row per key ({', '.join(table.keys)}); what it gives twice is written once.",
            )
        )
    if table.fresh_within is not None:
        specs.append(dg.AssetCheckSpec(FRESH, asset=key, description=f"The watermark is at most {table.fresh_within} behind the clock."))
    return specs


def check_results(table: LakeTable, reports: Sequence[Report], now: dt.datetime) -> list[dg.AssetCheckResult]:
    """What the checks say of these executions; a run with nothing to do passes them all."""
    results = [report.result for report in reports if report.result is not None]
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
    if table.keys:
        twice = sum(count.deduplicated for count in counts)
        checks.append(_warning(NO_DUPLICATE_KEYS, twice == 0, {"rows computed more than once": twice}))
    if table.fresh_within is not None:
        checks.append(_fresh(table.fresh_within, [result.watermark for result in results if result.watermark is not None], now))
    return checks


def _fresh(within: dt.timedelta, watermarks: Sequence[int], now: dt.datetime) -> dg.AssetCheckResult:
    if not watermarks:
        return dg.AssetCheckResult(check_name=FRESH, passed=True, metadata={"watermark": "unknown: nothing was written"})
    watermark = dt.datetime.fromtimestamp(max(watermarks) / 1000, dt.UTC)
    behind = now - watermark
    metadata = {"watermark": dg.MetadataValue.timestamp(watermark), "seconds behind": behind.total_seconds()}
    return _warning(FRESH, behind <= within, metadata)


def _warning(name: str, passed: bool, metadata: Mapping[str, Any]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(check_name=name, passed=passed, severity=dg.AssetCheckSeverity.WARN, metadata=metadata)
