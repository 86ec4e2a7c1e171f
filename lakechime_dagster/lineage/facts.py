"""What is known of a run of another program, as facts that add up in any order."""

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.partitions import checked_milliseconds, checked_text
from lakechime_dagster.lineage.columns import (
    READ,
    ColumnLineage,
    ColumnRef,
    Consumer,
    ConsumerKind,
    Kind,
    LineageRecord,
    Producer,
    Read,
    Source,
    Statement,
    inputs_of,
    summed,
)
from lakechime_dagster.lineage.sql_statements import SqlReader

Fact = tuple[str | int | bool | None, ...]
Facts = frozenset[Fact]

EVENT, SQL = "event", "sql"  # who tells of columns: the producer itself, which is believed more, or the text of its SQL
NO_SOURCE = "its producer tells no source of it"
NO_COLUMNS = "its producer tells no columns"


@dataclass(frozen=True, kw_only=True)
class ToldRun:
    """What one document tells of a run, or all that came so far; `is_whole` says that nothing more of it can come.

    Raises:
        InvalidValueError: for a name or a time that no store can hold.
    """

    producer: Producer
    run_id: str
    facts: Facts = frozenset()
    is_whole: bool = False

    def __post_init__(self) -> None:
        checked_text("producer", self.producer.namespace)
        checked_text("task", self.producer.job)
        checked_text("run", self.run_id)
        for fact in self.facts:
            if fact[0] == "done":
                checked_milliseconds("at", fact[1])

    @property
    def done_ms(self) -> int | None:
        """When it succeeded, as it was told of latest; None while it did not."""
        return max((fact[1] for fact in self.facts if fact[0] == "done" and isinstance(fact[1], int)), default=None)


def done(at_ms: int) -> Fact:
    return ("done", at_ms)


def owner(name: str) -> Fact:
    return ("owner", name)


def link(name: str, address: str) -> Fact:
    return ("link", name, address)


def seen_by(kind: ConsumerKind, namespace: str, name: str, address: str) -> Fact:
    """Who looks at what the run gives."""
    return ("who", kind.value, namespace, name, address)


def reads(name: str) -> Fact:
    """The run reads a data set, into whatever it writes."""
    return ("in", name, None)


def read(name: str, column: str | None) -> Fact:
    """A column of a data set, or with None one that is not told, is read and written nowhere."""
    return ("read", name, column)


def writes(name: str) -> Fact:
    return ("out", name, EVENT)


def has_column(target: str, column: str) -> Fact:
    """A data set has a column, whatever is known of it."""
    return ("schema", target, column)


def comes_from(target: str, column: str, source: Source, by: str = EVENT) -> Fact:
    return ("src", target, column, by, source.ref.table, source.ref.column, source.kind.value, source.is_masking)


def decides(target: str, source: Source, by: str = EVENT) -> Fact:
    """A column or data set says which rows the target has."""
    return ("row", target, None, by, source.ref.table, source.ref.column, source.kind.value, source.is_masking)


def untold(target: str, reason: str, by: str = SQL) -> Fact:
    return ("unknown", target, by, reason)


def of_statements(statements: Iterable[Statement]) -> Iterator[Fact]:
    """What statements of SQL tell, as those of one run in their order."""
    several = list(statements)
    for one in several:
        if one.target == READ:
            yield from _of_read(one)
    for one in summed(one for one in several if one.target != READ):
        yield ("out", one.target, SQL)
        if one.replaces:
            yield ("replaces", one.target)
        for column in one.columns:
            yield ("col", one.target, column.column, SQL)
            yield from (comes_from(one.target, column.column, source, SQL) for source in column.sources)
            yield from (("why", one.target, column.column, SQL, reason) for reason in column.opaque)
        yield from (decides(one.target, source, SQL) for source in one.indirect)
        yield from (("in", name, one.target) for name in one.inputs)
        yield from (untold(one.target, reason) for reason in one.unknown)


