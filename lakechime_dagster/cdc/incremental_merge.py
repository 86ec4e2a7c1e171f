"""What new changes make of keys of which something is known."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakechime_dagster.cdc.change import Change, Key, Order
from lakechime_dagster.cdc.merge import (
    BEFORE_ALL,
    Kept,
    Refused,
    Row,
    RowState,
    Soft,
    Window,
    event_of,
    with_changes,
)
from lakechime_dagster.cdc.wire import Span, encoded
from lakechime_dagster.compat import StrEnum


class ChangeOutcome(StrEnum):
    """What became of a change; of each of them one thing.

    Attributes:
        APPLIED: The key's state rests on it: it deleted the row, is the newest upsert, or carries a
            column of it.
        MERGED: Newer ones of the same execution say all that it said.
        STALE: What was known before the execution says all that it said: it came late.
        DELIVERED_AGAIN: It was there before.
        TRUNCATED: A truncation above it took what it said.
        WAITING: Its row waits for a column that nobody carried.
        CONTROL: It is about no row, or about what the declaration leaves out.
        OTHER_TABLE: It is of a table that the declared filter does not accept.
        QUARANTINED: It was not taken.
    """

    APPLIED = "applied"
    MERGED = "merged"
    STALE = "stale"
    DELIVERED_AGAIN = "delivered again"
    TRUNCATED = "truncated"
    WAITING = "waiting"
    CONTROL = "control"
    OTHER_TABLE = "other table"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a key before an execution.

    `base` and `changes` are what is remembered beside the table; of a key of which nothing is, the
    table's own row is the base. `row` is that of the table, `waiting` the columns of the base that
    nobody carried, `span` where the base's row began in the table's history.
    """

    source: str
    row: Row | None = None
    base: RowState = field(default_factory=RowState)
    waiting: frozenset[str] = frozenset()
    span: Span | None = None
    changes: tuple[Change, ...] = ()

    @property
    def newest(self) -> Order:
        """The newest order of anything of the key."""
        return max(*_orders(self.base), BEFORE_ALL, *(change.order for change in self.changes))

    def has(self, change: Change) -> bool:
        """Whether a change was there before: one of the same event, and of the same content where
        that is known.
        """
        event = event_of(change.order)
        if any(
            event_of(one.order) == event and _content(one) == _content(change)
            for one in self.changes
        ):
            return True
        return any(
            event_of(order) == event
            for order in (*_orders(self.base), *(order for order, _ in self.base.columns.values()))
        )


