"""Blocks an execution whose input lost or retyped a column that the table reads."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lakechime_dagster.dce.events import TableFormat, version_of
from lakechime_dagster.dce.partitions import shortened
from lakechime_dagster.dce.snapshots import CommitsMissingError
from lakechime_dagster.errors import ConsumerBlockedError, TableUnreadableError
from lakechime_dagster.lineage.columns import Kind, Producer, Statement
from lakechime_dagster.lineage.manifest import fits, misfit, said
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.resource import declared_subscriptions
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import folded
from lakechime_dagster.tables.tables import LakeTable, code_digest
from lakechime_dagster.triggers.consumers import Checkpoint, ConsumerState
from lakechime_dagster.triggers.interventions import Interventions
from lakechime_dagster.triggers.registry import By, ConsumerRow, SubscriptionRow
from lakechime_dagster.triggers.subscription import Subscription

if TYPE_CHECKING:
    from lakechime_dagster.formats.delta import DeltaLog

BLOCKED = "a column that it reads changed: "  # how the reason of such a block begins
BY = By(who="lakechime", reason="schema and code fit again")
FEW = 50  # commits
MAX_SAID = 200  # characters of a type, or of the name of a column


def check_fits(running: RunningExecution, lake: Lake, table: LakeTable) -> None:
    """Let an execution start only if its inputs have the columns that it reads.

    Raises:
        ConsumerBlockedError: naming which column of which table changed, with which version and by
            whom.
    """
    execution, platform = running.execution, running.platform
    found = _misfits(
        platform, lake, table, execution.consumer.deployment, execution.start, execution.end
    )
    if found:
        raise ConsumerBlockedError(BLOCKED + "; ".join(found), ends_when="schema or code fit")


def resume_fitting(platform: Platform, lake: Lake) -> list[str]:
    """Retry the executions that were blocked by a column and fit now, up to the newest events; the
    names of their tables.
    """
    subscriptions, tables = declared_subscriptions(), {table.name: table for table in lake.computed}
    return [
        row.name
        for row in platform.ledger.subscriptions_blocked_for(BLOCKED)
        if row.name in tables
        and row.name in subscriptions
        and _resumed(platform, lake, tables[row.name], subscriptions[row.name], row)
    ]


def _resumed(
    platform: Platform,
    lake: Lake,
    table: LakeTable,
    subscription: Subscription,
    row: SubscriptionRow,
) -> bool:
    blocked = {
        key: consumer
        for key, consumer in platform.ledger.consumers(row).items()
        if _is_blocked(consumer)
    }
    if not blocked:
        return False
    people, is_resumed = Interventions(platform.ledger), False
    for execution in platform.ledger.open_executions(row):
        consumer = blocked.get(execution.consumer.key)
        if consumer is not None and not _misfits(
            platform, lake, table, execution.consumer.deployment, execution.start, None
        ):
            people.retry(execution, BY, platform.evaluator.end_of(subscription, row, consumer))
            is_resumed = True
    return is_resumed


def _is_blocked(consumer: ConsumerRow) -> bool:
    return consumer.state is ConsumerState.BLOCKED and consumer.state_reason.startswith(BLOCKED)


def _misfits(
    platform: Platform,
    lake: Lake,
    table: LakeTable,
    namespace: str,
    start: Checkpoint,
    end: Checkpoint | None,
) -> list[str]:
    """What does not fit between two checkpoints; None as end is now."""
    statement = _recorded(platform, table, namespace)
    if statement is None:
        return []
    return [
        problem
        for name in table.inputs
        if lake.table(name).format is TableFormat.DELTA
        if (columns := _read_of(statement, name))
        for problem in _changed(
            platform.log(name, lake.table(name).location),
            columns,
            _version(start, name),
            _version(end, name),
        )
    ]


def _recorded(platform: Platform, table: LakeTable, namespace: str) -> Statement | None:
    """What the newest run recorded of the table, if it had the code of now."""
    producer, code = Producer(namespace=namespace, job=table.name), code_digest(table)
    standing = LineageStandings(platform.store.engine).of_targets([table.name])
    return next(
        (one.statement for one in standing if one.producer == producer and one.code == code), None
    )


def _read_of(statement: Statement, table: str) -> dict[str, bool]:
    """The columns of a table that are read, and whether something is made of the values; one that
    is only handed on may have any type.
    """
    found: dict[str, bool] = {}
    for source in statement.sources:
        if source.ref.table == table and source.ref.column is not None:
            found[source.ref.column] = (
                found.get(source.ref.column, False) or source.kind is not Kind.IDENTITY
            )
    return found


def _version(checkpoint: Checkpoint | None, table: str) -> int | None:
    source = checkpoint.sources.get(table) if checkpoint is not None else None
    return version_of(source.snapshot_id) if source is not None else None


def _changed(
    log: "DeltaLog", columns: Mapping[str, bool], start: int | None, end: int | None
) -> Iterator[str]:
    """The columns that are gone or of another type since a version; none where that is
    unknown.
    """
    if start is None:
        return
    try:
        last = log.version if end is None else end
        if not _has_other_schema(log, start, last):
            return
        before, after = _types(log, start), _types(log, last)
    except TableUnreadableError:
        return  # the execution itself says so
    for name in sorted(columns):
        was, now = before.get(folded(name)), after.get(folded(name))
        is_worked_with = columns[name] or now is None
        if was is not None and is_worked_with and not _fits(was, now):
            version = _first(log, name, was, start, last)
            sentence = (
                f"{log.table}.{_misfit(name, was, now)} since version "
                f"{version} ({_writer(log, version)})"
            )
            yield sentence


def _has_other_schema(log: "DeltaLog", start: int, last: int) -> bool:
    """Whether a commit since may have changed the schema; of a few it is looked up, as that costs
    less than to open two states.
    """
    if last - start > FEW:
        return True
    try:
        return last < start or any(
            commit.columns is not None for commit in log.commits(start, last)
        )
    except CommitsMissingError:
        return True


def _types(log: "DeltaLog", version: int) -> Mapping[str, Any]:
    """The types of columns, by their names without letter case."""
    return {folded(name): kind for name, kind, _ in log.columns(version)}


def _fits(before: object, after: object | None) -> bool:
    """Whether a column may go on as it is now; None says that it is gone."""
    return after is not None and fits(before, after)


def _misfit(name: str, before: object, after: object | None) -> str:
    """A column, or the field of it, that is gone or of another type, in words that are short
    whatever the types are.
    """
    path, was, now = misfit(before, after)
    what = (
        "is gone"
        if now is None
        else f"is {shortened(said(now), MAX_SAID)}, was {shortened(said(was), MAX_SAID)}"
    )
    return f"{shortened('.'.join((name, *path)), MAX_SAID)} {what}"


def _first(log: "DeltaLog", name: str, before: object, start: int, last: int) -> int:
    """The first version at which a column does not fit any more."""
    low, high = start, last
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high)
            if _fits(before, _types(log, middle).get(folded(name)))
            else (low, middle)
        )
    return high


def _writer(log: "DeltaLog", version: int) -> str:
    try:
        (commit,) = log.commits(version - 1, version)
    except (TableUnreadableError, CommitsMissingError):
        return "whose writer is no longer in the log"
    return f"{commit.operation or 'a write'} by {commit.engine or 'a program that does not say'}"
