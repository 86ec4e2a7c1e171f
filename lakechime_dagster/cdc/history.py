"""What a set of changes makes of a history (SCD type 2), and of soft deletes."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakechime_dagster.cdc import merge
from lakechime_dagster.cdc.canonical import text_of
from lakechime_dagster.cdc.change import Change, Key, Operation, Order
from lakechime_dagster.cdc.incremental_merge import Known
from lakechime_dagster.cdc.merge import (
    AFTER_ALL,
    BEFORE_ALL,
    Event,
    Kept,
    Refused,
    Row,
    State,
    states_of,
)
from lakechime_dagster.cdc.wire import encoded


@dataclass(frozen=True, kw_only=True)
class TrackHistory:
    """The columns whose changes begin another row, by AUTO CDC's `track_history_column_list` or its
    `…_except_column_list`.
    """

    column_list: frozenset[str] | None = None  # None: all
    except_column_list: frozenset[str] = frozenset()

    def __contains__(self, column: str) -> bool:
        return (
            self.column_list is None or column in self.column_list
        ) and column not in self.except_column_list


TRACK_ALL = TrackHistory()


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """What a row was from one change, up to another one (exclusive) unless it is open."""

    columns: Row
    start_seq: Order
    start_at: int | None
    end_seq: Order | None = None
    end_at: int | None = None

    @property
    def is_open(self) -> bool:
        return self.end_seq is None


@dataclass(frozen=True, kw_only=True)
class History:
    """The rows of a key from some order on, the older ones first: rows of the table that start
    below it stay as they are.
    """

    since: Order
    rows: tuple[HistoryRow, ...]


@dataclass(frozen=True, kw_only=True)
class Base:
    """What a history needs of a key's base beside its row state.

    Attributes:
        start_seq: The order at which its open row starts; None if none is open.
        start_at: And the time.
        waiting: The columns that it waits for.
    """

    start_seq: Order | None = None
    start_at: int | None = None
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Histories:
    """What is kept of a table with its history: all that `merge` keeps, how the open rows of bases
    started, times of truncations.
    """

    kept: Kept = field(default_factory=Kept)
    bases: Mapping[Key, Base] = field(default_factory=dict)
    truncated_at: Mapping[tuple[str, Order], int | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """That a table holds histories: which columns begin another row, and when truncations were."""

    track: TrackHistory = TRACK_ALL
    truncated_at: Mapping[tuple[str, Order], int | None] = field(default_factory=dict)

    def histories(self, kept: Kept, known: Mapping[Key, Known]) -> Histories:
        """The histories of keys, by what is kept of them and where their open rows began."""
        bases = {
            key: Base(waiting=one.waiting)
            if one.span is None
            else Base(start_seq=one.span.start_seq, start_at=one.span.start_at)
            for key, one in known.items()
        }
        return Histories(kept=kept, bases=bases, truncated_at=self.truncated_at)


@dataclass(frozen=True, kw_only=True)
class AppliedToHistories:
    """What some changes make of histories, the keys of which they may have changed the rows, and
    what was not taken.
    """

    histories: Histories
    touched: frozenset[Key]
    refused: tuple[Refused, ...] = ()


def with_changes(histories: Histories, changes: Collection[Change]) -> AppliedToHistories:
    """What is kept after these changes too; the order in which they come makes no difference."""
    applied = merge.with_changes(histories.kept, changes)
    truncated_at = {
        (one.source, one.order): one.event_ms
        for one in changes
        if one.operation is Operation.TRUNCATE
    }
    after = replace(
        histories, kept=applied.kept, truncated_at={**histories.truncated_at, **truncated_at}
    )
    return AppliedToHistories(histories=after, touched=applied.touched, refused=applied.refused)


def collected(
    histories: Histories,
    source: str,
    low_watermark: Order,
    columns: Collection[str] = (),
    track: TrackHistory = TRACK_ALL,
) -> Histories:
    """What is kept once nothing of a source is expected below the low watermark any more; see
    `merge.collected`.

    Rows that ended below it are forgotten here: they stay in the table as they are.
    """
    kept = merge.collected(histories.kept, source, low_watermark)
    low_watermark = kept.low_watermarks[source]
    of_source = [key for key, window in kept.windows.items() if window.source == source]
    bases = {key: base for key, base in histories.bases.items() if key in kept.windows}
    bases |= {key: _base(histories, key, low_watermark, columns, track) for key in of_source}
    truncated_at = {
        (one, order): at
        for (one, order), at in histories.truncated_at.items()
        if one != source or order >= low_watermark
    }
    return Histories(kept=kept, bases=bases, truncated_at=truncated_at)


def history(
    histories: Histories, key: Key, columns: Collection[str] = (), track: TrackHistory = TRACK_ALL
) -> History:
    """The rows of a key since the one that is open in its base.

    Args:
        histories: What is kept.
        key: One of which something is kept, or no row is open.
        columns: Those without which a row is not whole, beside those that its changes say it has.
        track: The columns whose changes begin another row; changes of others are made in the row
            that is open.
    """
    window = histories.kept.windows.get(key)
    if window is None:
        return History(since=AFTER_ALL, rows=())
    rows = _rows(histories, key, AFTER_ALL, columns, track)
    low_watermark = histories.kept.low_watermarks.get(window.source, BEFORE_ALL)
    since = histories.bases.get(key, Base()).start_seq or low_watermark
    return History(since=min([since, *(row.start_seq for row in rows)]), rows=tuple(rows))


def _base(
    histories: Histories,
    key: Key,
    low_watermark: Order,
    columns: Collection[str],
    track: TrackHistory,
) -> Base:
    """What a history needs of a key's base that has all below the low watermark."""
    *_, last = _states(histories, key, low_watermark)
    rows = _rows(histories, key, low_watermark, columns, track)
    if rows and rows[-1].is_open:
        return Base(start_seq=rows[-1].start_seq, start_at=rows[-1].start_at)
    return Base(waiting=last.waiting)


