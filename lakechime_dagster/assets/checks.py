"""Checks of computed tables, and the check that personal data stays where it is known to be."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakechime_dagster.assets.report import Report, undeclared
from lakechime_dagster.cdc.record import Kind
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.governance.tags import Reach, level_remedy, on_levels, within_reach
from lakechime_dagster.lineage.runs import statement_of
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import asset_key
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.event import NoType, Refusal
from lakechime_dagster.spark.job import Seen
from lakechime_dagster.tables.cdc import BronzeTable
from lakechime_dagster.tables.events import EventTable
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.tables.tables import LakeTable
from lakechime_dagster.triggers.schedule import from_milliseconds

if TYPE_CHECKING:
    from lakechime_dagster.governance.tags import Tagged


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
        text = (
            "Every payload of the run is an event with a type; one that is none is kept with the "
            "reason."
        )
        return [dg.AssetCheckSpec(NOTHING_REFUSED, asset=key, description=text)]
    if isinstance(table, BronzeTable):
        text = (
            "Every message of the run could be read; one that could not is kept with its problem."
        )
        return [dg.AssetCheckSpec(NOTHING_UNREADABLE, asset=key, description=text)]
    specs = [
        dg.AssetCheckSpec(
            ROWS_ADD_UP,
            asset=key,
            description=(
                "Rows returned = inserted + updated + deleted + unchanged + deduplicated + "
                "quarantined."
            ),
        ),
        dg.AssetCheckSpec(
            NOTHING_QUARANTINED,
            asset=key,
            description=f"No row of the run went to {table.name}__quarantine.",
        ),
    ]
    if isinstance(table, LakeTable) and table.keys:
        specs.append(
            dg.AssetCheckSpec(
                NO_DUPLICATE_KEYS,
                asset=key,
                description=(
                    f"The query gives one row per key ({', '.join(table.keys)}); what it gives "
                    f"twice is written once."
                ),
            )
        )
    if isinstance(table, LakeTable):
        text = (
            "The run read no table that is not declared: triggers and the order of runs know "
            "declared ones alone."
        )
        specs.append(dg.AssetCheckSpec(INPUTS_DECLARED, asset=key, description=text))
    if table.fresh_within is not None:
        specs.append(
            dg.AssetCheckSpec(
                FRESH,
                asset=key,
                description=f"The watermark is at most {table.fresh_within} behind the clock.",
            )
        )
    return specs


def needs_watermark(table: Target, reports: Sequence[Report]) -> bool:
    """Whether these executions do not say how fresh the table is, as they wrote nothing."""
    return table.fresh_within is not None and not _watermarks(reports)


def check_results(
    table: Target, reports: Sequence[Report], now: dt.datetime, before: int | None = None
) -> list[dg.AssetCheckResult]:
    """What the checks say of these executions; one with nothing to do leaves the watermark as it
    was `before`.
    """
    results = [report.result for report in reports if report.result is not None]
    if isinstance(table, EventTable):
        refused = {
            reason: sum(result.events.get(reason, 0) for result in results)
            for reason in (*Refusal, *NoType)
        }
        counted = {f"payloads {reason}": count for reason, count in refused.items() if count}
        return [
            _warning(
                NOTHING_REFUSED, not counted, {"payloads refused": sum(counted.values()), **counted}
            )
        ]
    if isinstance(table, BronzeTable):
        unreadable = sum(result.events.get(Kind.UNREADABLE, 0) for result in results)
        return [_warning(NOTHING_UNREADABLE, unreadable == 0, {"messages unreadable": unreadable})]
    counts = [result.counts for result in results]
    returned, quarantined = (
        sum(count.returned for count in counts),
        sum(count.quarantined for count in counts),
    )
    parts = sum(
        count.changed + count.unchanged + count.deduplicated + count.quarantined for count in counts
    )
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
        checks.append(
            _warning(NO_DUPLICATE_KEYS, twice == 0, {"rows computed more than once": twice})
        )
    if table.fresh_within is not None:
        checks.append(_fresh(table.fresh_within, max(_watermarks(reports), default=before), now))
    return checks


def inputs_declared(lake: Lake, table: Target, reports: Sequence[Report]) -> dg.AssetCheckResult:
    """Whether the runs were seen to read no more than is declared."""
    found = undeclared(
        lake, table, [report.statement for report in reports if report.statement is not None]
    )
    return _warning(INPUTS_DECLARED, not found, {"read and not declared": len(found), **found})


def _watermarks(reports: Sequence[Report]) -> list[int]:
    return [
        report.result.watermark
        for report in reports
        if report.result is not None and report.result.watermark is not None
    ]


def _fresh(within: dt.timedelta, newest: int | None, now: dt.datetime) -> dg.AssetCheckResult:
    if newest is None:
        return _warning(
            FRESH, False, {"watermark": "unknown: no row with an event time was written yet"}
        )
    watermark = from_milliseconds(newest)
    behind = now - watermark
    metadata = {
        "watermark": dg.MetadataValue.timestamp(watermark),
        "seconds behind": behind.total_seconds(),
    }
    return _warning(FRESH, behind <= within, metadata)


def _warning(name: str, passed: bool, metadata: Mapping[str, Any]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=name, passed=passed, severity=dg.AssetCheckSeverity.WARN, metadata=metadata
    )


PERSONAL_DECLARED = "personal_data_is_declared"
NOTHING_PERSONAL = "nothing_personal"
MAX_SHOWN = 50  # columns in the metadata of a check


def personal_specs(lake: Lake, table: LakeTable) -> list[dg.AssetCheckSpec]:
    """The check of a table that is public, or that personal columns reach by the declarations."""
    if table.public:
        text = (
            "The table is public: no column of it holds personal data, or a pseudonym, as far as "
            "lineage knows."
        )
    elif table.name in within_reach(lake):
        text = (
            "Each column that personal data reaches is declared personal, or decided not to be, as "
            "far as lineage knows."
        )
    else:
        return []
    return [dg.AssetCheckSpec(_name(table), asset=asset_key(table.name), description=text)]


def personal_results(lake: Lake, table: LakeTable, platform: Platform) -> list[dg.AssetCheckResult]:
    """What the check says by the lineage that is known now; a table without one has none.

    Values in a partition level are an error, also where that is known only since the commit.
    """
    if not personal_specs(lake, table):
        return []
    # numpy, which each process would pay for
    from lakechime_dagster.governance.data import PersonalData

    data = PersonalData(platform, lake)
    found = data.found(data.network_above(table.name), [table.name])
    wrong = data.leaks(found)
    unsure = sorted({one.ref.column or "its rows" for one in found if one.reach is Reach.UNSURE})
    metadata: dict[str, str | int] = {
        "columns that should not be": len({one.tagged.ref for one in wrong})
    }
    metadata |= {one.tagged.ref.column or "rows": one.remedy for one in wrong[:MAX_SHOWN]}
    if unsure:
        metadata["not known whether personal"] = ", ".join(unsure[:MAX_SHOWN])
    severity = (
        dg.AssetCheckSeverity.ERROR
        if any(one.is_level for one in wrong)
        else dg.AssetCheckSeverity.WARN
    )
    return [
        dg.AssetCheckResult(
            check_name=_name(table), passed=not wrong, severity=severity, metadata=metadata
        )
    ]


def check_levels(running: RunningExecution, lake: Lake, table: LakeTable, seen: Seen) -> None:
    """Let an execution write only if no partition level of its table holds values of a column that
    is known to be personal.

    Raises:
        ConsumerBlockedError: naming table, level, the personal column and the remedy.
    """
    if not table.levels:
        return
    from lakechime_dagster.governance.data import PersonalData, levels_of  # as above

    data = PersonalData(running.platform, lake)
    if not data.tags:
        return
    network = data.network_above(table.name, statement_of(seen, lake, table, running.platform))
    found = on_levels(data.found(network, [table.name]), levels_of(lake))
    if found:
        raise ConsumerBlockedError(
            f"a partition level would hold personal values: {'; '.join(map(_sentence, found))}; "
            f"nothing was written"
        )


def _sentence(one: "Tagged") -> str:
    origin, *between = one.path[:-1] or one.path
    way = f" by way of {' and '.join(map(str, between))}" if between else ""
    text = (
        f"is personal ({one.category})"
        if one.is_source
        else f"holds values of {origin}, which is personal ({one.category}){way}"
    )
    return f"level {one.ref.column!r} of {one.ref.table} {text}: {level_remedy(one.ref)}"


def _name(table: LakeTable) -> str:
    return NOTHING_PERSONAL if table.public else PERSONAL_DECLARED
