"""What a set of changes makes of a table's rows, in whatever order they arrive."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lakechime_dagster.cdc.change import REPAIRS, Change, Key, Operation, Order

BEFORE_ALL = Order(epoch=-1)
AFTER_ALL = Order(epoch=2**31)
Row = Mapping[str, Any]


class Ended(NamedTuple):
    """The deletion or truncation that took a row: its order, and its time by the database in
    milliseconds.
    """

    order: Order
    at: int | None


@dataclass(frozen=True, kw_only=True)
class RowState:
    """What is known of a key's row up to some order: enough to go on with changes above it.

    `columns` are those above the newest deletion, each with the order of the change that carried
    it. Where rows stay that the database deleted (`soft`), the row state of one is as it was, and
    says how it `ended`; no other row state does.
    """

    upserted: Order | None = (
        None  # the newest upsert above the newest deletion; None: the row does not live
    )
    deleted: Order = BEFORE_ALL
    columns: Mapping[str, tuple[Order, Any]] = field(default_factory=dict)
    ended: Ended | None = None

    @property
    def lasting(self) -> "RowState":
        """The same before the row ended."""
        return self if self.ended is None else replace(self, ended=None)

    @property
    def end(self) -> Order:
        """The order at which the row ended."""
        return AFTER_ALL if self.ended is None else self.ended.order

    def row(self, columns: Collection[str]) -> Row | None:
        """The row with these columns; None when it does not live, or waits for one of them."""
        if self.upserted is None or any(name not in self.columns for name in columns):
            return None
        return {name: self.columns[name][1] for name in columns}

    def before(self, order: Order) -> "RowState":
        """What of this was so before an order; columns that were carried again since are not
        known.
        """
        columns = {name: held for name, held in self.columns.items() if held[0] < order}
        upserted = self.upserted if self.upserted is not None and self.upserted < order else None
        return RowState(upserted=upserted, deleted=self.deleted, columns=columns)

    def found_at(self, order: Order) -> "RowState":
        """What of this the change at an order found; what a later reading of the database carried
        again is not known.
        """
        ended = None if self.ended is None else self.ended.order
        orders = [self.upserted, self.deleted, ended, *(held[0] for held in self.columns.values())]
        later = {one for one in orders if one is not None and one.is_read_after(order)}
        if not later:
            return self
        if self.deleted in later:
            return RowState()
        columns = {name: held for name, held in self.columns.items() if held[0] not in later}
        upserted, ended = (
            None if self.upserted in later else self.upserted,
            None if ended in later else self.ended,
        )
        return replace(self, upserted=upserted, columns=columns, ended=ended)

    def without(self, deleted: Order) -> "RowState":
        """After a deletion or truncation, which takes what came before it; what is newer stays."""
        if deleted <= self.deleted:
            return self
        lives = self.upserted is not None and self.upserted > deleted
        columns = {name: held for name, held in self.columns.items() if held[0] > deleted}
        return RowState(upserted=self.upserted if lives else None, deleted=deleted, columns=columns)

    def carrying(self, order: Order, columns: Row) -> "RowState":
        """After an upsert that carries these columns."""
        if order <= self.deleted:
            return self
        newer = {
            name: (order, value)
            for name, value in columns.items()
            if name not in self.columns or order >= self.columns[name][0]
        }
        return RowState(
            upserted=max(order, self.upserted or order),
            deleted=self.deleted,
            columns={**self.columns, **newer},
        )


@dataclass(frozen=True, kw_only=True)
class Window:
    """What is kept of a key: a row state of all that is final, and the changes above it, which late
    ones may still come between.
    """

    source: str
    base: RowState = field(default_factory=RowState)
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of a table: a window per key, and by source the truncations above the bases and
    the low watermark.

    A key is fed by one source. Which keys continue which is known from the changes of the windows.
    What is dead below its source's low watermark is forgotten.
    """

    windows: Mapping[Key, Window] = field(default_factory=dict)
    truncated: Mapping[str, frozenset[Order]] = field(default_factory=dict)
    low_watermarks: Mapping[str, Order] = field(default_factory=dict)
    _turns: dict[Key, "Turns"] = field(default_factory=dict, init=False, repr=False, compare=False)
    _row_states: dict[tuple[Key, Order], RowState] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _found: dict[tuple[Key, Order], RowState] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def row_state(self, key: Key, below: Order = AFTER_ALL) -> RowState:
        """What is known of a key by the changes below an order. It is computed once: what others
        continue is asked of many times.
        """
        if not self._row_states:
            self._continue_all()
        window = self.windows.get(key)
        if window is None:
            return RowState()
        found = self._row_states.get((key, below))
        if found is None:
            found = self._row_states[key, below] = self._row_state(
                window, self._turns_of(key), key, below
            )
        return found

    def found(self, key: Key, order: Order) -> RowState:
        """What the change at an order found of a key: its row state there, without what later
        readings of the database say.
        """
        window = self.windows.get(key)
        if window is None:
            return RowState()
        turns, base = self._turns_of(key), window.base.found_at(order)
        later = [one for one in turns.reads if one.is_read_after(order)]
        if not later and base is window.base:
            return self.row_state(key, order)
        row_state = self._found.get((key, order))
        if row_state is None:
            known = Turns(one for one in window.changes if one.order not in later)
            row_state = self._found[key, order] = self._row_state(
                replace(window, base=base), known, key, order
            )
        return row_state

    def _continue_all(self) -> None:
        """Computes what each key change continues, the first ones first, so that none has to go
        back over all that its row was before.
        """
        self._row_states[(), BEFORE_ALL] = RowState()
        changes = [
            change
            for window in self.windows.values()
            for change in window.changes
            if change.continues is not None
        ]
        for change in sorted(changes, key=_order):
            self.continued(RowState(), change)

    def _row_state(self, window: Window, turns: "Turns", key: Key, below: Order) -> RowState:
        ends = [
            order
            for order in (window.base.end, *self.truncated.get(window.source, ()))
            if order < below
        ]
        row_state = window.base.before(below).without(
            max([*ends, self._taken_below(turns, key, below)])
        )
        for change in turns.upserts_between(row_state.deleted, below):
            row_state = self.continued(row_state, change).carrying(change.order, change.columns)
        return row_state

    def _taken_below(self, turns: "Turns", key: Key, below: Order) -> Order:
        """The greatest order at which a deletion below an order takes what is there.

        Deletions are looked at in turn, each once: what one of them takes depends on those before
        it.
        """
        count = bisect_left(turns.deletions, below, key=_order)
        while len(turns.taken) < count:
            taken = self.taken(key, turns.deletions[len(turns.taken)])
            turns.taken.append(max(taken, turns.taken[-1] if turns.taken else BEFORE_ALL))
        return turns.taken[count - 1] if count else BEFORE_ALL

    def taken(self, key: Key, deletion: Change) -> Order:
        """The order at and below which a deletion takes what is there: its own, or that of the row
        which had the key first.
        """
        if deletion.transaction is None:
            return deletion.order
        changes = self._turns_of(key).of_transaction[deletion.transaction]
        given = [
            change
            for change in changes
            if change.continues is not None and change.order < deletion.order
        ]
        if not given:
            return deletion.order
        # one that came again is the first one
        by_event = {event_of(one.order): one for one in reversed(changes)}
        in_turn = sorted(by_event.values(), key=_order)
        # by what began each, the first one first
        rows = [BEFORE_ALL] if self.found(key, in_turn[0].order).upserted is not None else []
        for change in in_turn:
            if change.operation.is_upsert and (change.continues is not None or not rows):
                rows.append(change.order)
            elif change.operation is Operation.DELETE:
                taken = rows[1].before_deletion() if len(rows) > 1 else change.order
                if event_of(change.order) == event_of(deletion.order):
                    return taken
                del rows[:1]
        return deletion.order

    def continued(self, row_state: RowState, change: Change) -> RowState:
        """A row state with the columns that a key change takes from its old key; as it is where the
        change is none.
        """
        if change.continues is None:
            return row_state
        old = self.found(change.continues, self._left(change))
        return row_state.carrying(
            change.order, {name: value for name, (_, value) in old.columns.items()}
        )

    def _left(self, change: Change) -> Order:
        """The order below which a key change takes the columns of its old key: where its deletion
        takes the row from.
        """
        end, key = change.order.before_deletion(), change.continues or ()
        if key not in self.windows:
            return end
        # without a position its deletion is somewhere before it
        since = end if change.order.position else BEFORE_ALL
        deletion = self._turns_of(key).last_deletion_between(since, change.order)
        return end if deletion is None else min(end, self.taken(key, deletion))

    def _turns_of(self, key: Key) -> "Turns":
        """The changes of a key of which something is kept."""
        found = self._turns.get(key)
        if found is None:
            found = self._turns[key] = Turns(self.windows[key].changes)
        return found


