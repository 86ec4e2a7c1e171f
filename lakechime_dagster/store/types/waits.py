"""Which types of a group wait for a table, as the newest step of each told it."""

from dataclasses import dataclass

import sqlalchemy as sa

from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.types import schema
from lakechime_dagster.store.types.repository import SqlEventTypes


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Why the events of a type stay in the stream's table, and how many of them."""

    reason: str
    rows: int


def waits(types: SqlEventTypes, group: str) -> dict[str, Waits]:
    """The types of a group for which the newest settled step wrote nothing for a reason, by name."""
    steps, kinds = schema.type_step.c, schema.event_type.c
    newest_first = (steps.settled_ts.desc(), steps.end_version.desc(), steps.execution_id.desc())
    ranked = (
        sa.select(kinds.type, steps.waits, steps.pending)
        .add_columns(sa.func.row_number().over(partition_by=steps.type_id, order_by=newest_first).label("rank"))
        .join_from(schema.type_step, schema.event_type)
        .where(kinds.deployment == types.deployment, kinds.group_name == group)
        .subquery()
    )
    query = sa.select(ranked.c.type, ranked.c.waits, ranked.c.pending).where(ranked.c.rank == 1, ranked.c.waits != "")
    with reading(types.engine) as connection:
        return {row.type: Waits(reason=row.waits, rows=row.pending) for row in connection.execute(query.order_by(ranked.c.type))}
