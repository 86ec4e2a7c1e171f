"""Lineage that declarations state."""

from collections.abc import Iterable, Mapping

from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Kind, Source, Statement

ROOT = "$"
PAYLOAD = "payload"  # of a table of events: an event as it came


def pointer(*fields: str) -> str:
    """The path of a field, as the names of columns tell it."""
    return ".".join((ROOT, *fields))


def following(target: str, messages: str, columns: Mapping[str, str], keys: Iterable[str]) -> Statement:
    """What a table that follows a database takes from its table of messages.

    Args:
        target: The table.
        messages: The table of the database's changes.
        columns: The names that columns have in the database, by those that they have here.
        keys: The columns here by which a change finds its row.
    """
    told = tuple(_column(name, messages, pointer(there)) for name, there in columns.items())
    finding = tuple(Source(ColumnRef(messages, pointer(columns.get(key, key))), Kind.JOIN) for key in keys)
    return Statement(target=target, columns=told, indirect=finding, inputs=(messages,))


def messages_of(target: str, source: str, columns: Iterable[str]) -> Statement:
    """What a table of messages takes from the database's table, whose columns these are; `source` is the name of that outside."""
    told = tuple(_column(pointer(name), source, name) for name in columns)
    return Statement(target=target, columns=told, inputs=(source,))


def copied(target: str, source: str, columns: Mapping[str, str]) -> Statement:
    """What a table takes as it is from the rows of another one: by its columns those of the other."""
    return Statement(target=target, columns=tuple(_column(name, source, there) for name, there in columns.items()), inputs=(source,))


def fed(target: str, source: str) -> Statement:
    """What a table takes from a feed whose fields nobody has declared."""
    return Statement(target=target, inputs=(source,))


def of_type(target: str, stream: str, columns: Mapping[str, Iterable[tuple[str, ...]]], type_field: tuple[str, ...]) -> Statement:
    """What the table of a type takes from the table of its stream.

    Args:
        target: The type's table.
        stream: The table of events.
        columns: By column the paths of the fields that are in it.
        type_field: The path of the field that tells the type, which decides whose the event is.
    """
    told = tuple(
        ColumnLineage(column=name, sources=tuple(Source(ColumnRef(stream, pointer(*path)), Kind.IDENTITY) for path in paths))
        for name, paths in columns.items()
    )
    deciding = (Source(ColumnRef(stream, pointer(*type_field)), Kind.FILTER),)
    return Statement(target=target, columns=told, indirect=deciding, inputs=(stream,))


def _column(name: str, table: str, column: str) -> ColumnLineage:
    return ColumnLineage(column=name, sources=(Source(ColumnRef(table, column), Kind.IDENTITY),))
