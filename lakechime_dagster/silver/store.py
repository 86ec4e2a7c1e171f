"""Types of events in the store: checkpoints, schema versions, variations, counts, and requests."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import StoreNow, insert_if_absent, now_ms, reading, writing
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError, shown
from lakechime_dagster.silver.event import Kind, Variation
from lakechime_dagster.silver.results import (
    AT_ONCE,
    GroupResult,
    Request,
    RequestDone,
    RequestKind,
    TypeResult,
)
from lakechime_dagster.silver.schema import KnownType, Learning, TypeCheckpoint, TypeSchema
from lakechime_dagster.silver.store_schema import (
    event_request,
    event_type,
    group_total,
    schema_version,
    variation,
)
from lakechime_dagster.tables.events import EventGroup, owner_of, table_of
from lakechime_dagster.triggers.registry import By

MAX_VARIATIONS = 1_000  # kept of a type; above it only those that enlarge what was observed of it
PAUSES_MS = (10_000, 60_000, 300_000, 900_000)  # before a type that failed is tried again
ENGINE = "lakechime"  # the actor of what no person decided
_type = event_type.c


@dataclass(frozen=True, kw_only=True)
class LeftType:
    """A type of which events were left, as it failed or catches up.

    Attributes:
        is_due: It is time to read them, which is so from `due_ts` on (milliseconds).
        error: Why it failed; empty where it did not.
    """

    type: str
    has_failed: bool
    is_due: bool
    due_ts: int
    error: str


@dataclass(frozen=True, kw_only=True)
class BreakingSchema:
    """A schema that continues fields in variant columns; `decision` is what it gained and lost."""

    type: str
    version: int
    decision: str


@dataclass(frozen=True)
class SqlEventTypes:
    """The types of the streams of one deployment."""

    engine: Engine
    deployment: str

    def types(self, group: str) -> dict[str, KnownType]:
        """What is known of a group's types, by name."""
        with reading(self.engine) as connection:
            rows = connection.execute(
                sa.select(event_type, schema_version.c.columns)
                .select_from(with_schemas())
                .where(*self._is(group))
            )
            return {row.type: _known(row) for row in rows.all()}

    def register(
        self,
        groups: Sequence[EventGroup],
        found: Collection[str] = (),
        begin: TypeCheckpoint | None = None,
    ) -> None:
        """Keep the types that are new, and let each type of the stream be of the group that has it
        by the declaration.

        Whichever group reads a type first registers it for all, so that none of its events is
        missed. A type that moves to another group keeps its table, if it has one, and its
        checkpoint, schemas and requests. An execution of the former group that is under way
        finds the type gone when it completes; what it wrote is found in the table.

        Args:
            groups: All of the stream.
            found: Types that have events.
            begin: From where those are read that are new; the beginning of the stream unless given.
        """
        stream, begin = groups[0].stream.name, begin or TypeCheckpoint()
        of_stream = (_type.deployment == self.deployment, _type.stream == stream)
        with reading(self.engine) as connection:
            had = {
                row.type: row.group_name
                for row in connection.execute(
                    sa.select(_type.type, _type.group_name).where(*of_stream)
                )
            }
        owners = {name: owner_of(groups, name).name for name in sorted({*found, *had})}
        changed = {name: owner for name, owner in owners.items() if had.get(name) != owner}
        if not changed:
            return
        with writing(self.engine) as connection:
            new = {
                "deployment": self.deployment,
                "stream": stream,
                "checkpoint_uid": begin.uid,
                "checkpoint_version": begin.version,
                "observed": [],
                "sums": {},
                "reasons": {},
                "first_ts": now_ms(connection),
                "due_ts": AT_ONCE,
            }
            for name, owner in changed.items():
                table = f"{owner}.{table_of(name)}"
                if name not in had:
                    row = {**new, "type": name, "group_name": owner, "table_name": table}
                    connection.execute(insert_if_absent(connection, event_type), row)
                else:
                    this = sa.update(event_type).where(*of_stream, _type.type == name)
                    kept = sa.case((_type.schema_version == 0, table), else_=_type.table_name)
                    connection.execute(
                        this.values(
                            group_name=owner, table_name=kept, materialized_ts=0, due_ts=AT_ONCE
                        )
                    )

    def variations(self, group: str, types: Collection[str]) -> dict[str, dict[str, Variation]]:
        """The variations of these types that are kept, by hash."""
        found: dict[str, dict[str, Variation]] = {name: {} for name in types}
        kept = sa.select(_type.type, variation.c.typed_hash, variation.c.kinds).join_from(
            variation, event_type
        )
        with reading(self.engine) as connection:
            for row in connection.execute(
                kept.where(*self._is(group), _type.type.in_(list(types)))
            ):
                found[row.type][row.typed_hash] = _variation(row.kinds)
        return found

    def learn(self, group: str, several: Sequence[Learning]) -> dict[str, int]:
        """Keep what was found out, all or nothing, before any table is touched; the number of each
        type's schema.

        Raises:
            ConsumerConflictError: A type's schema is another one than what was found out was added
                to, or another group has the type.
        """
        with writing(self.engine) as connection:
            now = now_ms(connection)
            return {one.type: self._keep(connection, group, one, now) for one in several}

    def _keep(self, connection: Connection, group: str, one: Learning, now: int) -> int:
        this = (
            sa.select(event_type).where(*self._is(group), _type.type == one.type).with_for_update()
        )
        row = connection.execute(this).one_or_none()
        if row is None:
            raise ConsumerConflictError(
                f"{group}: {one.type} is of another group by now; the next attempt leaves it to "
                f"that"
            )
        if row.schema_version != one.before:
            now_is = f"is number {row.schema_version} by now, and was read as {one.before}"
            raise ConsumerConflictError(
                f"{group}: the schema of {one.type} {now_is}; the next attempt reads it"
            )
        version = (
            _add_schema(connection, row.type_id, one, now) if one.is_new_schema else one.before
        )
        values: dict[str, Any] = {
            "observed": _wire(
                Variation(_variation(row.observed).kinds | one.observed.kinds)
            ),  # another attempt may have seen more
            "variations": _add_variations(connection, row.type_id, one),
        }
        values |= {} if one.is_rebuild else {"schema_version": version}
        connection.execute(sa.update(event_type).where(_type.type_id == row.type_id).values(values))
        return version

    def hold(self, group: str, type_name: str, version: int) -> None:
        """Let the schema with which a type's table was written last be the type's own: a rebuild
        committed, and died.
        """
        is_kept = sa.exists().where(
            schema_version.c.type_id == _type.type_id, schema_version.c.version == version
        )
        this = (*self._is(group), _type.type == type_name, _type.schema_version < version, is_kept)
        with writing(self.engine) as connection:
            connection.execute(sa.update(event_type).where(*this).values(schema_version=version))

    def complete(
        self,
        connection: Connection,
        group: str,
        execution_id: str,
        result: GroupResult,
        uid: str,
        shown: Collection[str] = (),
    ) -> None:
        """Move the checkpoints of a group's types, add its counts and close its requests, within
        the completing transaction.

        `uid` is that of the stream's table; the types in `shown` are materialized in Dagster now.
        """
        now = now_ms(connection)
        rows = {
            row.type: row
            for row in connection.execute(
                sa.select(event_type).where(*self._is(group)).with_for_update()
            )
        }
        for one in result.types:
            row = rows.get(one.type)
            if row is None:
                continue  # it is another group's by now
            values = _after(row, one, uid, now) | (
                {"materialized_ts": now} if one.type in shown else {}
            )
            connection.execute(
                sa.update(event_type).where(_type.type_id == row.type_id).values(values)
            )
            close_requests(connection, execution_id, one.replayed)
        _add_totals(connection, {"deployment": self.deployment, "group_name": group}, result)

    def history(self, group: str, type_name: str) -> list[dict[str, Any]]:
        """The schema versions of a type, the first one first: `version`, `decision`, `actor` and
        `made_ts`.
        """
        version = schema_version.c
        query = sa.select(
            version.version, version.made_ts, version.actor, version.decision
        ).join_from(schema_version, event_type)
        of_type = (*self._is(group), _type.type == type_name)
        with reading(self.engine) as connection:
            return [
                dict(row._mapping)
                for row in connection.execute(query.where(*of_type).order_by(version.version))
            ]

    def breaking(self, group: str, since: int) -> list[BreakingSchema]:
        """The schemas of a group's types that were made since a moment and have further variant
        columns, by type.
        """
        version = schema_version.c
        before = sa.func.lag(version.variants).over(
            partition_by=version.type_id, order_by=version.version
        )
        each = (
            sa.select(
                _type.type,
                version.version,
                version.decision,
                version.made_ts,
                (version.variants > before).label("has_more"),
            )
            .join_from(schema_version, event_type)
            .where(*self._is(group), version.version <= _type.schema_version)
            .subquery()
        )
        query = sa.select(each.c.type, each.c.version, each.c.decision).where(
            each.c.made_ts >= since, each.c.has_more
        )
        with reading(self.engine) as connection:
            return [
                BreakingSchema(**row._mapping)
                for row in connection.execute(query.order_by(each.c.type, each.c.version))
            ]

    def left(self, group: str) -> list[LeftType]:
        """The types of which an execution left events that are to be read again though nothing
        arrives, by name.
        """
        is_due = (_type.due_ts <= StoreNow()).label("is_due")
        query = sa.select(_type.type, _type.failures, _type.due_ts, _type.error, is_due).where(
            *self._is(group), _type.due_ts > 0
        )
        with reading(self.engine) as connection:
            return [
                LeftType(
                    type=row.type,
                    has_failed=row.failures > 0,
                    is_due=bool(row.is_due),
                    due_ts=row.due_ts,
                    error=row.error,
                )
                for row in connection.execute(query.order_by(_type.type))
            ]

    def retry(self, group: str, types: Collection[str]) -> list[str]:
        """Let the next execution try these of a group's types that failed, and launch it at once;
        their names.

        Pauses begin again: an execution under way may fail yet, as it read what was before.
        """
        failed = (*self._is(group), _type.failures > 0, _type.type.in_(list(types)))
        with writing(self.engine) as connection:
            made_due = (
                sa.update(event_type)
                .where(*failed)
                .values(due_ts=AT_ONCE, failures=1)
                .returning(_type.type)
            )
            return sorted(connection.execute(made_due).scalars())

    def _is(self, group: str) -> tuple[sa.ColumnElement[bool], ...]:
        return (_type.deployment == self.deployment, _type.group_name == group)


