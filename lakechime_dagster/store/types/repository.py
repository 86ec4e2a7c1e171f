"""The schema repository: what is known of the types of events, their layouts and variations, and what steps did for them.

All that one step finds out is kept in one transaction, by compare-and-set of each type's layout, before any table is touched;
places move in the transaction that settles the step, never back.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.errors import LaneConflictError
from lakechime_dagster.schema.breaking import Breaking, Broke
from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.layout import Layout
from lakechime_dagster.schema.observed import Observed, Pair, Seen
from lakechime_dagster.schema.producers import NOBODY
from lakechime_dagster.schema.repository import KnownType, Learning, Prototype, TypePlace
from lakechime_dagster.schema.results import AT_ONCE, Sent, TypeResult
from lakechime_dagster.schema.variation import ROOT, Variation
from lakechime_dagster.store.dialect import StoreNow, now_ms
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.types import schema
from lakechime_dagster.store.types.accounts import add_brought, add_sent, columns_brought
from lakechime_dagster.store.types.breaks import keep_breaks, tell_breaks
from lakechime_dagster.store.types.replays import close
from lakechime_dagster.store.types.totals import add_to_type

MAX_VARIATIONS = 1_000  # kept of a type; above it only those that enlarge what was observed of it
PAUSES_MS = (10_000, 60_000, 300_000, 900_000)  # before a type that failed is tried again
ENGINE = "lakechime"  # the actor of what no person decided


@dataclass(frozen=True, kw_only=True)
class LayoutVersion:
    """A layout of a type, why it was made, by whom and when."""

    version: int
    layout: Layout
    decision: str
    actor: str
    made_ts: int


@dataclass(frozen=True, kw_only=True)
class LeftType:
    """A type of which events were left, as it failed, is cold or catches up.

    Attributes:
        is_due: It is time to read them, which is so from `due_ts` on (milliseconds).
        error: Why it failed; empty where it did not.
    """

    type: str
    has_failed: bool
    is_due: bool
    due_ts: int
    error: str


@dataclass(frozen=True)
class SqlEventTypes:
    """The types of the groups of one deployment; a `schema.repository.SchemaRepository`.

    `beside` are the groups of one stream: of those no two learn of a type that is new, whatever each takes its own to be.
    """

    engine: Engine
    deployment: str
    beside: frozenset[str] = frozenset()

    def types(self, group: str) -> dict[str, KnownType]:
        """What is known of a group's types, by name."""
        with reading(self.engine) as connection:
            rows = list(connection.execute(self._of(group)))
            layouts = {row.type_id: row.columns for row in connection.execute(_newest_layouts().where(*self._is(group)))}
        return {row.type: _known(row, layouts.get(row.type_id, [])) for row in rows}

    def variations(self, group: str, types: Collection[str]) -> dict[str, dict[str, Variation]]:
        """The variations of these types that are kept, by hash."""
        found: dict[str, dict[str, Variation]] = {name: {} for name in types}
        kept = sa.select(schema.event_type.c.type, schema.variation.c.typed_hash, schema.variation.c.kinds).join_from(
            schema.variation, schema.event_type
        )
        with reading(self.engine) as connection:
            for row in connection.execute(kept.where(*self._is(group), schema.event_type.c.type.in_(list(types)))):
                found[row.type][row.typed_hash] = _variation(row.kinds)
        return found

    def columns_brought(self, group: str, types: Collection[str]) -> dict[str, dict[str, int]]:
        """How many columns each producer has brought to these types; who has brought none is left out."""
        with reading(self.engine) as connection:
            known = sa.select(schema.event_type.c.type_id, schema.event_type.c.type).where(*self._is(group))
            ids = {row.type_id: row.type for row in connection.execute(known.where(schema.event_type.c.type.in_(list(types))))}
            return columns_brought(connection, ids)

    def learn(self, group: str, several: Sequence[Learning]) -> dict[str, int]:
        """Keep what was found out, all or nothing; the number of each type's layout.

        Raises:
            LaneConflictError: a type's layout, or what is withheld of it, is another one than what was found out was added to.
        """
        versions: dict[str, int] = {}
        with writing(self.engine) as connection:
            now = now_ms(connection)
            for one in several:
                type_id = self._type_id(connection, group, one, now)
                versions[one.type] = _next_layout(connection, type_id, one, now)
                keep_breaks(connection, type_id, versions[one.type], one.breaking, now)
                kept = _keep_variations(connection, type_id, one, now)
                if one.brought is not None:
                    add_brought(connection, type_id, one.brought, Counter(each.producer or NOBODY for each in kept))
        return versions

    def propose(self, group: str, one: Learning, replay_id: int) -> int:
        """Keep what a rebuild found out, and the layout that it gives the type's table, where it is another; the number of that.

        Raises:
            LaneConflictError: as of `learn`.
        """
        with writing(self.engine) as connection:
            now = now_ms(connection)
            type_id = self._type_id(connection, group, one, now)
            _keep_variations(connection, type_id, one, now)
            this = sa.update(schema.event_type).where(schema.event_type.c.type_id == type_id)
            connection.execute(this.values(observed=_joined(connection, type_id, one.observed)))
            return _proposed(connection, type_id, one, replay_id, now) if one.is_new_layout else one.before

    def adopt(self, group: str, type_name: str, step: int, version: int) -> None:
        """A layout that was proposed holds from now on, unless that of this commit, or of a later one, did already."""
        kind = schema.event_type.c
        with writing(self.engine) as connection:
            this = (*self._is(group), kind.type == type_name, kind.rebuilt_step < step)
            query = sa.select(kind.type_id, kind.layout_version, schema.layout.c.columns).join_from(schema.event_type, schema.layout)
            row = connection.execute(query.where(*this, schema.layout.c.version == version).with_for_update()).one_or_none()
            if row is not None:  # the store may have been lost since
                values = {"layout_version": version, "rebuilt_step": step, "conflicts": Layout.from_json(row.columns).siblings}
                connection.execute(sa.update(schema.event_type).where(kind.type_id == row.type_id).values(**values))
                relayout = [Breaking(path=ROOT, kind=Kind.OBJECT.value, how=Broke.RELAYOUT)] if version != row.layout_version else []
                keep_breaks(connection, row.type_id, version, relayout, now_ms(connection))

    def settle(
        self, connection: Connection, group: str, execution_id: str, results: Sequence[TypeResult], uid: str, told: Collection[str] = ()
    ) -> None:
        """Move the places of the types to where the step brought them, keep its counts and what came of replays; within the settling
        transaction.

        Of the types in `told` people are told now.
        """
        now = now_ms(connection)
        ids = {row.type: row.type_id for row in connection.execute(self._of(group))}
        tell_breaks(connection, self.deployment, group, now)
        several = [ids[name] for name in told if name in ids]
        connection.execute(sa.update(schema.event_type).where(_among(schema.event_type, several)).values(told_ts=now))
        sent: dict[int, Mapping[str, Sent]] = {}
        for one in results:
            type_id = ids.get(one.type)
            if type_id is None:
                continue  # nothing was read of it yet: it waits for a table
            self._move(connection, type_id, one, uid, now)
            close(connection, execution_id, one.replayed)
            add_to_type(connection, type_id, one, now)
            sent[type_id] = one.producers
            if not one.rows and not one.error:
                continue
            counts = {name: getattr(one, name) for name in ("rows", "written", "rescued", "discarded", "pending", "waits", "error")}
            connection.execute(
                sa.insert(schema.type_step).values(
                    type_id=type_id, execution_id=execution_id, start_version=one.start, end_version=one.end, settled_ts=now, **counts
                )
            )
        add_sent(connection, sent)

    def history(self, group: str, type_name: str) -> list[LayoutVersion]:
        """The layouts of a type, the first one first."""
        query = sa.select(schema.layout).join(schema.event_type).where(*self._is(group), schema.event_type.c.type == type_name)
        with reading(self.engine) as connection:
            rows = connection.execute(query.order_by(schema.layout.c.version))
            return [
                LayoutVersion(
                    version=row.version, layout=Layout.from_json(row.columns), decision=row.decision, actor=row.actor, made_ts=row.made_ts
                )
                for row in rows
            ]

    def layouts(self, group: str, type_name: str) -> list[Layout]:
        """The layouts of a type alone."""
        return [one.layout for one in self.history(group, type_name)]

    def shapes(self, group: str, type_name: str) -> list[dict[str, Any]]:
        """The variations of a type that are kept, the first one first: their hashes, shapes, and where the first event of each is."""
        query = sa.select(schema.variation).join(schema.event_type).where(*self._is(group), schema.event_type.c.type == type_name)
        with reading(self.engine) as connection:
            ordered = query.order_by(schema.variation.c.first_ts, schema.variation.c.typed_hash)
            return [dict(row._mapping) for row in connection.execute(ordered)]

    def left(self, group: str) -> list[LeftType]:
        """The types of which a step left events that are to be read again though nothing comes, by name."""
        kind = schema.event_type.c
        is_due = (kind.due_ts <= StoreNow()).label("is_due")
        query = (
            sa.select(kind.type, kind.failures, kind.due_ts, kind.error, is_due)
            .where(*self._is(group), kind.due_ts > 0)
            .order_by(kind.type)
        )
        with reading(self.engine) as connection:
            return [
                LeftType(type=row.type, has_failed=row.failures > 0, is_due=bool(row.is_due), due_ts=row.due_ts, error=row.error)
                for row in connection.execute(query)
            ]

    def retry(self, group: str, types: Collection[str] = ()) -> list[str]:
        """Let the next step try these types that failed, or all that did, which is launched at once; their names."""
        kind = schema.event_type.c
        failed = (*self._is(group), kind.failures > 0, *([kind.type.in_(list(types))] if types else []))
        with writing(self.engine) as connection:
            made_due = sa.update(schema.event_type).where(*failed).values(due_ts=AT_ONCE).returning(kind.type)
            return sorted(connection.execute(made_due).scalars())

    def totals(self, group: str) -> dict[str, dict[str, int]]:
        """What settled steps did for each type of a group, in sum: rows, written, rescued, discarded."""
        names = ("rows", "written", "rescued", "discarded")
        sums = [sa.func.coalesce(sa.func.sum(schema.type_step.c[name]), 0).label(f"sum_{name}") for name in names]
        query = sa.select(schema.event_type.c.type, *sums).join(schema.type_step).where(*self._is(group)).group_by(schema.event_type.c.type)
        with reading(self.engine) as connection:
            return {row.type: {name: int(getattr(row, f"sum_{name}")) for name in names} for row in connection.execute(query)}

    def _of(self, group: str) -> sa.Select[Any]:
        return sa.select(schema.event_type).where(*self._is(group)).order_by(schema.event_type.c.type)

    def _is(self, group: str) -> tuple[sa.ColumnElement[bool], ...]:
        return (schema.event_type.c.deployment == self.deployment, schema.event_type.c.group_name == group)

    def _type_id(self, connection: Connection, group: str, one: Learning, now: int) -> int:
        """The row of a type, held until the transaction ends; made where it is new."""
        home = (schema.event_type.c.home == (one.home or group), schema.event_type.c.type == one.type)
        this = sa.select(schema.event_type).where(schema.event_type.c.deployment == self.deployment, *home).with_for_update()
        row = connection.execute(this).one_or_none()
        if row is not None and row.group_name != group:
            raise LaneConflictError(f"{group}: {one.type} is a type of {row.group_name} by now; the next attempt leaves it to that")
        if row is not None and row.layout_version != one.before:
            now_is = f"is number {row.layout_version} by now, and was read as {one.before}"
            raise LaneConflictError(f"{group}: the layout of {one.type} {now_is}; the next attempt reads it")
        if row is not None and one.withheld_before is not None and _withheld(row.withheld) != one.withheld_before:
            raise LaneConflictError(f"{group}: what is withheld of {one.type} is no more what was read; the next attempt reads it")
        if row is not None:
            return int(row.type_id)
        self._check_new(connection, group, one.type)
        values = {"deployment": self.deployment, "group_name": group, "type": one.type, "table_name": one.table, "observed": {}}
        values["home"] = one.home or group
        values |= {"place_uid": one.place.uid, "place_version": one.place.version}
        made = connection.execute(sa.insert(schema.event_type).values(**values, first_ts=now).returning(schema.event_type.c.type_id))
        return int(made.scalar_one())

    def _check_new(self, connection: Connection, group: str, type_name: str) -> None:
        """That no other group of the stream knows the type by now; until the transaction ends none learns of it."""
        of_stream = sa.and_(schema.event_type.c.deployment == self.deployment, schema.event_type.c.group_name.in_(sorted(self.beside)))
        first = sa.select(schema.event_type.c.type_id).where(of_stream).order_by(schema.event_type.c.type_id).limit(1)
        connection.execute(first.with_for_update()).all()  # one at a time
        theirs = sa.and_(schema.event_type.c.type == type_name, schema.event_type.c.group_name != group)
        other = connection.scalar(sa.select(schema.event_type.c.group_name).where(of_stream, theirs).limit(1))
        if other is not None:
            raise LaneConflictError(f"{group}: {type_name} has become a type of {other} meanwhile; the next attempt leaves it to that")

    def _move(self, connection: Connection, type_id: int, one: TypeResult, uid: str, now: int) -> None:
        if one.put_off:
            return
        this = sa.update(schema.event_type).where(schema.event_type.c.type_id == type_id)
        if one.error:
            failures = connection.execute(
                sa.select(schema.event_type.c.failures).where(schema.event_type.c.type_id == type_id)
            ).scalar_one()
            pause = PAUSES_MS[min(failures, len(PAUSES_MS) - 1)]
            connection.execute(this.values(failures=failures + 1, due_ts=now + pause, error=one.error[:2000]))
        if one.committed is not None:
            held = schema.event_type.c.commits < one.committed.stamp.step
            values = {"commits": one.committed.stamp.step, "commit_ts": now}
            connection.execute(this.where(held).values(place_uid=uid, place_version=one.end, **values))
        elif not one.error and not one.pending:
            further = sa.or_(schema.event_type.c.place_version < one.end, schema.event_type.c.place_uid.is_distinct_from(uid))
            connection.execute(this.where(further).values(place_uid=uid, place_version=one.end))
        if not one.error:
            connection.execute(this.values(failures=0, due_ts=one.due_ts, error=""))


