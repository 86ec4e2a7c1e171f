"""The types of a deployment, and what lets a group or a stream run though nothing new arrived."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.results import GroupResult
from lakechime_dagster.silver.schema import NOWHERE, KnownType, TypeCheckpoint
from lakechime_dagster.silver.store import Breaks, Hints, LeftType, Replays, Reprocesses, SqlEventTypes, add_to_group
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.triggers.consumers import Execution
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Requested, Subscription

if TYPE_CHECKING:
    from sqlalchemy import Connection


def event_types(platform: Platform) -> SqlEventTypes:
    """What is known of the types of events in this deployment."""
    return SqlEventTypes(platform.store.engine, platform.ledger.deployment)


def event_hints(platform: Platform) -> Hints:
    """What people say of types in this deployment, beside what is declared."""
    return Hints(platform.store.engine, platform.ledger.deployment)


def event_breaks(platform: Platform) -> Breaks:
    """The changes of types in this deployment that broke something."""
    return Breaks(platform.store.engine, platform.ledger.deployment)


def event_replays(platform: Platform) -> Replays:
    """The replays of types in this deployment."""
    return Replays(platform.store.engine, platform.ledger.deployment)


def complete_group(
    platform: Platform, subscription: Subscription, execution: Execution, result: GroupResult, told: Collection[str]
) -> bool:
    """Register the commits of a step's tables, then close it and move all checkpoints, in one transaction; False where somebody had.

    Nothing downstream looks in between, and a step is closed by its newest attempt alone: an earlier one that lives on has
    nothing that its tables let in.

    Raises:
        ConsumerConflictError: another attempt has followed this one.
    """
    types, (source,) = event_types(platform), subscription.trigger.tables
    uid = execution.end.sources[source].table_uid
    for one in result.types:
        log = platform.log(f"{one.home or subscription.name}.{one.table}")
        for commit in one.commits:
            platform.store.register(log.events_of_commit(int(commit.version)))

    def beside(connection: "Connection") -> None:
        types.complete(connection, subscription.name, execution.execution_id, result.types, str(uid), told)
        add_to_group(connection, types.deployment, subscription.name, result)

    return platform.ledger.complete(execution, None, beside=beside)


CATCHES_UP = "catches up"
NEVER_WRITTEN = "nothing was written yet"


class TypeState(StrEnum):
    """The state of a type.

    Attributes:
        OK: Its table holds what came up to its checkpoint.
        FAILED: Its newest step could not write it; it keeps its checkpoint, and is tried again.
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
    def table(self) -> str:
        """Its table's name, be it there yet or not."""
        return f"{self.known.home or self.group.name}.{self.known.table}"

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
        """Why a step left events of it that need nobody, as it catches up; empty where none are."""
        return CATCHES_UP if self.state is TypeState.OK and self.known.due_ts else ""

    def behind(self, newest: TypeCheckpoint) -> int:
        """How many versions of the stream's table came behind its checkpoint; all, where that table was made anew since."""
        checkpoint = self.known.checkpoint
        return max(0, newest.version - (checkpoint.version if checkpoint.uid in (None, newest.uid) else NOWHERE))


def types_of(platform: Platform, group: EventGroup) -> list[GroupedType]:
    """The types that came to a group, by name."""
    return [GroupedType(group=group, known=known) for known in event_types(platform).types(group.name).values()]


def event_reprocesses(platform: Platform) -> Reprocesses:
    """The requests to reprocess of streams in this deployment."""
    return Reprocesses(platform.store.engine, platform.ledger.deployment)


MOST_OF_ERROR = 200  # characters


def requested_of_stream(table: str) -> Callable[[Ledger], Requested]:
    """What a stream is requested to do: to reprocess what it refused."""

    def requested(ledger: Ledger) -> Requested:
        number = Reprocesses(ledger.engine, ledger.deployment).open(table)
        return Requested() if number is None else Requested(due=(f"reprocessing {number}: what was refused is looked at again",))

    return requested


def requested_of_group(group: str) -> Callable[[Ledger], Requested]:
    """What a group is requested to do: to replay types, and to read what earlier executions left of them."""

    def requested(ledger: Ledger) -> Requested:
        left = SqlEventTypes(ledger.engine, ledger.deployment).left(group)
        return Requested(due=_due(left, Replays(ledger.engine, ledger.deployment).open(group)), later=_later(left))

    return requested


def _due(left: Sequence[LeftType], replays: Collection[str]) -> tuple[str, ...]:
    failed = {one.type for one in left if one.has_failed}
    asked = sorted({*replays} - failed)  # one that failed is replayed when it is tried again
    return (
        *_told("failed and tried again", [one.type for one in left if one.is_due and one.has_failed]),
        *_told("left by a step, and due", [one.type for one in left if one.is_due and not one.has_failed]),
        *_told("to be replayed", asked),
    )


def _later(left: Sequence[LeftType]) -> tuple[str, ...]:
    """The types of which a step left events whose time has not come: of the first that failed until when, and why."""
    failed = [one for one in left if one.has_failed and not one.is_due]
    others = _told("left by a step for later", [one.type for one in left if not one.has_failed and not one.is_due])
    return (*(f"{told}{_until(failed[0])}" for told in _told("failed and tried again later", [one.type for one in failed])), *others)


def _until(one: LeftType) -> str:
    first = one.error.partition("\n")[0]
    return f", not before {from_milliseconds(one.due_ts):%Y-%m-%d %H:%M:%S}Z: {first[:MOST_OF_ERROR]}"


def _told(what: str, types: Sequence[str]) -> list[str]:
    """What becomes of types, in a sentence; none where there are none."""
    several = f"{len(types)} types, such as " if len(types) > 1 else ""
    return [f"{what}: {several}{types[0]}"] if types else []
