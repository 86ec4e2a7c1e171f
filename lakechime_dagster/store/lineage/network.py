"""All that recorded lineage says at one time as a network in memory, which follows the store by its position."""

from collections.abc import Iterable, Sequence
from threading import Lock

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.lineage.record import Statement
from lakechime_dagster.store.dialect import high_water
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lineage import schema
from lakechime_dagster.store.lineage.held import Held
from lakechime_dagster.store.lineage.standing import hold, told_by_flows


def network_at(engine: Engine, at_ms: int | None = None, declared: Sequence[Statement] = (), namespace: str | None = None) -> Network:
    """What holds now, or held at a time in milliseconds; what is declared is in it beside what runs told.

    `namespace` is that of the flows that write what is declared: what others tell says nothing of them. None if anybody may.
    """
    row, held = schema.interval.c, Held()
    with reading(engine) as connection:
        held.hold(connection, dict(connection.execute(sa.select(row.interval_id, row.told_id).where(hold(at_ms))).tuples().all()))
        told = told_of(connection, declared, namespace, hold(at_ms))
    return held.network(declared, told)


def told_of(connection: Connection, declared: Iterable[Statement], namespace: str | None, which: sa.ColumnElement[bool]) -> set[str] | None:
    """The declared data sets of which their own flows told, if these are known by a namespace."""
    return None if namespace is None else told_by_flows(connection, {one.target for one in declared}, namespace, which)


class CurrentNetwork:
    """What holds now, for a process that asks often: only what has changed since the last time is read."""

    def __init__(self, engine: Engine, declared: Sequence[Statement] = (), namespace: str | None = None) -> None:
        self._engine, self._declared, self._namespace = engine, declared, namespace
        self._told: set[str] | None = None
        self._lock, self._held, self._position = Lock(), Held(), 0
        self._network: Network | None = None

    def network(self) -> Network:
        """The network as the store has it at this moment; the same one again while nothing changes."""
        with self._lock:
            if self._has_changed() or self._network is None:
                self._network = self._held.network(self._declared, self._told)
            return self._network

    def _has_changed(self) -> bool:
        row = schema.interval.c
        query = sa.select(row.interval_id, row.told_id, row.to_ms, row.change).where(row.change >= self._position)
        if self._network is None:
            query = query.where(row.to_ms.is_(None))
        with reading(self._engine) as connection:
            bound = high_water(connection)  # what is below it has ended: nothing more comes there
            changed = connection.execute(query).all()
            holds = dict(self._held.holds)
            for interval in changed:
                holds.pop(interval.interval_id, None)
                if interval.to_ms is None:
                    holds[interval.interval_id] = interval.told_id
            is_changed = self._held.hold(connection, holds)
            if is_changed or self._told is None:
                self._told = told_of(connection, self._declared, self._namespace, hold(None))
        newest = max((interval.change for interval in changed), default=self._position - 1)
        self._position = min(bound, newest + 1)
        return is_changed
