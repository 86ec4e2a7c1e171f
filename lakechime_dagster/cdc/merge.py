"""What a set of changes makes of a table's rows, in whatever order and executions they arrive."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lakechime_dagster.cdc.change import REPAIRS, Change, Key, Operation, Order, encoded
from lakechime_dagster.compat import StrEnum

BEFORE_ALL = Order(epoch=-1)
AFTER_ALL = Order(epoch=2**31)
Row = Mapping[str, Any]
# by source the truncations, and the time of each
Truncations = Mapping[str, Mapping[Order, int | None]]


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

    @property
    def row(self) -> Row | None:
        """The values of the columns; None when the row does not live."""
        if self.upserted is None:
            return None
        return {name: value for name, (_, value) in self.columns.items()}

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


class Span(NamedTuple):
    """Where a row of a history begins and, unless it is open, ends: orders, and times in
    milliseconds.
    """

    start_seq: Order
    start_at: int | None
    end_seq: Order | None = None
    end_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Window:
    """What is kept of a key: a row state of all that is final, and the changes above it, which late
    ones may still come between.

    Of a key of which nothing is remembered the table's own row is the base. `waiting` are the
    columns of the base that nobody carried; `span` says where the base's row is open in the table's
    history.
    """

    source: str
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
class Kept:
    """What is kept of a table: a window per key, and by source the truncations above the bases and
    the low watermark.

    A key is fed by one source. Which keys continue which is known from the changes of the windows.
    What is dead below its source's low watermark is forgotten.
    """

    windows: Mapping[Key, Window] = field(default_factory=dict)
    truncated: Truncations = field(default_factory=dict)
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


def _order(change: Change) -> Order:
    return change.order


def event_of(order: Order) -> Order:
    """What is the same of the order of a change that is delivered again."""
    return Order(order.epoch, order.position, order.rank) if order.position else order


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


def states_of(kept: Kept, key: Key, below: Order = AFTER_ALL) -> Iterator[State]:
    """What a key of which something is kept is in its base, and after each event below an order."""
    window = kept.windows[key]
    row_state, waiting = window.base.lasting, window.waiting
    yield State(None, row_state, waiting)
    for event in _events(kept, key, below):
        if event.upsert is None:
            row_state = row_state.without(event.order)
            waiting = waiting if row_state.upserted is not None else frozenset()
        elif event.order > row_state.deleted:
            row_state = kept.continued(row_state, event.upsert).carrying(
                event.order, event.upsert.columns
            )
            waiting = waiting.union(event.upsert.omitted) - row_state.columns.keys()
        yield State(event, row_state, waiting)


def _events(kept: Kept, key: Key, below: Order) -> list[Event]:
    """What happens to a key below an order, in turn."""
    window = kept.windows[key]
    events = [Event(order, at) for order, at in kept.truncated.get(window.source, {}).items()]
    if window.base.ended is not None:
        events.append(Event(*window.base.ended))
    for change in window.changes:
        if change.operation.is_upsert:
            events.append(Event(change.order, change.event_ms, change))
        else:
            events.append(Event(kept.taken(key, change), change.event_ms))
    return sorted((one for one in events if one.order < below), key=lambda one: one.order)


def final_state(
    kept: Kept, key: Key, below: Order = AFTER_ALL, *, keeps_deleted: bool = False
) -> State:
    """A key after all events below an order; where deleted rows are kept, one that does not live is
    as it was, and says how it ended.
    """
    was = None
    for state in states_of(kept, key, below):
        if state.row_state.upserted is not None or not keeps_deleted:
            was = state
        elif was is not None and was.row_state.ended is None and state.event is not None:
            ended = Ended(state.event.order, state.event.at)
            was = replace(was, row_state=replace(was.row_state, ended=ended))
    return was or State(None, kept.row_state(key, below), frozenset())


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


@dataclass(frozen=True)
class Refused:
    """A change that the table must not take, and why."""

    change: Change
    reason: str


@dataclass(frozen=True, kw_only=True)
class MergedKey:
    """A key after an execution.

    Attributes:
        key: Its values.
        source: What feeds it.
        after: The table's row now; None if it has none. One that was deleted has a row state that
            ended.
        row_state: What is known of the key now, which stands beside the row.
        added: The changes to remember.
        waits: Its row waits for a column.
    """

    key: Key
    source: str
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
    known: Mapping[Key, Window],
    changes: Iterable[Change],
    truncated: Truncations,
    low_watermarks: Mapping[str, Order],
    *,
    keeps_deleted: bool = False,
) -> Merged:
    """One execution of a few keys; neither the order of the changes nor how they are split into
    executions makes a difference to the rows.

    Args:
        known: What is known of the keys, of all keys that continue one of them among them.
        changes: The new changes of these keys; those of no key are among `truncated`.
        truncated: The truncations of each source, new ones among them.
        low_watermarks: By source the order below which it is forgotten which rows were deleted.
        keeps_deleted: Rows stay that were deleted.
    """
    fresh, outcomes = _fresh(known, changes)
    added, refused = _accepted(known, fresh, low_watermarks)
    outcomes[ChangeOutcome.QUARANTINED] += len(refused)
    windows = dict(known)
    for key, of_key in added.items():
        window = windows.get(key) or Window(source=of_key[0].source)
        windows[key] = replace(window, changes=(*window.changes, *of_key))
    kept = Kept(windows=windows, truncated=truncated, low_watermarks=low_watermarks)
    keys, change_outcomes = list[MergedKey](), list[tuple[Change, ChangeOutcome]]()
    for key, window in windows.items():
        state = final_state(kept, key, keeps_deleted=keeps_deleted)
        one = MergedKey(
            key=key,
            source=window.source,
            after=None if state.waiting else state.row_state.row,
            row_state=state.row_state,
            added=tuple(added.get(key, ())),
            waits=bool(state.waiting) and state.row_state.ended is None,
        )
        newest = known[key].newest if key in known else BEFORE_ALL
        ends = truncated.get(window.source, {})
        change_outcomes += [(change, _outcome(one, change, newest, ends)) for change in one.added]
        keys.append(one)
    outcomes.update(outcome for _, outcome in change_outcomes)
    return Merged(
        keys=tuple(keys),
        refused=tuple(refused),
        outcomes=outcomes,
        kept=kept,
        change_outcomes=tuple(change_outcomes),
    )


def _fresh(
    known: Mapping[Key, Window], changes: Iterable[Change]
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


def _accepted(
    known: Mapping[Key, Window], changes: Iterable[Change], low_watermarks: Mapping[str, Order]
) -> tuple[dict[Key, list[Change]], list[Refused]]:
    """The changes of each key that the table may take, and the others."""
    sources = {key: window.source for key, window in known.items()}
    homes: dict[Key, tuple[str, int]] = {}  # partitions of changes without a position
    for key, window in known.items():
        orders = [window.base.upserted, *(change.order for change in window.changes)]
        if without := [order for order in orders if order and not order.position]:
            homes[key] = without[0].topic, without[0].partition
    added, refused = dict[Key, list[Change]](), list[Refused]()
    for change in changes:
        key, order, source = change.key, change.order, change.source
        low_watermark = low_watermarks.get(source, BEFORE_ALL)
        home = order.topic, order.partition
        if not order.position and homes.setdefault(key, home) != home:
            reason = (
                f"key {key} has changes without a position in partition {homes[key]} and in "
                f"{home}: which came first?"
            )
        elif sources.get(key, source) != source:
            reason = (
                f"key {key} is fed by {sources[key]!r} already: orders of {source!r} do not "
                f"compare with its"
            )
        elif order < low_watermark and (key not in known or order > known[key].base.end):
            reason = (
                f"order {order} is below {low_watermark}, up to which it is forgotten which rows "
                f"of {source!r} were deleted"
            )
        else:
            sources[key] = source
            added.setdefault(key, []).append(change)
            continue
        refused.append(Refused(change, reason))
    return added, refused


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
