"""Backfills in the store: their requests of consumers, which of these wait, and what a claim takes
of them.
"""

import secrets
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.engine import (
    TransactionId,
    VisibleBelow,
    among,
    now_ms,
    reading,
    writing,
)
from lakechime_dagster.errors import ConsumerConflictError, InvalidValueError, NotFoundError
from lakechime_dagster.triggers.consumers import (
    Action,
    BackfillRequest,
    ConsumerRequests,
    RequestState,
    Span,
)
from lakechime_dagster.triggers.registry import (
    SUBSCRIPTIONS,
    By,
    Registry,
    SubscriptionRow,
    change,
    record,
    record_of,
    subscription_from,
)
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


def take_requests(
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


def close_requests(connection: Connection, execution_id: str, *, is_done: bool) -> None:
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

    ledger: Registry

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
