"""Which jobs write and read which data sets, as runs told it."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.lineage.graph.jobs import Job
from lakechime_dagster.lineage.reads import ConsumerKind
from lakechime_dagster.lineage.record import Producer
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lineage import ingest_schema, schema
from lakechime_dagster.store.lineage.standing import hold

TARGET, SOURCE = schema.node.alias("target"), schema.node.alias("source")
Told = tuple[Producer, str | None, str | None, tuple[str, ...]]  # a data set that is written, one that is read, owners


def jobs_at(engine: Engine, at_ms: int | None = None) -> list[Job]:
    """The jobs of which runs told, now or at a time in milliseconds, and those elsewhere that were told only to read, at any time."""
    with reading(engine) as connection:
        return _jobs([*_writers(connection, at_ms), *_readers(connection)])


def _writers(connection: Connection, at_ms: int | None) -> Iterable[Told]:
    interval, writer, given = schema.interval.c, schema.writer.c, schema.told_input.c
    query = (
        sa.select(writer.namespace, writer.job, writer.owners, TARGET.c.name.label("target"), SOURCE.c.name.label("source"))
        .join_from(schema.interval, schema.writer, writer.writer_id == interval.writer_id)
        .join(TARGET, TARGET.c.node_id == writer.target_id)
        .outerjoin(schema.told_input, given.told_id == interval.told_id)
        .outerjoin(SOURCE, SOURCE.c.node_id == given.source_id)
        .where(hold(at_ms))
    )
    for row in connection.execute(query):
        yield Producer(namespace=row.namespace, job=row.job), row.target, row.source, tuple(row.owners)


def _readers(connection: Connection) -> Iterable[Told]:
    read, consumer, node = ingest_schema.read.c, ingest_schema.consumer.c, schema.node.c
    dataset = sa.func.coalesce(node.dataset_id, node.node_id).label("dataset_id")
    pairs = (
        sa.select(read.consumer_id, dataset).distinct().join_from(ingest_schema.read, schema.node, node.node_id == read.node_id).subquery()
    )
    query = (
        sa.select(consumer.namespace, consumer.name, consumer.owners, SOURCE.c.name.label("source"))
        .join_from(pairs, ingest_schema.consumer, consumer.consumer_id == pairs.c.consumer_id)
        .join(SOURCE, SOURCE.c.node_id == pairs.c.dataset_id)
        .where(consumer.kind == ConsumerKind.JOB.value)
    )
    for row in connection.execute(query):
        yield Producer(namespace=row.namespace, job=row.name), None, row.source, tuple(row.owners)


def _jobs(told: Iterable[Told]) -> list[Job]:
    found: dict[Producer, tuple[set[str], set[str], set[str]]] = {}
    for producer, target, source, owners in told:
        writes, reads, owned = found.setdefault(producer, (set(), set(), set()))
        writes |= {target} if target is not None else set()
        reads |= {source} if source is not None else set()
        owned |= set(owners)
    return [
        Job(producer=one, writes=tuple(sorted(writes)), reads=tuple(sorted(reads)), owners=tuple(sorted(owned)))
        for one, (writes, reads, owned) in found.items()
    ]
