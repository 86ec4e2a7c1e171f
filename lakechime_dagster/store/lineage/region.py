"""As much of recorded lineage as a question about few data sets needs; of all of it `network` makes one."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.lineage.graph.parts import parts_of
from lakechime_dagster.lineage.record import Statement
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lineage import schema
from lakechime_dagster.store.lineage.held import Held
from lakechime_dagster.store.lineage.names import MANY, key_of
from lakechime_dagster.store.lineage.network import told_of
from lakechime_dagster.store.lineage.standing import hold
from lakechime_dagster.store.slices import slices

LARGE = 5_000  # data sets: to look for more of them costs more than to read all


def network_around(
    engine: Engine, tables: Collection[str], *, upstream: bool = False, depth: int | None = None, at_ms: int | None = None,
    declared: Iterable[Statement] = (), namespace: str | None = None, large: int = LARGE,
) -> Network | None:  # fmt: skip
    """What holds now, or held at a time, of what data sets lead to, or with `upstream` of what leads to them, within so many steps.

    What is asked of it in that direction has the answer of the whole network, since all that was told of each of its data sets is in
    it. None where more than `large` data sets are found. `namespace` is as in `network_at`.
    """
    statements = list(declared)
    with reading(engine) as connection:
        search = _Search(connection, hold(at_ms), _declared_steps(statements, upstream=upstream), upstream)
        found = search.found(tables, depth, large)
        if found is None:
            return None
        planned = {one.target for one in statements if one.columns and not found.names.isdisjoint(parts_of(one))}
        search.add(found, planned - found.names)  # which columns of these data sets are known, they tell too
        held = Held(found.numbers)
        held.hold(connection, search.intervals_of(found.numbers))
        beside = [one for one in statements if one.target in found.names]
        told = told_of(connection, beside, namespace, hold(at_ms))
    return held.network(beside, told)


@dataclass(frozen=True)
class _Found:
    """Data sets by name, and the numbers of those that are recorded."""

    names: set[str]
    numbers: set[int]


@dataclass(frozen=True)
class _Search:
    """Goes from data sets to those that read them, or to those that they read, as it is recorded and as it is declared."""

    connection: Connection
    holds: sa.ColumnElement[bool]
    declared: Mapping[str, Collection[str]]
    upstream: bool

    def found(self, tables: Collection[str], depth: int | None, large: int) -> _Found | None:
        found, frontier, steps = _Found(set(tables), set()), set(tables), 0
        while frontier:
            numbers = self._numbers_of(frontier)
            found.numbers.update(numbers)
            if len(found.numbers) > large:
                return None
            if steps == depth:
                break
            near = self._recorded_steps(numbers) | {name for one in frontier for name in self.declared.get(one, ())}
            frontier, steps = near - found.names, steps + 1
            found.names.update(frontier)
        return found

    def add(self, found: _Found, names: Collection[str]) -> None:
        """Add data sets to those that were found."""
        found.names.update(names)
        found.numbers.update(self._numbers_of(names))

    def intervals_of(self, targets: Collection[int]) -> dict[int, int]:
        """What was told of targets and holds, by interval."""
        row, told = schema.interval.c, schema.told.c
        query = sa.select(row.interval_id, told.told_id).join_from(schema.told, schema.interval, row.told_id == told.told_id)
        found: dict[int, int] = {}
        for some in slices(sorted(targets), MANY):
            which = among(self.connection, told.target_id, some)
            found |= dict(self.connection.execute(query.where(which, self.holds)).tuples().all())
        return found

    def _recorded_steps(self, numbers: Collection[int]) -> set[str]:
        row, told, given = schema.interval.c, schema.told.c, schema.told_input.c
        here, there = (told.target_id, given.source_id) if self.upstream else (given.source_id, told.target_id)
        query = (
            sa.select(schema.node.c.name)
            .distinct()
            .join_from(schema.told_input, schema.told, told.told_id == given.told_id)
            .join(schema.interval, row.told_id == told.told_id)
            .join(schema.node, schema.node.c.node_id == there)
        )
        several = (
            self.connection.execute(query.where(among(self.connection, here, some), self.holds)) for some in slices(sorted(numbers), MANY)
        )
        return {name for rows in several for (name,) in rows}

    def _numbers_of(self, names: Iterable[str]) -> set[int]:
        found, row = set[int](), schema.node.c
        for some in slices(sorted(key_of(ColumnRef(name)) for name in names), MANY):
            found.update(self.connection.execute(sa.select(row.node_id).where(among(self.connection, row.key, some))).scalars())
        return found


def _declared_steps(declared: Iterable[Statement], *, upstream: bool) -> dict[str, set[str]]:
    steps: dict[str, set[str]] = {}
    for one in declared:
        for name in parts_of(one):
            start, end = (one.target, name) if upstream else (name, one.target)
            steps.setdefault(start, set()).add(end)
    return steps
