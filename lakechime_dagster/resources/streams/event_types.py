"""The types of a deployment: what the store knows of each, its status, and what a completed execution leaves there."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.schema.learning import NOWHERE, KnownType, TypePlace
from lakechime_dagster.schema.steps import GroupResult
from lakechime_dagster.store.types.decisions import Hints
from lakechime_dagster.store.types.repository import Breaks, Patterns, Replays, SqlEventTypes, add_to_group
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import Execution

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


def settle_group(platform: Platform, flow: Flow, execution: Execution, result: GroupResult, told: Collection[str]) -> bool:
    """Register the commits of a step's tables, then close it and move all places, in one transaction; False where somebody had.

    Nothing downstream looks in between, and a step is closed by its newest attempt alone: an earlier one that lives on has
    nothing that its tables let in.

    Raises:
        LaneConflictError: another attempt has followed this one.
    """
    types, (source,) = event_types(platform), flow.trigger.tables
    uid = execution.end.sources[source].table_uid
    for one in result.types:
        log = platform.log(f"{one.home or flow.name}.{one.table}")
        for commit in one.commits:
            platform.store.register(log.events_of_commit(int(commit.version)))

    def beside(connection: "Connection") -> None:
        types.settle(connection, flow.name, execution.execution_id, result.types, str(uid), told)
        add_to_group(connection, types.deployment, flow.name, result)
        event_patterns(platform).keep(connection, flow.name, flow.patterns)

    return platform.ledger.settle(execution, None, beside=beside)


CATCHES_UP = "catches up"
NEVER_WRITTEN = "nothing was written yet"


class Fares(StrEnum):
    """How a type fares.

    Attributes:
        OK: Its table holds what came up to its place.
        FAILED: Its newest step could not write it; it keeps its place, and is tried again.
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
        return Fares.OK if self.known.place.commits else Fares.WAITS

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

    def behind(self, newest: TypePlace) -> int:
        """How many versions of the stream's table came behind its place; all, where that table was made anew since."""
        place = self.known.place
        return max(0, newest.version - (place.version if place.uid in (None, newest.uid) else NOWHERE))


def types_of(platform: Platform, group: EventGroup) -> list[GroupedType]:
    """The types that came to a group, by name."""
    return [GroupedType(group=group, known=known) for known in event_types(platform).types(group.name).values()]
