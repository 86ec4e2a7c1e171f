"""Changes that databases may make, how they come to a table, and the table that the rules of merging
make of them.
"""

import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from hypothesis import strategies as st

from lakechime_dagster.cdc.change import DELETE, READ, UPSERT, Change, Key, Operation, Order
from lakechime_dagster.cdc.history import HistoryRow, TrackHistory, history
from lakechime_dagster.cdc.merge import ChangeOutcome, Kept, Merged, Row, Span, Window, merged
from lakechime_dagster.cdc.record import Changes, Reading, Record
from lakechime_dagster.cdc.state import (
    Role,
    StateRow,
    base_row,
    collected_rows,
    remembered,
    row_state_of,
    windows_of,
)

COLUMNS = ("a", "b")
SOURCES = ("s", "t")
SEEDS = st.integers(0, 2**32)
LENGTHS = st.integers(1, 12)


class Table(Protocol):
    """A table that takes changes, and forgets what is final below an order."""

    def execute(self, changes: Sequence[Change]) -> object: ...

    def collect(self, low_watermark: Order) -> object: ...


class Reader(Protocol):
    def read(self, record: Record) -> Reading: ...


def at(position: int, rank: int = UPSERT) -> Order:
    return Order(
        position=(position,), rank=rank, topic="changes", partition=0, offset=3 * position + rank
    )


def within(position: int, step: int, rank: int = UPSERT) -> Order:
    """Of several changes of one transaction."""
    return at(position, rank)._replace(position=(position, step))


def upsert(
    position: int, key: Key = (1,), operation: Operation = Operation.UPDATE, **others: object
) -> Change:
    columns = others.pop("columns", None) or {name: [name, position] for name in COLUMNS}
    order = others.pop("order", at(position))
    return Change(source="s", operation=operation, order=order, key=key, columns=columns, **others)  # pyright: ignore[reportArgumentType]


def deletion(position: int, key: Key = (1,)) -> Change:
    return Change(source="s", operation=Operation.DELETE, order=at(position, DELETE), key=key)


def changes_made(dice: random.Random, length: int) -> list[Change]:
    """What databases may do to a few rows: inserts, updates that leave columns out, deletions, key
    changes, truncations, reads.
    """
    changes: list[Change] = []
    for position in range(1, length + 1):
        source = dice.choice(SOURCES)
        key, other = (source, dice.randrange(3)), (source, dice.randrange(3))
        some = {name: (name, position) for name in COLUMNS if dice.random() < 0.5}
        match dice.choice(
            ["create", "read", "update", "update", "delete", "rekey", "rotate", "truncate"]
        ):
            case "create" | "read" as step:
                operation, rank = (
                    (Operation.READ, READ) if step == "read" else (Operation.CREATE, UPSERT)
                )
                whole: dict[str, object] = dict.fromkeys(COLUMNS, ("new", position))
                changes.append(
                    Change(
                        source=source,
                        operation=operation,
                        order=at(position, rank),
                        key=key,
                        columns=whole,
                    )
                )
            case "update":
                changes.append(
                    Change(
                        source=source,
                        operation=Operation.UPDATE,
                        order=at(position),
                        key=key,
                        columns=some,
                    )
                )
            case "delete":
                changes.append(
                    Change(
                        source=source,
                        operation=Operation.DELETE,
                        order=at(position, DELETE),
                        key=key,
                    )
                )
            case "rekey" if key != other:
                changes.append(
                    Change(
                        source=source,
                        operation=Operation.DELETE,
                        order=at(position, DELETE),
                        key=key,
                    )
                )
                changes.append(
                    Change(
                        source=source,
                        operation=Operation.CREATE,
                        order=at(position),
                        key=other,
                        columns=some,
                        continues=key,
                    )
                )
            case "rotate":
                keys = dice.sample([(source, number) for number in range(3)], dice.choice([2, 3]))
                changes += rotation(position, source, keys, some)
            case "truncate":
                changes.append(
                    Change(source=source, operation=Operation.TRUNCATE, order=at(position, DELETE))
                )
            case _:
                pass
    return changes


def rotation(
    position: int, source: str, keys: Sequence[Key], columns: Mapping[str, object]
) -> Iterator[Change]:
    """One statement that gives each key's row the next one's key, in a transaction that checks its
    keys at the end.
    """
    for step, (old, new) in enumerate(zip(keys, [*keys[1:], keys[0]], strict=True)):
        both = {"source": source, "transaction": position}
        yield Change(
            operation=Operation.DELETE, order=within(position, step, DELETE), key=old, **both
        )  # pyright: ignore[reportArgumentType]
        yield Change(
            operation=Operation.CREATE,
            order=within(position, step),
            key=new,
            columns=columns,
            continues=old,
            **both,
        )  # pyright: ignore[reportArgumentType]


def reported(change: Change) -> Change:
    """A change as a message reports it: values of the lake, and the names of columns that it does
    not carry.
    """
    if not change.operation.is_upsert:
        return change
    columns = {name: str(value) for name, value in change.columns.items()}
    return replace(
        change, columns=columns, omitted=tuple(name for name in COLUMNS if name not in columns)
    )


def changes_in(reader: Reader, records: Iterable[Record]) -> list[Change]:
    """The changes that messages report."""
    return [
        change
        for record in records
        if isinstance(reading := reader.read(record), Changes)
        for change in reading.changes
    ]


