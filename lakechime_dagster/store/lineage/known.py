"""Which data sets and columns recorded lineage knows by name."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lineage import schema
from lakechime_dagster.store.lineage.names import key_of


def known_tables(engine: Engine, names: Collection[str] | None = None) -> set[str]:
    """The data sets that are recorded, all of them or those among few names."""
    row = schema.node.c
    query = sa.select(row.name).where(row.dataset_id.is_(None))
    with reading(engine) as connection:
        if names is not None:
            query = query.where(among(connection, row.key, [key_of(ColumnRef(name)) for name in names]))
        return set(connection.execute(query).scalars())


def known_columns(engine: Engine, table: str) -> set[str]:
    """The columns of a data set that are recorded."""
    row, dataset = schema.node.c, schema.node.alias("dataset")
    query = sa.select(row.name).join_from(schema.node, dataset, dataset.c.node_id == row.dataset_id)
    with reading(engine) as connection:
        return set(connection.execute(query.where(dataset.c.key == key_of(ColumnRef(table)))).scalars())
