"""CDC tables and their bronze tables as assets, with their checks."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg

from lakechime_dagster.assets.tables import KINDS as KINDS_OF
from lakechime_dagster.assets.tables import attempting_asset, declared, fed, tried, written_by
from lakechime_dagster.cdc.compare import LAKE_LACKS, Monitored, key_shown
from lakechime_dagster.cdc.database import check_source_queries, schema_reading
from lakechime_dagster.cdc.job import BronzeJob, CDCJob, format_of
from lakechime_dagster.cdc.monitor import Counted, KeepingUp, Lacking, beyond
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lineage.declared import outside_inputs
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import (
    KEEPS_UP,
    NOTHING_LOST,
    SAME_AS_DATABASE,
    asset_key,
    monitor_check_keys,
)
from lakechime_dagster.runtime.resource import LakeChimeResource
from lakechime_dagster.runtime.spark import ON_SPARK, SparkAttempt, SparkResource, account_confs
from lakechime_dagster.spark.job import InputJob
from lakechime_dagster.tables.cdc import CHANGES, STATE, BronzeTable, CDCTable, Drift
from lakechime_dagster.tables.databases import UNDECLARED, Limits, all_read_deletion_vectors
from lakechime_dagster.tables.events import EventTable
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import Account, folded
from lakechime_dagster.tables.sources import KafkaTopic
from lakechime_dagster.triggers.subscription import Subscription

KINDS = ("deltalake", "spark")


def bronze_asset(lake: Lake, table: BronzeTable, subscription: Subscription) -> dg.AssetsDefinition:
    """The asset of a table of messages; it depends on what is outside of the lake: its topic or
    folder, and the declared database's table.

    Raises:
        DeclarationError: its envelope cannot be read by what is declared of it.
    """
    _check_envelope(table)
    kinds = (*KINDS, "kafka") if isinstance(table.source, KafkaTopic) else KINDS
    metadata = {
        **_metadata(table, subscription),
        "source": str(table.source),
        "envelope": type(table.envelope).__name__,
    }
    given = declared(lake, table, metadata, kinds)
    given["ins"] = inputs_outside(table)
    return attempting_asset(
        lake,
        table,
        subscription,
        given,
        lambda spark, running, log: ingested(
            spark, running, bronze_job_of(lake, table, running), log, table.write_as
        ),
    )


def cdc_asset(lake: Lake, table: CDCTable, subscription: Subscription) -> dg.AssetsDefinition:
    """The asset of a CDC table; it depends on its bronze table."""
    metadata = {
        **_metadata(table, subscription),
        "on drift": str(table.schema.on_drift),
        "remembers in": table.name + STATE,
    }
    given = declared(lake, table, metadata, (KINDS_OF[table.format], "spark"))
    return attempting_asset(
        lake,
        table,
        subscription,
        given,
        lambda spark, running, log: merged(
            spark, running, cdc_job_of(table, running), log, table.write_as
        ),
    )


def ingested(
    spark: SparkResource,
    running: RunningExecution,
    job: BronzeJob,
    log: Callable[[str], None],
    write_as: Account | None,
) -> SparkAttempt:
    """One attempt at an execution of a bronze table, by an account where one is declared."""
    with ON_SPARK:
        from lakechime_dagster.cdc.spark_bronze import ingest

    job = replace(job, environment=os.environ)
    confs = account_confs(write_as, job.location)
    return spark.attempt(
        running,
        log,
        lambda session: ingest(session, job, running.commit_metadata(), running.platform.log_at),
        confs=confs,
    )


def merged(
    spark: SparkResource,
    running: RunningExecution,
    job: CDCJob,
    log: Callable[[str], None],
    write_as: Account | None,
) -> SparkAttempt:
    """One attempt at an execution of a CDC table, likewise."""
    with ON_SPARK:
        from lakechime_dagster.cdc.spark_refresh import refresh_cdc

    confs = account_confs(write_as, job.location)
    return spark.attempt(
        running,
        log,
        lambda session: refresh_cdc(
            session, job, running.commit_metadata(), running.platform.log_at
        ),
        confs=confs,
    )


def inputs_outside(table: BronzeTable | EventTable) -> dict[str, dg.AssetIn]:
    """What a table is fed from outside of the lake, by its declaration. As inputs, since those
    alone may have keys of any letters.
    """
    keys = map(asset_key, outside_inputs(table))
    return {
        f"outside_{number}": dg.AssetIn(key=key, dagster_type=dg.Nothing)
        for number, key in enumerate(keys)
    }


def _metadata(table: BronzeTable | CDCTable, subscription: Subscription) -> dict[str, Any]:
    return {
        "waits for": subscription.condition,
        "keys": ", ".join(table.keys),
        "dagster/table_name": table.name,
    }


def _check_envelope(table: BronzeTable) -> None:
    try:
        format_of(table).reader()
    except ValueError as problem:
        field, _, remedy = str(problem).partition(": ")
        raise DeclarationError(
            table.name.removesuffix(CHANGES), field if remedy else "types", remedy or field
        ) from problem


def cdc_tables(lake: Lake) -> list[CDCTable]:
    """The CDC tables of a lake."""
    return [table for table in lake.targets if isinstance(table, CDCTable)]


def monitor_checks(table: CDCTable) -> list[dg.AssetChecksDefinition]:
    """The checks of a table, those of `monitor_check_keys`."""
    made = {KEEPS_UP: _keeps_up, NOTHING_LOST: _nothing_lost, SAME_AS_DATABASE: _same_as_database}
    return [made[key.name](table) for key in monitor_check_keys(table)]


def _keeps_up(table: CDCTable) -> dg.AssetChecksDefinition:
    monitor = table.monitor or UNDECLARED

    @dg.asset_check(
        asset=asset_key(table.name),
        name=KEEPS_UP,
        description="Messages are read in time, and none is lost before.",
    )
    def check(lakechime: LakeChimeResource) -> dg.AssetCheckResult:
        from lakechime_dagster.cdc.monitor_service import keeping_up
        from lakechime_dagster.cdc.service import Replica

        return kept_up(keeping_up(Replica(lakechime.platform(), table)), monitor.limits)

    return check


def _nothing_lost(table: CDCTable) -> dg.AssetChecksDefinition:
    monitor = table.monitor or UNDECLARED
    description = (
        "Of each transaction that ended within a day, as many changes arrived as its end counts."
    )

    @dg.asset_check(asset=asset_key(table.name), name=NOTHING_LOST, description=description)
    def check(lakechime: LakeChimeResource) -> dg.AssetCheckResult:
        from lakechime_dagster.cdc.monitor_service import transactions_counted
        from lakechime_dagster.cdc.service import Replica

        return whole(transactions_counted(Replica(lakechime.platform(), table), monitor))

    return check


def _same_as_database(table: CDCTable) -> dg.AssetChecksDefinition:
    monitor = table.monitor
    assert monitor is not None
    there = ", ".join(dict.fromkeys(one.table for one in monitor.databases.values()))
    of = "the databases of its shards" if monitor.shards else "its database"
    description = (
        f"{table.name} has the rows of {there} in {of}, at one position of the database's log."
    )

    @dg.asset_check(asset=asset_key(table.name), name=SAME_AS_DATABASE, description=description)
    def check(
        context: dg.AssetCheckExecutionContext, lakechime: LakeChimeResource
    ) -> dg.AssetCheckResult:
        platform = lakechime.platform()
        check_source_queries(platform.settings)
        if not platform.log_of(table.name, table.format, table.location).exists():
            return not_there(table)
        with ON_SPARK:
            from lakechime_dagster.cdc.service import Replica
            from lakechime_dagster.cdc.spark_compare import monitored, opened_driver
        with opened_driver(platform, context.log.info) as driver:
            return same(monitored(driver.spark, Replica(platform, table).tables, monitor), table)

    return check


MAX_SHOWN = 50  # keys, or sources, of the metadata
MAX_NAMED = 5  # transactions that an alarm names


def not_there(table: CDCTable) -> dg.AssetCheckResult:
    """Before its first execution there is no table to be compared: nothing is wrong, and nothing
    known.
    """
    description = (
        f"{table.name} is not there yet, as no execution of it has been: it is compared then"
    )
    return dg.AssetCheckResult(
        passed=False, severity=dg.AssetCheckSeverity.WARN, description=description
    )


def kept_up(found: KeepingUp, limits: Limits) -> dg.AssetCheckResult:
    """The measures as a check; numbers are plotted by Dagster."""
    problems = beyond(found, limits)
    numbers = {
        **{f"lag of the {name} in seconds": lag for name, lag in found.lags.items()},
        "unread in the source": sum(found.unread.values()),
        "rows waiting": found.waiting,
        "rows quarantined": found.quarantined,
    }
    parsed = {
        source: _ages(found, one.in_messages, one.in_table, one.heartbeat)
        for source, one in found.parsed.items()
    }
    metadata: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    metadata["beyond limits"] = dg.MetadataValue.md(
        "\n".join(f"- {problem}" for problem in problems) or "nothing"
    )
    metadata["seconds since the newest change, by source"] = _table(
        ("source", "in the messages", "in the table", "heartbeat"), parsed
    )
    metadata["unread"] = _table(
        ("where", "bytes or messages"), {name: (count,) for name, count in found.unread.items()}
    )
    return dg.AssetCheckResult(
        passed=not problems,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata,
        description="; ".join(problems) or None,
    )


def whole(found: Counted) -> dg.AssetCheckResult:
    """Transactions with the changes that arrived, as a check: an error where changes are surely
    lost.
    """
    problems = [*found.problems, *map(str, found.lacking)]
    metadata = {
        "transactions": found.transactions,
        "changes": found.changes,
        "transactions on their way": found.on_their_way,
        "transactions that lack changes": len(found.lacking),
        "messages unreadable": found.unreadable,
        "lacking": _table(
            ("transaction", "of", "ended at", "expected", "arrived", "surely lost"),
            {one.end.transaction: _lacking(one) for one in found.lacking},
        ),
    }
    severity = (
        dg.AssetCheckSeverity.ERROR
        if any(one.is_sure for one in found.lacking)
        else dg.AssetCheckSeverity.WARN
    )
    description = "; ".join(
        [
            *problems[:MAX_NAMED],
            *([f"and {len(problems) - MAX_NAMED:,} more"] if len(problems) > MAX_NAMED else []),
        ]
    )
    return dg.AssetCheckResult(
        passed=found.is_whole, severity=severity, metadata=metadata, description=description or None
    )


def _lacking(one: Lacking) -> tuple[object, ...]:
    topic, partition, offset = one.end.where
    sure = "yes" if one.is_sure else "may be on its way, or unreadable"
    return one.source, f"{topic}[{partition}]@{offset}", one.expected, one.found, sure


def same(found: Monitored, table: CDCTable) -> dg.AssetCheckResult:
    """A comparison as a check: an error where rows differ, a warning where that is not sure yet, or
    where columns are lacking.
    """
    here = {folded(there): name for there, name in table.names.items()}
    lacks = [name for name, why in found.unchecked.items() if why == LAKE_LACKS]
    lacking = [name for name in lacks if table.merge.takes(here.get(folded(name), name))]
    is_sure = bool(found.unresolved) or bool(
        found.faults and found.is_passed and not found.is_truncated
    )
    metadata = {
        "position in the database's log": found.snapshot,
        "version": found.version,
        "rows of the database": found.source_rows,
        "rows of the lake": found.lake_rows,
        **{f"keys {fault.value}": count for fault, count in found.counts.items()},
        "keys that differ": _table(
            ("key", "is"), {key_shown(key): (fault.value,) for key, fault in found.faults.items()}
        ),
        "keys left out": found.left_out,
        "ranges not compared": found.unresolved,
        "columns not compared": _table(
            ("column", "why"), {name: (why,) for name, why in found.unchecked.items()}
        ),
        "seconds": round(found.seconds, 3),
    }
    return dg.AssetCheckResult(
        passed=found.is_same and not lacking,
        severity=dg.AssetCheckSeverity.ERROR if is_sure else dg.AssetCheckSeverity.WARN,
        metadata=metadata,
        description=_why(found, lacking),
    )


def _why(found: Monitored, lacking: Sequence[str]) -> str | None:
    counts = ", ".join(f"{count:,} {fault.value}" for fault, count in found.counts.items() if count)
    parts = [
        "the table was truncated after the snapshot, so that its rows cannot be compared"
        if found.is_truncated
        else counts and f"rows: {counts}",
        "may be on its way: the lake has not read past the snapshot"
        if found.faults and not (found.is_passed or found.is_truncated)
        else "",
        f"{found.unresolved:,} ranges differ too much to be compared" if found.unresolved else "",
        f"the lake lacks columns of the database: {', '.join(lacking)}" if lacking else "",
    ]
    return "; ".join(part for part in parts if part) or None


def _ages(found: KeepingUp, *moments: int | None) -> tuple[float | None, ...]:
    return tuple(found.seconds_since(moment) for moment in moments)


def _table(head: Sequence[str], rows: Mapping[str, Sequence[object]]) -> dg.MetadataValue:
    """Rows as a markdown table, at most so many."""
    if not rows:
        return dg.MetadataValue.md("nothing")
    cells = [
        head,
        ["---"] * len(head),
        *([name, *("" if one is None else one for one in row)] for name, row in rows.items()),
    ]
    lines = ["| " + " | ".join(_cell(one) for one in row) + " |" for row in cells[: MAX_SHOWN + 2]]
    left = [f"\nand {len(rows) - MAX_SHOWN:,} more"] if len(rows) > MAX_SHOWN else []
    return dg.MetadataValue.md("\n".join([*lines, *left]))


def _cell(value: object) -> str:
    text = f"{value:,.0f}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def bronze_job_of(lake: Lake, table: BronzeTable, running: RunningExecution) -> BronzeJob:
    """What one execution asks of Spark for a table of messages; its range is between the
    checkpoints of its claim.
    """
    return BronzeJob(**fed(lake, table, running), format=format_of(table))


def cdc_job_of(table: CDCTable, running: RunningExecution) -> CDCJob:
    """What one execution asks of Spark for a table that follows a database, which is read here for
    its columns.
    """
    bronze = table.bronze
    end = running.execution.end.sources.get(bronze.name)
    return CDCJob(
        name=table.name,
        location=running.platform.location(table.name, table.location),
        bronze=InputJob(
            alias="changes",
            table=bronze.name,
            location=running.platform.location(bronze.name, bronze.location),
            range=running.ranges.get(bronze.name),
            pinned=end.snapshot_id if end is not None else None,
        ),
        format=format_of(bronze),
        merge=table.merge,
        names=table.names,
        cluster_by=table.cluster_by,
        personal=tuple(table.personal),
        has_deletion_vectors=all_read_deletion_vectors(table.storage.readers),
        reading=schema_reading(bronze, running.platform.settings, os.environ),
        on_drift=Drift(table.schema.on_drift),
        comment=table.description,
        **written_by(table, running),
        **tried(running),
    )
