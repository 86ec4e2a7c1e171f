"""Event streams on request: what a stream's table holds, the effect of a replay, rebuild or
reprocessing, and verification.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from lakechime_dagster.dce.events import SnapshotId, TableUid
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.formats.delta_rows import TABLE, DeltaRows, column, known
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.requests import event_requests, event_types
from lakechime_dagster.silver.results import EventJob, GroupJob, Verified
from lakechime_dagster.silver.schema import KnownType, TypeCheckpoint, gained, next_schema
from lakechime_dagster.tables.events import REFUSED_BEFORE, EventGroup, EventTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakechime_dagster.silver.bronze import WouldReprocess
    from lakechime_dagster.silver.slices import Slices, TypeTables

MAX_SHOWN = 200  # characters of a payload that was refused
_WHERE = ("_src", "_ingested_at", "sent_at", "reason")


@dataclass(frozen=True)
class Streamed:
    """The table of a stream; one that is not there has no rows."""

    platform: Platform
    table: EventTable

    @property
    def rows(self) -> DeltaRows:
        return DeltaRows(self.platform.log(self.table.name, self.table.location))

    def newest(self) -> TypeCheckpoint | None:
        """The checkpoint of a type whose table holds all that is there; None before the first
        event.

        Raises:
            TableUnreadableError: the table is there and cannot be read.
        """
        state = self.rows.log.state()
        return (
            None
            if state is None
            else TypeCheckpoint(uid=str(state.metadata().id), version=state.version())
        )

    def refused_by_reason(self) -> dict[str, int]:
        """How many rows are of no type, the commonest reason first; none of them was
        reprocessed.
        """
        counted = exp.select(column("reason"), exp.Count(this=exp.Star()).as_("n")).from_(TABLE)
        found = self.rows.query(counted.where(*self._is_refused()).group_by(column("reason")))
        return {
            row["reason"]: row["n"]
            for row in sorted(found, key=lambda row: (-row["n"], row["reason"]))
        }

    def refused(self, limit: int) -> list[dict[str, Any]]:
        """The newest of these rows: where each is, why, and its payload as text, which is cut."""
        text = exp.func("left", column("payload"), exp.Literal.number(MAX_SHOWN + 1)).as_("payload")
        query = (
            exp.select(*map(column, _WHERE), text, column("payload_bytes"))
            .from_(TABLE)
            .where(*self._is_refused())
        )
        for name in ("_ingested_at", "sent_at", "_src"):
            query = query.order_by(exp.Ordered(this=column(name), desc=True))
        return [
            {name: row[name] for name in _WHERE} | {"payload": _shown(row)}
            for row in self.rows.query(query.limit(limit))
        ]

    def _is_refused(self) -> tuple[exp.Condition, ...]:
        """That a row is refused, and was not reprocessed."""
        reprocessed = exp.select(column("_src")).from_(TABLE).where(known(REFUSED_BEFORE))
        return known("reason"), exp.not_(column("_src").isin(query=reprocessed))


def _shown(row: dict[str, Any]) -> str:
    """A payload as text; bytes that are no text are escaped."""
    raw, text = row["payload_bytes"], row["payload"]
    shown = (
        raw[: MAX_SHOWN + 1].decode(errors="backslashreplace") if raw is not None else text or ""
    )
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"


@dataclass(frozen=True, kw_only=True)
class WouldChange:
    """What a replay or a rebuild of a type would do to its table as it is.

    Attributes:
        added: Events of which the table has no row; of a rebuild those among them that no execution
            has read yet.
        gained: The columns that the table would gain, and `lost` those that it would lose: name,
            and what each holds.
        is_same: Nothing would change.
    """

    replaced: int
    added: int
    removed: int
    gained: tuple[tuple[str, str], ...]
    lost: tuple[tuple[str, str], ...] = ()
    is_same: bool = False


def would_replay(
    platform: Platform, group: EventGroup, known: KnownType, log: Callable[[str], None]
) -> WouldChange:
    """What a replay of this type, which has a table, would change; by Spark, and nothing is
    written.

    Raises:
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.silver.replay import TypeReplayer  # only who asks for this needs Spark

    with _reading(platform, group, known.checkpoint, log) as (spark, slices, tables):
        schema = next_schema(known.schema, known.observed, tables.job.group.contract_of(known.type))
        replayer = TypeReplayer(
            spark=spark, slices=slices, tables=tables, repository=event_types(platform)
        )
        with replayer.difference(replace(known, schema=schema)) as found:
            return WouldChange(
                replaced=found.updated,
                added=found.inserted,
                removed=0,
                gained=tuple(gained(known.schema, schema)),
            )


