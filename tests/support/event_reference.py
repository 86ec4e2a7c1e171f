"""What a lake made of offered lines, held against the lines themselves, in plain Python."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from lakechime_dagster.demo.verify import load_delta
from lakechime_dagster.silver.event import JsonEvent, event_of
from lakechime_dagster.silver.results import leaves_of, read_back
from lakechime_dagster.silver.schema import KnownType
from tests.support.drift import FROZEN
from tests.support.event_lake import BRONZE, EventLake

ROWS = 5_000  # that are held as Python's values at a time


@dataclass(frozen=True)
class Reference:
    """The lines that were offered, by the names of their rows.

    Attributes:
        sample: Of steady types one row in so many is read back; of drifting ones each is.
    """

    lake: EventLake
    sample: int

    @cached_property
    def offered(self) -> dict[str, tuple[str | None, bytes]]:
        return {source: (kind, line) for source, kind, line in self.lake.prepared.lines()}

    @cached_property
    def counts(self) -> Counter[str | None]:
        """How many lines of each type were offered."""
        return Counter(kind for kind, _ in self.offered.values())

    def wrong_in_bronze(self) -> Iterator[str]:
        """Lines that are not there once as they came, or not reported as what they are."""
        seen, sources = 0, set[str]()
        columns = ["_src", "type", "reason", "payload", "payload_bytes"]
        for batch in (
            DeltaTable(self.lake.location(BRONZE))
            .to_pyarrow_table(columns=columns)
            .to_batches(max_chunksize=ROWS)
        ):
            for source, kind, reason, payload, binary in zip(
                *(batch[name].to_pylist() for name in columns), strict=True
            ):
                seen += 1
                sources.add(source)
                said, line = self.offered.get(source, (None, b""))
                is_same = (payload.encode() if binary is None else binary) == line
                if not is_same or (None if reason else kind) != said:
                    yield f"{source} is {kind} {reason} {payload!r}, and {said} {line!r} was offered"
        if (seen, len(sources)) != (len(self.offered), len(self.offered)):
            yield (
                f"{seen} rows are there, {len(sources)} of them different, and {len(self.offered)} "
                f"lines were offered"
            )

    def wrong_in_types(self) -> Iterator[str]:
        """Types that have not each event of theirs once, with all that it says; the frozen one has
        no table.
        """
        known = self.lake.types()
        if unknown := self.counts.keys() - known.keys() - {None}:
            yield f"nothing is known of {unknown}"
        sources: dict[str | None, set[str]] = {kind: set() for kind in self.counts}
        for source, (kind, _) in self.offered.items():
            sources[kind].add(source)
        for name, (group, one) in sorted(known.items()):
            where = self.lake.table_of(group, one)
            if name == FROZEN:
                yield from [f"{name} has a table"] if DeltaTable.is_deltatable(where) else []
                continue
            yield from self._wrong(name, one, where, sources.get(name, set()))

    def wrong_in_list(self) -> Iterator[str]:
        """Types of which `schema show` reports other numbers than events of theirs came; those of the
        frozen one wait.
        """
        listed = {
            one["type"]: (one["written"], one["waiting"])
            for one in self.lake.running.lakechime("schema", "show")["types"]
        }
        expected = {
            name: (0, count) if name == FROZEN else (count, 0)
            for name, count in self.counts.items()
            if name
        }
        for name in sorted(listed.keys() | expected.keys()):
            if listed.get(name) != expected.get(name):
                yield (
                    f"{name}: {listed.get(name)} are listed as written and waiting, "
                    f"{expected.get(name)} came"
                )

    def wrong(self) -> Iterator[str]:
        """All of these."""
        yield from self.wrong_in_bronze()
        yield from self.wrong_in_types()
        yield from self.wrong_in_list()

    def _wrong(self, name: str, known: KnownType, where: str, expected: set[str]) -> Iterator[str]:
        """What is wrong with the table of one type, which delta-rs and DuckDB read."""
        if known.error or known.failures:
            yield f"{name} failed: {known.error}"
        table = DeltaTable(where).to_pyarrow_table()
        there = table["_src"].to_pylist()
        if len(there) != len(expected) or {*there} != expected:
            yield (
                f"{name} has {len(there)} rows, {len({*there})} of them different, of "
                f"{len(expected)} events"
            )
        with duckdb.connect() as connection:
            load_delta(connection)
            counted = (
                connection.table_function("delta_scan", [where])
                .aggregate("count(*), count(DISTINCT _src)")
                .fetchall()
            )
        if counted != [(len(expected), len(expected))]:
            yield f"DuckDB reads {counted} rows of {name}, and {len(expected)} events came"
        is_steady = name in self.lake.prepared.drift.steady
        rows = table.take(pa.array(range(0, len(table), self.sample))) if is_steady else table
        for batch in rows.to_batches(max_chunksize=ROWS):
            yield from (
                problem for row in batch.to_pylist() if (problem := self._unlike(row, known))
            )

    def _unlike(self, row: dict[str, Any], known: KnownType) -> str:
        """How a row and the line of its name differ; empty where they do not."""
        line = self.offered[row["_src"]][1] if row["_src"] in self.offered else b""
        event = event_of(line)
        if isinstance(event, JsonEvent) and read_back(
            row, row["_rescued"], known.schema
        ) == leaves_of(event.fields):
            return ""
        return f"{row} is not {line!r}"
