"""Documents of runs of other programs: our own of SQL, and run events of OpenLineage."""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Annotated, Any

from pydantic import (
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import (
    READ,
    ColumnLineage,
    ColumnRef,
    Consumer,
    ConsumerKind,
    Kind,
    Names,
    Producer,
    Source,
    Statement,
    external,
    joined,
)
from lakechime_dagster.lineage.reports import RunReport, by_target
from lakechime_dagster.lineage.sql import SqlReader

Name = Annotated[str, Field(min_length=1, max_length=512)]


class RunState(StrEnum):
    """The state of a run in OpenLineage's words; only what is COMPLETE counts."""

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
        raise PydanticCustomError(
            "time",
            "is no time; give milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z",
        ) from None


Moment = Annotated[int | dt.datetime, WrapValidator(_as_time)]


class Document(BaseModel):
    """What was run, and for whom; `at` is when it ended, as an ISO time or as milliseconds since
    the epoch.

    Without `run` a document is the run of its task at that time; without both, each repeat is
    another one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    producer: Name = Field(description="Where the task is known, such as airflow or superset.")
    task: Name = Field(description="The name of the task there.")
    sql: str | list[str] = Field(
        description="The executed SQL, one text or several in their order."
    )
    dialect: Name = Field(description="The engine, by sqlglot's name.")
    owners: list[Name] = Field(default_factory=list, max_length=100)
    state: RunState = RunState.COMPLETE
    run: Name | None = None
    at: Moment | None = None
    user: Name | None = None
    dashboard: Name | None = None
    link: Annotated[str, Field(max_length=4096)] = ""
    namespace: Annotated[str, Field(max_length=512)] = Field(
        default="", description="That of tables that the lake does not know."
    )


def report_of(document: Document, reader: SqlReader, now_ms: int) -> RunReport:
    """What a document of ours says of its run.

    Raises:
        InvalidValueError: its SQL cannot be read.
    """
    known_as, statements = reader.read(document.sql, document.dialect, document.namespace)
    at_ms = now_ms if document.at is None else to_milliseconds(document.at)
    consumers = {
        (Consumer(kind, document.producer, name), address)
        for kind, name, address in (
            (ConsumerKind.DASHBOARD, document.dashboard, document.link),
            (ConsumerKind.USER, document.user, ""),
        )
        if name
    }
    report = RunReport(
        producer=Producer(namespace=document.producer, job=document.task),
        run_id=document.run or blake2b(f"{at_ms}\0{known_as}".encode(), digest_size=16).hexdigest(),
        done_ms=at_ms if document.state is RunState.COMPLETE else None,
        owners=frozenset(document.owners),
        links=frozenset(
            {("task", document.link)} if document.link and not document.dashboard else ()
        ),
        consumers=frozenset(consumers),
        is_whole=document.run is None,
    )
    return report.with_sql(statements)


VERSIONS = ("1", "2")  # of the specification, of which we know what events mean
_VERSION = re.compile(r"/spec/(\d+)-\d+-\d+/")
_DATASET = Field(min_length=1, max_length=2048)


class EventPart(BaseModel):
    """What all parts of an event have: fields that we do not know are the producer's affair."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Transformation(EventPart):
    type: str = "DIRECT"
    subtype: str = ""
    masking: bool | None = None


class InputField(EventPart):
    namespace: str = Field(max_length=2048)
    name: str = _DATASET
    field: str = ""
    transformations: list[Transformation] = Field(default_factory=list)


class FieldLineage(EventPart):
    inputFields: list[InputField] = Field(default_factory=list)  # noqa: N815 - theirs
    transformationType: str | None = None  # noqa: N815 - of versions before 1-1
    transformationDescription: str | None = None  # noqa: N815


class SchemaField(EventPart):
    name: str


class Identifier(EventPart):
    namespace: str
    name: str


class Owner(EventPart):
    name: Name


def _at(*path: str) -> Any:
    """A field that lies deeper in an event, in its facets; None where any part of them is not
    there.
    """
    return Field(default=None, validation_alias=AliasPath(*path))


class Dataset(EventPart):
    namespace: str = Field(max_length=2048)
    name: str = _DATASET
    fields: dict[str, FieldLineage] | None = _at("facets", "columnLineage", "fields")
    deciding: list[InputField] | None = _at("facets", "columnLineage", "dataset")
    schema_fields: list[SchemaField] | None = _at("facets", "schema", "fields")
    symlinks: list[Identifier] | None = _at("facets", "symlinks", "identifiers")
    owners: list[Owner] | None = _at("facets", "ownership", "owners")


class RunEvent(EventPart):
    eventType: RunState | None = None  # noqa: N815
    eventTime: Moment  # noqa: N815
    run: Name = Field(validation_alias=AliasPath("run", "runId"))
    namespace: Name = Field(validation_alias=AliasPath("job", "namespace"))
    name: Name = Field(validation_alias=AliasPath("job", "name"))
    owners: list[Owner] | None = _at("job", "facets", "ownership", "owners")
    sql: str | None = _at("job", "facets", "sql", "query")
    dialect: str | None = _at("job", "facets", "sql", "dialect")
    integration: str | None = _at("job", "facets", "jobType", "integration")
    parent: Identifier | None = _at("run", "facets", "parent", "job")
    inputs: list[Dataset] = Field(default_factory=list)
    outputs: list[Dataset] = Field(default_factory=list)
    schemaURL: str = ""  # noqa: N815


def is_event(document: dict[str, Any]) -> bool:
    """Whether this is meant as an event of OpenLineage."""
    return any(name in document for name in ("eventType", "eventTime", "schemaURL", "job"))


def check_version(document: dict[str, Any]) -> None:
    """Refuse events of a specification, or of a kind, of which we do not know what they mean.

    Raises:
        InvalidValueError: naming what is known.
    """
    url = document.get("schemaURL", "")
    found = _VERSION.search(url) if isinstance(url, str) else None
    if url and (found is None or found[1] not in VERSIONS):
        raise InvalidValueError(
            "schemaURL",
            url,
            f"is not a version that is known here; send events of version {' or '.join(VERSIONS)}",
        )
    if "run" not in document:
        raise InvalidValueError(
            "run",
            None,
            "is missing; only run events are read, neither those of jobs nor those of data sets "
            "alone",
        )


Known = dict[tuple[str, str], str]


def report_of_event(event: RunEvent, names: Names, reader: SqlReader) -> RunReport:
    """What an event says of its run; SQL of it that cannot be read is an unknown of what it writes,
    and nothing else of it is lost.
    """
    known = {
        (one.namespace, one.name): _name(one, names) for one in (*event.inputs, *event.outputs)
    }
    owners = [event.owners, *(one.owners for one in event.outputs)]
    statements, problem = _of_sql(event, reader)
    written = by_target(
        replace(_of_output(one, known, names), unknown=problem) for one in event.outputs
    )
    report = RunReport(
        producer=Producer(namespace=event.namespace, job=event.name),
        run_id=event.run,
        done_ms=to_milliseconds(event.eventTime) if event.eventType is RunState.COMPLETE else None,
        by_event=written,
        inputs=frozenset(known[one.namespace, one.name] for one in event.inputs),
        owners=frozenset(owner.name for several in owners for owner in several or ()),
        links=frozenset(
            {("parent", external(event.parent.namespace, event.parent.name))}
            if event.parent
            else ()
        ),
    )
    return report.with_sql(statements)


def _name(one: Dataset, names: Names) -> str:
    """The table of the lake that is meant, by its name or by another name of it; else one
    outside.
    """
    for other in (one, *(one.symlinks or ())):
        found = names.of_dataset(other.namespace, other.name)
        if found is not None:
            return found
    return external(one.namespace, one.name)


def _of_output(one: Dataset, known: Known, names: Names) -> Statement:
    """What an event says of the columns of an output."""
    target = known[one.namespace, one.name]
    columns = [ColumnLineage(column=field.name) for field in one.schema_fields or ()]
    indirect = [
        source
        for given in one.deciding or ()
        for source in _sources(given, given.transformations, known, names)
    ]
    for column, field in (one.fields or {}).items():
        older = [
            Transformation(
                type="DIRECT",
                subtype=(field.transformationType or "").replace("MASKED", "TRANSFORMATION"),
            )
        ]
        found = [
            (source, source.kind.is_direct or bool(given.field))
            for given in field.inputFields
            for source in _sources(given, given.transformations or older, known, names)
        ]
        columns.append(
            ColumnLineage(
                column=column,
                sources=tuple(source for source, is_of_column in found if is_of_column),
            )
        )
        indirect += [source for source, is_of_column in found if not is_of_column]
    return Statement(target=target, columns=joined(columns), indirect=tuple(indirect))


def _sources(
    given: InputField, transformations: list[Transformation], known: Known, names: Names
) -> Iterator[Source]:
    key = (given.namespace, given.name)
    table = known.get(key) or names.of_dataset(*key) or external(*key)
    for one in transformations or [Transformation(type="INDIRECT", subtype="FILTER")]:
        yield Source(ColumnRef(table, given.field or None), _kind(one), bool(one.masking))


def _kind(one: Transformation) -> Kind:
    """By their words; of what is not said closer it is said as little as can be."""
    try:
        kind = Kind(one.subtype.lower())
    except ValueError:
        kind = Kind.TRANSFORMATION if one.type.upper() == "DIRECT" else Kind.FILTER
    if kind.is_direct != (one.type.upper() == "DIRECT"):
        return Kind.TRANSFORMATION if one.type.upper() == "DIRECT" else Kind.FILTER
    return kind


def _of_sql(event: RunEvent, reader: SqlReader) -> tuple[tuple[Statement, ...], tuple[str, ...]]:
    """What the SQL of an event says, or why it cannot be read."""
    if event.sql is None:
        return (), ()
    dialect = event.dialect or event.integration or ""
    namespace = next((one.namespace for one in (*event.outputs, *event.inputs)), event.namespace)
    try:
        _, statements = reader.read(event.sql, dialect.lower(), namespace)
    except InvalidValueError as error:
        return (), (f"its SQL {error.remedy}",)
    outputs = [_name(one, reader.schema.names) for one in event.outputs]
    # the same table, by whatever name the SQL calls it
    if len(outputs) == len({one.target for one in statements} - {READ}) == 1:
        statements = tuple(
            replace(one, target=outputs[0]) if one.target != READ else one for one in statements
        )
    return statements, ()