def with_schemas() -> sa.FromClause:
    """Types with the schemas that hold; a type without a table has none."""
    version = schema_version.c
    return event_type.outerjoin(
        schema_version,
        sa.and_(version.type_id == _type.type_id, version.version == _type.schema_version),
    )


def _known(row: Any) -> KnownType:
    same = (
        "type",
        "schema_version",
        "failures",
        "due_ts",
        "error",
        "materialized_ts",
        "pending",
        "waits",
    )
    return KnownType(
        table=row.table_name,
        checkpoint=TypeCheckpoint(
            uid=row.checkpoint_uid, version=row.checkpoint_version, commits=row.commits
        ),
        schema=TypeSchema.from_json(row.columns or []),
        observed=_variation(row.observed),
        **{name: getattr(row, name) for name in same},
        **{name: row.sums.get(name, 0) for name in ("written", "rescued", "discarded")},
    )


def _wire(of: Variation) -> list[list[str]]:
    return [[path, kind.value] for path, kind in sorted(of.kinds)]


def _variation(wire: Iterable[Sequence[str]]) -> Variation:
    return Variation(frozenset((path, Kind(kind)) for path, kind in wire))


def _after(row: Any, one: TypeResult, uid: str, now: int) -> dict[str, Any]:
    """What a completed execution changes in the row of a type. Its checkpoint moves with a commit,
    or past what held nothing of it.
    """
    sums = Counter(row.sums)
    sums.update(
        written=one.written,
        rescued=one.rescued,
        discarded=one.discarded,
        columns_added=one.columns_added,
    )
    sums.update(failures=1 if one.error else 0)
    is_late = bool(one.failure or one.pending or one.catches_up)
    values: dict[str, Any] = {
        "sums": dict(sums),
        "reasons": dict(
            Counter(row.reasons)
            + Counter({reason.value: count for reason, count in one.reasons.items()})
        ),
        "behind_ts": (row.behind_ts or now) if is_late else None,
        "schema_version": max(row.schema_version, one.schema_version),
    }
    values |= {} if one.behind is None else {"rows_behind": one.behind}
    values |= {} if one.failure else {"pending": one.pending, "waits": one.waits}
    if one.put_off:
        return values
    pause = PAUSES_MS[min(row.failures, len(PAUSES_MS) - 1)]
    values |= (
        {"failures": row.failures + 1, "due_ts": now + pause, "error": one.error[:2000]}
        if one.error
        else {"failures": 0, "due_ts": one.due_ts, "error": ""}
    )
    reached = {"checkpoint_uid": uid, "checkpoint_version": one.end}
    if one.committed is not None:
        number = one.committed.commit_metadata.number
        return values | (
            reached | {"commits": number, "commit_ts": now} if row.commits < number else {}
        )
    is_further = row.checkpoint_version < one.end or row.checkpoint_uid != uid
    return values | (reached if is_further and not one.error and not one.pending else {})


