"""The schema repository of a platform, and what a settled step of a group leaves in it."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.schema.moves import Move
from lakechime_dagster.schema.results import GroupResult
from lakechime_dagster.store.types import moves as event_moves
from lakechime_dagster.store.types.breaks import Breaks
from lakechime_dagster.store.types.hints import Hints
from lakechime_dagster.store.types.patterns import Patterns
from lakechime_dagster.store.types.replays import Replays
from lakechime_dagster.store.types.repository import SqlEventTypes
from lakechime_dagster.store.types.totals import add_to_group
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


def move_types(platform: Platform, groups: Collection[EventGroup], uid: str | None) -> list[Move]:
    """Let each type of a stream be of the group that has it by the declaration, with all that is known of it; those that moved.

    Done before a step reads what it knows of its types. Done again it changes nothing.
    """
    return event_moves.move_types(event_types(platform), groups, uid)


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
