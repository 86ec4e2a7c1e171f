"""The types of a deployment, and what lets a group or a stream run though nothing new arrived."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.results import GroupResult
from lakechime_dagster.silver.schema import NOWHERE, KnownType, TypeCheckpoint
from lakechime_dagster.silver.store import Breaks, Hints, LeftType, Patterns, Replays, Reprocesses, SqlEventTypes, add_to_group
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.triggers.consumers import ConsumerState, Execution
from lakechime_dagster.triggers.decision import Decision, Firing
from lakechime_dagster.triggers.registry import ConsumerRow, SubscriptionRow
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Subscription

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


def event_patterns(platform: Platform) -> Patterns:
    """By which patterns groups have read in this deployment."""
    return Patterns(platform.store.engine, platform.ledger.deployment)


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
        event_patterns(platform).keep(connection, subscription.name, subscription.patterns)

    return platform.ledger.complete(execution, None, beside=beside)


CATCHES_UP = "catches up"
NEVER_WRITTEN = "nothing was written yet"


class Fares(StrEnum):
    """How a type fares.

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
    def fares(self) -> Fares:
        if self.known.error:
            return Fares.FAILED
        return Fares.OK if self.known.checkpoint.commits else Fares.WAITS

    @property
    def reason(self) -> str:
        """Why it is not OK; empty where it is."""
        match self.fares:
            case Fares.OK:
                return ""
            case Fares.FAILED:
                return self.known.error
            case Fares.WAITS:
                return self.known.waits or NEVER_WRITTEN

    @property
    def left(self) -> str:
        """Why a step left events of it that need nobody, as it catches up; empty where none are."""
        return CATCHES_UP if self.fares is Fares.OK and self.known.due_ts else ""

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


def with_reprocess(platform: Platform, subscription: Subscription, row: SubscriptionRow, decision: Decision) -> Decision:
    """A stream also fires for what it refused, where somebody wants that looked at again and nothing else wakes it.

    A request to reprocess that is open all the same is told beside the decision.
    """
    firing = reprocess_firing(platform, subscription, row)
    if firing is None:
        return decision
    if decision.fires or row.paused_ts is not None or platform.ledger.open_executions(row):
        return replace(decision, reasons=(*decision.reasons, firing.reason))
    return replace(decision, fires=True, reasons=(firing.reason,), firings=(firing,))


def reprocess_firing(platform: Platform, subscription: Subscription, row: SubscriptionRow) -> Firing | None:
    """What lets a stream do what is asked to be reprocessed, and read nothing; None where none is, or its consumer waits for a person."""
    number = event_reprocesses(platform).open(subscription.name) if subscription.is_stream else None
    consumer = platform.ledger.consumers(row).get("") if number is not None else None
    if consumer is None or consumer.state is not ConsumerState.ACTIVE:
        return None
    reason = f"reprocessing {number}: what was refused is looked at again"
    return Firing(reason=reason, completed=consumer.completed, feed=consumer.checkpoint.feed, has_more=consumer.checkpoint.has_more)


MOST_OF_ERROR = 200  # characters
UNREAD = "the groups of its stream share the types by other patterns: those that nobody has read are looked for"


def with_asked(platform: Platform, subscription: Subscription, row: SubscriptionRow, decision: Decision) -> Decision:
    """A decision, where nothing new fires the subscription also by what people want of a group or a stream, and what is to be tried
    again.
    """
    return (
        _with_types(platform, subscription, row, decision)
        if subscription.has_types
        else with_reprocess(platform, subscription, row, decision)
    )


def _with_types(platform: Platform, subscription: Subscription, row: SubscriptionRow, decision: Decision) -> Decision:
    """A group also fires for types that are to be replayed, or of which events are due that a step left, where nothing else wakes it.

    What is not due, or is done by a step that comes anyway, is told beside the decision.
    """
    consumer, left = platform.ledger.consumers(row).get(""), event_types(platform).left(subscription.name)
    due, later = _due(platform, subscription, consumer, left), _later(left)
    is_free = consumer is not None and consumer.state is ConsumerState.ACTIVE and row.paused_ts is None
    if consumer is None or not due or not is_free or decision.fires or platform.ledger.open_executions(row):
        return replace(decision, reasons=(*decision.reasons, *due, *later))
    return replace(decision, fires=True, reasons=(*due, *later), firings=(Firing(reason=due[0], completed=consumer.completed),))


def due_types(platform: Platform, subscription: Subscription, consumer: ConsumerRow) -> list[str]:
    """Why a group is to be run though no event came, in sentences; none where it is not."""
    return _due(platform, subscription, consumer, event_types(platform).left(subscription.name))


def _due(platform: Platform, subscription: Subscription, consumer: ConsumerRow | None, left: Sequence[LeftType]) -> list[str]:
    failed = {one.type for one in left if one.has_failed}
    asked = sorted({*event_replays(platform).open(subscription.name)} - failed)  # one that failed is replayed when it is tried again
    return [
        *_told("failed and tried again", [one.type for one in left if one.is_due and one.has_failed]),
        *_told("left by a step, and due", [one.type for one in left if one.is_due and not one.has_failed]),
        *_told("to be replayed", asked),
        *([UNREAD] if consumer is not None and _has_unread(platform, subscription, consumer) else ()),
    ]


def _later(left: Sequence[LeftType]) -> list[str]:
    """The types of which a step left events whose time has not come: of the first that failed until when, and why."""
    failed = [one for one in left if one.has_failed and not one.is_due]
    others = _told("left by a step for later", [one.type for one in left if not one.has_failed and not one.is_due])
    return [f"{told}{_until(failed[0])}" for told in _told("failed and tried again later", [one.type for one in failed])] + others


def _until(one: LeftType) -> str:
    first = one.error.partition("\n")[0]
    return f", not before {from_milliseconds(one.due_ts):%Y-%m-%d %H:%M:%S}Z: {first[:MOST_OF_ERROR]}"


def _has_unread(platform: Platform, subscription: Subscription, consumer: ConsumerRow) -> bool:
    """Whether by new patterns it may have types that nobody has read, in versions of the stream's table that it has read."""
    has_read = any(checkpoint.snapshot_id is not None for checkpoint in consumer.checkpoint.sources.values())
    return has_read and event_patterns(platform).are_other(subscription.name, subscription.patterns)


def _told(what: str, types: Sequence[str]) -> list[str]:
    """What becomes of types, in a sentence; none where there are none."""
    several = f"{len(types)} types, such as " if len(types) > 1 else ""
    return [f"{what}: {several}{types[0]}"] if types else []
