"""Ingests lineage of other programs."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from lakechime_dagster.dce.events import Position, TableFormat
from lakechime_dagster.errors import InvalidValueError, TableUnreadableError
from lakechime_dagster.lineage.columns import Names
from lakechime_dagster.lineage.facts import ToldRun, spelled
from lakechime_dagster.lineage.ingest import told_by
from lakechime_dagster.lineage.recording import SqlIngest, Taken
from lakechime_dagster.lineage.runs import names_of
from lakechime_dagster.lineage.sql_relations import SqlSchema
from lakechime_dagster.lineage.sql_statements import SqlReader
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import Lake

MANY = 1_000  # events since the last look, above which all tables are looked at again
_logger = logging.getLogger(__name__)


class TableColumns:
    """The columns of a lake's tables; looked at again as the store tells that tables changed."""

    def __init__(self, platform: Platform, lake: Lake) -> None:
        self._platform = platform
        self._lake = lake
        self._names = names_of(platform, lake)
        self._position: Position | None = None
        self._columns: dict[str, tuple[str, ...]] = {}
        self._schema = SqlSchema({}, self._names)

    def schema(self) -> SqlSchema:
        """As the store knows the tables at this moment; the same one again while no columns change."""
        position = self._platform.store.head()
        if position != self._position:
            found = {**self._columns, **dict(self._looked_at(self._changed()))}
            if found != self._columns or self._position is None:
                self._columns = found
                self._schema = SqlSchema(found, self._names)
            self._position = position
        return self._schema

    def _changed(self) -> Collection[str]:
        every = {table.name for table in self._lake.tables}
        if self._position is None:
            return every
        page = self._platform.store.feed(self._position, MANY)
        return every if len(page.events) == MANY else {one.event.table for one in page.events} & every

    def _looked_at(self, names: Collection[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
        for table in self._lake.tables:
            if table.name not in names or table.format is not TableFormat.DELTA:
                continue
            try:
                columns = self._platform.log(table.name, table.location).columns()
            except TableUnreadableError as error:
                _logger.warning("%s: its columns are not known: %s", table.name, error)
                continue
            if columns:
                yield table.name, tuple(name for name, _, _ in columns)


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
