"""Since which version of a table its rows are by the code of now: earlier ones that nobody made anew are by older code."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.record import Producer
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lineage import schema
from lakechime_dagster.store.lineage.names import key_of


@dataclass(frozen=True, kw_only=True)
class CodeSince:
    """The first commit by a code, of a table that has rows by another one: its version, and when, in milliseconds."""

    version: str
    at_ms: int


def code_since(engine: Engine, producer: Producer, target: str, code: str) -> CodeSince | None:
    """Since when a producer's runs are by this code; None where all of those that count were, or none is."""
    run, mine = schema.run.c, schema.run.c.writer_id == _writer(producer, target)
    with reading(engine) as connection:
        other = connection.execute(sa.select(sa.func.max(run.at_ms)).where(mine, run.code.is_not(None), run.code != code)).scalar()
        if other is None:
            return None
        first = sa.select(run.version, run.at_ms).where(mine, run.code == code, run.at_ms > other).order_by(run.at_ms).limit(1)
        row = connection.execute(first).first()
    return None if row is None or row.version is None else CodeSince(version=row.version, at_ms=row.at_ms)


def forget_code_on(connection: Connection, producer: Producer, target: str, before_ms: int) -> None:
    """Let the codes of a producer's runs before a moment count no more, as no row of theirs is left; in a transaction that writes."""
    run = schema.run.c
    mine = sa.and_(run.writer_id == _writer(producer, target), run.at_ms < before_ms, run.code.is_not(None))
    connection.execute(sa.update(schema.run).where(mine).values(code=None))


def _writer(producer: Producer, target: str) -> sa.ScalarSelect[int]:
    writer, node = schema.writer.c, schema.node.c
    query = sa.select(writer.writer_id).join(schema.node, node.node_id == writer.target_id)
    is_it = (writer.namespace == producer.namespace, writer.job == producer.job, node.key == key_of(ColumnRef(target)))
    return query.where(*is_it).scalar_subquery()
