"""What Dagster shows of an execution: its metadata, its column lineage, and the checks of its table."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import dagster as dg

from lakechime_dagster.cdc.record import MessageKind
from lakechime_dagster.dce.events import RegisteredEvent, SnapshotId, TableFormat
from lakechime_dagster.dce.snapshots import Verdict
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.governance.tags import Reach, level_remedy, on_levels, within_reach
from lakechime_dagster.lineage.columns import ColumnLineage, Source, Statement
from lakechime_dagster.lineage.runs import Recorded, statement_of
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import asset_key
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.spark import SparkAttempt
from lakechime_dagster.silver.event import NoType, Refusal
from lakechime_dagster.spark.job import Outcome, Seen, SourceResult, TableResult
from lakechime_dagster.tables.cdc import BronzeTable
from lakechime_dagster.tables.events import EventTable
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.tables.tables import LakeTable
from lakechime_dagster.triggers.consumers import HOUR_MS, spans_between
from lakechime_dagster.triggers.schedule import from_milliseconds

if TYPE_CHECKING:
    from lakechime_dagster.governance.tags import Tagged


MAX_PAIRS = 1_000  # of a column and a source: more is 100 kB in each materialisation
MAX_SHOWN = 100  # columns in a table, or in the metadata of a check


def lineage_metadata(recorded: Recorded | None) -> dict[str, Any]:
    """Metadata of what a run was seen to compute; none where it was not seen. Dagster gets only
    what is new.
    """
    if recorded is None:
        return {}
    statement = recorded.statement
    metadata: dict[str, Any] = {"columns come from": dg.MetadataValue.md(_table(statement))}
    deps = {column.column: _deps(column) for column in statement.columns if column.column}
    pairs = sum(len(several) for several in deps.values())
    if 0 < pairs <= MAX_PAIRS and recorded.is_new:
        metadata["dagster/column_lineage"] = dg.TableColumnLineage(deps_by_column=deps)
    elif pairs > MAX_PAIRS:
        metadata["column lineage"] = (
            f"{pairs:,} pairs of columns, more than Dagster takes; ask `lakechime lineage`"
        )
    return metadata


def page_link(page_url: str, table: str) -> dict[str, Any]:
    """A link to the table on the page of lineage; none where it is not said where that is."""
    if not page_url:
        return {}
    return {
        "lineage": dg.MetadataValue.url(
            f"{page_url.rstrip('/')}/lineage?{urlencode({'table': table})}"
        )
    }


def linked(
    asset: dg.AssetSpec | dg.AssetsDefinition, tables: Mapping[dg.AssetKey, str], page_url: str
) -> dg.AssetSpec | dg.AssetsDefinition:
    """An asset that links to its table on the page, before any run of it too; `tables` are their
    names by key.
    """

    def of_table(spec: dg.AssetSpec) -> dg.AssetSpec:
        name = tables.get(spec.key)
        return spec if name is None else spec.merge_attributes(metadata=page_link(page_url, name))

    if not page_url:
        return asset
    return of_table(asset) if isinstance(asset, dg.AssetSpec) else asset.map_asset_specs(of_table)


def _deps(column: ColumnLineage) -> list[dg.TableColumnDep]:
    """The columns whose values are in a column; those that only decide are not Dagster's."""
    refs = sorted(
        {
            source.ref
            for source in column.sources
            if source.kind.is_direct and source.ref.column is not None
        }
    )
    return [
        dg.TableColumnDep(asset_key=asset_key(ref.table), column_name=str(ref.column))
        for ref in refs
    ]


def _table(statement: Statement) -> str:
    lines = ["| column | from | decided by | not known |", "|---|---|---|---|"]
    for column in statement.columns[:MAX_SHOWN]:
        direct = [source for source in column.sources if source.kind.is_direct]
        others = [source for source in column.sources if not source.kind.is_direct]
        made_of = _sources(direct) or ("" if column.not_known else "constant")
        cells = (column.column, made_of, _sources(others), "; ".join(column.not_known))
        lines.append(f"| {' | '.join(cell(one) for one in cells)} |")
    if len(statement.columns) > MAX_SHOWN:
        lines.append(f"| and {len(statement.columns) - MAX_SHOWN} more | | | |")
    lines += [
        "",
        f"rows are decided by: {cell(_sources(statement.indirect)) or 'nothing but what there is'}",
    ]
    lines += [f"- not known: {cell(why)}" for why in statement.not_known]
    return "\n".join(lines)


