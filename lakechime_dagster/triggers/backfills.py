"""Backfill requests of consumers, in the store."""

import secrets
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.engine import now_ms, reading, writing
from lakechime_dagster.errors import InvalidValueError, NotFoundError
from lakechime_dagster.triggers import schema
from lakechime_dagster.triggers.consumers import Order, OrderState, Span
from lakechime_dagster.triggers.interventions import Action, By, record
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.registry import FlowRow
from lakechime_dagster.triggers.requests import cancel_unclaimed


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """A backfill as people see it: `asked` is what was asked for, `states` how many orders are in which state."""

    backfill_id: str
    asked: Mapping[str, Any]
    max_in_flight: int
    who: str
    reason: str
    created_ts: int
    cancelled_ts: int | None
    states: Mapping[OrderState, int]

    @property
    def is_open(self) -> bool:
        return any(self.states.get(state) for state in (OrderState.WAITING, OrderState.TAKEN))


@dataclass(frozen=True)
class Backfills:
    """The backfills of one deployment."""

    ledger: Ledger

    def order(self, orders: Sequence[Order], asked: Mapping[str, Any], by: By, *, max_in_flight: int = 4) -> str:
        """Write the orders, all or none of them, and give the backfill's id; every flow has been activated.

        A key that fired since it was planned for later is ordered like one that had fired before.

        Raises:
            InvalidValueError: there is no order, or not even one lane may be in flight.
        """
        if not orders:
            raise InvalidValueError("orders", "none", "nothing is to be run; look at the plan")
        if max_in_flight < 1:
            raise InvalidValueError("max_in_flight", max_in_flight, "must be at least 1")
        backfill_id = f"bf-{secrets.token_hex(4)}"
        with writing(self.ledger.engine) as connection:
            flows = {name: self.ledger.flow_in(connection, name) for name in dict.fromkeys(one.flow for one in orders)}
            values = {
                "backfill_id": backfill_id,
                "deployment": self.ledger.deployment,
                "asked": dict(asked),
                "max_in_flight": max_in_flight,
                "who": by.who,
                "reason": by.reason,
                "created_ts": now_ms(connection),
            }
            connection.execute(sa.insert(schema.backfill).values(**values))
            fired = _fired(connection, {flows[one.flow].flow_id for one in orders if one.state is OrderState.LATER})
            connection.execute(sa.insert(schema.order), [_row(backfill_id, flows[one.flow], one, fired) for one in orders])
            for name, flow in flows.items():  # which also lets whoever evaluates many flows look at it again
                lanes = sum(1 for one in orders if one.flow == name)
                record(connection, flow, Action.BACKFILL, by, {}, {"backfill": backfill_id, "lanes": lanes})
        return backfill_id

    def cancel(self, backfill_id: str, by: By) -> int:
        """Drop what nobody has claimed, and tell how many lanes that were; what is in flight ends as ever.

        Raises:
            NotFoundError: there is no such backfill.
        """
        this = schema.order.c.backfill_id == backfill_id
        with writing(self.ledger.engine) as connection:
            self._found(connection, backfill_id)
            waiting = sa.select(schema.order.c.flow_id).where(this, schema.order.c.state == OrderState.WAITING.value).distinct()
            flow_ids = set(connection.execute(waiting).scalars())
            dropped = cancel_unclaimed(connection, this)
            update = sa.update(schema.backfill).where(schema.backfill.c.backfill_id == backfill_id)
            connection.execute(update.values(cancelled_ts=sa.func.coalesce(schema.backfill.c.cancelled_ts, now_ms(connection))))
            for flow in (flow for flow in self._flows(connection, backfill_id) if flow.flow_id in flow_ids):
                record(connection, flow, Action.CANCEL, by, {"backfill": backfill_id}, {})
        return dropped

    def backfill(self, backfill_id: str) -> Backfill:
        """The one of that id.

        Raises:
            NotFoundError: there is none.
        """
        with reading(self.ledger.engine) as connection:
            return self._found(connection, backfill_id)

    def backfills(self, limit: int = 50) -> list[Backfill]:
        """The newest ones first."""
        backfill = schema.backfill
        query = sa.select(backfill).where(backfill.c.deployment == self.ledger.deployment)
        with reading(self.ledger.engine) as connection:
            rows = connection.execute(query.order_by(backfill.c.created_ts.desc(), backfill.c.backfill_id).limit(limit)).all()
            return [_backfill(connection, row) for row in rows]

    def orders(self, backfill_id: str) -> list[Order]:
        """Its orders, inputs before their readers."""
        with reading(self.ledger.engine) as connection:
            return _orders(connection, schema.order.c.backfill_id == backfill_id)

    def orders_of(self, execution_id: str) -> list[Order]:
        """The orders that an execution took, oldest first."""
        with reading(self.ledger.engine) as connection:
            return _orders(connection, schema.order.c.execution_id == execution_id)

    def _found(self, connection: Connection, backfill_id: str) -> Backfill:
        this = (schema.backfill.c.deployment == self.ledger.deployment, schema.backfill.c.backfill_id == backfill_id)
        row = connection.execute(sa.select(schema.backfill).where(*this)).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no backfill {backfill_id!r}; `lakechime backfill status` lists those that are there")
        return _backfill(connection, row)

    def _flows(self, connection: Connection, backfill_id: str) -> list[FlowRow]:
        query = sa.select(schema.flow.c.name).join(schema.order, schema.order.c.flow_id == schema.flow.c.flow_id)
        names = connection.execute(query.where(schema.order.c.backfill_id == backfill_id, schema.flow.c.forgotten_ts.is_(None)).distinct())
        return [self.ledger.flow_in(connection, name) for name in sorted(names.scalars())]