def _add_schema(connection: Connection, type_id: int, one: Learning, now: int) -> int:
    """Add a schema behind the newest one; its number. A rebuild that is tried again has the one
    that never held.
    """
    version, columns = schema_version.c, one.schema.to_json()
    of_type = sa.select(version.version, version.columns).where(version.type_id == type_id)
    newest = connection.execute(of_type.order_by(version.version.desc()).limit(1)).one_or_none()
    if newest is not None and newest.version > one.before and newest.columns == columns:
        return int(newest.version)
    number = 1 if newest is None else newest.version + 1
    values = {
        "columns": columns,
        "variants": one.schema.variants,
        "decision": one.decision,
        "actor": ENGINE,
        "made_ts": now,
    }
    connection.execute(sa.insert(schema_version).values(type_id=type_id, version=number, **values))
    return number


def _add_variations(connection: Connection, type_id: int, one: Learning) -> int:
    """Add the variations that are new: those that enlarge what was observed, others so far as there
    is room; how many are kept then.
    """
    of_type = sa.select(variation.c.typed_hash).where(variation.c.type_id == type_id)
    there = {*connection.execute(of_type).scalars()}
    new = [each for each in one.prototypes if each.typed_hash not in there]
    rows = [
        {"type_id": type_id, "typed_hash": each.typed_hash, "kinds": _wire(each.variation)}
        for each in new[: max(one.enlarging, MAX_VARIATIONS - len(there))]
    ]
    if rows:
        connection.execute(sa.insert(variation), rows)
    return len(there) + len(rows)


