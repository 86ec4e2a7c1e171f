"""Retention of runs that told lineage: what they told stays with since when and until when; runs that only said it again go."""

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.lineage import schema


def expire_runs(engine: Engine, before_ms: int, *, dry_run: bool = False) -> int:
    """Remove the runs before a time that neither began nor ended an interval nor brought another code; how many they are.

    No answer changes by it. A record that comes later, of a run before that time, may be placed less exactly.
    """
    run, interval, earlier = schema.run, schema.interval, schema.run.alias("earlier")
    bounds = sa.or_(interval.c.from_run == run.c.run_key, interval.c.last_run == run.c.run_key)
    is_bound = sa.select(1).where(interval.c.writer_id == run.c.writer_id, bounds).exists()
    has_brought = (
        ~sa.select(1)
        .where(
            earlier.c.writer_id == run.c.writer_id,
            earlier.c.code == run.c.code,
            sa.tuple_(earlier.c.at_ms, earlier.c.run_key) < sa.tuple_(run.c.at_ms, run.c.run_key),
        )
        .exists()
    )
    is_old = sa.and_(run.c.at_ms < before_ms, ~is_bound, sa.or_(run.c.code.is_(None), ~has_brought))
    if dry_run:
        with reading(engine) as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(run).where(is_old)).scalar_one())
    with writing(engine) as connection:
        keys = sa.select(run.c.writer_id, run.c.run_key).where(is_old)
        found = [tuple(row) for row in connection.execute(keys)]
        remove = sa.delete(run).where(run.c.writer_id == sa.bindparam("writer"), run.c.run_key == sa.bindparam("key"))
        if found:
            connection.execute(remove, [{"writer": writer, "key": key} for writer, key in found])
    return len(found)
