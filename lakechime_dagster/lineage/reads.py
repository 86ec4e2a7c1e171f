"""Who read which columns, first and last."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.dialects import postgresql, sqlite

from lakechime_dagster.dce.engine import among, insert_if_absent, now_ms, reading, slices
from lakechime_dagster.dce.partitions import storable
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.nodes import MANY, digest, ensured_nodes, key_of, spelled_refs
from lakechime_dagster.lineage.store import refs_of


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A consumer of a column, or of a data set of which it is not told which columns it reads; times are milliseconds."""

    consumer: Consumer
    ref: ColumnRef
    first_ms: int
    last_ms: int
    owners: tuple[str, ...] = ()
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way by which reads and writes of others are told, since when by the store's clock, and what came by it."""

    name: str
    since_ms: int
    last_ms: int
    documents: int
    refused: int
    outside: int


@dataclass(frozen=True)
class SqlReads:
    """The readers of columns, in a store; of all deployments."""

    engine: Engine

    def of_table(self, table: str, since_ms: int | None = None) -> list[Reader]:
        """Who read a data set or columns of it, since a time; the last one first."""
        return self.of_tables([table], since_ms)

    def of_tables(self, tables: Collection[str], since_ms: int | None = None) -> list[Reader]:
        """Who read any of these data sets, or columns of them, since a time; the last one first."""
        found: list[Reader] = []
        names = sorted(set(tables))
        with reading(self.engine) as connection:
            for some in slices(names, MANY):
                found += _readers(connection, some, since_ms)
        return sorted(found, key=lambda one: (-one.last_ms, one.consumer, str(one.ref)))

    def ways(self) -> list[Way]:
        """By which ways reads are told; without one it is not known who reads, which is another thing than nobody."""
        with reading(self.engine) as connection:
            columns = [column for column in schema.way.c if column.name != "place"]
            return [Way(**row._asdict()) for row in connection.execute(sa.select(*columns).order_by(schema.way.c.name))]

    def since_ms(self) -> int | None:
        """Since when reads are told, by the store's clock; None if never."""
        return min((one.since_ms for one in self.ways()), default=None)


def keep_reads(connection: Connection, several: Sequence[Read]) -> None:
    """Keep reads within an open transaction that writes; what comes again, or in another order, changes nothing."""
    reads = [_storable(one) for one in several if one.refs]
    if not reads:
        return
    told = spelled_refs(connection, [one.refs for one in reads])
    reads = [replace(one, refs=refs) for one, refs in zip(reads, told, strict=True)]
    nodes = ensured_nodes(connection, (ref for one in reads for ref in one.refs))
    consumers = _ensured_consumers(connection, reads)
    times: dict[tuple[int, int], tuple[int, int]] = {}
    for one in reads:
        for ref in one.refs:
            key = (nodes[ref], consumers[one.consumer])
            first, last = times.get(key, (one.at_ms, one.at_ms))
            times[key] = (min(first, one.at_ms), max(last, one.at_ms))
    rows = [
        {"node_id": node, "consumer_id": consumer, "first_ms": first, "last_ms": last}
        for (node, consumer), (first, last) in sorted(times.items())
    ]
    connection.execute(_widening(connection), rows)


def note_way(connection: Connection, name: str, documents: int, refused: int, outside: int, place: str | None = None) -> None:
    """Count what came by a way, and keep up to where it was read; the first time says since when it is told."""
    now = now_ms(connection)
    counts = {"documents": documents, "refused": refused, "outside": outside}
    connection.execute(
        insert_if_absent(connection, schema.way).values(name=name, since_ms=now, last_ms=now, documents=0, refused=0, outside=0)
    )
    raised: dict[str, Any] = {column: schema.way.c[column] + number for column, number in counts.items()}
    if place is not None:
        raised["place"] = place
    connection.execute(sa.update(schema.way).where(schema.way.c.name == name).values(last_ms=now, **raised))


