"""What lies outside of a lake and was used since a time, in a store: so many of those that were used last, and how many there are."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.outside import MOST, ForeignTable, Outside, UsedConsumer, most_lately
from lakechime_dagster.lineage.reads import Consumer, ConsumerKind
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lineage import ingest_schema
from lakechime_dagster.store.lineage import schema as lineage_schema
from lakechime_dagster.store.lineage.names import MANY, key_of
from lakechime_dagster.store.slices import slices

READ, NODE = ingest_schema.read.c, lineage_schema.node.c
INTERVAL, TOLD, INPUT, WRITER = lineage_schema.interval.c, lineage_schema.told.c, lineage_schema.told_input.c, lineage_schema.writer.c
DATASET = sa.func.coalesce(NODE.dataset_id, NODE.node_id)


def outside_of(engine: Engine, lake: Collection[str], deployment: str, since_ms: int, most: int = MOST) -> Outside:
    """What is outside of the tables of a lake. Data sets that runs of ours write are not: they are assets of some code location."""
    with reading(engine) as connection:
        consumers, readers = _consumers(connection, since_ms, most)
        tables, others = _tables(connection, set(lake), deployment, since_ms, most)
        return most_lately(consumers, tables, readers + others, most)


def _consumers(connection: Connection, since_ms: int, most: int) -> tuple[list[UsedConsumer], int]:
    """Who read since then, the last one first, and how many did."""
    last = sa.func.max(READ.last_ms).label("last_ms")
    used = sa.select(READ.consumer_id, last).where(READ.last_ms >= since_ms).group_by(READ.consumer_id).subquery()
    total = connection.execute(sa.select(sa.func.count()).select_from(used)).scalar_one()
    query = (
        sa.select(ingest_schema.consumer, used.c.last_ms)
        .join(used, used.c.consumer_id == ingest_schema.consumer.c.consumer_id)
        .order_by(used.c.last_ms.desc(), used.c.consumer_id)
        .limit(most)
    )
    rows = connection.execute(query).all()
    of = sa.select(READ.consumer_id, DATASET).join_from(ingest_schema.read, lineage_schema.node, NODE.node_id == READ.node_id).distinct()
    pairs = _pairs(connection, of.where(READ.last_ms >= since_ms), READ.consumer_id, [row.consumer_id for row in rows])
    return [
        UsedConsumer(
            consumer=Consumer(ConsumerKind(row.kind), row.namespace, row.name), tables=pairs.get(row.consumer_id, ()),
            last_ms=row.last_ms, owners=tuple(row.owners), link=row.link,
        )
        for row in rows
    ], total  # fmt: skip


def _tables(
    connection: Connection, lake: set[str], deployment: str, since_ms: int, most: int
) -> tuple[list[ForeignTable], int]:  # fmt: skip
    """The data sets of which was told since then that they are written elsewhere, or that they are read, and how many there are."""
    ours = sa.or_(
        WRITER.namespace == deployment,
        sa.exists().where(lineage_schema.run.c.writer_id == WRITER.writer_id, lineage_schema.run.c.lane.isnot(None)),
    )
    holds = sa.and_(INTERVAL.to_ms.is_(None), INTERVAL.last_ms >= since_ms)
    written = sa.select(WRITER.target_id.label("node_id"), INTERVAL.last_ms).join_from(
        lineage_schema.interval, lineage_schema.writer, WRITER.writer_id == INTERVAL.writer_id
    )
    given = sa.select(INPUT.source_id.label("node_id"), INTERVAL.last_ms).join_from(
        lineage_schema.interval, lineage_schema.told_input, INPUT.told_id == INTERVAL.told_id
    )
    both = sa.union_all(written.where(holds, ~ours), given.where(holds)).subquery()
    by_us = sa.select(WRITER.target_id).where(ours)
    used = sa.select(both.c.node_id, sa.func.max(both.c.last_ms).label("last_ms")).where(both.c.node_id.not_in(by_us))
    used = used.group_by(both.c.node_id).subquery()
    query = sa.select(NODE.node_id, NODE.name, used.c.last_ms).join_from(used, lineage_schema.node, NODE.node_id == used.c.node_id)
    rows = connection.execute(query.order_by(used.c.last_ms.desc(), used.c.node_id).limit(most + len(lake))).all()
    found = [row for row in rows if row.name not in lake][:most]
    total = connection.execute(sa.select(sa.func.count()).select_from(used)).scalar_one()
    keys = [key_of(ColumnRef(name)) for name in sorted(lake)]
    known = sa.select(sa.func.count()).join_from(used, lineage_schema.node, NODE.node_id == used.c.node_id)
    total -= sum(connection.execute(known.where(among(connection, NODE.key, some))).scalar_one() for some in slices(keys, MANY))
    return _described(connection, found, sa.and_(holds, ~ours), holds), total


def _described(
    connection: Connection, found: Sequence[sa.Row[Any]], elsewhere: sa.ColumnElement[bool], holds: sa.ColumnElement[bool]
) -> list[ForeignTable]:  # fmt: skip
    """Data sets with what they are written from elsewhere, what is written from them, and whose they are."""
    numbers = [row.node_id for row in found]
    into = sa.select(WRITER.target_id, INPUT.source_id).join_from(
        lineage_schema.interval, lineage_schema.writer, WRITER.writer_id == INTERVAL.writer_id
    )
    into = into.join(lineage_schema.told_input, INPUT.told_id == INTERVAL.told_id)
    inputs = _pairs(connection, into.where(elsewhere), WRITER.target_id, numbers)
    out = sa.select(INPUT.source_id, TOLD.target_id).join_from(
        lineage_schema.interval, lineage_schema.told, TOLD.told_id == INTERVAL.told_id
    )
    out = out.join(lineage_schema.told_input, INPUT.told_id == INTERVAL.told_id)
    readers = _pairs(connection, out.where(holds), INPUT.source_id, numbers)
    owners: dict[int, list[str]] = {}
    for some in slices(numbers, MANY):
        for row in connection.execute(sa.select(WRITER.target_id, WRITER.owners).where(among(connection, WRITER.target_id, some))):
            owners.setdefault(row.target_id, []).extend(row.owners)
    return [
        ForeignTable(
            table=row.name, last_ms=row.last_ms, inputs=inputs.get(row.node_id, ()), readers=readers.get(row.node_id, ()),
            owners=tuple(sorted(set(owners.get(row.node_id, ())))),
        )
        for row in found
    ]  # fmt: skip


def _pairs(connection: Connection, query: sa.Select[Any], number: sa.Column[Any], numbers: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """By a number the names of the data sets beside it; the query tells a number and that of a data set."""
    pairs: dict[int, set[int]] = {}
    for some in slices(list(numbers), MANY):
        for one, dataset in connection.execute(query.where(among(connection, number, some))):
            pairs.setdefault(one, set()).add(dataset)
    names: dict[int, str] = {}
    for some in slices(sorted({dataset for several in pairs.values() for dataset in several}), MANY):
        names |= dict(connection.execute(sa.select(NODE.node_id, NODE.name).where(among(connection, NODE.node_id, some))).tuples().all())
    return {one: tuple(sorted(names[dataset] for dataset in several)) for one, several in pairs.items()}