def _of_read(one: Statement) -> Iterator[Fact]:
    refs = {source.ref for column in one.columns for source in column.sources} | {source.ref for source in one.indirect}
    refs |= {ColumnRef(name) for name in one.inputs if not any(ref.table == name for ref in refs)}
    yield from (read(ref.table, ref.column) for ref in refs)


def data_sets(facts: Facts) -> set[str]:
    """The names of all data sets that are told of."""
    found = {fact[1] for fact in facts if fact[0] in ("in", "out", "read")}
    found |= {fact[4] for fact in facts if fact[0] in ("src", "row")}
    return {str(name) for name in found}


def records_of(run: ToldRun) -> tuple[LineageRecord, ...]:
    """What a run wrote, a record for each of its targets; none before it succeeded."""
    at_ms = run.done_ms
    if at_ms is None:
        return ()
    owners = tuple(sorted(str(fact[1]) for fact in run.facts if fact[0] == "owner"))
    links = {str(fact[1]): str(fact[2]) for fact in sorted(run.facts, key=str) if fact[0] == "link"}
    targets = sorted({str(fact[1]) for fact in run.facts if fact[0] == "out"})
    return tuple(
        LineageRecord(
            producer=run.producer, run_id=run.run_id, at_ms=at_ms, statement=_statement(target, run.facts), owners=owners, links=links
        )
        for target in targets
    )


def reads_of(run: ToldRun) -> tuple[Read, ...]:
    """What a run read for whoever looks at it, or for itself; none before it succeeded, or where it writes all that it reads."""
    at_ms = run.done_ms
    refs = {ColumnRef(str(fact[1]), _text(fact[2])) for fact in run.facts if fact[0] == "read"}
    if not refs and not any(fact[0] == "out" for fact in run.facts):
        refs = {ColumnRef(str(fact[1])) for fact in run.facts if fact[0] == "in"}
    if at_ms is None or not refs:
        return ()
    owners = tuple(sorted(str(fact[1]) for fact in run.facts if fact[0] == "owner"))
    who = [(Consumer(ConsumerKind(str(kind)), str(space), str(name)), str(at)) for tag, kind, space, name, at in _of("who", run.facts)]
    who = who or [(Consumer(ConsumerKind.JOB, run.producer.namespace, run.producer.job), "")]
    return tuple(
        Read(consumer=consumer, refs=tuple(sorted(refs, key=str)), at_ms=at_ms, owners=owners, link=address)
        for consumer, address in sorted(who)
    )


def _statement(target: str, facts: Facts) -> Statement:
    told = [fact for fact in facts if len(fact) > 1 and fact[1] == target]
    by = EVENT if any(fact[0] in ("src", "row") and fact[3] == EVENT for fact in told) else SQL
    columns: dict[str, ColumnLineage] = {}
    for _, _, column, of, *_ in _of("col", told):
        if of == by:
            columns.setdefault(str(column), ColumnLineage(column=str(column)))
    for _, _, column, of, table, name, kind, masked in _of("src", told):
        if of == by:
            source = Source(ColumnRef(str(table), _text(name)), Kind(str(kind)), bool(masked))
            _add(columns, ColumnLineage(column=str(column), sources=(source,)))
    for _, _, column, of, reason in _of("why", told):
        if of == by:
            _add(columns, ColumnLineage(column=str(column), opaque=(str(reason),)))
    by_sql = any(of == SQL for _, _, of in _of("out", told)) and by == SQL
    reason = NO_SOURCE if columns else NO_COLUMNS
    for _, _, column in _of("schema", told):
        if str(column) not in columns and not by_sql:  # SQL leaves what it does not assign as it is
            columns[str(column)] = ColumnLineage(column=str(column), opaque=(reason,))
    indirect = [
        Source(ColumnRef(str(table), _text(name)), Kind(str(kind)), bool(masked))
        for _, _, _, of, table, name, kind, masked in _of("row", told)
        if of == by
    ]
    unknown = {str(reason) for _, _, of, reason in _of("unknown", told) if of == by}
    if not columns and not by_sql:
        unknown.add(NO_COLUMNS)
    ordered = tuple(columns[name] for name in sorted(columns))
    inputs = {str(name) for _, name, into in _of("in", facts) if into in (None, target)} | set(inputs_of(ordered, indirect))
    return Statement(
        target=target,
        columns=ordered,
        indirect=tuple(indirect),
        inputs=tuple(inputs - {target} if not by_sql else inputs),
        replaces=any(fact[0] == "replaces" for fact in told),
        unknown=tuple(unknown),
    )


