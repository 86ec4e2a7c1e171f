"""The types of a deployment, and what lets a group or a stream run though nothing new arrived."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.results import GroupResult
from lakechime_dagster.silver.schema import NOWHERE, KnownType, TypeCheckpoint
from lakechime_dagster.silver.store import LeftType, Requests, SqlEventTypes
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.triggers.consumers import Execution, ExecutionState
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Requested

if TYPE_CHECKING:
    from sqlalchemy import Connection


def event_types(platform: Platform) -> SqlEventTypes:
    """What is known of the types of events in this deployment."""
    return SqlEventTypes(platform.store.engine, platform.ledger.deployment)


def type_tables(platform: Platform, lake: Lake) -> dict[str, str]:
    """The event group of each table that holds a type of events of the lake's streams."""
    return {
        one.known.table: group.name for group in lake.groups for one in types_of(platform, group)
    }


def event_requests(platform: Platform) -> Requests:
    """The requests to replay, rebuild and reprocess in this deployment."""
    return Requests(platform.store.engine, platform.ledger.deployment)


def complete_group(
    platform: Platform,
    group: EventGroup,
    execution: Execution,
    result: GroupResult,
    shown: Collection[str],
) -> bool:
    """Register the commits of an execution, then close it and move all checkpoints, in one
    transaction; False where somebody had.

    Nothing downstream looks in between, and an execution is closed by its newest attempt alone: an
    earlier one that lives on has nothing that its tables let in.

    Raises:
        ConsumerConflictError: another attempt has followed this one.
    """
    types, uid = event_types(platform), execution.end.sources[group.stream.table.name].table_uid
    for one in result.types:
        log = platform.log_of(one.table, group.format)
        for commit in one.commits:
            platform.store.register(log.events_of(commit))

    def beside(connection: "Connection") -> None:
        types.complete(connection, group.name, execution.execution_id, result, str(uid), shown)

    return platform.ledger.complete(execution, None, beside=beside)


def completed_until(platform: Platform, group: str) -> int:
    """When the newest execution that was completed was so; 0 where none was.

    What was found out since is in the checks of none: an execution that is skipped has no checks.
    """
    newest = platform.ledger.executions(subscription=group, state=ExecutionState.COMPLETED, limit=1)
    return (newest[0].completed_ts or 0) if newest else 0


CATCHES_UP = "catches up"
NEVER_WRITTEN = "nothing was written yet"


class TypeState(StrEnum):
    """The state of a type.

    Attributes:
        OK: Its table holds what came up to its checkpoint.
        FAILED: Its newest execution could not write it; it keeps its checkpoint, and is tried
            again.
        WAITS: It has no table.
    """

    OK = "ok"
    FAILED = "failed"
    WAITS = "waits"


@dataclass(frozen=True, kw_only=True)
class GroupedType:
    """A type of a group."""

    group: EventGroup
    known: KnownType

    @property
    def state(self) -> TypeState:
        if self.known.error:
            return TypeState.FAILED
        return TypeState.OK if self.known.checkpoint.commits else TypeState.WAITS

    @property
    def reason(self) -> str:
        """Why it is not OK; empty where it is."""
        match self.state:
            case TypeState.OK:
                return ""
            case TypeState.FAILED:
                return self.known.error
            case TypeState.WAITS:
                return self.known.waits or NEVER_WRITTEN

    @property
    def left(self) -> str:
        """Why an execution left events of it that need nobody, as it catches up; empty where none
        are.
        """
        return CATCHES_UP if self.state is TypeState.OK and self.known.due_ts else ""

    def behind(self, newest: TypeCheckpoint) -> int:
        """How many versions of the stream's table are behind its checkpoint; all, where that table
        was recreated since.
        """
        checkpoint = self.known.checkpoint
        return max(
            0,
            newest.version
            - (checkpoint.version if checkpoint.uid in (None, newest.uid) else NOWHERE),
        )


def types_of(platform: Platform, group: EventGroup) -> list[GroupedType]:
    """The types of a group that have events, by name."""
    types = event_types(platform).types(group.name)
    return [GroupedType(group=group, known=types[name]) for name in sorted(types)]


MOST_OF_ERROR = 200  # characters


def requested_of_stream(table: str) -> Callable[[Ledger], Requested]:
    """What a stream is requested to do: to reprocess what it refused."""

    def requested(ledger: Ledger) -> Requested:
        opened = Requests(ledger.engine, ledger.deployment).open(table)
        return (
            Requested()
            if opened is None
            else Requested(due=(f"request {opened.request_id}: what was refused is parsed again",))
        )

    return requested


def requested_of_group(group: str) -> Callable[[Ledger], Requested]:
    """What a group is requested to do: to replay types, and to read what earlier executions left of
    them.
    """

    def requested(ledger: Ledger) -> Requested:
        left = SqlEventTypes(ledger.engine, ledger.deployment).left(group)
        return Requested(
            due=_due(left, Requests(ledger.engine, ledger.deployment).open_of_group(group)),
            later=_later(left),
        )

    return requested


def _due(left: Sequence[LeftType], replays: Collection[str]) -> tuple[str, ...]:
    failed = {one.type for one in left if one.has_failed}
    asked = sorted({*replays} - failed)  # one that failed is replayed when it is tried again
    return (
        *_sentence(
            "failed and tried again", [one.type for one in left if one.is_due and one.has_failed]
        ),
        *_sentence(
            "left by an execution, and due",
            [one.type for one in left if one.is_due and not one.has_failed],
        ),
        *_sentence("to be replayed", asked),
    )


def _later(left: Sequence[LeftType]) -> tuple[str, ...]:
    """The types of which an execution left events that are not due: of the first that failed until
    when, and why.
    """
    failed = [one for one in left if one.has_failed and not one.is_due]
    others = _sentence(
        "left by an execution for later",
        [one.type for one in left if not one.has_failed and not one.is_due],
    )
    later = _sentence("failed and tried again later", [one.type for one in failed])
    return (*(f"{sentence}{_until(failed[0])}" for sentence in later), *others)


def _until(one: LeftType) -> str:
    first = one.error.partition("\n")[0]
    return (
        f", not before {from_milliseconds(one.due_ts):%Y-%m-%d %H:%M:%S}Z: {first[:MOST_OF_ERROR]}"
    )


def _sentence(what: str, types: Sequence[str]) -> list[str]:
    """What happens to types; none where there are none."""
    several = f"{len(types)} types, such as " if len(types) > 1 else ""
    return [f"{what}: {several}{types[0]}"] if types else []