def _next_layout(connection: Connection, type_id: int, one: Learning, now: int) -> int:
    version = _newest(connection, type_id) + 1 if one.is_new_layout else one.before
    this = sa.update(schema.event_type).where(schema.event_type.c.type_id == type_id)
    withheld = sorted([path, kind, who] for (path, kind), who in one.withheld.items())
    observed = _joined(connection, type_id, one.observed)
    connection.execute(this.values(observed=observed, layout_version=version, conflicts=one.layout.siblings, withheld=withheld))
    if one.is_new_layout:
        values = {"columns": one.layout.to_json(), "decision": one.decision, "actor": ENGINE, "made_ts": now}
        connection.execute(sa.insert(schema.layout).values(type_id=type_id, version=version, **values))
    return version


def _joined(connection: Connection, type_id: int, observed: Observed) -> dict[str, Any]:
    """What was observed with what is kept by now: another attempt may have seen more, of which no layout tells."""
    kept = connection.execute(sa.select(schema.event_type.c.observed).where(schema.event_type.c.type_id == type_id)).scalar_one()
    return _wire(_observed(kept).joined(observed))


def _newest(connection: Connection, type_id: int) -> int:
    """The number of the newest layout, be it one that was proposed and never held."""
    query = sa.select(sa.func.coalesce(sa.func.max(schema.layout.c.version), 0)).where(schema.layout.c.type_id == type_id)
    return int(connection.execute(query).scalar_one())


