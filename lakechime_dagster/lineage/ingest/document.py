"""A document of ours: what SQL somebody ran, by which engine, as which task, for whom."""

import datetime as dt
from hashlib import blake2b
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lineage.ingest import facts
from lakechime_dagster.lineage.ingest.facts import Fact, ToldRun
from lakechime_dagster.lineage.reads import ConsumerKind
from lakechime_dagster.lineage.record import Producer
from lakechime_dagster.lineage.sql.reader import SqlReader

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
    told: set[Fact] = set(facts.of_statements(statements))
    told |= {facts.owner(name) for name in document.owners}
    if document.state is RunState.COMPLETE:
        told.add(facts.done(at_ms))
    if document.dashboard:
        told.add(facts.seen_by(ConsumerKind.DASHBOARD, document.producer, document.dashboard, document.link))
    elif document.link:
        told.add(facts.link("task", document.link))
    if document.user:
        told.add(facts.seen_by(ConsumerKind.USER, document.producer, document.user, ""))
    words = f"{at_ms}\0{known_as}"
    run_id = document.run or blake2b(words.encode(), digest_size=16).hexdigest()
    producer = Producer(namespace=document.producer, job=document.task)
    return ToldRun(producer=producer, run_id=run_id, facts=frozenset(told), is_whole=document.run is None)
