"""What metrics show, read from the store alone: event types, groups, consumers and ticks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from lakechime_dagster.dce.engine import now_ms, reading
from lakechime_dagster.silver import store_schema as events
from lakechime_dagster.silver.store import SqlEventTypes, with_schemas
from lakechime_dagster.triggers.consumers import ConsumerState, ExecutionState
from lakechime_dagster.triggers.progress import ConsumerLag, consumer_lags
from lakechime_dagster.triggers.schema import lc_consumer, lc_execution, lc_subscription


@dataclass(frozen=True, kw_only=True)
class TypeMeasures:
    """A type: what its completed executions did in sum, and its state. Times are milliseconds of
    the store's clock.

    Attributes:
        reasons: Why values were rescued: how many of each.
        conflicts: Variant columns that its schema has.
        is_failing: The execution that tried it last could not write it.
        behind: Rows behind its checkpoint, as the execution counted them that tried it last.
    """

    group: str
    type: str
    written: int
    rescued: int
    reasons: Mapping[str, int]
    discarded: int
    columns_added: int
    conflicts: int
    failed_executions: int
    is_failing: bool
    variations: int
    pending: int
    behind: int
    schema_version: int
    commit_ts: int | None
    behind_ts: int | None


@dataclass(frozen=True, kw_only=True)
class GroupMeasures:
    """A group.

    Attributes:
        state: Of its consumer; None before its first tick.
        open_ts: When its open execution was claimed, which is at this `attempt`.
        stuck_ts: Since when it could write no type: one fails since then, and none has had a
            commit.
        refused: Rows of no type, by reason; and `seconds` by phase.
    """

    group: str
    state: ConsumerState | None = None
    open_ts: int | None = None
    attempt: int = 0
    stuck_ts: int | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Measures:
    """All of a deployment at `now`, the busiest types first; `ticked_ts` is when a trigger was
    evaluated last.

    Attributes:
        lags: Of all consumers, groups among them.
    """

    now: int
    types: tuple[TypeMeasures, ...]
    groups: tuple[GroupMeasures, ...]
    lags: tuple[ConsumerLag, ...]
    consumers: Mapping[ConsumerState, int]
    ticked_ts: int | None

    @property
    def waiting_since(self) -> Mapping[str, int]:
        """By consumer when the oldest event that it has not consumed was registered; those that
        have consumed all are left out.
        """
        found: dict[str, int] = {}
        for one in self.lags:
            if one.since_ts is not None:
                found[one.consumer] = min(one.since_ts, found.get(one.consumer, one.since_ts))
        return found


def measures(types: SqlEventTypes) -> Measures:
    """What is there now, the busiest types first."""
    deployment = types.deployment
    with reading(types.engine) as connection:
        kinds = sa.select(events.event_type, events.schema_version.c.variants).select_from(
            with_schemas()
        )
        found = [
            _type(row)
            for row in connection.execute(kinds.where(events.event_type.c.deployment == deployment))
        ]
        several = tuple(
            sorted(found, key=lambda one: (-one.written - one.discarded, one.group, one.type))
        )
        of_deployment = sa.select(events.group_total).where(
            events.group_total.c.deployment == deployment
        )
        totals = {row.group_name: row for row in connection.execute(of_deployment)}
        now = now_ms(connection)
        names = sorted({one.group for one in several} | {*totals})
        subscriptions = {
            row.name: row for row in connection.execute(_subscriptions(deployment, names))
        }
        groups = tuple(
            replace(
                _group(name, subscriptions.get(name), totals.get(name)),
                stuck_ts=_stuck_ts(several, name),
            )
            for name in names
        )
        lags = tuple(consumer_lags(connection, deployment))
        consumers = {
            ConsumerState(state): count
            for state, count in connection.execute(_consumers(deployment))
        }
        ticked = connection.execute(
            sa.select(sa.func.max(lc_subscription.c.ticked_ts)).where(*_lives(deployment))
        ).scalar_one()
        return Measures(
            now=now, types=several, groups=groups, lags=lags, consumers=consumers, ticked_ts=ticked
        )


def _stuck_ts(types: Iterable[TypeMeasures], group: str) -> int | None:
    """Since when a group could write no type; None where one was written since the oldest failure,
    or none fails.
    """
    own = [one for one in types if one.group == group]
    since = min(
        (one.behind_ts for one in own if one.is_failing and one.behind_ts is not None), default=None
    )
    was_written = since is not None and any(
        one.commit_ts is not None and one.commit_ts > since for one in own
    )
    return None if was_written else since


def _type(row: Any) -> TypeMeasures:
    return TypeMeasures(
        group=row.group_name,
        type=row.type,
        reasons=row.reasons,
        conflicts=row.variants or 0,
        failed_executions=row.sums.get("failures", 0),
        is_failing=row.failures > 0,
        variations=row.variations,
        pending=row.pending,
        behind=row.rows_behind,
        schema_version=row.schema_version,
        commit_ts=row.commit_ts,
        behind_ts=row.behind_ts,
        **{
            name: row.sums.get(name, 0)
            for name in ("written", "rescued", "discarded", "columns_added")
        },
    )


def _lives(deployment: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (lc_subscription.c.deployment == deployment, lc_subscription.c.forgotten_ts.is_(None))


def _consumers(deployment: str) -> sa.Select[Any]:
    consumer = lc_consumer.c
    return (
        sa.select(consumer.state, sa.func.count())
        .join_from(lc_consumer, lc_subscription)
        .where(*_lives(deployment))
        .group_by(consumer.state)
    )


def _subscriptions(deployment: str, names: list[str]) -> sa.Select[Any]:
    """The groups' subscriptions with their one consumer each, and its open execution."""
    subscription, consumer, execution = lc_subscription.c, lc_consumer.c, lc_execution.c
    is_open = sa.and_(
        execution.consumer_id == consumer.consumer_id, execution.state == ExecutionState.OPEN
    )
    joined = lc_subscription.join(
        lc_consumer,
        sa.and_(consumer.subscription_id == subscription.subscription_id, consumer.key == ""),
    ).outerjoin(lc_execution, is_open)
    columns = (subscription.name, consumer.state, execution.claimed_ts, execution.attempt)
    return (
        sa.select(*columns)
        .select_from(joined)
        .where(*_lives(deployment), subscription.name.in_(names))
    )


def _group(name: str, subscription: Any, total: Any) -> GroupMeasures:
    sums = {} if total is None else {"refused": total.refused, "seconds": total.seconds}
    if subscription is None:
        return GroupMeasures(group=name, **sums)
    state, attempt = ConsumerState(subscription.state), subscription.attempt or 0
    return GroupMeasures(
        group=name, state=state, open_ts=subscription.claimed_ts, attempt=attempt, **sums
    )