def _fired(connection: Connection, flow_ids: Set[int]) -> set[tuple[int, str]]:
    """The lanes of flows that have fired, held: none that is there fires meanwhile."""
    lane = schema.lane.c
    if not flow_ids:
        return set()
    query = sa.select(lane.flow_id, lane.key, lane.fired).where(lane.flow_id.in_(flow_ids)).order_by(lane.lane_id).with_for_update()
    return {(row.flow_id, row.key) for row in connection.execute(query) if row.fired}


def _row(backfill_id: str, flow: FlowRow, order: Order, fired: Set[tuple[int, str]]) -> dict[str, Any]:
    is_later = order.state is OrderState.LATER and (flow.flow_id, order.key) not in fired
    return {
        "backfill_id": backfill_id,
        "number": order.number,
        "flow_id": flow.flow_id,
        "key": order.key,
        "waits_for": list(order.waits_for),
        "span": order.span.to_json() if order.span is not None else None,
        "why": order.why,
        "state": OrderState.LATER.value if is_later else OrderState.WAITING.value,
    }


def _backfill(connection: Connection, row: sa.Row[Any]) -> Backfill:
    order = schema.order.c
    counts = sa.select(order.state, sa.func.count().label("orders")).where(order.backfill_id == row.backfill_id).group_by(order.state)
    return Backfill(
        backfill_id=row.backfill_id,
        asked=row.asked,
        max_in_flight=row.max_in_flight,
        who=row.who,
        reason=row.reason,
        created_ts=row.created_ts,
        cancelled_ts=row.cancelled_ts,
        states={OrderState(one.state): one.orders for one in connection.execute(counts)},
    )


def _orders(connection: Connection, *which: sa.ColumnElement[bool]) -> list[Order]:
    query = (
        sa.select(schema.order, schema.flow.c.name)
        .join(schema.flow, schema.flow.c.flow_id == schema.order.c.flow_id)
        .where(*which)
        .order_by(schema.order.c.order_id)
    )
    return [
        Order(
            number=row.number,
            flow=row.name,
            key=row.key,
            waits_for=tuple(row.waits_for),
            why=row.why,
            state=OrderState(row.state),
            span=Span.from_json(row.span) if row.span is not None else None,
            execution_id=row.execution_id,
        )
        for row in connection.execute(query)
    ]
