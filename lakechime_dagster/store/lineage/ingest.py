"""Taking what other programs tell of their runs: facts of a run add up until it is told that it succeeded, and after."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.lineage.ingest.facts import Fact, Facts, ToldRun, data_sets, reads_of, records_of
from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.record import LineageRecord
from lakechime_dagster.store.dialect import among, insert_if_absent, now_ms
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.lineage import ingest_schema as schema
from lakechime_dagster.store.lineage import schema as lineage_schema
from lakechime_dagster.store.lineage.names import MANY, digest
from lakechime_dagster.store.lineage.reads import keep_reads, note_way
from lakechime_dagster.store.lineage.records import record_all_on
from lakechime_dagster.store.slices import slices

MORE_MS = 7 * 24 * 3_600_000  # so long more may come of a run; what comes of a finished one later changes nothing


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What came of several documents: those that told nothing new, how many targets were told of, and data sets that are not the lake's."""

    documents: int
    repeated: int
    records: int
    reads: int
    outside: tuple[str, ...]


@dataclass(frozen=True)
class SqlIngest:
    """What other programs tell, into a store."""

    engine: Engine

    def take(self, told: Sequence[ToldRun], way: str, names: Names, refused: int = 0, place: str | None = None) -> Taken:
        """Keep what documents tell, all of them or none, what follows from it, and up to where the way was read."""
        with writing(self.engine) as connection:
            return take_on(connection, told, way, names, refused, place)


def take_on(
    connection: Connection, told: Sequence[ToldRun], way: str, names: Names, refused: int = 0, place: str | None = None
) -> Taken:  # fmt: skip
    """The same within an open transaction that writes."""
    lake = {name.casefold() for name in names.tables}
    outside = tuple(sorted({name for one in told for name in data_sets(one.facts) if name.casefold() not in lake}))
    changed, repeated = _added(connection, [one for one in told if not one.is_whole])
    whole = [one for one in told if one.is_whole]
    found = [record for one in (*changed, *whole) for record in records_of(one)]
    records = record_all_on(connection, found, is_told_anew=True) if found else 0
    reads = [read for one in (*changed, *whole) for read in reads_of(one)]
    keep_reads(connection, reads)
    note_way(connection, way, len(told), refused, len(outside), place)
    return Taken(documents=len(told), repeated=repeated, records=records, reads=len(reads), outside=outside)


def key_of_run(run: ToldRun) -> bytes:
    return digest(run.producer.namespace, run.producer.job, run.run_id)


def _added(connection: Connection, told: Sequence[ToldRun]) -> tuple[list[ToldRun], int]:
    """All that is known by now of the runs of which something new is told, and how many told nothing new."""
    if not told:
        return [], 0
    now = now_ms(connection)
    connection.execute(sa.delete(schema.arriving).where(schema.arriving.c.updated_ms < now - MORE_MS))
    keys = sorted({key_of_run(one) for one in told})
    connection.execute(insert_if_absent(connection, schema.arriving), [{"key": key, "facts": [], "updated_ms": now} for key in keys])
    known = _known(connection, keys)
    runs: dict[bytes, ToldRun] = {}
    repeated = 0
    for one in told:
        key = key_of_run(one)
        before = runs[key].facts if key in runs else known[key]
        if one.facts <= before:
            repeated += 1
        elif known[key] or not _stands(connection, one):
            runs[key] = replace(one, facts=before | one.facts)
    update = sa.update(schema.arriving).where(schema.arriving.c.key == sa.bindparam("of")).values(facts=sa.bindparam("all"), updated_ms=now)
    if runs:
        connection.execute(update, [{"of": key, "all": _plain(run.facts)} for key, run in runs.items()])
    return list(runs.values()), repeated


def _known(connection: Connection, keys: Sequence[bytes]) -> dict[bytes, Facts]:
    """What came of these runs before; nobody else adds to them until the transaction ends."""
    found: dict[bytes, Facts] = {}
    row = schema.arriving.c
    for some in slices(keys, MANY):
        query = sa.select(row.key, row.facts).where(among(connection, row.key, some)).order_by(row.key).with_for_update()
        for key, kept in connection.execute(query):
            found[bytes(key)] = frozenset(tuple(fact) for fact in kept)
    return found


def _stands(connection: Connection, run: ToldRun) -> bool:
    """Whether a run of which nothing is kept any more was recorded already: what comes of it now is a part of what was told."""
    keys = [_writer_key(record) for record in records_of(run)]
    if not keys:
        return False
    of_run = sa.and_(lineage_schema.run.c.run_key == digest(run.run_id), among(connection, lineage_schema.writer.c.key, keys))
    joined = lineage_schema.run.join(lineage_schema.writer, lineage_schema.writer.c.writer_id == lineage_schema.run.c.writer_id)
    return connection.execute(sa.select(1).select_from(joined).where(of_run).limit(1)).first() is not None


def _writer_key(record: LineageRecord) -> bytes:
    return digest(record.producer.namespace, record.producer.job, record.target)


def _plain(facts: Facts) -> list[list[str | int | bool | None]]:
    ordered: list[Fact] = sorted(facts, key=str)
    return [list(fact) for fact in ordered]