class Turns:
    """The changes of a key in their order.

    Attributes:
        taken: Of the first deletions, as many as were looked at, the greatest order that they take;
            see `Kept`.
        reads: The orders of what was read for a repair.
    """

    def __init__(self, changes: Iterable[Change]) -> None:
        self.deletions: list[Change] = []
        self.taken: list[Order] = []
        self.reads: list[Order] = []
        self.of_transaction: dict[int | None, list[Change]] = {}
        self._upserts: list[Change] = []
        for change in sorted(changes, key=_order):
            (self._upserts if change.operation.is_upsert else self.deletions).append(change)
            self.of_transaction.setdefault(change.transaction, []).append(change)
            if change.order.topic.startswith(REPAIRS):
                self.reads.append(change.order)

    def upserts_between(self, above: Order, below: Order) -> list[Change]:
        """Those above the one order and below the other."""
        return self._upserts[
            bisect_right(self._upserts, above, key=_order) : bisect_left(
                self._upserts, below, key=_order
            )
        ]

    def last_deletion_between(self, since: Order, below: Order) -> Change | None:
        """The last one from an order on and below another."""
        end = bisect_left(self.deletions, below, key=_order)
        return self.deletions[end - 1] if end and self.deletions[end - 1].order >= since else None


@dataclass(frozen=True)
class Refused:
    """A change that the table must not take, and why."""

    change: Change
    reason: str


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What some changes make of what is kept.

    Attributes:
        kept: What is kept after them.
        touched: The keys whose rows they may have changed; all other rows are as they were.
        refused: The changes that were not taken.
    """

    kept: Kept
    touched: frozenset[Key]
    refused: tuple[Refused, ...] = ()


def with_changes(kept: Kept, changes: Iterable[Change]) -> Applied:
    """What is kept after these changes too; the order in which they come makes no difference."""
    windows, truncated, touched, refused = (
        dict(kept.windows),
        dict(kept.truncated),
        set[Key](),
        list[Refused](),
    )
    for change in changes:
        if change.operation is Operation.TRUNCATE:
            truncated[change.source] = truncated.get(change.source, frozenset()) | {change.order}
            touched |= {key for key, window in windows.items() if window.source == change.source}
            continue
        window = windows.get(change.key)
        reason = _reason(change, window, kept.low_watermarks.get(change.source, BEFORE_ALL))
        if reason is not None:
            refused.append(Refused(change, reason))
            continue
        window = window or Window(source=change.source)
        windows[change.key] = replace(window, changes=(*window.changes, change))
        touched.add(change.key)
    after = replace(kept, windows=windows, truncated=truncated)
    return Applied(kept=after, touched=_reached(windows, touched), refused=tuple(refused))


def _reason(change: Change, window: Window | None, low_watermark: Order) -> str | None:
    """Why a change must not be taken; None if it may be."""
    if window is not None and window.source != change.source:
        return (
            f"key {change.key} is fed by {window.source!r} already: orders of {change.source!r} do "
            f"not compare with its"
        )
    if change.order < low_watermark and (window is None or change.order > window.base.end):
        return (
            f"order {change.order} is below {low_watermark}, up to which it is forgotten which "
            f"rows of {change.source!r} were deleted"
        )
    return None


def collected(
    kept: Kept,
    source: str,
    low_watermark: Order,
    row_state_of: Callable[[Kept, Key, Order], RowState] = Kept.row_state,
) -> Kept:
    """What is kept once nothing of a source is expected below the low watermark any more: changes
    below it become part of the bases.

    A low watermark stands between two transactions, and never goes back. What comes below it all
    the same is taken for a key that is known, and refused for another: its row may have been
    deleted since. `row_state_of` says what is known of a key below an order.
    """
    low_watermark = max(low_watermark, kept.low_watermarks.get(source, BEFORE_ALL))
    windows = dict(kept.windows)
    for key, window in kept.windows.items():
        if window.source != source:
            continue
        base = row_state_of(kept, key, low_watermark)
        changes = tuple(change for change in window.changes if change.order >= low_watermark)
        if changes or base.upserted is not None:
            windows[key] = Window(source=source, base=base, changes=changes)
        else:
            del windows[key]
    truncated = frozenset(
        order for order in kept.truncated.get(source, ()) if order >= low_watermark
    )
    return Kept(
        windows=windows,
        truncated={**kept.truncated, source: truncated},
        low_watermarks={**kept.low_watermarks, source: low_watermark},
    )


def _order(change: Change) -> Order:
    return change.order


def event_of(order: Order) -> Order:
    """What is the same of the order of a change that is delivered again."""
    return Order(order.epoch, order.position, order.rank) if order.position else order


def _reached(windows: Mapping[Key, Window], touched: Iterable[Key]) -> frozenset[Key]:
    """The keys, and those that continue them, and so on."""
    continuing: dict[Key, set[Key]] = {}
    for key, window in windows.items():
        for change in window.changes:
            if change.continues is not None:
                continuing.setdefault(change.continues, set()).add(key)
    reached = set(touched)
    ahead = list(reached)
    while ahead:
        fresh = continuing.get(ahead.pop(), set()) - reached
        reached |= fresh
        ahead += fresh
    return frozenset(reached)


# when truncations were, by their source and order
TruncatedAt = Mapping[tuple[str, Order], int | None]


class Event(NamedTuple):
    """What happens to the row of a key: an upsert, or the end of what was there before."""

    order: Order
    at: int | None
    upsert: Change | None = None


@dataclass(frozen=True)
class State:
    """A key after an event, or by its base alone."""

    event: Event | None
    row_state: RowState
    waiting: frozenset[str]  # for columns that the row has, and nobody carried


def states_of(
    kept: Kept,
    truncated_at: TruncatedAt,
    key: Key,
    below: Order = AFTER_ALL,
    waiting: frozenset[str] = frozenset(),
) -> Iterator[State]:
    """What a key of which something is kept is in its base, which is `waiting` for columns, and
    after each event below an order.
    """
    row_state = kept.windows[key].base.lasting
    yield State(None, row_state, waiting)
    for event in _events(kept, truncated_at, key, below):
        if event.upsert is None:
            row_state = row_state.without(event.order)
            waiting = waiting if row_state.upserted is not None else frozenset()
        elif event.order > row_state.deleted:
            row_state = kept.continued(row_state, event.upsert).carrying(
                event.order, event.upsert.columns
            )
            waiting = waiting.union(event.upsert.omitted) - row_state.columns.keys()
        yield State(event, row_state, waiting)


def _events(kept: Kept, truncated_at: TruncatedAt, key: Key, below: Order) -> list[Event]:
    """What happens to a key below an order, in turn."""
    window = kept.windows[key]
    events = [
        Event(order, truncated_at.get((window.source, order)))
        for order in kept.truncated.get(window.source, ())
    ]
    if window.base.ended is not None:
        events.append(Event(*window.base.ended))
    for change in window.changes:
        if change.operation.is_upsert:
            events.append(Event(change.order, change.event_ms, change))
        else:
            events.append(Event(kept.taken(key, change), change.event_ms))
    return sorted((one for one in events if one.order < below), key=lambda one: one.order)


@dataclass(frozen=True)
class Soft:
    """That a table keeps deleted rows, and when truncations were, by their source and order."""

    truncated_at: Mapping[tuple[str, Order], int | None] = field(default_factory=dict)

    def row_state(self, kept: Kept, key: Key, below: Order = AFTER_ALL) -> RowState:
        """What is known of a key's row by the changes below an order; of one that does not live as
        it was, and how it ended.
        """
        row_state = kept.row_state(key, below)
        if row_state.upserted is not None or key not in kept.windows:
            return row_state
        was = None
        for state in states_of(kept, self.truncated_at, key, below):
            if state.row_state.upserted is not None:
                was = state.row_state
            elif was is not None and was.ended is None and state.event is not None:
                was = replace(was, ended=Ended(state.event.order, state.event.at))
        return was or row_state

    def collected(self, kept: Kept, source: str, low_watermark: Order) -> Kept:
        """What is kept once nothing of a source is expected below the low watermark any more; see
        `merge.collected`.
        """
        return collected(kept, source, low_watermark, self.row_state)