def _add_totals(connection: Connection, key: Mapping[str, str], result: GroupResult) -> None:
    """Add what an execution did for no single type; executions of a group complete one after the
    other.
    """
    this = [group_total.c[name] == value for name, value in key.items()]
    row = connection.execute(sa.select(group_total).where(*this)).one_or_none()
    refused = Counter({} if row is None else row.refused)
    seconds: dict[str, float] = {} if row is None else dict(row.seconds)
    refused.update(result.refused)
    for phase, value in result.seconds.items():
        seconds[phase] = seconds.get(phase, 0) + value
    values = {"refused": dict(refused), "seconds": seconds}
    changed = (
        sa.insert(group_total).values(**key, **values)
        if row is None
        else sa.update(group_total).where(*this).values(values)
    )
    connection.execute(changed)


@dataclass(frozen=True, kw_only=True)
class KeptRequest:
    """A request as people see it; `done_ts` is None while it is open, `done` also where it was
    cancelled.
    """

    request: Request
    who: str
    reason: str
    asked_ts: int
    done_ts: int | None = None
    done: RequestDone | None = None


_OPEN = event_request.c.done_ts.is_(None)


@dataclass(frozen=True)
class Requests:
    """The requests to replay or rebuild types, or to reprocess what streams refused, of one
    deployment; each is of a table.
    """

    engine: Engine
    deployment: str

    def ask(self, table: str, kind: RequestKind, by: By) -> KeptRequest:
        """Ask for it, instead of what is open of the table: an execution may be at that, with what
        was decided before, and closes only that.

        A replay in place of a rebuild that is open is a rebuild.
        """
        with writing(self.engine) as connection:
            asked = None
            while asked is None:  # somebody else may ask at this moment, on PostgreSQL
                opened = self._opened(connection, table)
                if opened is not None:
                    kind = (
                        RequestKind.REBUILD if opened.request.kind is RequestKind.REBUILD else kind
                    )
                    self._end(connection, opened, f"{by.who} asked for a {kind}: {by.reason}")
                new = insert_if_absent(connection, event_request).values(
                    deployment=self.deployment,
                    table_name=table,
                    kind=kind,
                    who=by.who,
                    reason=by.reason,
                    asked_ts=now_ms(connection),
                )
                if connection.execute(new.returning(event_request.c.request_id)).all():
                    asked = self._opened(connection, table)
        return asked

    def cancel(self, table: str, by: By, *, dry_run: bool = False) -> int:
        """End an open request without doing it, and return its number; an execution that is at it
        already may still do it.

        Raises:
            NotFoundError: none is open.
        """
        with writing(self.engine) as connection:
            opened = self._opened(connection, table)
            if opened is None:
                raise NotFoundError(
                    f"no request for {shown(table)} is open; see `lakechime schema show`"
                )
            if not dry_run:
                self._end(connection, opened, f"cancelled by {by.who}: {by.reason}")
            return opened.request.request_id

    def close(self, execution_id: str, done: RequestDone) -> None:
        """Record what an execution did for a request; nothing where that is closed already."""
        with writing(self.engine) as connection:
            close_requests(connection, execution_id, [done])

    def open(self, table: str) -> Request | None:
        """The request for a table that waits for an execution."""
        with reading(self.engine) as connection:
            opened = self._opened(connection, table)
            return None if opened is None else opened.request

    def open_of_group(self, group: str) -> dict[str, Request]:
        """The requests for types of a group that wait for an execution, by type."""
        of_group = sa.select(_type.table_name, _type.type).where(
            _type.deployment == self.deployment, _type.group_name == group
        )
        with reading(self.engine) as connection:
            types = {row.table_name: row.type for row in connection.execute(of_group)}
            return {
                types[one.request.table]: one.request
                for one in self._read(connection, types, _OPEN)
            }

    def of(self, table: str) -> list[KeptRequest]:
        """All requests for a table, the first one first."""
        with reading(self.engine) as connection:
            return self._read(connection, [table])

    def _end(self, connection: Connection, opened: KeptRequest, why: str) -> None:
        """End an open one, of which no execution records a result any more."""
        this = sa.update(event_request).where(
            event_request.c.request_id == opened.request.request_id, _OPEN
        )
        connection.execute(
            this.values(done_ts=now_ms(connection), reason=event_request.c.reason + f"; {why}")
        )

    def _opened(self, connection: Connection, table: str) -> KeptRequest | None:
        return next(iter(self._read(connection, [table], _OPEN)), None)

    def _read(
        self, connection: Connection, tables: Collection[str], *which: sa.ColumnElement[bool]
    ) -> list[KeptRequest]:
        of_tables = (
            event_request.c.deployment == self.deployment,
            event_request.c.table_name.in_(list(tables)),
        )
        query = (
            sa.select(event_request).where(*of_tables, *which).order_by(event_request.c.request_id)
        )
        return [
            KeptRequest(
                request=Request(
                    request_id=row.request_id, table=row.table_name, kind=RequestKind(row.kind)
                ),
                who=row.who,
                reason=row.reason,
                asked_ts=row.asked_ts,
                done_ts=row.done_ts,
                done=None
                if row.rows is None
                else RequestDone(request_id=row.request_id, **row.rows),
            )
            for row in connection.execute(query)
        ]


def close_requests(
    connection: Connection, execution_id: str, several: Iterable[RequestDone]
) -> None:
    """Record the results of requests, within the completing transaction; of one that is closed
    nothing.
    """
    for one in several:
        this = sa.update(event_request).where(event_request.c.request_id == one.request_id, _OPEN)
        rows = {"replaced": one.replaced, "added": one.added, "removed": one.removed}
        connection.execute(
            this.values(rows=rows, execution_id=execution_id, done_ts=now_ms(connection))
        )