def _add(columns: dict[str, ColumnLineage], one: ColumnLineage) -> None:
    columns[one.column] = columns[one.column].joined(one) if one.column in columns else one


def _of(tag: str, facts: Iterable[Fact]) -> list[Fact]:
    return [fact for fact in facts if fact[0] == tag]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


Name = Annotated[str, Field(min_length=1, max_length=512)]


class RunState(StrEnum):
    """The state of a run, by OpenLineage's words; only what is COMPLETE counts."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    ABORT = "ABORT"
    FAIL = "FAIL"
    OTHER = "OTHER"


def to_milliseconds(value: dt.datetime | int) -> int:
    """A time as milliseconds since the epoch; one without a zone is in UTC."""
    if isinstance(value, int):
        return value
    zoned = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
    return round(zoned.timestamp() * 1000)


def _as_time(value: Any, read: ValidatorFunctionWrapHandler) -> int:
    """A time in either of its forms; what is none is one problem, and not one of each form."""
    try:
        return to_milliseconds(read(value))
    except ValidationError:
        raise PydanticCustomError("time", "is no time; give milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z") from None


Moment = Annotated[int | dt.datetime, WrapValidator(_as_time)]


class Document(BaseModel):
    """What was run, and for whom; `at` is when it ended, as an ISO time or as milliseconds since the epoch.

    Without `run` a document is the run of its task at that time; without both, each time that it comes it is another one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    producer: Name = Field(description="Where the task is known, such as airflow or superset.")
    task: Name = Field(description="The name of the task there.")
    sql: str | list[str] = Field(description="The executed SQL, one text or several in their order.")
    dialect: Name = Field(description="The engine, by sqlglot's name.")
    owners: list[Name] = Field(default_factory=list, max_length=100)
    state: RunState = RunState.COMPLETE
    run: Name | None = None
    at: Moment | None = None
    user: Name | None = None
    dashboard: Name | None = None
    link: Annotated[str, Field(max_length=4096)] = ""
    namespace: Annotated[str, Field(max_length=512)] = Field(default="", description="That of tables that the lake does not know.")


def told_by(document: Document, reader: SqlReader, now_ms: int) -> ToldRun:
    """What a document tells of its run.

    Raises:
        InvalidValueError: its SQL cannot be read.
    """
    known_as, statements = reader.read(document.sql, document.dialect, document.namespace)
    at_ms = now_ms if document.at is None else to_milliseconds(document.at)
    told: set[Fact] = set(of_statements(statements))
    told |= {owner(name) for name in document.owners}
    if document.state is RunState.COMPLETE:
        told.add(done(at_ms))
    if document.dashboard:
        told.add(seen_by(ConsumerKind.DASHBOARD, document.producer, document.dashboard, document.link))
    elif document.link:
        told.add(link("task", document.link))
    if document.user:
        told.add(seen_by(ConsumerKind.USER, document.producer, document.user, ""))
    words = f"{at_ms}\0{known_as}"
    run_id = document.run or blake2b(words.encode(), digest_size=16).hexdigest()
    producer = Producer(namespace=document.producer, job=document.task)
    return ToldRun(producer=producer, run_id=run_id, facts=frozenset(told), is_whole=document.run is None)
