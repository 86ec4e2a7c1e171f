"""Lineage that declarations state."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from lakechime_dagster.lineage.columns import (
    PAYLOAD,
    ColumnLineage,
    ColumnRef,
    Kind,
    Source,
    Statement,
    pointer,
)
from lakechime_dagster.lineage.runs import lineage_store, producer_of, record_of
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


def taken(
    target: str,
    source: str,
    columns: Mapping[str, Iterable[str]] | None = None,
    deciding: Iterable[Source] = (),
) -> Statement:
    """What a table takes as it is from a source, another table or what is outside.

    Args:
        target: The table.
        source: The source.
        columns: By the table's columns those of the source that are in each; none where nobody has
            declared the fields of the source.
        deciding: What of the source decides on the rows.
    """
    made = tuple(
        ColumnLineage(
            column=name,
            sources=tuple(Source(ColumnRef(source, one), Kind.IDENTITY) for one in several),
        )
        for name, several in (columns or {}).items()
    )
    return Statement(target=target, columns=made, indirect=tuple(deciding), inputs=(source,))


def of_cdc(table: CDCTable, columns: Iterable[str]) -> list[Statement]:
    """What a table with these columns takes from its bronze table, and that from the database."""
    bronze, of_keys = table.bronze.name, list[Source]()
    there = {name: _there(table, name) for name in columns}
    for key in table.keys:
        ref = ColumnRef(bronze, pointer(there.get(key, key)))
        of_keys.append(Source(ref, Kind.JOIN))
    return [
        taken(table.name, bronze, {here: [pointer(one)] for here, one in there.items()}, of_keys),
        taken(bronze, source_of(table.bronze), {pointer(one): [one] for one in there.values()}),
    ]


def of_type(target: str, events: EventTable, schema: TypeSchema) -> Statement:
    """What the table of a type takes from the table of its events, in which a field has the type
    and decides whose the event is.
    """
    columns = {name: [pointer(*path) for path in paths] for name, paths in paths_of(schema).items()}
    whose = Source(ColumnRef(events.name, pointer(*events.type_field)), Kind.FILTER)
    return taken(target, events.name, columns, [whose])


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
            statements = of_cdc(
                table, [name for name, _ in result.schema if not is_own_column(name)]
            )
        case EventTable(source=TableRows() as rows):
            statements = [taken(table.name, rows.name, {PAYLOAD: [rows.payload]})]
        case BronzeTable() | EventTable():
            statements = [taken(table.name, dataset_of_source(table))]
        case _:
            return
    _record(running, statements, table.owner)


def record_types(running: RunningExecution, group: EventGroup, types: Iterable[TypeResult]) -> None:
    """Keep from which fields the tables of types are made that a completed execution has
    written.
    """
    written = {one.type: one.table for one in types if one.commits}
    if not written:
        return
    known = event_types(running.platform).types(group.name)
    statements = [
        of_type(table, group.stream.table, known[name].schema)
        for name, table in written.items()
        if name in known
    ]
    _record(running, statements, group.owner)


def _record(
    running: RunningExecution, statements: Collection[Statement], owner: str | None
) -> None:
    """Keep those that are other than what is known, or were not recorded for a day."""
    platform, producer, now = running.platform, producer_of(running), running.platform.store.now()
    standing = LineageStandings(platform.store.engine).of_targets(
        [one.target for one in statements]
    )
    fresh = {
        one.statement.target: one.statement
        for one in standing
        if one.producer == producer and one.last_ms > now - DAY_MS
    }
    records = [
        record_of(running, one, now, owner) for one in statements if fresh.get(one.target) != one
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
