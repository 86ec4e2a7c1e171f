"""Backfill requests of consumers: which wait, and what a claim takes of them."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.engine import TransactionId, VisibleBelow, among, now_ms
from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.triggers.consumers import ConsumerRequests, RequestState
from lakechime_dagster.triggers.registry import change
from lakechime_dagster.triggers.schema import (
    lc_backfill,
    lc_consumer,
    lc_execution,
    lc_request,
    lc_subscription,
)

_WAITS = lc_request.c.state == RequestState.WAITING
_IS_TAKEN = lc_request.c.state == RequestState.TAKEN
_IS_UNCLAIMED = lc_request.c.state.in_([RequestState.WAITING, RequestState.LATER])


# whether a request waits for a consumer
IS_REQUESTED = sa.exists(lc_request.c.request_id).where(
    lc_request.c.subscription_id == lc_consumer.c.subscription_id,
    lc_request.c.key == lc_consumer.c.key,
    _IS_UNCLAIMED,
)


def consumer_requests(
    connection: Connection, subscription_ids: Sequence[int], key: str | None = None
) -> dict[tuple[int, str], ConsumerRequests]:
    """The requests that wait for each consumer of some subscriptions, or for those of one key, by
    subscription and key.
    """
    request, backfill = lc_request.c, lc_backfill.c
    query = (
        sa.select(
            request.request_id,
            request.backfill_id,
            request.subscription_id,
            request.key,
            request.waits_for,
            request.state,
            backfill.max_in_flight,
        )
        .join(lc_backfill, backfill.backfill_id == request.backfill_id)
        .where(among(connection, request.subscription_id, subscription_ids), _IS_UNCLAIMED)
        .order_by(request.request_id)
    )
    rows = connection.execute(query if key is None else query.where(request.key == key)).all()
    if not rows:
        return {}
    blocking = _blocking(connection, {row.backfill_id for row in rows})
    found: dict[tuple[int, str], ConsumerRequests] = {}
    for row in rows:
        before = found.get((row.subscription_id, row.key), ConsumerRequests())
        found[row.subscription_id, row.key] = ConsumerRequests(
            ids=(*before.ids, row.request_id),
            backfills=(*before.backfills, row.backfill_id),
            waiting_for=before.waiting_for or _waiting_for(row, blocking),
        )
    return found


def subscriptions_with_requests(connection: Connection) -> set[int]:
    """The subscriptions for some consumer of which a request waits."""
    return set(
        connection.execute(
            sa.select(lc_request.c.subscription_id).where(_WAITS).distinct()
        ).scalars()
    )


def take(
    connection: Connection, subscription_id: int, key: str, seen: Sequence[int], execution_id: str
) -> None:
    """Let an execution take the requests of its consumer that were seen and still wait; the
    consumer's row is held.

    Requests that are void by now must have been seen too: what made them void is in no end that was
    read before them.

    Raises:
        ConsumerConflictError: another request was made since, or as many consumers of a backfill
            are in flight as may be.
    """
    request = lc_request.c
    query = sa.select(request.request_id, request.backfill_id, request.state).where(
        request.subscription_id == subscription_id, request.key == key, _IS_UNCLAIMED
    )
    unclaimed = connection.execute(query.order_by(request.request_id)).all()
    if not unclaimed:
        return
    if not {row.request_id for row in unclaimed} <= {*seen}:
        raise ConsumerConflictError(
            f"a backfill has requested consumer {key!r} since it was evaluated; try again"
        )
    if waiting := {row.backfill_id for row in unclaimed if row.state == RequestState.WAITING}:
        _refuse_if_full(connection, waiting)
    under_way = {
        backfill_id
        for backfill_id, _ in _blocking(connection, {row.backfill_id for row in unclaimed})
    }
    taken = [
        row
        for row in unclaimed
        if row.state == RequestState.WAITING or row.backfill_id in under_way
    ]
    void = [row.request_id for row in unclaimed if row not in taken]
    cancel_unclaimed(connection, request.request_id.in_(void))
    mine = request.request_id.in_([row.request_id for row in taken])
    taking = (
        sa.update(lc_request)
        .where(mine, _IS_UNCLAIMED)
        .values(state=RequestState.TAKEN, execution_id=execution_id)
    )
    if connection.execute(taking).rowcount != len(taken):
        raise ConsumerConflictError(
            f"a backfill of consumer {key!r} was cancelled at this moment; try again"
        )
    change(
        connection,
        lc_execution,
        execution_id,
        backfill=",".join(sorted({row.backfill_id for row in taken})),
    )


def _refuse_if_full(connection: Connection, backfills: set[str]) -> None:
    """Hold the rows of the backfills, of none of which as many consumers are in flight as may
    be.
    """
    request, backfill = lc_request.c, lc_backfill.c
    rooms = sa.select(backfill.backfill_id, backfill.max_in_flight).where(
        backfill.backfill_id.in_(backfills)
    )
    for row in connection.execute(rooms.order_by(backfill.backfill_id).with_for_update()).all():
        taken = sa.select(sa.func.count()).where(request.backfill_id == row.backfill_id, _IS_TAKEN)
        if connection.execute(taken).scalar_one() >= row.max_in_flight:
            raise ConsumerConflictError(_full(row.backfill_id, row.max_in_flight))


def close(connection: Connection, execution_id: str, *, is_done: bool) -> None:
    """Close what an execution took, in the transaction that closes it."""
    state = RequestState.DONE if is_done else RequestState.SKIPPED
    closing = sa.update(lc_request).where(lc_request.c.execution_id == execution_id, _IS_TAKEN)
    connection.execute(
        closing.values(state=state, closed_ts=now_ms(connection), closed_tx=TransactionId())
    )


def cancel_unclaimed(connection: Connection, *of: sa.ColumnElement[bool]) -> int:
    """Drop the requests that nobody has taken, and return how many."""
    cancelling = sa.update(lc_request).where(_IS_UNCLAIMED, *of)
    return connection.execute(
        cancelling.values(state=RequestState.CANCELLED, closed_ts=now_ms(connection))
    ).rowcount


def _blocking(connection: Connection, backfills: set[str]) -> Mapping[tuple[str, int], sa.Row]:
    """The requests of backfills that are open, or whose outcome may not be visible yet, by backfill
    and number.
    """
    request = lc_request.c
    query = (
        sa.select(
            request.backfill_id, request.number, request.key, request.state, lc_subscription.c.name
        )
        .join(lc_subscription, lc_subscription.c.subscription_id == request.subscription_id)
        .where(
            request.backfill_id.in_(backfills),
            sa.or_(_WAITS, _IS_TAKEN, request.closed_tx >= VisibleBelow()),
        )
    )
    return {(row.backfill_id, row.number): row for row in connection.execute(query)}


def _waiting_for(row: sa.Row, blocking: Mapping[tuple[str, int], sa.Row]) -> str:
    """Why a request may not be taken now; empty where it may."""
    awaited = [
        blocking[row.backfill_id, number]
        for number in row.waits_for
        if (row.backfill_id, number) in blocking
    ]
    if awaited:
        first = f"{awaited[0].name} {awaited[0].key}".strip()
        others = f" and {len(awaited) - 1} more" if len(awaited) > 1 else ""
        return f"backfill {row.backfill_id} requested it, after {first}{others}"
    if row.state == RequestState.LATER:
        return ""
    taken = sum(
        1
        for (name, _), one in blocking.items()
        if name == row.backfill_id and one.state == RequestState.TAKEN
    )
    return _full(row.backfill_id, row.max_in_flight) if taken >= row.max_in_flight else ""


def _full(backfill: str, most: int) -> str:
    return f"backfill {backfill} has {most} consumers in flight, which is as many as may be at once"