def _proposed(connection: Connection, type_id: int, one: Learning, replay_id: int, now: int) -> int:
    """The number of a layout that a rebuild gives a table; one that an earlier attempt proposed is proposed once."""
    newest = _newest(connection, type_id)
    this = (schema.layout.c.type_id == type_id, schema.layout.c.version == newest)
    columns = connection.execute(sa.select(schema.layout.c.columns).where(*this)).scalar_one_or_none()
    if newest > one.before and columns == one.layout.to_json():
        return newest
    who = sa.select(schema.type_replay.c.who).where(schema.type_replay.c.replay_id == replay_id)
    actor = connection.execute(who).scalar_one_or_none() or ENGINE
    values = {"columns": one.layout.to_json(), "decision": one.decision, "actor": actor, "made_ts": now}
    connection.execute(sa.insert(schema.layout).values(type_id=type_id, version=newest + 1, **values))
    return newest + 1


def _keep_variations(connection: Connection, type_id: int, one: Learning, now: int) -> Sequence[Prototype]:
    """Keep the variations that are not there yet, and tell which: those that enlarged what was observed, others so far as there is room."""
    of_type = schema.variation.c.type_id == type_id
    there = {row.typed_hash for row in connection.execute(sa.select(schema.variation.c.typed_hash).where(of_type))}
    new = [shape for shape in one.prototypes if shape.typed_hash not in there]
    kept = new[: max(one.enlarging, MAX_VARIATIONS - len(there))]
    rows = [
        {
            "type_id": type_id, "typed_hash": shape.typed_hash, "names_hash": shape.names_hash, "kinds": sorted(shape.variation.kinds),
            "shape": shape.shape, "source": shape.source, "position": shape.position, "first_ts": now,
        }
        for shape in kept
    ]  # fmt: skip
    if rows:
        connection.execute(sa.insert(schema.variation), rows)
        more = {"variations": schema.event_type.c.variations + len(rows)}
        connection.execute(sa.update(schema.event_type).where(schema.event_type.c.type_id == type_id).values(more))
    return kept


