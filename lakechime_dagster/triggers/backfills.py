"""Backfill requests of consumers, in the store."""

import secrets
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.engine import now_ms, reading, writing
from lakechime_dagster.errors import InvalidValueError, NotFoundError
from lakechime_dagster.triggers.consumers import Action, BackfillRequest, RequestState, Span
from lakechime_dagster.triggers.interventions import By, record
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.registry import (
    SUBSCRIPTIONS,
    SubscriptionRow,
    change,
    record_of,
    subscription_from,
)
from lakechime_dagster.triggers.requests import cancel_unclaimed
from lakechime_dagster.triggers.schema import lc_backfill, lc_consumer, lc_request, lc_subscription


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """A backfill as people see it: `asked` is what was asked for, `states` how many requests are in
    which state.
    """

    backfill_id: str
    asked: Mapping[str, Any]
    max_in_flight: int
    who: str
    reason: str
    created_ts: int
    cancelled_ts: int | None
    states: Mapping[RequestState, int]

    @property
    def is_open(self) -> bool:
        return any(self.states.get(state) for state in (RequestState.WAITING, RequestState.TAKEN))


@dataclass(frozen=True)
class Backfills:
    """The backfills of one deployment."""

    ledger: Ledger

    def request(
        self,
        requests: Sequence[BackfillRequest],
        asked: Mapping[str, Any],
        by: By,
        *,
        max_in_flight: int = 4,
    ) -> str:
        """Write the requests, all or none of them, and give the backfill's id; every subscription
        has been activated.

        A key that fired since it was planned for later is requested like one that had fired before.

        Raises:
            InvalidValueError: there is no request, or not even one consumer may be in flight.
        """
        if not requests:
            raise InvalidValueError("requests", "none", "nothing is to be run; look at the plan")
        if max_in_flight < 1:
            raise InvalidValueError("max_in_flight", max_in_flight, "must be at least 1")
        backfill_id = f"bf-{secrets.token_hex(4)}"
        with writing(self.ledger.engine) as connection:
            subscriptions = {
                name: self.ledger.subscription_in(connection, name)
                for name in dict.fromkeys(one.subscription for one in requests)
            }
            values = {
                "backfill_id": backfill_id,
                "deployment": self.ledger.deployment,
                "asked": dict(asked),
                "max_in_flight": max_in_flight,
                "who": by.who,
                "reason": by.reason,
                "created_ts": now_ms(connection),
            }
            connection.execute(sa.insert(lc_backfill).values(**values))
            fired = _fired(
                connection,
                {
                    subscriptions[one.subscription].subscription_id
                    for one in requests
                    if one.state is RequestState.LATER
                },
            )
            connection.execute(
                sa.insert(lc_request),
                [
                    _row(backfill_id, subscriptions[one.subscription], one, fired)
                    for one in requests
                ],
            )
            # which also lets whoever evaluates many subscriptions look at it again
            for name, subscription in subscriptions.items():
                consumers = sum(1 for one in requests if one.subscription == name)
                record(
                    connection,
                    subscription,
                    Action.BACKFILL,
                    by,
                    {},
                    {"backfill": backfill_id, "consumers": consumers},
                )
        return backfill_id

    def cancel(self, backfill_id: str, by: By) -> int:
        """Drop what nobody has claimed, and return how many consumers that were; what is in flight
        ends unchanged.

        Raises:
            NotFoundError: there is no such backfill.
        """
        this = lc_request.c.backfill_id == backfill_id
        waiting = sa.select(lc_request.c.subscription_id).where(
            this, lc_request.c.state == RequestState.WAITING
        )
        known = SUBSCRIPTIONS.where(lc_subscription.c.subscription_id.in_(waiting)).order_by(
            lc_subscription.c.name
        )
        with writing(self.ledger.engine) as connection:
            self._found(connection, backfill_id)
            subscriptions = [subscription_from(row) for row in connection.execute(known)]
            dropped = cancel_unclaimed(connection, this)
            cancelled = sa.func.coalesce(lc_backfill.c.cancelled_ts, now_ms(connection))
            change(connection, lc_backfill, backfill_id, cancelled_ts=cancelled)
            for subscription in subscriptions:
                record(connection, subscription, Action.CANCEL, by, {"backfill": backfill_id}, {})
        return dropped

    def backfill(self, backfill_id: str) -> Backfill:
        """The one of that id.

        Raises:
            NotFoundError: there is none.
        """
        with reading(self.ledger.engine) as connection:
            return self._found(connection, backfill_id)

    def backfills(self) -> list[Backfill]:
        """The newest 50, newest first."""
        backfill = lc_backfill
        query = sa.select(backfill).where(backfill.c.deployment == self.ledger.deployment)
        with reading(self.ledger.engine) as connection:
            rows = connection.execute(
                query.order_by(backfill.c.created_ts.desc(), backfill.c.backfill_id).limit(50)
            ).all()
            return [_backfill(connection, row) for row in rows]

    def requests(self, backfill_id: str) -> list[BackfillRequest]:
        """Its requests, inputs before their readers."""
        with reading(self.ledger.engine) as connection:
            return _requests(connection, lc_request.c.backfill_id == backfill_id)

    def requests_of(self, execution_id: str) -> list[BackfillRequest]:
        """The requests that an execution took, oldest first."""
        with reading(self.ledger.engine) as connection:
            return _requests(connection, lc_request.c.execution_id == execution_id)

    def _found(self, connection: Connection, backfill_id: str) -> Backfill:
        this = (
            lc_backfill.c.deployment == self.ledger.deployment,
            lc_backfill.c.backfill_id == backfill_id,
        )
        row = connection.execute(sa.select(lc_backfill).where(*this)).one_or_none()
        if row is None:
            raise NotFoundError(
                f"there is no backfill {backfill_id!r}; `lakechime backfill show` lists those that "
                f"are there"
            )
        return _backfill(connection, row)