def _rows(
    histories: Histories, key: Key, below: Order, columns: Collection[str], track: TrackHistory
) -> list[HistoryRow]:
    """The rows of a key since the one that is open in its base, by the events below an order."""
    base, rows = histories.bases.get(key, Base()), list[HistoryRow]()
    for state in _states(histories, key, below):
        row = None if state.waiting else state.row_state.row({*state.row_state.columns, *columns})
        if state.event is not None:
            _go_on(rows, row, state.event, track)
        elif row is not None and base.start_seq is not None:
            rows.append(HistoryRow(columns=row, start_seq=base.start_seq, start_at=base.start_at))
    return rows


def _go_on(rows: list[HistoryRow], row: Row | None, event: Event, track: TrackHistory) -> None:
    """Makes the rows those after an event that leaves the key with this row."""
    last = rows[-1] if rows and rows[-1].is_open else None
    if (
        last is not None
        and row is not None
        and (event.order <= last.start_seq or _is_same(last.columns, row, track))
    ):
        rows[-1] = replace(last, columns=row)
        return
    if last is not None:
        rows[-1] = replace(last, end_seq=event.order, end_at=event.at)
    if row is not None:
        rows.append(HistoryRow(columns=row, start_seq=event.order, start_at=event.at))


def _is_same(one: Row, other: Row, track: TrackHistory) -> bool:
    """Whether two rows have the same values in the tracked columns; one that a row does not have is
    null.
    """
    values = [
        (one.get(name), other.get(name)) for name in one.keys() | other.keys() if name in track
    ]
    # NaN equals itself as text
    return all(
        old == new or encoded(old) == encoded(new) or _is_one_text(old, new) for old, new in values
    )


def _is_one_text(one: Any, other: Any) -> bool:
    """Whether values, of which one alone is text, are the same in a column that holds text as it
    has values of several types.
    """
    return (
        isinstance(one, str) is not isinstance(other, str)
        and None not in (one, other)
        and text_of(one) == text_of(other)
    )


def _states(histories: Histories, key: Key, below: Order) -> Iterator[State]:
    """What a key is in its base, and after each event below an order."""
    return states_of(
        histories.kept, histories.truncated_at, key, below, histories.bases.get(key, Base()).waiting
    )
