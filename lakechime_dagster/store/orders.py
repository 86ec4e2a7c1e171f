"""The orders of lanes: which wait and whether they may be taken, what a claim takes, what settling closes.

A claim looks at the orders first and reads the newest position after that, so that what an input's order made is within its range.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.errors import LaneConflictError
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.dialect import TransactionId, VisibleBelow, now_ms
from lakechime_dagster.triggers.orders import LaneOrders, OrderState

_WAITS = schema.order.c.state == OrderState.WAITING.value
_IS_TAKEN = schema.order.c.state == OrderState.TAKEN.value


def lane_orders(connection: Connection, flow_id: int, key: str | None = None) -> dict[str, LaneOrders]:
    """The orders that wait for each lane of a flow, or for one, by key."""
    order, backfill = schema.order.c, schema.backfill.c
    query = (
        sa.select(order.order_id, order.backfill_id, order.key, order.waits_for, backfill.max_in_flight)
        .join(schema.backfill, backfill.backfill_id == order.backfill_id)
        .where(order.flow_id == flow_id, _WAITS)
        .order_by(order.order_id)
    )
    rows = connection.execute(query if key is None else query.where(order.key == key)).all()
    if not rows:
        return {}
    blocking = _blocking(connection, {row.backfill_id for row in rows})
    found: dict[str, LaneOrders] = {}
    for row in rows:
        before = found.get(row.key, LaneOrders())
        held_back = before.held_back or _held_back(row.backfill_id, row.waits_for, row.max_in_flight, blocking)
        found[row.key] = LaneOrders(
            ids=(*before.ids, row.order_id), backfills=(*before.backfills, row.backfill_id), held_back=held_back
        )  # fmt: skip
    return found


def flows_with_orders(connection: Connection) -> set[int]:
    """The flows for some lane of which an order waits."""
    return set(connection.execute(sa.select(schema.order.c.flow_id).where(_WAITS).distinct()).scalars())


def take(connection: Connection, flow_id: int, key: str, seen: Sequence[int], execution_id: str) -> None:
    """Let an execution take the orders of its lane that were seen and still wait; the lane's row is held.

    Raises:
        LaneConflictError: another order came since, or as many lanes of a backfill are in flight as may be.
    """
    order, backfill = schema.order.c, schema.backfill.c
    query = sa.select(order.order_id, order.backfill_id).where(order.flow_id == flow_id, order.key == key, _WAITS)
    waiting = connection.execute(query.order_by(order.order_id)).all()
    if not waiting:
        return
    if not {row.order_id for row in waiting} <= {*seen}:
        raise LaneConflictError(f"a backfill has ordered lane {key!r} since it was looked at; try again")
    names = sorted({row.backfill_id for row in waiting})
    rooms = sa.select(backfill.backfill_id, backfill.max_in_flight).where(backfill.backfill_id.in_(names))
    for row in connection.execute(rooms.order_by(backfill.backfill_id).with_for_update()).all():
        taken = sa.select(sa.func.count()).where(order.backfill_id == row.backfill_id, _IS_TAKEN)
        if connection.execute(taken).scalar_one() >= row.max_in_flight:
            raise LaneConflictError(_full(row.backfill_id, row.max_in_flight))
    mine = order.order_id.in_([row.order_id for row in waiting])
    values = {"state": OrderState.TAKEN.value, "execution_id": execution_id}
    changed = connection.execute(sa.update(schema.order).where(mine, _WAITS).values(**values))
    if changed.rowcount != len(waiting):
        raise LaneConflictError(f"a backfill of lane {key!r} was cancelled at this moment; try again")
    this = schema.execution.c.execution_id == execution_id
    connection.execute(sa.update(schema.execution).where(this).values(backfill=",".join(names)))


def close(connection: Connection, execution_id: str, *, is_done: bool) -> None:
    """Close what an execution took, in the transaction that closes its step."""
    state = OrderState.DONE if is_done else OrderState.SKIPPED
    values = {"state": state.value, "closed_ts": now_ms(connection), "closed_tx": TransactionId()}
    connection.execute(sa.update(schema.order).where(schema.order.c.execution_id == execution_id, _IS_TAKEN).values(**values))


def cancel_waiting(connection: Connection, *of: sa.ColumnElement[bool]) -> int:
    """Drop the orders that nobody has taken, and tell how many."""
    values = {"state": OrderState.CANCELLED.value, "closed_ts": now_ms(connection)}
    return connection.execute(sa.update(schema.order).where(_WAITS, *of).values(**values)).rowcount


def _blocking(connection: Connection, backfills: set[str]) -> Mapping[tuple[str, int], sa.Row]:
    """The orders of backfills that are open, or whose outcome may not be visible yet, by backfill and number."""
    order = schema.order.c
    query = (
        sa.select(order.backfill_id, order.number, order.key, order.state, schema.flow.c.name)
        .join(schema.flow, schema.flow.c.flow_id == order.flow_id)
        .where(order.backfill_id.in_(backfills), sa.or_(_WAITS, _IS_TAKEN, order.closed_tx >= VisibleBelow()))
    )
    return {(row.backfill_id, row.number): row for row in connection.execute(query)}


def _held_back(backfill: str, waits_for: Sequence[int], most: int, blocking: Mapping[tuple[str, int], sa.Row]) -> str:
    """Why an order may not be taken now; empty where it may."""
    awaited = [blocking[backfill, number] for number in waits_for if (backfill, number) in blocking]
    if awaited:
        first = f"{awaited[0].name} {awaited[0].key}".strip()
        others = f" and {len(awaited) - 1} more" if len(awaited) > 1 else ""
        return f"backfill {backfill} ordered it, after {first}{others}"
    taken = sum(1 for (name, _), row in blocking.items() if name == backfill and row.state == OrderState.TAKEN)
    return _full(backfill, most) if taken >= most else ""


def _full(backfill: str, most: int) -> str:
    return f"backfill {backfill} has {most} lanes in flight, which is as many as may be at once"
