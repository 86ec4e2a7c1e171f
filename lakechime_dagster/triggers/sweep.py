"""Selects, of many subscriptions, those that must be decided since the last evaluation."""

import datetime as dt
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.engine import among, now_ms, reading
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.queries import TableKey, is_after, is_through
from lakechime_dagster.dce.schema import dce_event, dce_table
from lakechime_dagster.dce.store import head_within
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.triggers.backfills import subscriptions_with_requests
from lakechime_dagster.triggers.decision import Decision
from lakechime_dagster.triggers.evaluation import Accepts, Evaluator
from lakechime_dagster.triggers.registry import SUBSCRIPTIONS, SubscriptionRow, subscription_from
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.schema import lc_intervention, lc_subscription
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger

AT_ONCE = 100  # subscriptions decided before it is asked whether enough of them fired


@dataclass
class Sweep:
    """The evaluation of many subscriptions, again and again, by one process; the decisions are
    those of `Evaluator.evaluate`.

    Restless subscriptions are decided at every evaluation; those that rest only when something of
    theirs changed.
    """

    evaluator: Evaluator
    subscriptions: Sequence[Subscription]
    rows: dict[str, SubscriptionRow] = field(default_factory=dict)
    # subscriptions that cannot be activated now, and why
    refused: dict[str, str] = field(default_factory=dict)
    noted_ts: int = 0  # when its ticks were noted last
    # the last decision of each subscription
    last: dict[str, Decision] = field(default_factory=dict)
    _through: Position | None = None  # where the last evaluation ended; None before the first one
    _intervention: int = 0
    # in the order in which they are decided
    _restless: dict[str, None] = field(default_factory=dict)
    _points: dict[str, dt.datetime | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.subscriptions = [
            subscription for subscription in self.subscriptions if subscription.source is None
        ]
        self._begin()

    def _begin(self) -> None:
        """Know nothing of the store yet: every subscription that can be activated is decided at the
        next evaluation.
        """
        self._activate()
        self._subscriptions = {
            subscription.name: subscription
            for subscription in self.subscriptions
            if subscription.name in self.rows
        }
        self._by_table: dict[TableKey, list[str]] = {}
        for subscription in self._subscriptions.values():
            for table in subscription.watched:
                self._by_table.setdefault(table, []).append(subscription.name)
        self._ids = {row.subscription_id: name for name, row in self.rows.items()}
        self._restless = dict.fromkeys(self._subscriptions)
        self._through, self._intervention = None, 0

    def _activate(self) -> None:
        """Read the subscriptions' rows, and make those of new subscriptions; one that starts later
        hinders no other.
        """
        known = self._known()
        self.rows, self.refused = {}, {}
        for subscription in self.subscriptions:
            row = known.get(subscription.name)
            try:
                self.rows[subscription.name] = (
                    row
                    if row is not None and row.describes(subscription)
                    else self.evaluator.activate(subscription)
                )
            except InvalidValueError as error:
                self.refused[subscription.name] = str(error)

    def _known(self) -> dict[str, SubscriptionRow]:
        names = [subscription.name for subscription in self.subscriptions]
        return (
            {
                row.name: row
                for row in self.evaluator.ledger.subscriptions(lc_subscription.c.name.in_(names))
            }
            if names
            else {}
        )

    def decisions(
        self, most: int | None = None, accepts: Mapping[str, Accepts] | None = None
    ) -> dict[str, Decision]:
        """The decisions of the subscriptions that may fire now or wait, by name; a subscription
        that is not there has nothing to do.

        After `most` firings no more are decided: the rest is decided first the next time. `accepts`
        is by subscription.
        """
        if not self.subscriptions:
            return {}
        if self._is_replaced():
            self._begin()
        found: dict[str, Decision] = {}
        with reading(self.evaluator.engine) as connection:
            now, through = now_ms(connection), head_within(connection)
            # until decided: an evaluation may fail
            self._restless |= dict.fromkeys(self._changed(connection, now, through))
            names = list(self._restless)
            for start in range(0, len(names), AT_ONCE):
                if most is not None and sum(decision.fires for decision in found.values()) >= most:
                    break
                found |= self._decided(connection, names[start : start + AT_ONCE], accepts or {})
        self._through = through
        self.last |= found
        restless = {
            name: decision for name, decision in found.items() if decision.fires or decision.waits
        }
        self._restless = dict.fromkeys([*(name for name in names if name not in found), *restless])
        return restless

    def reread(self) -> None:
        """Read the subscriptions' rows again; one whose search somebody else began again is decided
        at the next evaluation.

        When one is gone, or was refused before, all are decided again.
        """
        found = self._known()
        if self.refused or any(
            name not in found or found[name].subscription_id != row.subscription_id
            for name, row in self.rows.items()
        ):
            self._begin()
            return
        self._restless |= {
            name: None for name, row in found.items() if row.looked != self.rows[name].looked
        }
        self.rows |= found

    def move_on(self, busy: Set[str]) -> None:
        """Remember that nothing up to the last evaluation can fire the subscriptions that rest, so
        that retention may compact it.

        Left out are those that are `busy`, having an open execution, and those that were declared
        otherwise since.
        """
        if self._through is None:
            return
        rows = [
            row
            for name, row in self.rows.items()
            if name not in self._restless and name not in busy
        ]
        resting = [
            row
            for row in rows
            if row.looked < self._through and row.describes(self._subscriptions[row.name])
        ]
        self.evaluator.looked_through(resting, self._through)
        self.rows |= {row.name: replace(row, looked=self._through) for row in resting}

    def _is_replaced(self) -> bool:
        """Whether the store was created again, or put back to what it was, since the last
        evaluation.
        """
        if self._through is None or not self.rows:
            return False
        first = next(iter(self.rows.values()))
        same = sa.select(sa.literal(1)).where(
            lc_subscription.c.subscription_id == first.subscription_id,
            lc_subscription.c.activated_ts == first.activated_ts,
        )
        with reading(self.evaluator.engine) as connection:
            return (
                head_within(connection) < self._through or connection.execute(same).scalar() is None
            )

    def _changed(self, connection: Connection, now: int, through: Position) -> list[str]:
        """The subscriptions that may not rest any longer."""
        touched = {
            self._ids[subscription_id]
            for subscription_id in self._touched_by_people(connection)
            if subscription_id in self._ids
        }
        requested = {
            self._ids[subscription_id]
            for subscription_id in subscriptions_with_requests(connection)
            if subscription_id in self._ids
        }
        tables = (
            _changed_tables(connection, self._through, through) if self._through is not None else []
        )
        woken = [name for table in tables for name in self._by_table.get(table, ())]
        return [*sorted(touched | requested), *woken, *self._due(now)]

    def _due(self, now: int) -> list[str]:
        """The subscriptions of partitions whose schedule has another last tick."""
        due = []
        for name, subscription in self._subscriptions.items():
            if isinstance(subscription.trigger, PartitionTrigger):
                point, before = (
                    subscription.trigger.every.last(from_milliseconds(now)),
                    self._points.get(name),
                )
                self._points[name] = point
                due += [name] if point != before else []
        return due

    def _touched_by_people(self, connection: Connection) -> set[int]:
        """The subscriptions to which a person did something since the last evaluation."""
        query = sa.select(lc_intervention.c.intervention_id, lc_intervention.c.subscription_id)
        rows = connection.execute(
            query.where(lc_intervention.c.intervention_id > self._intervention)
        ).all()
        self._intervention = max((row.intervention_id for row in rows), default=self._intervention)
        return {row.subscription_id for row in rows}

    def _decided(
        self, connection: Connection, names: Sequence[str], accepts: Mapping[str, Accepts]
    ) -> dict[str, Decision]:
        ids = among(
            connection,
            lc_subscription.c.subscription_id,
            [self.rows[name].subscription_id for name in names],
        )
        rows = {
            row.name: subscription_from(row) for row in connection.execute(SUBSCRIPTIONS.where(ids))
        }
        self.rows |= rows  # without what is gone, which `reread` activates
        return self.evaluator.evaluate_all(
            connection, [(self._subscriptions[name], row) for name, row in rows.items()], accepts
        )


def _changed_tables(connection: Connection, since: Position, through: Position) -> list[TableKey]:
    """The tables of the events in (since, through]."""
    query = sa.select(dce_table.c.cluster, dce_table.c.name).join(
        dce_event, dce_table.c.table_id == dce_event.c.table_id
    )
    return [
        (row.cluster, row.name)
        for row in connection.execute(query.where(is_after(since), is_through(through)).distinct())
    ]