def place_of_way(engine: Engine, name: str) -> str | None:
    """Up to where a way was read; None where it never was."""
    with reading(engine) as connection:
        return connection.execute(sa.select(schema.way.c.place).where(schema.way.c.name == name)).scalar()


def _storable(one: Read) -> Read:
    refs = {ColumnRef(storable(ref.table), ref.column and storable(ref.column)) for ref in one.refs}
    who = Consumer(one.consumer.kind, storable(one.consumer.namespace), storable(one.consumer.name))
    return Read(consumer=who, refs=tuple(refs), at_ms=one.at_ms, owners=tuple(map(storable, one.owners)), link=storable(one.link))


def _ensured_consumers(connection: Connection, reads: Iterable[Read]) -> dict[Consumer, int]:
    """The numbers of consumers; owners and link are those of the newest read."""
    newest: dict[Consumer, Read] = {}
    for one in reads:
        if one.consumer not in newest or _told(one) > _told(newest[one.consumer]):
            newest[one.consumer] = one
    keys = {digest(who.kind.value, who.namespace, who.name): who for who in newest}
    rows = [{"key": key, "kind": who.kind.value, "namespace": who.namespace, "name": who.name} for key, who in sorted(keys.items())]
    connection.execute(insert_if_absent(connection, schema.consumer), rows)
    found: dict[Consumer, int] = {}
    row = schema.consumer.c
    for some in slices(sorted(keys), MANY):
        query = sa.select(schema.consumer).where(among(connection, row.key, some)).order_by(row.key).with_for_update()
        for kept in connection.execute(query).all():
            who = keys[bytes(kept.key)]
            found[who] = kept.consumer_id
            told = newest[who]
            if _told(told) > (kept.told_ms, list(kept.owners), kept.link):
                values = {"owners": list(told.owners), "link": told.link, "told_ms": told.at_ms}
                connection.execute(sa.update(schema.consumer).where(row.consumer_id == kept.consumer_id).values(**values))
    return found


def _told(one: Read) -> tuple[int, list[str], str]:
    return one.at_ms, list(one.owners), one.link


def _widening(connection: Connection) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that widens the times of rows that are there."""
    row, keys = schema.read.c, list(schema.read.primary_key)
    if connection.dialect.name == "postgresql":
        statement = postgresql.insert(schema.read)
        new = statement.excluded
        times = {"first_ms": sa.func.least(row.first_ms, new.first_ms), "last_ms": sa.func.greatest(row.last_ms, new.last_ms)}
        return statement.on_conflict_do_update(index_elements=keys, set_=times)
    other = sqlite.insert(schema.read)
    times = {"first_ms": sa.func.min(row.first_ms, other.excluded.first_ms), "last_ms": sa.func.max(row.last_ms, other.excluded.last_ms)}
    return other.on_conflict_do_update(index_elements=keys, set_=times)


def _readers(connection: Connection, tables: Sequence[str], since_ms: int | None) -> list[Reader]:
    node = schema.node
    keys = [key_of(ColumnRef(name)) for name in tables]
    datasets = sa.select(node.c.node_id).where(among(connection, node.c.key, keys))
    columns = sa.select(node.c.node_id).where(node.c.dataset_id.in_(datasets))
    query = sa.select(schema.read, schema.consumer).join(schema.consumer, schema.consumer.c.consumer_id == schema.read.c.consumer_id)
    query = query.where(sa.or_(schema.read.c.node_id.in_(datasets), schema.read.c.node_id.in_(columns)))
    if since_ms is not None:
        query = query.where(schema.read.c.last_ms >= since_ms)
    rows = connection.execute(query).all()
    refs = refs_of(connection, {row.node_id for row in rows})
    return [
        Reader(
            consumer=Consumer(ConsumerKind(row.kind), row.namespace, row.name),
            ref=refs[row.node_id],
            first_ms=row.first_ms,
            last_ms=row.last_ms,
            owners=tuple(row.owners),
            link=row.link,
        )
        for row in rows
    ]
