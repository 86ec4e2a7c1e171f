"""The schema repository of a platform, and what a settled step of a group leaves in it."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.schema.results import GroupResult
from lakechime_dagster.store.event_types import SqlEventTypes
from lakechime_dagster.triggers.lanes import Committed, Execution

if TYPE_CHECKING:
    from lakechime_dagster.capture.delta import DeltaLog

MAX_UNSETTLED = 20  # commits of a type that attempts left behind; a store that was lost does not know of all


def event_types(platform: Platform) -> SqlEventTypes:
    """What is known of the types of events in this deployment."""
    return SqlEventTypes(platform.store.engine, platform.ledger.deployment)


def settle_group(
    platform: Platform, execution: Execution, folder: str, result: GroupResult, source: str, told: Collection[str]
) -> bool:  # fmt: skip
    """Register the commits of a step's tables, then close it and move all places, in one transaction; False where somebody had.

    Nothing downstream looks in between, and a step is closed by its newest attempt alone: an earlier one that lives on has
    nothing that its tables let in.

    Raises:
        LaneConflictError: another attempt has followed this one.
    """
    group, types, uid = execution.lane.flow, event_types(platform), execution.end.sources[source].table_uid
    known = types.types(group)
    for one in result.types:
        if one.committed is not None:
            commits = known[one.type].place.commits if one.type in known else 0
            log = platform.log_at(f"{folder}/{one.table}", f"{group}.{one.table}")
            for version in _versions(log, one.committed, commits):
                platform.store.register(log.events_of_commit(version))
    return platform.ledger.settle(
        execution, None, beside=lambda connection: types.settle(connection, group, execution.execution_id, result.types, str(uid), told)
    )


def _versions(log: "DeltaLog", last: Committed, known: int) -> list[int]:
    """The commits up to a type's last one that the store does not know: those too of attempts that nobody settled."""
    steps = range(max(known, last.stamp.step - 1 - MAX_UNSETTLED) + 1, last.stamp.step)
    found = [log.committed(last.stamp.lane, step) for step in steps]
    return [*(int(one.version) for one in found if one is not None and not one.is_stamp_lost), int(last.version)]