def _sources(sources: Iterable[Source]) -> str:
    return ", ".join(
        f"{one.ref} ({one.kind}{', masked' if one.is_masking else ''})" for one in sources
    )


def cell(text: str) -> str:
    """Text that cannot end a cell of a markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def undeclared(lake: Lake, table: Target, statements: Iterable[Statement]) -> Mapping[str, str]:
    """Inputs that were seen and are not declared: no trigger waits for them, and no order of runs
    minds them. Each with what to add.
    """
    declared = {*table.inputs, table.name}
    known = {one.name for one in lake.tables}
    seen = {name for statement in statements for name in statement.inputs} - declared
    return {name: _remedy(name, name in known) for name in sorted(seen)}


def _remedy(name: str, is_known: bool) -> str:
    short = name.rsplit("/", 1)[-1].rsplit(".", 1)[-1]
    if is_known:
        return (
            f'add "{short}": {short}.snapshot() to reads=, where {short} is the declaration of '
            f"{name}"
        )
    return (
        f'declare SourceTable("outside.{short}", storage=Storage(location=…)) for {name}, and add '
        f"it to reads="
    )


MAX_EVENTS = 50  # shown as a table; the count is always whole


@dataclass(frozen=True, kw_only=True)
class Report:
    """One execution as its asset shows it; `statement` is what it was seen to compute."""

    sentence: str
    metadata: Mapping[str, Any]
    result: TableResult | None = None
    statement: Statement | None = None


def nothing_new(why: str) -> Report:
    """A run that had nothing to do, said aloud."""
    return Report(sentence=why, metadata={"last fired because": f"nothing to do: {why}"})


def report_of(
    running: RunningExecution,
    attempt: SparkAttempt,
    lag: Mapping[str, Any],
    recorded: Recorded | None = None,
) -> Report:
    """The metadata of an execution that ran on Spark."""
    result, execution = attempt.result, running.execution
    counts = result.counts
    metadata: dict[str, Any] = {
        "last fired because": execution.reason or execution.cause.value,
        "commit": commit_name(running.subscription.target_format, result.version)
        if result.version is not None
        else "nothing to do, no commit",
        "rows in": counts.rows_in,
        "rows returned": counts.returned,
        "rows inserted": counts.inserted,
        "rows updated": counts.updated,
        "rows deleted": counts.deleted,
        "rows unchanged": counts.unchanged,
        "rows deduplicated": counts.deduplicated,
        "rows quarantined": counts.quarantined,
        "bytes written": result.bytes,
        "files written": result.files,
        "seconds": round(sum(result.seconds.values()), 3),
        "seconds by phase": dg.MetadataValue.json(
            {phase: round(value, 3) for phase, value in result.seconds.items()}
        ),
        "range": dg.MetadataValue.md(
            "\n".join(f"- {one}" for one in ranges_read(running, result))
            or "no input was read as changes"
        ),
        "events consumed": events_table(running.events),
        "number": execution.number,
        "attempt": execution.attempt,
        "spark": f"{attempt.driver}: {attempt.reason} (ready after {attempt.ready:.1f} s)",
        **lag,
    }
    metadata |= {f"events {what}": count for what, count in sorted(result.events.items())}
    if result.watermark is not None:
        metadata["watermark"] = dg.MetadataValue.timestamp(from_milliseconds(result.watermark))
    if result.late:
        metadata["late changes"] = sum(result.late.values())
        metadata["late changes by hour"] = late_changes(result.late)
    odd = [source for source in result.sources if source.verdict is not Verdict.CONTIGUOUS]
    if odd:
        metadata["verdict"] = ", ".join(f"{source.table} {source.verdict.value}" for source in odd)
    if result.notes:
        metadata["notes"] = dg.MetadataValue.md("\n".join(f"- {note}" for note in result.notes))
    if result.schema:
        columns = [dg.TableColumn(name, kind) for name, kind in result.schema]
        metadata["dagster/column_schema"] = dg.MetadataValue.table_schema(
            dg.TableSchema(columns=columns)
        )
    sentence = (
        f"{counts.inserted} inserted, {counts.updated} updated, {counts.deleted} deleted, "
        f"{counts.quarantined} quarantined"
    )
    if result.outcome is Outcome.SKIPPED:
        sentence = metadata["superseded"] = superseded(running, result)
    return Report(
        sentence=sentence,
        metadata=metadata | lineage_metadata(recorded),
        result=result,
        statement=recorded and recorded.statement,
    )


def late_changes(late: Mapping[int, int]) -> dg.MetadataValue:
    """The changes of hours that were complete before, by hour; the newest hours when there are
    many.
    """
    shown = sorted(late.items())[-MAX_EVENTS:]
    lines = [
        f"- {from_milliseconds(hour * HOUR_MS):%Y-%m-%d %H}:00: {count:,}" for hour, count in shown
    ]
    earlier = f"\n- and {len(late) - len(shown):,} earlier hours" if len(shown) < len(late) else ""
    return dg.MetadataValue.md("\n".join(lines) + earlier)


def superseded(running: RunningExecution, result: TableResult) -> str:
    """That another attempt committed the execution, and by which run."""
    execution, committed = running.execution, result.committed
    by = committed.commit_metadata.attempt if committed is not None else 0
    run_id = next(
        (
            one.run_id
            for one in running.platform.ledger.attempts(execution.execution_id)
            if one.number == by
        ),
        None,
    )
    run = f"run {run_id}" if run_id is not None else "a run that is not known any more"
    verb = "superseded" if by > execution.attempt else "committed before"
    attempt = f" (attempt {by})" if by else ""
    commit = commit_name(running.subscription.target_format, result.version)
    return (
        f"{verb} by {run}{attempt}: {commit} is its commit; this run, attempt "
        f"{execution.attempt}, wrote nothing"
    )


def commit_name(table_format: TableFormat, version: SnapshotId | None) -> str:
    """A commit of a table, as its format calls it."""
    return f"{'snapshot' if table_format is TableFormat.ICEBERG else 'version'} {version}"


def ranges_read(running: RunningExecution, result: TableResult) -> list[str]:
    """What was read, as sentences: of tables, or of a source between the checkpoints of the
    claim.
    """
    end, start = running.execution.end.offsets, running.execution.start.offsets
    if end is None:
        return [range_sentence(source) for source in result.sources]
    found = spans_between(start, end)
    shown = [
        f"`{what}` from {first:,} up to {stop:,}" for what, (first, stop) in found[:MAX_EVENTS]
    ]
    return [*shown, *([f"and {len(found) - MAX_EVENTS} more"] if len(found) > MAX_EVENTS else [])]


def range_sentence(source: SourceResult) -> str:
    """A range as a sentence with both snapshots."""
    start = f"after snapshot {source.start}" if source.start is not None else "from nothing"
    note = f"; {source.note}" if source.note else ""
    return (
        f"`{source.table}` {start} up to snapshot {source.end}: {source.commits} commits, "
        f"{source.data_commits} with data, "
        f"read by {source.method} ({source.verdict.value}{note})"
    )


def events_table(events: Sequence[RegisteredEvent]) -> dg.MetadataValue:
    """The consumed events as a markdown table, the newest ones when there are many."""
    shown = events[-MAX_EVENTS:]
    head = f"{len(events)} events" + (
        f", the newest {len(shown)} of them:" if len(shown) < len(events) else ":"
    )
    rows = ["| " + " | ".join(map(cell, _row(event))) + " |" for event in shown]
    lines = [
        head,
        "",
        "| table | partition | operation | snapshot | tags | position |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    return dg.MetadataValue.md("\n".join(lines) if events else "none")


def _row(event: RegisteredEvent) -> tuple[str, ...]:
    inner = event.event
    tags = ", ".join(f"{key}={value}" for key, value in inner.tags.items())
    return (
        inner.table,
        event.canonical or "–",
        inner.operation_type.value,
        inner.snapshot_id or "marker",
        tags,
        str(event.position),
    )


def combined(reports: Sequence[Report]) -> dict[str, Any]:
    """The metadata of a run over several partitions: numbers summed, lags those of the farthest
    behind, the rest of the last that ran.
    """
    if len(reports) == 1:
        return dict(reports[0].metadata)
    merged: dict[str, Any] = {}
    # those that had nothing to do first
    for report in sorted(reports, key=lambda report: report.result is not None):
        for name, value in report.metadata.items():
            before = merged.get(name)
            if (
                isinstance(value, int | float)
                and isinstance(before, int | float)
                and name not in ("number", "attempt")
            ):
                value = max(before, value) if name.startswith("lag in ") else before + value
            merged[name] = value
    merged["partitions"] = len(reports)
    return merged


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
        unreadable = sum(result.events.get(MessageKind.UNREADABLE, 0) for result in results)
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
