"""Backfill requests of consumers: which wait, and what a claim takes of them."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.engine import TransactionId, VisibleBelow, among, now_ms
from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.triggers import schema
from lakechime_dagster.triggers.consumers import ConsumerOrders, OrderState

_WAITS = schema.order.c.state == OrderState.WAITING.value
_IS_TAKEN = schema.order.c.state == OrderState.TAKEN.value
_IS_UNCLAIMED = schema.order.c.state.in_([OrderState.WAITING.value, OrderState.LATER.value])


def consumer_orders(
    connection: Connection, subscription_ids: Sequence[int], key: str | None = None
) -> dict[tuple[int, str], ConsumerOrders]:
    """The orders that wait for each consumer of some subscriptions, or for those of one key, by subscription and key."""
    order, backfill = schema.order.c, schema.backfill.c
    query = (
        sa.select(order.order_id, order.backfill_id, order.subscription_id, order.key, order.waits_for, order.state, backfill.max_in_flight)
        .join(schema.backfill, backfill.backfill_id == order.backfill_id)
        .where(among(connection, order.subscription_id, subscription_ids), _IS_UNCLAIMED)
        .order_by(order.order_id)
    )
    rows = connection.execute(query if key is None else query.where(order.key == key)).all()
    if not rows:
        return {}
    blocking = _blocking(connection, {row.backfill_id for row in rows})
    found: dict[tuple[int, str], ConsumerOrders] = {}
    for row in rows:
        before = found.get((row.subscription_id, row.key), ConsumerOrders())
        found[row.subscription_id, row.key] = ConsumerOrders(
            ids=(*before.ids, row.order_id),
            backfills=(*before.backfills, row.backfill_id),
            held_back=before.held_back or _held_back(row, blocking),
        )
    return found


def subscriptions_with_orders(connection: Connection) -> set[int]:
    """The subscriptions for some consumer of which an order waits."""
    return set(connection.execute(sa.select(schema.order.c.subscription_id).where(_WAITS).distinct()).scalars())


def take(connection: Connection, subscription_id: int, key: str, seen: Sequence[int], execution_id: str) -> None:
    """Let an execution take the orders of its consumer that were seen and still wait; the consumer's row is held.

    Orders that are void by now must have been seen too: what made them void is in no end that was read before them.

    Raises:
        ConsumerConflictError: another order came since, or as many consumers of a backfill are in flight as may be.
    """
    order = schema.order.c
    query = sa.select(order.order_id, order.backfill_id, order.state).where(
        order.subscription_id == subscription_id, order.key == key, _IS_UNCLAIMED
    )
    unclaimed = connection.execute(query.order_by(order.order_id)).all()
    if not unclaimed:
        return
    if not {row.order_id for row in unclaimed} <= {*seen}:
        raise ConsumerConflictError(f"a backfill has ordered consumer {key!r} since it was looked at; try again")
    if waiting := {row.backfill_id for row in unclaimed if row.state == OrderState.WAITING}:
        _refuse_if_full(connection, waiting)
    under_way = {backfill_id for backfill_id, _ in _blocking(connection, {row.backfill_id for row in unclaimed})}
    taken = [row for row in unclaimed if row.state == OrderState.WAITING or row.backfill_id in under_way]
    void = [row.order_id for row in unclaimed if row not in taken]
    cancel_unclaimed(connection, order.order_id.in_(void))
    mine = order.order_id.in_([row.order_id for row in taken])
    values = {"state": OrderState.TAKEN.value, "execution_id": execution_id}
    changed = connection.execute(sa.update(schema.order).where(mine, _IS_UNCLAIMED).values(**values))
    if changed.rowcount != len(taken):
        raise ConsumerConflictError(f"a backfill of consumer {key!r} was cancelled at this moment; try again")
    names = sorted({row.backfill_id for row in taken})
    this = schema.execution.c.execution_id == execution_id
    connection.execute(sa.update(schema.execution).where(this).values(backfill=",".join(names) or None))


def _refuse_if_full(connection: Connection, backfills: set[str]) -> None:
    """Hold the rows of the backfills, of none of which as many consumers are in flight as may be."""
    order, backfill = schema.order.c, schema.backfill.c
    rooms = sa.select(backfill.backfill_id, backfill.max_in_flight).where(backfill.backfill_id.in_(backfills))
    for row in connection.execute(rooms.order_by(backfill.backfill_id).with_for_update()).all():
        taken = sa.select(sa.func.count()).where(order.backfill_id == row.backfill_id, _IS_TAKEN)
        if connection.execute(taken).scalar_one() >= row.max_in_flight:
            raise ConsumerConflictError(_full(row.backfill_id, row.max_in_flight))


def close(connection: Connection, execution_id: str, *, is_done: bool) -> None:
    """Close what an execution took, in the transaction that closes its step."""
    state = OrderState.DONE if is_done else OrderState.SKIPPED
    values = {"state": state.value, "closed_ts": now_ms(connection), "closed_tx": TransactionId()}
    connection.execute(sa.update(schema.order).where(schema.order.c.execution_id == execution_id, _IS_TAKEN).values(**values))


def cancel_unclaimed(connection: Connection, *of: sa.ColumnElement[bool]) -> int:
    """Drop the orders that nobody has taken, and tell how many."""
    values = {"state": OrderState.CANCELLED.value, "closed_ts": now_ms(connection)}
    return connection.execute(sa.update(schema.order).where(_IS_UNCLAIMED, *of).values(**values)).rowcount


def _blocking(connection: Connection, backfills: set[str]) -> Mapping[tuple[str, int], sa.Row]:
    """The orders of backfills that are open, or whose outcome may not be visible yet, by backfill and number."""
    order = schema.order.c
    query = (
        sa.select(order.backfill_id, order.number, order.key, order.state, schema.subscription.c.name)
        .join(schema.subscription, schema.subscription.c.subscription_id == order.subscription_id)
        .where(order.backfill_id.in_(backfills), sa.or_(_WAITS, _IS_TAKEN, order.closed_tx >= VisibleBelow()))
    )
    return {(row.backfill_id, row.number): row for row in connection.execute(query)}


def _held_back(row: sa.Row, blocking: Mapping[tuple[str, int], sa.Row]) -> str:
    """Why an order may not be taken now; empty where it may."""
    awaited = [blocking[row.backfill_id, number] for number in row.waits_for if (row.backfill_id, number) in blocking]
    if awaited:
        first = f"{awaited[0].name} {awaited[0].key}".strip()
        others = f" and {len(awaited) - 1} more" if len(awaited) > 1 else ""
        return f"backfill {row.backfill_id} ordered it, after {first}{others}"
    if row.state == OrderState.LATER:
        return ""
    taken = sum(1 for (name, _), one in blocking.items() if name == row.backfill_id and one.state == OrderState.TAKEN)
    return _full(row.backfill_id, row.max_in_flight) if taken >= row.max_in_flight else ""


def _full(backfill: str, most: int) -> str:
    return f"backfill {backfill} has {most} consumers in flight, which is as many as may be at once"
