"""What a set of changes makes of a history (SCD type 2)."""

from dataclasses import dataclass, replace
from typing import Any

from lakechime_dagster.cdc.canonical import text_of
from lakechime_dagster.cdc.change import Key, Order, encoded
from lakechime_dagster.cdc.merge import AFTER_ALL, BEFORE_ALL, Event, Kept, Row, Span, states_of


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


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """What a row was from one change, up to another one (exclusive) unless it is open."""

    columns: Row
    span: Span

    @property
    def is_open(self) -> bool:
        return self.span.end_seq is None


@dataclass(frozen=True, kw_only=True)
class RowHistory:
    """The rows of a key from some order on, the older ones first: rows of the table that start
    below it stay as they are.
    """

    since: Order
    rows: tuple[HistoryRow, ...]


def history(kept: Kept, key: Key, track: TrackHistory, below: Order = AFTER_ALL) -> RowHistory:
    """The rows of a key of which something is kept, since the one that is open in its base, by the
    events below an order.

    A change of a column that is not tracked is made in the row that is open.
    """
    window, rows = kept.windows[key], list[HistoryRow]()
    for state in states_of(kept, key, below):
        row = None if state.waiting else state.row_state.row
        if state.event is not None:
            _go_on(rows, row, state.event, track)
        elif row is not None and window.span is not None:
            rows.append(HistoryRow(columns=row, span=window.span))
    low_watermark = kept.low_watermarks.get(window.source, BEFORE_ALL)
    since = low_watermark if window.span is None else window.span.start_seq
    return RowHistory(since=min([since, *(row.span.start_seq for row in rows)]), rows=tuple(rows))


def _go_on(rows: list[HistoryRow], row: Row | None, event: Event, track: TrackHistory) -> None:
    """Makes the rows those after an event that leaves the key with this row."""
    last = rows[-1] if rows and rows[-1].is_open else None
    if (
        last is not None
        and row is not None
        and (event.order <= last.span.start_seq or _is_same(last.columns, row, track))
    ):
        rows[-1] = replace(last, columns=row)
        return
    if last is not None:
        rows[-1] = replace(last, span=last.span._replace(end_seq=event.order, end_at=event.at))
    if row is not None:
        rows.append(HistoryRow(columns=row, span=Span(event.order, event.at)))


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
