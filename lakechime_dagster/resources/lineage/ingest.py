"""Taking documents of lineage from whoever sends them: read with the columns of the lake's tables, kept in the store."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lineage.ingest.facts import ToldRun, spelled
from lakechime_dagster.lineage.ingest.read import told_by
from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.sql.reader import SqlReader
from lakechime_dagster.lineage.sql.schema import SqlSchema
from lakechime_dagster.resources.lineage.table_columns import TableColumns
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.lineage.ingest import SqlIngest, Taken

MAX_BYTES = 10_000_000  # of a body, or of a line
TOGETHER = 500  # lines in one transaction


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A line that could not be read, counted from 1, and why."""

    line: int
    problem: str


@dataclass
class TakenLines:
    """What came of lines so far."""

    documents: int = 0
    repeated: int = 0
    records: int = 0
    reads: int = 0
    outside: set[str] = field(default_factory=set)
    refused: list[Refused] = field(default_factory=list)

    def add(self, taken: Taken) -> None:
        """One more transaction."""
        for name in ("documents", "repeated", "records", "reads"):
            setattr(self, name, getattr(self, name) + getattr(taken, name))
        self.outside |= set(taken.outside)


class LineageIngest:
    """Takes documents; several threads may call it at once."""

    def __init__(self, ingest: SqlIngest, schema: Callable[[], SqlSchema], now_ms: Callable[[], int]) -> None:
        self._ingest = ingest
        self._schema = schema
        self._now_ms = now_ms
        self._reader: SqlReader | None = None
        self._lock = threading.Lock()

    def take(self, documents: Sequence[Any], way: str) -> Taken:
        """Keep what documents tell, all of them or none.

        Raises:
            InvalidValueError: naming the document and its field.
        """
        return self._ingest.take(list(self._told(documents)), way, self._names())

    def take_lines(self, lines: Iterable[bytes], way: str) -> TakenLines:
        """Keep what the documents of lines tell; one that cannot be read loses no other."""
        total = TakenLines()
        for some in _some(_numbered(lines)):
            told: list[ToldRun] = []
            refused: list[Refused] = []
            for number, line in some:
                try:
                    told += self._told([parsed(line)])
                except InvalidValueError as error:
                    refused.append(Refused(line=number, problem=str(error)))
            total.add(self._ingest.take(told, way, self._names(), len(refused)))
            total.refused += refused
        return total

    def told(self, documents: Sequence[Any]) -> list[ToldRun]:
        """What documents tell, which is not kept yet.

        Raises:
            InvalidValueError: naming the document and its field.
        """
        return list(self._told(documents))

    def keep(self, told: Sequence[ToldRun], way: str, refused: int, place: str | None) -> Taken:
        """Keep what was told, with up to where the way was read."""
        return self._ingest.take(told, way, self._names(), refused, place)

    def _told(self, documents: Sequence[Any]) -> Iterator[ToldRun]:
        now = self._now_ms()
        with self._lock:
            schema = self._schema()
            if self._reader is None or self._reader.schema is not schema:
                self._reader = SqlReader(schema)
            for number, one in enumerate(documents, start=1):
                try:
                    yield spelled(told_by(one, self._reader, now), schema.columns)
                except InvalidValueError as error:
                    if len(documents) == 1:
                        raise
                    raise InvalidValueError(f"document {number}, {error.field}", error.value, error.remedy) from None

    def _names(self) -> Names:
        with self._lock:
            return self._schema().names


def lineage_ingest(platform: Platform, lake: Lake) -> LineageIngest:
    """Takes documents into a deployment's store, by the tables of its lake."""
    return LineageIngest(SqlIngest(platform.store.engine), TableColumns(platform, lake).schema, platform.store.now)


def parsed(text: bytes) -> Any:
    """The JSON of a body or a line.

    Raises:
        InvalidValueError: too long, or no JSON.
    """
    if len(text) > MAX_BYTES:
        raise InvalidValueError("document", f"of {len(text):,} bytes", f"is too long; at most {MAX_BYTES:,} are read")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        remedy = f"is no JSON: {error.msg.rstrip('.')} at line {error.lineno}, column {error.colno}"
        raise InvalidValueError("document", f"of {len(text):,} bytes", remedy) from None


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _some(lines: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    some: list[tuple[int, bytes]] = []
    for one in lines:
        some.append(one)
        if len(some) == TOGETHER:
            yield some
            some = []
    if some:
        yield some