def would_rebuild(
    platform: Platform,
    group: EventGroup,
    known: KnownType,
    newest: TypeCheckpoint,
    log: Callable[[str], None],
) -> WouldChange:
    """What a rebuild of this type from the stream's table at its newest would change; by Spark, and
    nothing is written.

    Raises:
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.silver.replay import TypeRebuilder
    from lakechime_dagster.silver.write import TypeWriter

    with _reading(platform, group, newest, log) as (spark, slices, tables):
        writer = TypeWriter(spark=spark, slices=slices, tables=tables)
        rebuilder = TypeRebuilder(
            spark=spark, slices=slices, writer=writer, repository=event_types(platform)
        )
        with rebuilder.compared(known) as (found, _):
            return WouldChange(
                replaced=found.done.replaced,
                added=found.done.added + found.came,
                removed=found.done.removed,
                is_same=found.is_same,
                gained=tuple(gained(known.schema, found.known.schema)),
                lost=tuple(gained(found.known.schema, known.schema)),
            )


@contextmanager
def _reading(
    platform: Platform, group: EventGroup, checkpoint: TypeCheckpoint, log: Callable[[str], None]
) -> "Iterator[tuple[SparkSession, Slices, TypeTables]]":
    """What an execution of the group up to a checkpoint would read and write."""
    from lakechime_dagster.runtime.spark import spark_of
    from lakechime_dagster.silver.slices import Slices, TypeTables
    from lakechime_dagster.spark.driver import described, open_driver

    settings, bronze = platform.settings, group.stream.table
    uid, version = checkpoint.uid, SnapshotId(str(checkpoint.version))
    job = GroupJob(
        group=group,
        groups=(group,),
        bronze=platform.location(bronze.name, bronze.location),
        end=SnapshotCheckpoint(
            table_uid=None if uid is None else TableUid(uid), snapshot_id=version
        ),
        log_of=partial(platform.log_of, table_format=group.format),
        deployment=platform.ledger.deployment,
    )
    with (
        open_driver(
            spark_of(settings, group), settings.home, jars=settings.jars, log=log
        ) as driver,
        described(),
    ):
        slices = Slices(
            driver.spark, bronze.name, platform.log_at(job.bronze, bronze.name), job.end
        )
        yield driver.spark, slices, TypeTables(job=job)


def would_reprocess(
    platform: Platform, table: EventTable, log: Callable[[str], None]
) -> "WouldReprocess":
    """What a request to reprocess would bring; by Spark, and nothing is written.

    Raises:
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.silver.bronze import WouldReprocess, reprocess_of, reprocessed
    from lakechime_dagster.spark.driver import described, open_driver

    settings, location = platform.settings, platform.location(table.name, table.location)
    job = EventJob(
        name=table.name,
        location=location,
        source=table.source,
        type_field=table.type_field,
        producer_field=table.producer_field,
        classes=str(settings.home / "classes"),
    )
    with (
        open_driver(settings.spark, settings.home, jars=settings.jars, log=log) as driver,
        described(),
    ):
        rows = reprocessed(driver.spark, job, platform.log_at(location, table.name))
        return WouldReprocess(rows=0) if rows is None else reprocess_of(rows)


SAMPLE = 100  # rows of a type of which each value is looked at


def verified(
    platform: Platform,
    group: EventGroup,
    log: Callable[[str], None],
    *,
    names: Collection[str] | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
) -> list[Verified]:
    """What is found of these types of a group, or of all that ever had a table, by name; none where
    no event came to the stream.

    Raises:
        SparkFailedError: what Spark said.
        TableUnreadableError: the stream's table cannot be read.
    """
    from lakechime_dagster.silver.verify import GroupVerifier

    newest = Streamed(platform, group.stream.table).newest()
    if newest is None:
        return []
    with _reading(platform, group, newest, log) as (spark, slices, tables):
        verifier = GroupVerifier(
            spark=spark,
            slices=slices,
            tables=tables,
            repository=event_types(platform),
            discarded=_discarded(platform, group.name),
            sample=sample,
            seed=seed,
        )
        return verifier.verified(None if names is None else {*names})


def _discarded(platform: Platform, group: str) -> dict[str, int]:
    """The events of each type that executions discarded, less those that replays brought back."""
    requests, found = event_requests(platform), dict[str, int]()
    for name, one in event_types(platform).types(group).items():
        done = (
            [each.done.added for each in requests.of(one.table) if each.done is not None]
            if one.discarded
            else []
        )
        found[name] = one.discarded - sum(done)
    return found
