"""Ingests lineage that other programs record: documents of SQL, run events of OpenLineage, rows of
audit tables.
"""

import datetime as dt
import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lakechime_dagster.dce.events import Position, TableFormat, version_of
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import InvalidValueError, NotFoundError, TableUnreadableError, shown
from lakechime_dagster.lineage import documents
from lakechime_dagster.lineage.documents import RunState
from lakechime_dagster.lineage.recording import Refused, Taken, keep_reports
from lakechime_dagster.lineage.reports import RunReport
from lakechime_dagster.lineage.runs import names_of
from lakechime_dagster.lineage.sql import SqlReader
from lakechime_dagster.lineage.sql_query import SqlSchema
from lakechime_dagster.lineage.store import checkpoint_of_way
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import Lake, QueryLog

_SHOWN = 3  # problems of one document


def read_document(value: Any, reader: SqlReader, now_ms: int) -> RunReport:
    """What one document reports: one of ours, or a run event of OpenLineage.

    Raises:
        InvalidValueError: naming the field, without what is in the SQL.
    """
    if not isinstance(value, dict):
        raise InvalidValueError(
            "document",
            type(value).__name__,
            'is no JSON object; send {"producer": …, "task": …, "sql": …}',
        )
    try:
        if documents.is_event(value):
            documents.check_version(value)
            return documents.report_of_event(
                documents.RunEvent.model_validate(value), reader.schema.names, reader
            )
        return documents.report_of(documents.Document.model_validate(value), reader, now_ms)
    except ValidationError as error:
        raise _translated(error) from None


def _translated(error: ValidationError) -> InvalidValueError:
    """The first problems by their fields; what stands in them is not shown, as it may be personal,
    but for the state of a run.
    """
    first, *others = error.errors(include_url=False)
    more = [
        str(InvalidValueError(_field(one), _value(one), _remedy(one)))
        for one in others[: _SHOWN - 1]
    ]
    return InvalidValueError(_field(first), _value(first), "; ".join([_remedy(first), *more]))


def _field(problem: ErrorDetails) -> str:
    return shown(".".join(str(part) for part in problem["loc"]))[1:-1] or "document"


def _value(problem: ErrorDetails) -> Any:
    """What was given where one of a few words is due, which the error shows."""
    is_word = problem["type"] == "enum" and isinstance(problem["input"], str | int | None)
    return problem["input"] if is_word else "…"


