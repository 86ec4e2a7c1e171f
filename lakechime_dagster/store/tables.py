"""What the store knows of the tables that events speak of, and the locks that keep it true while events are registered.

Who registers a single event shares a table's row (KEY SHARE); who registers several locks it against its like
(NO KEY UPDATE); who changes levels or uid, or folds events, locks it against all (UPDATE) and raises its version.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, select, tuple_, update

from lakechime_dagster.dce.event import SnapshotId, TableUid
from lakechime_dagster.dce.partition import LevelType, PartitionLevels
from lakechime_dagster.store.dialect import insert_if_absent
from lakechime_dagster.store.schema import dce_table
from lakechime_dagster.store.slices import PARAMETERS, slices

TableKey = tuple[str, str]  # cluster and name
CHUNK = 200  # tables per statement


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A table as the store knows it."""

    table_id: int
    cluster: str
    name: str
    levels: PartitionLevels
    table_uid: TableUid | None
    seen: SnapshotId | None
    version: int
    dropped_ts: int | None

    @property
    def key(self) -> TableKey:
        return (self.cluster, self.name)


def known_tables(connection: Connection, keys: Iterable[TableKey]) -> dict[TableKey, TableRow]:
    """Those of the tables that the store knows."""
    return _selected(connection, _columns(), keys)


def table_ids(connection: Connection, tables: Sequence[TableKey]) -> dict[TableKey, tuple[int, TableUid | None]]:
    """The ids and current uids of the tables that the store knows."""
    names = {name for _, name in tables}
    found: dict[TableKey, tuple[int, TableUid | None]] = {}
    for chunk in slices(sorted(names), PARAMETERS):
        query = select(dce_table.c.cluster, dce_table.c.name, dce_table.c.table_id, dce_table.c.table_uid).where(
            dce_table.c.name.in_(chunk)
        )
        found |= {(row.cluster, row.name): (row.table_id, row.table_uid and TableUid(row.table_uid)) for row in connection.execute(query)}
    return {table: found[table] for table in tables if table in found}


def tables_by_id(connection: Connection, name: str | None = None, cluster: str | None = None) -> dict[int, TableRow]:
    """All tables, or those of a name or cluster."""
    query = _columns().order_by(dce_table.c.cluster, dce_table.c.name)
    if name is not None:
        query = query.where(dce_table.c.name == name)
    if cluster is not None:
        query = query.where(dce_table.c.cluster == cluster)
    return {row.table_id: _table_row(row) for row in connection.execute(query)}


def locked_tables(connection: Connection, keys: Iterable[TableKey]) -> dict[TableKey, TableRow]:
    """The tables, made known where they are new, locked against others who register several events or change the table."""
    wanted = sorted(set(keys))
    locking = _columns().with_for_update(key_share=True)
    tables = _selected(connection, locking, wanted)
    if missing := [key for key in wanted if key not in tables]:
        rows = [{"cluster": cluster, "name": name} for cluster, name in missing]
        connection.execute(insert_if_absent(connection, dce_table), rows)
        tables |= _selected(connection, locking, missing)
    return tables


def locked_whole(connection: Connection, table_ids: Iterable[int]) -> None:
    """Lock tables against everyone who registers or changes."""
    ids = sorted(set(table_ids))
    for chunk in slices(ids, CHUNK):
        connection.execute(
            select(dce_table.c.table_id).where(dce_table.c.table_id.in_(chunk)).order_by(dce_table.c.table_id).with_for_update()
        )


def changed_table(connection: Connection, table_id: int, **values: Any) -> TableRow:
    """Change what the store knows of a table that is locked whole, and raise its version."""
    if isinstance(levels := values.get("levels"), PartitionLevels):
        values["levels"] = [[name, kind.value] for name, kind in zip(levels.names, levels.types, strict=True)]
    changing = (
        update(dce_table).where(dce_table.c.table_id == table_id).values(version=dce_table.c.version + 1, **values).returning(*dce_table.c)
    )
    return _table_row(connection.execute(changing).one())


def captured(connection: Connection, table_id: int, snapshot_id: SnapshotId) -> None:
    """Every commit of the table up to this snapshot is registered; who registers need not know."""
    connection.execute(update(dce_table).where(dce_table.c.table_id == table_id).values(seen=snapshot_id))


def _columns() -> Select[Any]:
    return select(dce_table)


def _selected(connection: Connection, query: Select[Any], keys: Iterable[TableKey]) -> dict[TableKey, TableRow]:
    wanted = sorted(set(keys))
    found: dict[TableKey, TableRow] = {}
    for chunk in slices(wanted, CHUNK):
        matching = query.where(tuple_(dce_table.c.cluster, dce_table.c.name).in_(chunk)).order_by(dce_table.c.table_id)
        found.update((row.key, row) for row in map(_table_row, connection.execute(matching)))
    return found


def _table_row(row: Row[Any]) -> TableRow:
    return TableRow(
        table_id=row.table_id,
        cluster=row.cluster,
        name=row.name,
        levels=_levels(row.levels),
        table_uid=row.table_uid,
        seen=row.seen,
        version=row.version,
        dropped_ts=row.dropped_ts,
    )


def _levels(stored: list[list[str]] | None) -> PartitionLevels:
    levels: Mapping[str, LevelType] = {name: LevelType(kind) for name, kind in stored or ()}
    return PartitionLevels(tuple(levels), tuple(levels.values()))