def _newest_layouts() -> sa.Select[Any]:
    joined = schema.layout.join(schema.event_type, schema.event_type.c.type_id == schema.layout.c.type_id)
    newest = schema.layout.c.version == schema.event_type.c.layout_version
    return sa.select(schema.layout.c.type_id, schema.layout.c.columns).select_from(joined).where(newest)


def _among(table: sa.Table, ids: Sequence[int]) -> sa.ColumnElement[bool]:
    return table.c.type_id.in_(ids)


def _known(row: Any, columns: list[dict[str, Any]]) -> KnownType:
    return KnownType(
        type=row.type, table=row.table_name, home=row.home,
        place=TypePlace(uid=row.place_uid, version=row.place_version, commits=row.commits),
        layout=Layout.from_json(columns), layout_version=row.layout_version, observed=_observed(row.observed),
        failures=row.failures, due_ts=row.due_ts, error=row.error, told_ts=row.told_ts, pending=row.pending,
        withheld=_withheld(row.withheld),
    )  # fmt: skip


def _wire(observed: Observed) -> dict[str, Any]:
    return {path: [sorted(seen.kinds), seen.first, seen.last] for path, seen in observed.paths.items()}


def _observed(wire: dict[str, Any]) -> Observed:
    return Observed({path: Seen(frozenset(map(Kind, kinds)), first, last) for path, (kinds, first, last) in wire.items()})


def _withheld(wire: list[list[str]]) -> dict[Pair, str]:
    return {(path, Kind(kind)): who for path, kind, who in wire}


def _variation(kinds: list[list[str]]) -> Variation:
    return Variation(frozenset((path, Kind(kind)) for path, kind in kinds))
