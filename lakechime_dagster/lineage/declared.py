"""Lineage that declarations state."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from lakechime_dagster.lineage.columns import (
    PAYLOAD,
    ColumnLineage,
    ColumnRef,
    Kind,
    LineageRecord,
    Producer,
    Source,
    Statement,
    pointer,
)
from lakechime_dagster.lineage.runs import lineage_store
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.silver.results import TypeResult
from lakechime_dagster.silver.schema import Column, TypeSchema
from lakechime_dagster.spark.job import Outcome, TableResult
from lakechime_dagster.tables.cdc import BronzeTable, CDCTable
from lakechime_dagster.tables.events import EventGroup, EventTable
from lakechime_dagster.tables.lake import Target
from lakechime_dagster.tables.names import is_own_column
from lakechime_dagster.tables.sources import KafkaTopic, TableRows


def following(
    target: str, messages: str, columns: Mapping[str, str], keys: Iterable[str]
) -> Statement:
    """What a table that follows a database takes from its table of messages.

    Args:
        target: The table.
        messages: The table of the database's changes.
        columns: The names that columns have in the database, by those that they have here.
        keys: The columns here by which a change finds its row.
    """
    statements = tuple(_column(name, messages, pointer(there)) for name, there in columns.items())
    finding = tuple(
        Source(ColumnRef(messages, pointer(columns.get(key, key))), Kind.JOIN) for key in keys
    )
    return Statement(target=target, columns=statements, indirect=finding, inputs=(messages,))


def messages_of(target: str, source: str, columns: Iterable[str]) -> Statement:
    """What a table of messages takes from the database's table, whose columns these are; `source`
    is the name of that outside.
    """
    statements = tuple(_column(pointer(name), source, name) for name in columns)
    return Statement(target=target, columns=statements, inputs=(source,))


def copied(target: str, source: str, columns: Mapping[str, str]) -> Statement:
    """What a table takes as it is from the rows of another one: by its columns those of the
    other.
    """
    return Statement(
        target=target,
        columns=tuple(_column(name, source, there) for name, there in columns.items()),
        inputs=(source,),
    )


def fed(target: str, source: str) -> Statement:
    """What a table takes from a source whose fields nobody has declared."""
    return Statement(target=target, inputs=(source,))


def of_type(
    target: str,
    stream: str,
    columns: Mapping[str, Iterable[tuple[str, ...]]],
    type_field: tuple[str, ...],
) -> Statement:
    """What the table of a type takes from the table of its stream.

    Args:
        target: The type's table.
        stream: The table of events.
        columns: By column the paths of the fields that are in it.
        type_field: The path of the field with the type, which decides whose the event is.
    """
    statements = tuple(
        ColumnLineage(
            column=name,
            sources=tuple(
                Source(ColumnRef(stream, pointer(*path)), Kind.IDENTITY) for path in paths
            ),
        )
        for name, paths in columns.items()
    )
    deciding = (Source(ColumnRef(stream, pointer(*type_field)), Kind.FILTER),)
    return Statement(target=target, columns=statements, indirect=deciding, inputs=(stream,))


def _column(name: str, table: str, column: str) -> ColumnLineage:
    return ColumnLineage(column=name, sources=(Source(ColumnRef(table, column), Kind.IDENTITY),))


# after which what is the same is recorded again, so that the table does not look stale
DAY_MS = 86_400_000


def record_declared(running: RunningExecution, table: Target, result: TableResult) -> None:
    """Keep what the declaration of a table says of what a run with a completed execution has
    written.
    """
    if result.outcome is not Outcome.COMMITTED or not running.completed:
        return
    match table:
        case CDCTable():
            columns = {
                name: _there(table, name) for name, _ in result.schema if not is_own_column(name)
            }
            of_messages = messages_of(table.bronze.name, source_of(table.bronze), columns.values())
            statements = [
                following(table.name, table.bronze.name, columns, table.keys),
                of_messages,
            ]
        case EventTable(source=TableRows() as rows):
            statements = [copied(table.name, rows.name, {PAYLOAD: rows.payload})]
        case BronzeTable() | EventTable():
            statements = [fed(table.name, dataset_of_source(table))]
        case _:
            return
    _record(running, statements, (table.owner,) if table.owner else ())


def record_types(running: RunningExecution, group: EventGroup, types: Iterable[TypeResult]) -> None:
    """Keep from which fields the tables of types are made that a completed execution has
    written.
    """
    written = {one.type: one.table for one in types if one.commits}
    if not written:
        return
    known, stream = event_types(running.platform).types(group.name), group.stream.table
    statements = [
        of_type(table, stream.name, paths_of(known[name].schema), stream.type_field)
        for name, table in written.items()
        if name in known
    ]
    _record(running, statements, (group.owner,) if group.owner else ())


def _record(
    running: RunningExecution, statements: Collection[Statement], owners: tuple[str, ...]
) -> None:
    """Keep those that are other than what is known, or were not recorded for a day."""
    platform, execution = running.platform, running.execution
    producer, now = (
        Producer(namespace=execution.consumer.deployment, job=running.subscription.name),
        platform.store.now(),
    )
    standing = LineageStandings(platform.store.engine).of_targets(
        [one.target for one in statements]
    )
    fresh = {
        one.statement.target: one.statement
        for one in standing
        if one.producer == producer and one.last_ms > now - DAY_MS
    }
    records = [
        LineageRecord(
            producer=producer,
            run_id=f"{execution.execution_id}/{execution.attempt}",
            at_ms=now,
            statement=one,
            consumer=str(execution.consumer),
            owners=owners,
        )
        for one in statements
        if fresh.get(one.target) != one
    ]
    if records:
        lineage_store(platform).record_all(records)


def _there(table: CDCTable, name: str) -> str:
    """What a column is called in the database."""
    return next(
        (there for there, here in table.names.items() if here.lower() == name.lower()), name
    )


def source_of(table: BronzeTable) -> str:
    """The name of the database's table outside of the lake; where it is unknown, that of its
    messages' source.
    """
    database = table.schema.read_from
    if database is None:
        return dataset_of_source(table)
    return f"{'postgres' if database.is_postgres else 'mysql'}/{'.'.join(database.source_table)}"


def dataset_of_source(table: BronzeTable | EventTable) -> str:
    """The name of a source as OpenLineage has it; a table that is one has its own."""
    match table.source:
        case KafkaTopic(topic=topic, bootstrap=bootstrap):
            return f"kafka://{bootstrap.split(',')[0]}/{topic}"
        case TableRows() as rows:
            return rows.name
        case other:
            return f"file/{other}"


def outside_inputs(table: BronzeTable | EventTable) -> tuple[str, ...]:
    """What a table is fed from outside of the lake, as it is declared: a topic or a folder, and the
    table of a database behind it.
    """
    names = () if isinstance(table.source, TableRows) else (dataset_of_source(table),)
    return (
        (*names, source_of(table))
        if isinstance(table, BronzeTable) and table.schema.read_from is not None
        else names
    )


def paths_of(schema: TypeSchema) -> dict[str, list[tuple[str, ...]]]:
    """By column of a type's table the paths of the fields that are in it; what arrays hold belongs
    to the array.
    """
    return {column.name: [*_leaves(column, ())] for column in schema.columns}


def _leaves(column: Column, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    here = (*above, column.field)
    if not column.fields or column.element is not None:
        yield here
        return
    for one in column.fields:
        yield from _leaves(one, here)
