"""Which format of a table its name stands for, while it is migrated from one to another and after.

A table that is migrated has two sides, one in each format. The events of its name are those of one
side, which triggers read. Those of the other side are recorded under a name of their own
(`name_beside`), which nothing reads. What changes on either side is copied to the other. A switch
makes the other side the one of the name, in one transaction, when both have the same rows.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import PARAMETERS, now_ms, reading, slices, writing
from lakechime_dagster.dce.events import (
    DataChangeEvent,
    OvertakenError,
    Position,
    RegisteredEvent,
    TableFormat,
    TableUid,
)
from lakechime_dagster.dce.partitions import UNPARTITIONED
from lakechime_dagster.dce.queries import (
    FORMAT_CODES,
    TableKey,
    TableRow,
    changed_table,
    changes_data,
    event_of,
    in_order,
    is_after,
    known_tables,
    locked_tables,
    locked_whole,
    select_events,
)
from lakechime_dagster.dce.schema import HISTORY, dce_listing, dce_switch
from lakechime_dagster.dce.snapshots import VERDICT_TAG
from lakechime_dagster.errors import LakeChimeError

COPY_TAG = "lakechime/migration"  # of the events of what a copy wrote: `Migration.copy`
Keys = frozenset[str]  # partitions, by canonical texts


def name_beside(table: str, table_format: TableFormat) -> str:
    """The name under which the events of a side are recorded that is not the one of the table's
    name.
    """
    return f"{table}@{table_format.lower()}"


@dataclass(frozen=True, kw_only=True)
class Migration:
    """An open migration of a table.

    `current` is the side that its name stands for. `number` is that of the newest copy. Of each side
    `copied` says up to which of its events their partitions are on the other side (nothing: no copy
    has ended), `left` which partitions of earlier events are not, and `copying` those that a copy
    which has not ended takes from it, and `uids` which table it was when it was copied first.
    """

    cluster: str
    table: str
    began_ts: int
    from_format: TableFormat
    to_format: TableFormat
    current: TableFormat
    number: int = 0
    copied: Mapping[TableFormat, Position] = field(default_factory=dict)
    left: Mapping[TableFormat, Keys] = field(default_factory=dict)
    copying: Mapping[TableFormat, Keys] = field(default_factory=dict)
    uids: Mapping[TableFormat, str] = field(default_factory=dict)

    @property
    def copy(self) -> str:
        """What names the newest copy, in a tag of the events of what it wrote."""
        return f"{self.began_ts}/{self.number}"

    @property
    def other(self) -> TableFormat:
        """The side that is kept equal to the one of the name."""
        return self.from_format if self.current is self.to_format else self.to_format

    def name_of(self, side: TableFormat) -> str:
        """The name of the events of a side."""
        return self.table if side is self.current else name_beside(self.table, side)

    @classmethod
    def of(cls, row: TableRow) -> "Migration | None":
        """That of a table, if one is open."""
        if row.migration is None or row.format is None:
            return None
        document = row.migration
        return cls(
            cluster=row.cluster,
            table=row.name,
            began_ts=document["began"],
            from_format=TableFormat(document["from"]),
            to_format=TableFormat(document["to"]),
            current=row.format,
            number=document["number"],
            copied={TableFormat(of): Position.parse(at) for of, at in document["copied"].items()},
            left=_read(document["left"]),
            copying=_read(document["copying"]),
            uids={TableFormat(of): uid for of, uid in document["uids"].items()},
        )

    @property
    def document(self) -> dict[str, Any]:
        return {
            "began": self.began_ts,
            "from": self.from_format.value,
            "to": self.to_format.value,
            "number": self.number,
            "copied": {of.value: str(at) for of, at in self.copied.items()},
            "left": {of.value: sorted(keys) for of, keys in self.left.items()},
            "copying": {of.value: sorted(keys) for of, keys in self.copying.items()},
            "uids": {of.value: uid for of, uid in self.uids.items()},
        }


def _read(document: Mapping[str, Iterable[str]]) -> dict[TableFormat, Keys]:
    return {TableFormat(of): frozenset(keys) for of, keys in document.items()}


def beside_of(event: DataChangeEvent, table: TableRow) -> str | None:
    """The name under which an event is recorded that names a table which was migrated, and is a
    change of another side than its name stands for.
    """
    if table.format in (None, event.table_format) or event.is_marker:
        return None
    migration = Migration.of(table)
    if migration is not None and event.table_format is not migration.other:
        return None
    return name_beside(table.name, event.table_format)


def begun(
    engine: Engine, table: TableKey, from_format: TableFormat, to_format: TableFormat
) -> Migration:
    """The open migration of a table to a format, which is begun where none is open.

    Raises:
        LakeChimeError: one to another format is open.
    """
    beside = (table[0], name_beside(table[1], to_format))
    with writing(engine) as connection:
        known, other = _locked(connection, table, beside)
        migration = Migration.of(known)
        if migration is None:
            # what an earlier migration left of that side says nothing of this one
            connection.execute(
                sa.delete(dce_listing).where(dce_listing.c.table_id == other.table_id)
            )
            changed_table(
                connection, other.table_id, table_uid=None, seen=None, levels=known.levels
            )
            migration = Migration(
                cluster=table[0],
                table=table[1],
                began_ts=now_ms(connection),
                from_format=known.format or from_format,
                to_format=to_format,
                current=known.format or from_format,
            )
            _keep(connection, known, migration)
        elif to_format not in (migration.from_format, migration.to_format):
            raise LakeChimeError(
                f"{table[1]}: its migration to {migration.to_format.lower()} is open; finish that "
                f"first"
            )
        return migration


@dataclass(frozen=True)
class Changed:
    """What changed on a side: the partitions that are to be copied to the other, those that the copy
    which has not ended wrote, up to which of its events they are meant, and the side's uid.
    """

    keys: Keys
    copied: Keys
    through: Position
    uid: TableUid | None


def changed_since(engine: Engine, migration: Migration) -> dict[TableFormat, Changed]:
    """What is to be copied of each side: the partitions of its events after what was copied, and
    what was left. Whoever registers its events meanwhile is waited for.
    """
    with writing(engine) as connection:
        _locked(connection, *_sides(migration).values())
        return _changed_since(connection, migration)


def _sides(migration: Migration) -> dict[TableFormat, TableKey]:
    return {
        side: (migration.cluster, migration.name_of(side))
        for side in (migration.current, migration.other)
    }


def _changed_since(connection: Connection, migration: Migration) -> dict[TableFormat, Changed]:
    sides = _sides(migration)
    known = known_tables(connection, sides.values())
    found: dict[TableFormat, Changed] = {}
    for side, key in sides.items():
        since = migration.copied.get(side, Position.ORIGIN)
        keys, copied, through = set(migration.left.get(side, ())), set[str](), since
        row = known[key]
        if migration.uids.get(side) not in (None, row.table_uid):
            keys.add(UNPARTITIONED)  # it was replaced, or put back
        for event in HISTORY:
            c = event.c
            named = sa.select(c.partition_key, c.tx_id, c.seq, c.tags).where(
                c.table_id == row.table_id, changes_data(event), is_after(since, event)
            )
            for one in connection.execute(named):
                if migration.copying and one.tags.get(COPY_TAG) == migration.copy:
                    copied.add(one.partition_key)
                else:
                    keys.add(UNPARTITIONED if VERDICT_TAG in one.tags else one.partition_key)
                through = max(through, Position(one.tx_id, one.seq))
        found[side] = Changed(frozenset(keys), frozenset(copied), through, row.table_uid)
    return found


def noted(engine: Engine, migration: Migration, **changed: Any) -> Migration:
    """A migration with other values, as it is kept.

    Raises:
        LakeChimeError: somebody else has gone on with it.
    """
    with writing(engine) as connection:
        (known,) = _opened(connection, migration)
        after = replace(migration, **changed)
        _keep(connection, known, after)
    return after


def switched(engine: Engine, migration: Migration) -> Migration:
    """Make the other side the one of the name: its later events trigger, and consumers go on at its
    snapshot that was captured last, which for a Hive table is the position of the switch.

    Raises:
        OvertakenError: a side has changed that is not copied yet; copy again.
        LakeChimeError: somebody else has gone on with the migration.
    """
    sides = _sides(migration)
    became = (migration.cluster, name_beside(migration.table, migration.current))
    with writing(engine) as connection:
        mine, other, freed = _opened(connection, migration, sides[migration.other], became)
        changed = _changed_since(connection, migration)
        if not migration.copied or any(one.keys for one in changed.values()):
            raise OvertakenError(
                f"{migration.table}: its sides changed since they were copied; copy again"
            )
        position = _newest(connection, mine.table_id)
        is_hive = migration.other is TableFormat.HIVE
        connection.execute(
            sa.insert(dce_switch).values(
                table_id=mine.table_id,
                tx_id=position.tx_id,
                seq=position.seq,
                from_format=FORMAT_CODES[migration.current],
                from_uid=mine.table_uid,
                to_format=FORMAT_CODES[migration.other],
                to_uid=other.table_uid,
                to_snapshot=str(position) if is_hive else other.seen,
            )
        )
        # of both sides one at most is a Hive table, which alone has a listing
        for of, to in ((mine, freed), (other, mine)):
            moving = sa.update(dce_listing).where(dce_listing.c.table_id == of.table_id)
            connection.execute(moving.values(table_id=to.table_id))
        changed_table(
            connection, freed.table_id, table_uid=mine.table_uid, seen=mine.seen, levels=mine.levels
        )
        after = replace(
            migration,
            current=migration.other,
            copied=dict.fromkeys(sides, max(one.through for one in changed.values())),
        )
        _keep(connection, mine, after, table_uid=other.table_uid, seen=other.seen)
    return after


def finished(engine: Engine, migration: Migration) -> None:
    """End a migration: the side that the name does not stand for is no longer looked at.

    Raises:
        LakeChimeError: somebody else has gone on with it.
    """
    with writing(engine) as connection:
        (known,) = _opened(connection, migration)
        changed_table(connection, known.table_id, migration=None)


def tags_beside(engine: Engine, migration: Migration, keys: Keys) -> dict[str, RegisteredEvent]:
    """By partition the newest event beside the table of each of these."""
    found: dict[str, RegisteredEvent] = {}
    with reading(engine) as connection:
        key = (migration.cluster, migration.name_of(migration.other))
        known = known_tables(connection, [key])[key]
        for event, chunk in itertools.product(HISTORY, slices(sorted(keys), PARAMETERS)):
            named = select_events(event).where(
                event.c.table_id == known.table_id, event.c.partition_key.in_(chunk)
            )
            for one in map(event_of, connection.execute(in_order(named, event))):
                newest = found.setdefault(one.canonical, one)
                found[one.canonical] = max(newest, one, key=lambda each: each.position)
    return found


def _newest(connection: Connection, table_id: int) -> Position:
    """The position of the newest event of a table."""
    found = [Position.ORIGIN]
    for event in HISTORY:
        query = sa.select(event.c.tx_id, event.c.seq).where(event.c.table_id == table_id)
        row = connection.execute(
            query.order_by(event.c.tx_id.desc(), event.c.seq.desc()).limit(1)
        ).one_or_none()
        found += [Position(*row)] if row else []
    return max(found)


def _locked(connection: Connection, *keys: TableKey) -> list[TableRow]:
    """Tables, made known where they are new, which nobody else registers events of meanwhile."""
    ids = [row.table_id for row in locked_tables(connection, keys).values()]
    locked_whole(connection, ids)
    found = known_tables(connection, keys)
    return [found[key] for key in keys]


def _keep(connection: Connection, known: TableRow, migration: Migration, **values: Any) -> None:
    changed_table(
        connection,
        known.table_id,
        format=FORMAT_CODES[migration.current],
        migration=migration.document,
        **values,
    )


def _opened(connection: Connection, migration: Migration, *further: TableKey) -> list[TableRow]:
    """The table of a migration that is still as it was seen, and further ones, locked."""
    found = _locked(connection, (migration.cluster, migration.table), *further)
    if Migration.of(found[0]) != migration:
        raise LakeChimeError(
            f"{migration.table}: another command has gone on with its migration; look at it by "
            f"`lakechime table migrate {migration.table} --dry-run`, and try again"
        )
    return found
