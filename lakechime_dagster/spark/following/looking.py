"""One look at what the messages of a step tell: what of it concerns more than its own keys, and how far each source has come."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from lakechime_dagster.cdc.change import Operation
from lakechime_dagster.cdc.meaning.fold import BEFORE_ALL
from lakechime_dagster.cdc.meaning.merging import Fate
from lakechime_dagster.cdc.meaning.snapshot import MARKS
from lakechime_dagster.cdc.meaning.wire import order_of, order_text
from lakechime_dagster.cdc.order import Order, Position
from lakechime_dagster.cdc.remembering.defaults import Schema
from lakechime_dagster.cdc.remembering.state import Role, StateRow
from lakechime_dagster.spark.batches import Batches, record_batches, rows_of
from lakechime_dagster.spark.ddl import arrow_of
from lakechime_dagster.spark.following.change_rows import SCHEMA_DDL, STATE_DDL
from lakechime_dagster.spark.following.remembered import Seen
from lakechime_dagster.spark.following.rows import Rows

Line = tuple[str, str, int]  # a source in a partition of a topic
Place = tuple[int, int]  # an offset, and which of several changes of its message
PART_DDL = "`part` string, `told` string"  # what a look at some rows found: its kind, and JSON
LOOKED_DDL = f"`fate` string, {STATE_DDL}, {SCHEMA_DDL}"
INCREMENTAL = "incremental"  # the mark of a row that was read beside the log: its time is the connector's
WITH_ORDER = (Role.CHANGE.value, Role.TRUNCATION.value)


class Run(NamedTuple):
    """Changes of a line that were looked at together."""

    line: Line
    first: Place
    last: Place
    least: Position
    newest: Position
    least_new: Position | None  # of those above the offset up to which the line was known
    goes_back: bool
    newest_ms: int | None


@dataclass(frozen=True)
class Came:
    """How far a line has come by a step; `may_go_back` where some position may be lower than one before it."""

    newest: Position
    offset: int
    newest_ms: int | None
    may_go_back: bool


@dataclass(frozen=True)
class Looked:
    """What all of them told."""

    seen: Seen
    lines: Mapping[Line, Came]


def looked(told: Rows, before: Seen) -> Looked:
    """One look at the rows of `change_rows.TOLD_DDL`, given what was remembered."""
    rows = told.shaped(LOOKED_DDL, values={"columns": None})
    found = rows.on_batches(Look(arrow_of(PART_DDL), before.offsets), PART_DDL, keep=False)
    return looked_at(found.tuples("part", "told"), before)


def looked_at(found: Iterable[tuple[str, str]], before: Seen) -> Looked:
    """What looks at all parts of the rows found together."""
    parts: dict[str, list[Any]] = {}
    for kind, text in found:
        parts.setdefault(kind, []).append(orjson.loads(text))
    return Looked(_seen(parts), _lines(parts.get("run", []), before))


def _seen(parts: Mapping[str, Sequence[Any]]) -> Seen:
    fates, used, beats = Counter[str](), dict[tuple[str, str], Order](), dict[str, int]()
    for fate, count in parts.get("fate", ()):
        fates[fate] += count
    for source, schema, text in parts.get("used", ()):
        order = order_of(text)
        used[source, schema] = min(order, used.get((source, schema), order))
    for server, at in parts.get("beat", ()):
        beats[server] = max(at, beats.get(server, at))
    return Seen(
        schemas=tuple(Schema.of_texts(*texts) for texts in dict.fromkeys(map(tuple, parts.get("schema", ())))), used=used,
        links=tuple(dict.fromkeys(map(tuple, parts.get("link", ())))), fates={fate.value: fates[fate.value] for fate in Fate},
        truncations=tuple(StateRow(*row) for row in parts.get("truncation", ())),
        marks=tuple(StateRow(*row) for row in parts.get("mark", ())),
        beats=tuple(StateRow(Role.BEAT.value, None, server, order_text(BEFORE_ALL), ts_ms=at) for server, at in beats.items()),
    )  # fmt: skip


def _lines(runs: Iterable[Any], before: Seen) -> dict[Line, Came]:
    places = {(source, *partition): place for source, one in before.epochs.items() for partition, (_, place) in one.places.items()}
    lines: dict[Line, list[Run]] = {}
    for line, first, last, least, newest, least_new, goes_back, newest_ms in runs:
        new = None if least_new is None else tuple(least_new)
        run = Run(tuple(line), tuple(first), tuple(last), tuple(least), tuple(newest), new, goes_back, newest_ms)
        lines.setdefault(run.line, []).append(run)
    return {line: _came(sorted(mine, key=lambda run: run.first), places.get(line, ())) for line, mine in lines.items()}


def _came(runs: Sequence[Run], place: Position) -> Came:
    """All runs of a line, in their order; where two of them overlap nobody knows whether it went back."""
    newest, last, may_go_back = Position(), (-1, -1), False
    for run in runs:
        is_below = run.least < newest or (run.least_new is not None and run.least_new < place)
        may_go_back = may_go_back or run.goes_back or is_below or run.first <= last
        newest, last = max(newest, run.newest), max(last, run.last)
    times = [run.newest_ms for run in runs if run.newest_ms is not None]
    return Came(newest, last[0], max(times, default=None), may_go_back)


@dataclass(frozen=True)
class Look:
    """What some rows told (`PART_DDL`); `offsets` are those up to which each line was known."""

    out: pa.Schema
    offsets: Mapping[Line, int]

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield from record_batches([(kind, orjson.dumps(tuple(value)).decode()) for kind, value in self._parts(batch)], self.out)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
        fates, used, beats = Counter[str](), dict[tuple[str, str], Order](), dict[str, int]()
        lines: dict[Line, list[tuple[Place, Position, int | None]]] = {}
        for fate, *values, schema, types, defaults in rows_of(iter([batch])):
            row = StateRow(*values)
            if fate is not None:
                fates[fate] += 1
            if types is not None:
                yield "schema", (types, defaults)
            if row.continues is not None:
                yield "link", (row.key, row.continues)
            if row.role == Role.BEAT.value and row.ts_ms is not None:
                beats[row.source] = max(row.ts_ms, beats.get(row.source, row.ts_ms))
            if row.order is None:
                continue
            order = order_of(row.order)
            if schema is not None:
                used[row.source, schema] = min(order, used.get((row.source, schema), order))
            if row.role in WITH_ORDER and order.position:
                at = None if row.snapshot == INCREMENTAL else row.ts_ms
                lines.setdefault((row.source, order.topic, order.partition), []).append(((order.offset, order.item), order.position, at))
            if row.role == Role.TRUNCATION.value and fate == Fate.APPLIED.value:
                yield "truncation", row
            elif row.op == Operation.READ.value and row.snapshot in MARKS:
                yield "mark", row
        yield from (("fate", one) for one in fates.items())
        yield from (("used", (*one, order_text(order))) for one, order in used.items())
        yield from (("beat", one) for one in beats.items())
        yield from (("run", self._run(line, sorted(changes, key=lambda one: one[0]))) for line, changes in lines.items())

    def _run(self, line: Line, changes: Sequence[tuple[Place, Position, int | None]]) -> Run:
        known = self.offsets.get(line, -1)
        positions = [position for _, position, _ in changes]
        return Run(
            line=line, first=changes[0][0], last=changes[-1][0], least=min(positions), newest=max(positions),
            least_new=min((position for (offset, _), position, _ in changes if offset > known), default=None),
            goes_back=any(one > other for one, other in pairwise(positions)),
            newest_ms=max((at for *_, at in changes if at is not None), default=None),
        )  # fmt: skip
