"""When runs told of data sets, first and last, and who they were."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.facts import TableFacts
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lineage import schema
from lakechime_dagster.store.lineage.names import MANY, key_of
from lakechime_dagster.store.slices import slices


def recorded_since(engine: Engine) -> int | None:
    """When the first run that is recorded succeeded, in milliseconds; None before any did."""
    with reading(engine) as connection:
        return connection.execute(sa.select(sa.func.min(schema.interval.c.from_ms))).scalar()


def facts_of(engine: Engine, tables: Collection[str]) -> dict[str, TableFacts]:
    """What is recorded of the writers of data sets; nothing of one that no run wrote."""
    interval, writer, told = schema.interval.c, schema.writer.c, schema.told.c
    query = (
        sa.select(
            schema.node.c.name, writer.writer_id, writer.namespace, writer.job, writer.owners, writer.links,
            sa.func.min(interval.from_ms).label("since_ms"), sa.func.max(interval.last_ms).label("last_ms"),
        )
        .join_from(schema.node, schema.told, told.target_id == schema.node.c.node_id)  # these ways have indexes, from writers none has
        .join(schema.interval, interval.told_id == told.told_id)
        .join(schema.writer, writer.writer_id == interval.writer_id)
        .group_by(writer.writer_id, schema.node.c.name)
        .order_by(writer.namespace, writer.job)
    )  # fmt: skip
    found: dict[str, TableFacts] = {}
    names = sorted(set(tables))
    with reading(engine) as connection:
        for some in slices(names, MANY):
            keys = [key_of(ColumnRef(name)) for name in some]
            for row in connection.execute(query.where(among(connection, schema.node.c.key, keys))):
                one = TableFacts(
                    owners=tuple(row.owners), jobs=(f"{row.namespace}/{row.job}",), links=row.links, since_ms=row.since_ms,
                    last_ms=row.last_ms,
                )  # fmt: skip
                found[row.name] = found[row.name].joined(one) if row.name in found else one
    return found