def _remedy(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":  # what is not known of events of others is left out
        return f"is no field of a document; it has {', '.join(documents.Document.model_fields)}"
    return "is missing; give it" if problem["type"] == "missing" else problem["msg"]


MANY = 1_000  # events since the last look, above which all tables are looked at again
_logger = logging.getLogger(__name__)


class TableColumns:
    """The columns of a lake's tables; looked at again when the store has events of them."""

    def __init__(self, platform: Platform, lake: Lake) -> None:
        self._platform = platform
        self._lake = lake
        self._names = names_of(platform, lake)
        self._position: Position | None = None
        self._columns: dict[str, tuple[str, ...]] = {}
        self._schema = SqlSchema({}, self._names)

    def schema(self) -> SqlSchema:
        """As the store knows the tables at this moment; the same one again while no columns
        change.
        """
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
        return (
            every if len(page.events) == MANY else {one.event.table for one in page.events} & every
        )

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


class LineageIngest:
    """Records documents in a deployment's store, by the tables of its lake; several threads may
    call it at once.
    """

    def __init__(self, platform: Platform, lake: Lake) -> None:
        self._platform = platform
        self._lake = lake
        self._columns = TableColumns(platform, lake)
        self._reader: SqlReader | None = None
        self._lock = threading.Lock()

    def take(self, documents: Sequence[Any], way: str) -> Taken:
        """Keep what documents report, all of them or none.

        Raises:
            InvalidValueError: naming the document and its field.
        """
        found: list[RunReport] = []
        with self._reading() as read:
            for number, one in enumerate(documents, start=1):
                try:
                    found.append(read(one))
                except InvalidValueError as error:
                    if len(documents) == 1:
                        raise
                    raise InvalidValueError(
                        f"document {number}, {error.field}", error.value, error.remedy
                    ) from None
        return self._keep(found, (), way)

    def take_lines(self, lines: Iterable[bytes], way: str) -> Taken:
        """Keep what the documents of lines report; one that cannot be read loses no other."""
        total = Taken()
        for some in _some(_numbered(lines)):
            total += self._keep(*self._each(some, parsed), way)
        return total

    def take_log(self, one: QueryLog, through: SnapshotCheckpoint | None = None) -> Taken:
        """Record the new rows of an audit table; a row that cannot be read loses no other.

        With `through` no commit after that one is read, while the table is still the one of which
        it is.

        The checkpoint is a version of the table, kept in the transaction that keeps what its commit
        reported; a recreated table is read from its beginning, which changes nothing of what it
        reported before.

        Raises:
            TableUnreadableError: the table, or one of the declared columns, cannot be read.
        """
        from lakechime_dagster.formats.delta_rows import appended  # deltalake, for who reads one

        log = self._platform.log(one.table, self._lake.table(one.table).location)
        total = Taken()
        if log.state() is None:
            return total
        uid = str(log.uid)
        kept = checkpoint_of_way(self._platform.store.engine, one.table)
        checkpoint = json.loads(kept) if kept else {}
        after = checkpoint.get("version") if checkpoint.get("uid") == uid else None
        last = (
            version_of(through.snapshot_id)
            if through is not None and through.table_uid == uid
            else None
        )
        row, document = 1, partial(document_of, one=one)
        for some in appended(log, after, tuple(one.columns.values()), last):
            read = self._each(enumerate(some.rows, start=row), document)
            moved = json.dumps({"uid": uid, "version": some.through}) if some.is_last else None
            total += self._keep(*read, one.table, moved)
            row += len(some.rows)
        return total

    def _each(
        self, numbered: Iterable[tuple[int, Any]], document: Callable[[Any], Any]
    ) -> tuple[list[RunReport], tuple[Refused, ...]]:
        """What the documents of lines or rows report, and which of them cannot be read."""
        reports, refused = list[RunReport](), list[Refused]()
        with self._reading() as read:
            for number, one in numbered:
                try:
                    reports.append(read(document(one)))
                except InvalidValueError as error:
                    refused.append(Refused(line=number, problem=str(error)))
        return reports, tuple(refused)

    @contextmanager
    def _reading(self) -> Iterator[Callable[[Any], RunReport]]:
        """What reads a document, by the tables as the store knows them now."""
        now = self._platform.store.now()
        with self._lock:
            schema = self._columns.schema()
            if self._reader is None or self._reader.schema is not schema:
                self._reader = SqlReader(schema)
            reader = self._reader
            yield lambda one: read_document(one, reader, now)

    def _keep(
        self,
        reports: Sequence[RunReport],
        refused: tuple[Refused, ...],
        way: str,
        checkpoint: str | None = None,
    ) -> Taken:
        """Keep reports, with up to where the way was read."""
        with self._lock:
            names = self._columns.schema().names
        taken = keep_reports(self._platform.store.engine, reports, way, names, checkpoint)
        return replace(taken, refused=refused)


def parsed(text: bytes) -> Any:
    """The JSON of a body or a line.

    Raises:
        InvalidValueError: too long, or no JSON.
    """
    if len(text) > MAX_BYTES:
        raise InvalidValueError(
            "document", f"of {len(text):,} bytes", f"is too long; at most {MAX_BYTES:,} are read"
        )
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


def query_log_named(lake: Lake, name: str | None) -> tuple[QueryLog, ...]:
    """The declared audit tables, or the one of that name.

    Raises:
        NotFoundError: naming those that are declared.
    """
    if name is None:
        return lake.query_logs
    found = tuple(one for one in lake.query_logs if one.table == name)
    if not found:
        there = ", ".join(one.table for one in lake.query_logs) or "none"
        raise NotFoundError(f"the lake declares no audit table {name}; there are {there}")
    return found


def document_of(row: Mapping[str, Any], one: QueryLog) -> dict[str, Any]:
    """A row as the document that it stands for."""
    value = {name: row[column] for name, column in one.columns.items()}
    state = value.pop("state", None)
    is_done = one.state is None or str(state).upper() in {text.upper() for text in one.succeeded}
    at = value.pop("at")
    if at is None:
        raise InvalidValueError(one.at, None, "has no time")
    given = {name: str(text) for name, text in value.items() if text not in (None, "")}
    task = given.get("task") or given.get("dashboard") or given.get("user") or one.table
    return {
        "sql": "",
        **given,
        "producer": one.table,
        "task": task,
        "dialect": one.dialect,
        "at": at if isinstance(at, int | str) else _zoned(at),
        "state": RunState.COMPLETE if is_done else RunState.FAIL,
    }


def _zoned(at: dt.datetime) -> dt.datetime:
    return at if at.tzinfo else at.replace(tzinfo=dt.timezone.utc)