def _fired(connection: Connection, subscription_ids: Set[int]) -> set[tuple[int, str]]:
    """The consumers of subscriptions that have fired, held: none that is there fires meanwhile."""
    consumer = lc_consumer.c
    if not subscription_ids:
        return set()
    query = (
        sa.select(consumer.subscription_id, consumer.key, consumer.fired)
        .where(consumer.subscription_id.in_(subscription_ids))
        .order_by(consumer.consumer_id)
        .with_for_update()
    )
    return {(row.subscription_id, row.key) for row in connection.execute(query) if row.fired}


def _row(
    backfill_id: str,
    subscription: SubscriptionRow,
    request: BackfillRequest,
    fired: Set[tuple[int, str]],
) -> dict[str, Any]:
    is_later = (
        request.state is RequestState.LATER
        and (subscription.subscription_id, request.key) not in fired
    )
    return {
        "backfill_id": backfill_id,
        "number": request.number,
        "subscription_id": subscription.subscription_id,
        "key": request.key,
        "waits_for": list(request.waits_for),
        "span": request.span.to_json() if request.span is not None else None,
        "why": request.why,
        "state": RequestState.LATER if is_later else RequestState.WAITING,
    }


def _backfill(connection: Connection, row: sa.Row[Any]) -> Backfill:
    request = lc_request.c
    counts = (
        sa.select(request.state, sa.func.count().label("requests"))
        .where(request.backfill_id == row.backfill_id)
        .group_by(request.state)
    )
    states = {RequestState(one.state): one.requests for one in connection.execute(counts)}
    return record_of(Backfill, row, states=states)


def _requests(connection: Connection, *which: sa.ColumnElement[bool]) -> list[BackfillRequest]:
    query = (
        sa.select(lc_request, lc_subscription.c.name)
        .join(lc_subscription, lc_subscription.c.subscription_id == lc_request.c.subscription_id)
        .where(*which)
        .order_by(lc_request.c.request_id)
    )
    return [
        record_of(
            BackfillRequest,
            row,
            subscription=row.name,
            waits_for=tuple(row.waits_for),
            span=None if row.span is None else Span.from_json(row.span),
        )
        for row in connection.execute(query)
    ]
