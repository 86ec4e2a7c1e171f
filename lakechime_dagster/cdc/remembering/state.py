"""What is remembered of changes beside a table's rows, as the rows of a table of its own.

Of a key that no recent change is of, the table's own row says all. With the first change it gets a base here, what was known
before, and its changes are added from then on: late ones may still come between them.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import orjson

from lakechime_dagster.cdc.change import Change, Key, Operation
from lakechime_dagster.cdc.meaning.fold import BEFORE_ALL, Image
from lakechime_dagster.cdc.meaning.merging import KeyStep, Known
from lakechime_dagster.cdc.meaning.wire import (
    Span,
    image_of,
    image_text,
    key_of,
    key_text,
    order_of,
    order_text,
    row_of,
    row_text,
    span_of,
    span_text,
)
from lakechime_dagster.compat import StrEnum


class Role(StrEnum):
    """What a row tells.

    Attributes:
        TARGET: The table's own row of a key, with its history the open one; it is never remembered.
        CLOSED: A row of the table's history that ended; neither is it.
        BASE: What was known of a key before its changes here.
        CHANGE: A change of a key.
        TRUNCATION: A truncation of a source.
        MARK: A snapshot's first or last row, as a change without columns.
        PLACE: How far a partition of a source has come, or which epoch of a source may be entered.
        BEAT: How far the log of a server had come.
        PROBE: Which transactions were open in the database (`open_transactions.Probe`).
        COLUMNS: Since when a source has the columns of a schema (`defaults.Schema`).
        SCHEMA: The columns of a database's table at a place of its log (`table_schema.TableSchema`).
        FRONTIER: The order of a source below which it is forgotten which rows were deleted.
    """

    TARGET = "target"
    CLOSED = "closed"
    BASE = "base"
    CHANGE = "change"
    TRUNCATION = "truncation"
    MARK = "mark"
    PLACE = "place"
    BEAT = "beat"
    PROBE = "probe"
    COLUMNS = "columns"
    SCHEMA = "schema"
    FRONTIER = "frontier"


class StateRow(NamedTuple):
    """One of them; keys, orders and columns are text (`wire`)."""

    role: str
    key: str | None
    source: str
    order: str  # of a base and of the table's row: what is known beside the values of the columns
    op: str | None = None  # of Role.COLUMNS the schema's name, of Role.SCHEMA whether it was told or read
    columns: str | None = None  # of Role.COLUMNS those that have a default, with it; of Role.SCHEMA the types; of a probe what was told
    omitted: str | None = None  # a JSON array; of Role.COLUMNS all of the schema
    continues: str | None = None
    transaction: int | None = None
    ts_ms: int | None = None
    snapshot: str | None = None  # of Role.SCHEMA the database's dialect
    span: str | None = None  # of a row of a history, or of a base whose row is open: when it begins and ends (`wire.Span`)


COLUMNS = {
    "step": "bigint",  # which remembered it
    "role": "string",
    "key": "string",
    "source": "string",
    "order": "string",
    "op": "string",
    "columns": "string",
    "omitted": "string",
    "continues": "string",
    "transaction": "bigint",
    "ts_ms": "bigint",
    "snapshot": "string",
    "span": "string",
}


def change_row(change: Change, role: Role = Role.CHANGE) -> StateRow:
    """A change as it is remembered."""
    has_row = role is Role.CHANGE and change.operation.is_upsert
    return StateRow(
        role=role.value,
        key=key_text(change.key) if change.key else None,
        source=change.source,
        order=order_text(change.order),
        op=change.operation.value,
        columns=row_text(change.columns) if has_row else None,
        omitted=orjson.dumps(sorted(change.omitted)).decode() if change.omitted else None,
        continues=None if change.continues is None else key_text(change.continues),
        transaction=change.transaction,
        ts_ms=change.event_ms,
        snapshot=change.snapshot,
    )


def change_of(row: StateRow) -> Change:
    """The change that a row remembers."""
    return Change(
        source=row.source,
        operation=Operation(row.op),
        order=order_of(row.order),
        key=() if row.key is None else key_of(row.key),
        columns={} if row.columns is None else row_of(row.columns),
        omitted=_names(row.omitted),
        continues=None if row.continues is None else key_of(row.continues),
        transaction=row.transaction,
        event_ms=row.ts_ms,
        snapshot=row.snapshot,
    )


def known_of(rows: Iterable[StateRow]) -> Known | None:
    """What is known of the key that all these rows are of; None of a key that is new."""
    by_role: dict[str, list[StateRow]] = {}
    for row in rows:
        by_role.setdefault(row.role, []).append(row)
    targets, bases, changes = (by_role.get(role, []) for role in (Role.TARGET, Role.BASE, Role.CHANGE))
    told = [*bases, *changes, *targets]
    if not told:
        return None
    row = row_of(targets[0].columns or "{}") if targets else None
    base, waiting, span = Image(), frozenset[str](), None
    for one in bases or ([] if changes else targets):
        _, base = image_of(one.order, row_of(one.columns or "{}"))
        waiting, span = frozenset(_names(one.omitted)), None if one.span is None else span_of(one.span)
    return Known(source=told[0].source, row=row, base=base, waiting=waiting, span=span, changes=tuple(map(change_of, changes)))


def remembered(step: KeyStep, known: Known | None, row_of_change: Callable[[Change], StateRow] = change_row) -> list[StateRow]:
    """What is to be remembered of a key after a step: its new changes, and before the first of them what was known."""
    rows = [row_of_change(change) for change in step.added]
    if not rows or known is None or known.changes or not (known.base.upserted or known.base.deleted > BEFORE_ALL):
        return rows
    return [base_row(step.key, known.source, known.base, known.waiting, known.span), *rows]


def base_row(
    key: Key, source: str, image: Image, waiting: Iterable[str] = (), span: Span | None = None, role: Role = Role.BASE
) -> StateRow:
    """What is known of a key."""
    values = {name: value for name, (_, value) in image.columns.items()}
    omitted = orjson.dumps(sorted(waiting)).decode() if waiting else None
    told = None if span is None else span_text(span)
    return StateRow(role.value, key_text(key), source, image_text(image, source), columns=row_text(values), omitted=omitted, span=told)


def _names(omitted: str | None) -> tuple[str, ...]:
    return () if omitted is None else tuple(orjson.loads(omitted))
