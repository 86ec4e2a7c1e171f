"""Data sets, columns and producers by their numbers in the store."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.engine import among, insert_if_absent, slices
from lakechime_dagster.dce.partitions import storable
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, LineageRecord, Producer, Source, Statement, joined, respelled
from lakechime_dagster.lineage.graph import edges_of, parts_of

MANY = 500  # keys that one statement asks for
Parts = Mapping[str, int]  # how each data set takes part
Edges = Collection[tuple[ColumnRef, ColumnRef, int]]


def digest(*parts: str) -> bytes:
    """A key of several texts."""
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()


def key_of(ref: ColumnRef) -> bytes:
    """The key of a column, or of a data set."""
    return digest(ref.table) if ref.column is None else digest(ref.table, ref.column)


def key_of_told(statement: Statement) -> bytes:
    """The key of what a statement tells; the order of its columns makes no difference."""
    columns = sorted(statement.columns, key=lambda column: column.column)
    said: list[Any] = [
        statement.target,
        statement.replaces,
        statement.inputs,
        statement.unknown,
        _plain(statement.indirect),
        [[column.column, column.opaque, _plain(column.sources)] for column in columns],
    ]
    said += [foreign] if (foreign := _foreign(statement)) else []
    return blake2b(orjson.dumps(said), digest_size=16).digest()


def storable_statement(statement: Statement) -> Statement:
    """The statement with a replacement character in its names and reasons for each one that not every store can hold."""
    said = " ".join(_texts(statement))
    if storable(said) == said:
        return statement
    columns = [
        ColumnLineage(
            column=storable(one.column),
            sources=_storable_sources(one.sources),
            opaque=_storable(one.opaque),
            foreign=_storable(one.foreign),
        )
        for one in statement.columns
    ]
    return Statement(
        target=storable(statement.target),
        columns=joined(columns),
        indirect=_storable_sources(statement.indirect),
        inputs=_storable(statement.inputs),
        replaces=statement.replaces,
        unknown=_storable(statement.unknown),
        foreign=_storable(statement.foreign),
    )


def _texts(statement: Statement) -> Iterator[str]:
    """All names and reasons in a statement."""
    yield from (statement.target, *statement.inputs, *statement.not_known)
    for column in statement.columns:
        yield from (column.column, *column.not_known)
    for source in statement.sources:
        yield from (source.ref.table, source.ref.column or "")


def _storable(several: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(storable, several))


def _storable_sources(sources: Iterable[Source]) -> tuple[Source, ...]:
    return tuple(
        Source(ColumnRef(storable(one.ref.table), one.ref.column and storable(one.ref.column)), one.kind, one.is_masking) for one in sources
    )


def known_nodes(connection: Connection, refs: Iterable[ColumnRef]) -> dict[ColumnRef, int]:
    """The numbers of those data sets and columns that were met before."""
    keys = {key_of(ref): ref for ref in refs}
    return {keys[key]: number for key, number in _known(connection, schema.node, keys).items()}


def ensured_nodes(connection: Connection, refs: Iterable[ColumnRef]) -> dict[ColumnRef, int]:
    """The numbers of data sets and columns."""
    wanted = set(refs)
    datasets = {name: ColumnRef(name) for name in {ref.table for ref in wanted}}
    keys = {ref: key_of(ref) for ref in wanted.union(datasets.values())}
    found = _ensured(connection, schema.node, {keys[ref]: {"name": name} for name, ref in datasets.items()})
    columns = {
        key: {"name": ref.column, "dataset_id": found[keys[datasets[ref.table]]]} for ref, key in keys.items() if ref.column is not None
    }
    found |= _ensured(connection, schema.node, columns)
    return {ref: found[key] for ref, key in keys.items()}


def ensured_writers(connection: Connection, pairs: Mapping[tuple[Producer, str], int]) -> dict[tuple[Producer, str], sa.Row[Any]]:
    """The rows of producers at their targets, which come with theirs; nobody else records for them until the transaction ends."""
    keys = {digest(pair[0].namespace, pair[0].job, pair[1]): pair for pair in pairs}
    rows = [
        {"key": key, "namespace": pair[0].namespace, "job": pair[0].job, "target_id": pairs[pair], "at_ms": -1, "run_key": b""}
        for key, pair in sorted(keys.items())
    ]
    found: dict[tuple[Producer, str], sa.Row[Any]] = {}
    row = schema.writer.c
    for some in slices(rows, MANY):
        connection.execute(insert_if_absent(connection, schema.writer), list(some))
    for some in slices(sorted(keys), MANY):
        held = sa.select(schema.writer).where(among(connection, row.key, some)).order_by(row.key).with_for_update()
        found |= {keys[bytes(one.key)]: one for one in connection.execute(held).all()}
    return found


def ensured_told(connection: Connection, statements: Mapping[bytes, Statement]) -> dict[bytes, int]:
    """The numbers of what statements tell, by their keys; what is told for the first time is kept with its edges."""
    known = _known(connection, schema.told, statements)
    new = {key: statement for key, statement in statements.items() if key not in known}
    if not new:
        return known
    drawn = {key: (parts_of(statement), edges_of(statement)) for key, statement in new.items()}
    refs = {ref for _, edges in drawn.values() for source, target, _ in edges for ref in (source, target)}
    refs |= {ColumnRef(name) for key, (parts, _) in drawn.items() for name in (new[key].target, *parts)}
    refs |= {ColumnRef(one.target, column.column) for one in new.values() for column in one.columns}
    nodes = ensured_nodes(connection, refs)
    values = [_told_row(key, statement, nodes[ColumnRef(statement.target)]) for key, statement in sorted(new.items())]
    made = insert_if_absent(connection, schema.told).returning(schema.told.c.told_id, schema.told.c.key)
    ours = {bytes(key): number for number, key in connection.execute(made, values)}  # what others made meanwhile is not among them
    _keep_edges(connection, {number: drawn[key] for key, number in ours.items()}, nodes)
    return known | ours | _known(connection, schema.told, new.keys() - ours.keys())


def _told_row(key: bytes, statement: Statement, target: int) -> dict[str, Any]:
    return {
        "key": key,
        "target_id": target,
        "replaces": statement.replaces,
        "columns": sorted(column.column for column in statement.columns),
        "opaque": {one.column: one.opaque for one in statement.columns if one.opaque},
        "unknown": statement.unknown,
        "foreign_code": _foreign(statement),
    }


def _keep_edges(connection: Connection, drawn: Mapping[int, tuple[Parts, Edges]], nodes: Mapping[ColumnRef, int]) -> None:
    inputs = [
        {"told_id": number, "source_id": nodes[ColumnRef(name)], "parts": int(part)}
        for number, (parts, _) in drawn.items()
        for name, part in parts.items()
    ]
    edges = [
        {"told_id": number, "source_id": nodes[source], "target_id": nodes[target], "kind": kind}
        for number, (_, several) in drawn.items()
        for source, target, kind in several
    ]
    for table, rows in ((schema.told_input, inputs), (schema.told_edge, edges)):
        if rows:
            connection.execute(sa.insert(table), rows)


def _ensured(connection: Connection, table: sa.Table, values: Mapping[bytes, Mapping[str, Any]]) -> dict[bytes, int]:
    """The numbers of rows by their keys; those that are missing are made, in the order of their keys."""
    found = _known(connection, table, values)
    missing = [{"dataset_id": None, **values[key], "key": key} for key in sorted(values) if key not in found]
    if missing:
        names = {column.name for column in table.columns}
        rows = [{name: value for name, value in row.items() if name in names} for row in missing]
        connection.execute(insert_if_absent(connection, table), rows)
        found |= _known(connection, table, [row["key"] for row in rows])
    return found


def _known(connection: Connection, table: sa.Table, keys: Collection[bytes]) -> dict[bytes, int]:
    (number,) = table.primary_key.columns
    found: dict[bytes, int] = {}
    for some in slices(sorted(keys), MANY):
        query = sa.select(table.c.key, number).where(among(connection, table.c.key, some))
        found |= {bytes(key): value for key, value in connection.execute(query)}
    return found


def _foreign(statement: Statement) -> list[list[Any]]:
    """Code that nobody looks into, by the column that comes through it; by null what has a say in which rows there are."""
    whole = [[None, statement.foreign]] if statement.foreign else []
    return [*whole, *([one.column, one.foreign] for one in sorted(statement.columns, key=lambda one: one.column) if one.foreign)]


def _plain(sources: Iterable[Any]) -> list[list[Any]]:
    return [[source.ref.table, source.ref.column, source.kind.value, source.is_masking] for source in sources]


Spelled = dict[str, dict[str, set[str]]]  # names of columns by their data set, and by themselves in one letter case


def spelled(connection: Connection, records: Sequence[LineageRecord]) -> list[LineageRecord]:
    """Records whose columns go by the names by which they are known; what a statement writes is met before what it reads."""
    several = [_refs(one.statement) for one in records]
    names = _names(connection, several)
    return [
        record if not (new := _new_names(refs, names)) else record.with_statement(respelled(record.statement, new))
        for record, refs in zip(records, several, strict=True)
    ]


def spelled_refs(connection: Connection, several: Sequence[Sequence[ColumnRef]]) -> list[tuple[ColumnRef, ...]]:
    """The same of columns that are read, each list by one reader."""
    names = _names(connection, several)
    news = [_new_names(refs, names) for refs in several]
    return [tuple(new.get(ref, ref) for ref in refs) for refs, new in zip(several, news, strict=True)]


def _refs(statement: Statement) -> list[ColumnRef]:
    refs = [ColumnRef(statement.target, one.column) for one in statement.columns]
    refs += [source.ref for one in statement.columns for source in one.sources]
    return list(dict.fromkeys([*refs, *(source.ref for source in statement.indirect)]))


def _names(connection: Connection, several: Iterable[Sequence[ColumnRef]]) -> Spelled:
    """The names that are known of the data sets of columns that are met for the first time, and then theirs."""
    columns = {ref: None for refs in several for ref in refs if ref.column is not None}
    there = known_nodes(connection, columns)
    new = [ref for ref in columns if ref not in there]
    names: Spelled = {}
    for table, name in _known_columns(connection, {ref.table for ref in new}):
        names.setdefault(table, {}).setdefault(name.casefold(), set()).add(name)
    for ref in new:
        _ = names.setdefault(ref.table, {}).setdefault((ref.column or "").casefold(), {ref.column or ""})
    return names


def _known_columns(connection: Connection, tables: Iterable[str]) -> Iterable[tuple[str, str]]:
    datasets = known_nodes(connection, (ColumnRef(name) for name in tables))
    by_number = {number: ref.table for ref, number in datasets.items()}
    row = schema.node.c
    for some in slices(sorted(by_number), MANY):
        query = sa.select(row.dataset_id, row.name).where(among(connection, row.dataset_id, some))
        for dataset, name in connection.execute(query):
            yield by_number[dataset], name


def _new_names(refs: Sequence[ColumnRef], names: Spelled) -> Mapping[ColumnRef, ColumnRef]:
    found: dict[ColumnRef, ColumnRef] = {}
    own = set(refs)
    for ref in refs:
        known = names.get(ref.table, {}).get((ref.column or "").casefold(), set())
        if ref.column is None or ref.column in known or len(known) != 1:
            continue
        meant = ColumnRef(ref.table, next(iter(known)))
        if meant not in own:
            found[ref] = meant
    return found
