"""Events of Trino's event listener."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lakechime_dagster.lineage import facts
from lakechime_dagster.lineage.columns import ColumnRef, ConsumerKind, Kind, Names, Producer, Source, external
from lakechime_dagster.lineage.facts import Fact, ToldRun, to_milliseconds

NAMESPACE = "trino"
FINISHED = "FINISHED"
_NAME = Field(min_length=1, max_length=2048)


class Part(BaseModel):
    """What all parts have: the engine's versions differ in what else they tell."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Metadata(Part):
    queryId: str = Field(min_length=1, max_length=512)  # noqa: N815 - theirs
    queryState: str  # noqa: N815


class Context(Part):
    user: str = Field(min_length=1, max_length=512)
    source: str | None = Field(default=None, max_length=512)


class InputColumn(Part):
    name: str


class Input(Part):
    catalogName: str = _NAME  # noqa: N815
    table_schema: str = Field(alias="schema")
    table: str = _NAME
    columns: list[str | InputColumn] = Field(default_factory=list)


class ColumnDetail(Part):
    catalog: str
    table_schema: str = Field(alias="schema")
    table: str
    columnName: str  # noqa: N815
    transformationType: str | None = None  # noqa: N815


class OutputColumn(Part):
    columnName: str  # noqa: N815
    sourceColumns: list[ColumnDetail] = Field(default_factory=list)  # noqa: N815


class Output(Part):
    catalogName: str = _NAME  # noqa: N815
    table_schema: str = Field(alias="schema")
    table: str = _NAME
    columns: list[OutputColumn] | None = None


class IoMetadata(Part):
    inputs: list[Input] = Field(default_factory=list)
    output: Output | None = None


class CompletedEvent(Part):
    metadata: Metadata
    context: Context
    ioMetadata: IoMetadata  # noqa: N815
    endTime: dt.datetime  # noqa: N815 - an ISO text, or seconds since the epoch


def is_event(document: dict[str, Any]) -> bool:
    """Whether this is meant as an event of Trino."""
    return "ioMetadata" in document


def told_by(event: CompletedEvent, names: Names) -> ToldRun:
    """What an event tells: the columns that a user's query read, or those of the table that it wrote.

    The job is what the client calls itself, or the user, as a query's own id tells nothing of who asks again.
    """
    told: set[Fact] = set(
        _of_inputs(event, names) if event.ioMetadata.output is None else _of_output(event, event.ioMetadata.output, names)
    )
    if event.metadata.queryState.upper() == FINISHED:
        told.add(facts.done(to_milliseconds(event.endTime)))
    job = event.context.source or event.context.user
    return ToldRun(producer=Producer(namespace=NAMESPACE, job=job), run_id=event.metadata.queryId, facts=frozenset(told), is_whole=True)


def _of_inputs(event: CompletedEvent, names: Names) -> Iterator[Fact]:
    yield facts.seen_by(ConsumerKind.USER, NAMESPACE, event.context.user, "")
    for one in event.ioMetadata.inputs:
        table = _name(names, one.catalogName, one.table_schema, one.table)
        columns = [column if isinstance(column, str) else column.name for column in one.columns]
        yield from (facts.read(table, column) for column in columns or [None])


def _of_output(event: CompletedEvent, output: Output, names: Names) -> Iterator[Fact]:
    target = _name(names, output.catalogName, output.table_schema, output.table)
    yield facts.writes(target)
    yield from (facts.reads(_name(names, one.catalogName, one.table_schema, one.table)) for one in event.ioMetadata.inputs)
    for column in output.columns or ():
        yield facts.has_column(target, column.columnName)
        for source in column.sourceColumns:
            ref = ColumnRef(_name(names, source.catalog, source.table_schema, source.table), source.columnName)
            yield facts.comes_from(target, column.columnName, Source(ref, _kind(source.transformationType)))


def _name(names: Names, *parts: str) -> str:
    written = ".".join(parts)
    return names.of(written) or external(NAMESPACE, written)


def _kind(said: str | None) -> Kind:
    """As the engine says, where it does; that something was done with it is the least that can be said."""
    kind = {one.value: one for one in Kind}.get((said or "").lower(), Kind.TRANSFORMATION)
    return kind if kind.is_direct else Kind.TRANSFORMATION
