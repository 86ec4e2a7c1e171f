"""One column goes by one name, in whatever letter case it is written: the one by which the store met it first.

Engines do not tell letter case apart where a session does not ask for it. A name that is known as it is written stays, and so do two
names of one statement that are alike but for their case: they are of a table that tells them apart.
"""

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.record import LineageRecord, Statement, respelled
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.lineage import schema
from lakechime_dagster.store.lineage.names import MANY, known_nodes
from lakechime_dagster.store.slices import slices

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