def kept_of(changes: Iterable[Change], known: Mapping[Key, Window] | None = None) -> Kept:
    """What is kept of changes that come in one execution, truncations among them."""
    truncated: dict[str, dict[Order, int | None]] = {}
    of_keys = list[Change]()
    for change in changes:
        if change.operation is Operation.TRUNCATE:
            truncated.setdefault(change.source, {})[change.order] = change.event_ms
        else:
            of_keys.append(change)
    found = merged(known or {}, of_keys, truncated, {})
    assert not found.refused
    return found.kept


def rows_in(kept: Kept, columns: Collection[str] = ()) -> dict[Key, Row]:
    """The rows that live, with the columns that were carried: these at least."""
    rows = {key: kept.row_state(key).row for key in kept.windows}
    return {key: row for key, row in rows.items() if row is not None and row.keys() >= {*columns}}


def delivered_again(changes: Sequence[Change], share: float, dice: random.Random) -> list[Change]:
    """Some of them, as they come again in another place of their topic."""
    return [
        replace(one, order=one.order._replace(offset=one.order.offset + 1000))
        for one in changes
        if dice.random() < share
    ]


def follow_in_parts(table: Table, changes: Sequence[Change], dice: random.Random) -> None:
    """All of them as they stand, in up to four executions."""
    cuts = sorted({0, len(changes), *(dice.randrange(len(changes) + 1) for _ in range(3))})
    for start, end in itertools.pairwise(cuts):
        table.execute(changes[start:end])


def follow_in_time(
    table: Table, changes: Sequence[Change], lateness: int, dice: random.Random
) -> None:
    """One after the other, each at most so late; what is final is collected now and then."""
    by_arrival = sorted(
        changes,
        key=lambda change: (change.order.position[0] + dice.randint(0, lateness), dice.random()),
    )
    for index, change in enumerate(by_arrival):
        table.execute([change])
        expected = min((later.order for later in by_arrival[index + 1 :]), default=at(10**6))
        if dice.random() < 0.5:
            table.collect(at(expected.position[0], READ))


@dataclass
class Lake:
    """A table and what is remembered beside it, as text; it may keep deleted rows, or histories."""

    keeps_deleted: bool = False
    track: TrackHistory | None = None
    targets: dict[Key, tuple[StateRow, Row]] = field(default_factory=dict)
    versions: dict[Key, list[HistoryRow]] = field(default_factory=dict)  # the older ones first
    state: list[StateRow] = field(default_factory=list)
    truncated: dict[str, dict[Order, int | None]] = field(default_factory=dict)
    low_watermarks: dict[str, Order] = field(default_factory=dict)
    outcomes: Counter[ChangeOutcome] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    @property
    def waiting(self) -> list[Key]:
        return [one.key for one in self._merged([]).keys if one.waits]

    @property
    def rows(self) -> dict[Key, Row]:
        return {key: row for key, (_, row) in self.targets.items()}

    @property
    def kept_rows(self) -> dict[Key, tuple[Row, int | None]]:
        """With the time at which a row was deleted."""
        ended = {
            key: row_state_of(reported.order, row)[1].ended
            for key, (reported, row) in self.targets.items()
        }
        return {
            key: (row, None if (end := ended[key]) is None else end.at)
            for key, (_, row) in self.targets.items()
        }

    def known(self) -> dict[Key, Window]:
        return windows_of([*(row for row, _ in self.targets.values()), *self.state])

    def _merged(self, changes: Sequence[Change]) -> Merged:
        return merged(
            self.known(),
            changes,
            self.truncated,
            self.low_watermarks,
            keeps_deleted=self.keeps_deleted,
        )

    def collect(self, low_watermark: Order) -> None:
        self.low_watermarks = {
            source: max(low_watermark, self.low_watermarks.get(source, low_watermark))
            for source in SOURCES
        }
        self.state = collected_rows(
            self.state,
            self.truncated,
            self.low_watermarks,
            self.track,
            keeps_deleted=self.keeps_deleted,
        )
        self.truncated = {
            source: {one: time for one, time in ends.items() if one >= self.low_watermarks[source]}
            for source, ends in self.truncated.items()
        }

    def execute(self, changes: Sequence[Change]) -> "Lake":
        for change in changes:
            if change.operation is Operation.TRUNCATE:
                self.truncated.setdefault(change.source, {})[change.order] = change.event_ms
        known = self.known()
        found = self._merged([one for one in changes if one.operation is not Operation.TRUNCATE])
        for one in found.keys:
            self.state += remembered(one, known.get(one.key))
            span = None if self.track is None else self._history(found, one.key, self.track)
            self.targets.pop(one.key, None)
            if one.after is not None:
                window = Window(source=one.source, base=one.row_state, span=span)
                self.targets[one.key] = base_row(one.key, window, Role.TARGET), one.after
        self.outcomes += found.outcomes
        self.refused += [one.reason for one in found.refused]
        return self

    def _history(self, found: Merged, key: Key, track: TrackHistory) -> Span | None:
        """Makes the versions of a key those that its history says, and gives the span of its open
        row.
        """
        now = history(found.kept, key, track)
        self.versions[key] = [
            *(row for row in self.versions.get(key, []) if row.span.start_seq < now.since),
            *now.rows,
        ]
        return next((row.span for row in now.rows if row.is_open), None)