@dataclass(frozen=True, kw_only=True)
class MergedKey:
    """A key after an execution.

    Attributes:
        key: Its values.
        source: What feeds it.
        before: The table's row before; None if it had none.
        after: The table's row now; None if it has none. One that was deleted has a row state that
            ended.
        row_state: What is known of the key now, which stands beside the row.
        added: The changes to remember.
        waits: Its row waits for a column.
    """

    key: Key
    source: str
    before: Row | None
    after: Row | None
    row_state: RowState
    added: tuple[Change, ...]
    waits: bool = False


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What an execution made of some keys: each of them, the changes that were refused, and how
    many changes met which outcome.

    `change_outcomes` has the outcome of each change that is to be remembered; `kept` is what their
    rows rest on.
    """

    keys: tuple[MergedKey, ...]
    refused: tuple[Refused, ...]
    outcomes: Counter[ChangeOutcome]
    kept: Kept
    change_outcomes: tuple[tuple[Change, ChangeOutcome], ...] = ()


def merged(
    known: Mapping[Key, Known],
    changes: Iterable[Change],
    truncated: Mapping[str, frozenset[Order]],
    low_watermarks: Mapping[str, Order],
    soft: Soft | None = None,
) -> Merged:
    """One execution of a few keys; neither the order of the changes nor how they are split into
    executions makes a difference to the rows.

    Args:
        known: What is known of the keys, of all keys that continue one of them among them.
        changes: The new changes of these keys; those of no key are among `truncated`.
        truncated: The truncations of each source, new ones among them.
        low_watermarks: By source the order below which it is forgotten which rows were deleted.
        soft: How rows stay that were deleted; None where they do not.
    """
    fresh, outcomes = _fresh(known, changes)
    strayed, fresh = _strayed(known, fresh)
    windows = {
        key: Window(source=one.source, base=one.base, changes=one.changes)
        for key, one in known.items()
    }
    applied = with_changes(
        Kept(windows=windows, truncated=truncated, low_watermarks=low_watermarks), fresh
    )
    refused = (*strayed, *applied.refused)
    outcomes[ChangeOutcome.QUARANTINED] += len(refused)
    dropped = {id(one.change) for one in refused}
    added: dict[Key, list[Change]] = {}
    for change in fresh:
        if id(change) not in dropped:
            added.setdefault(change.key, []).append(change)
    keys, change_outcomes = list[MergedKey](), list[tuple[Change, ChangeOutcome]]()
    for key in applied.kept.windows:
        before = known.get(key)
        one = _merged_key(applied.kept, key, before, tuple(added.get(key, ())), soft)
        ends = truncated.get(one.source, frozenset())
        change_outcomes += [
            (change, _outcome(one, change, before.newest if before else BEFORE_ALL, ends))
            for change in one.added
        ]
        keys.append(one)
    outcomes.update(outcome for _, outcome in change_outcomes)
    return Merged(
        keys=tuple(keys),
        refused=refused,
        outcomes=outcomes,
        kept=applied.kept,
        change_outcomes=tuple(change_outcomes),
    )


def _fresh(
    known: Mapping[Key, Known], changes: Iterable[Change]
) -> tuple[list[Change], Counter[ChangeOutcome]]:
    """The changes that were not there before, each once, in their order."""
    fresh: list[Change] = []
    seen: dict[tuple[Key, str, Order], Change] = {}
    outcomes = Counter[ChangeOutcome]()
    for change in sorted(changes, key=lambda one: (one.source, one.order)):
        event = change.key, change.source, event_of(change.order)
        before = known.get(change.key)
        again = seen.setdefault(event, change)
        if (again is not change and _content(again) == _content(change)) or (
            before is not None and before.source == change.source and before.has(change)
        ):
            outcomes[ChangeOutcome.DELIVERED_AGAIN] += 1
        else:
            fresh.append(change)
    return fresh, outcomes


def _strayed(
    known: Mapping[Key, Known], changes: Iterable[Change]
) -> tuple[list[Refused], list[Change]]:
    """The changes without a position that are in another partition than others of their key, so
    that their order is unknown.
    """
    homes: dict[Key, tuple[str, int]] = {}
    refused, others = list[Refused](), list[Change]()
    for key, one in known.items():
        without = [
            order
            for order in (one.base.upserted, *(change.order for change in one.changes))
            if order and not order.position
        ]
        if without:
            homes[key] = without[0].topic, without[0].partition
    for change in changes:
        position = change.order.topic, change.order.partition
        if not change.order.position and homes.setdefault(change.key, position) != position:
            reason = (
                f"key {change.key} has changes without a position in partition {homes[change.key]} "
                f"and in {position}: which came first?"
            )
            refused.append(Refused(change, reason))
        else:
            others.append(change)
    return refused, others


def _merged_key(
    kept: Kept, key: Key, before: Known | None, added: tuple[Change, ...], soft: Soft | None
) -> MergedKey:
    window, row_state = (
        kept.windows[key],
        kept.row_state(key) if soft is None else soft.row_state(kept, key),
    )
    wanted = {
        name
        for one in window.changes
        if one.operation.is_upsert and one.order > row_state.deleted
        for name in one.omitted
    }
    if (
        before is not None
        and row_state.upserted is not None
        and (before.base.upserted or BEFORE_ALL) > row_state.deleted
    ):
        wanted |= before.waiting
    row = row_state.row({*row_state.columns, *wanted})
    return MergedKey(
        key=key,
        source=window.source,
        before=before.row if before else None,
        after=row,
        row_state=row_state,
        added=added,
        waits=row_state.upserted is not None and row_state.ended is None and row is None,
    )


def _outcome(
    merged_key: MergedKey, change: Change, newest: Order, ends: Iterable[Order]
) -> ChangeOutcome:
    row_state, order = merged_key.row_state, change.order
    if merged_key.waits and change.operation.is_upsert and order > row_state.deleted:
        return ChangeOutcome.WAITING
    if order in _orders(row_state) or any(
        carried == order for carried, _ in row_state.columns.values()
    ):
        return ChangeOutcome.APPLIED
    if any(end > order for end in ends):
        return ChangeOutcome.TRUNCATED
    return ChangeOutcome.STALE if order < newest else ChangeOutcome.MERGED


def _orders(row_state: RowState) -> list[Order]:
    """The orders at which the row was written last, and began and ended by deletions."""
    return [
        order
        for order in (
            row_state.upserted,
            row_state.deleted,
            row_state.ended and row_state.ended.order,
        )
        if order is not None
    ]


def _content(change: Change) -> tuple[object, ...]:
    return change.operation.is_upsert, change.columns, change.continues


class Need:
    """What a row of the table needs.

    Where deleted rows stay, one is written too that ends (`END`), that is there again after that
    (`RETURN`), or that ended and was otherwise than was known (`AMEND`).
    """

    INSERT, UPDATE, DELETE, NOTHING = "I", "U", "D", "="
    END, RETURN, AMEND = "d", "i", "u"


def need_of(before: Row | None, after: Row | None, is_same: bool) -> str | None:
    """What the table's row needs; None where there is none and was none."""
    if before is None:
        return None if after is None else Need.INSERT
    if after is None:
        return Need.DELETE
    return (
        Need.NOTHING
        if is_same and all(_equal(before.get(name), value) for name, value in after.items())
        else Need.UPDATE
    )


def soft_need(need: str | None, had_ended: bool, has_ended: bool) -> str | None:
    """The same of a row that is kept, by whether it had ended before and has now; None of one that
    ended, and is as it was.
    """
    match need, had_ended, has_ended:
        case (Need.UPDATE, False, True):
            return Need.END
        case (Need.UPDATE, True, False):
            return Need.RETURN
        case (Need.UPDATE, True, True):
            return Need.AMEND
        case (Need.NOTHING, True, _):
            return None
        case _:
            return need


def _equal(one: Any, other: Any) -> bool:
    return one == other or encoded(one) == encoded(other)
