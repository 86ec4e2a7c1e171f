"""How fast events are registered, against the floor of the engine: `python -m benchmarks.store
[--json] [--seconds 3]`.

Ratios within one run on one machine; every variant writes the same row into the same tables with
the same indexes, in turns, so that a busy machine slows all of them. PostgreSQL is durable here, as
in production.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import Engine, insert
from sqlalchemy.engine.url import make_url

from benchmarks._lines import Line, at_least, show
from lakechime_dagster.dce.engine import open_engine, upgrade
from lakechime_dagster.dce.events import (
    DataChangeEvent,
    Position,
    RegisteredEvent,
    SnapshotId,
    TableUid,
    Tags,
)
from lakechime_dagster.dce.queries import row_of
from lakechime_dagster.dce.schema import dce_event
from lakechime_dagster.dce.store import DCEStore
from tests.support.postgres import find_binaries, started

BATCH = 1000
ROUNDS = 3
SERVER_FILLS = ("seq", "tx_id", "event_ts")
COLUMNS = tuple(column.name for column in dce_event.columns if column.name not in SERVER_FILLS)
Work = Callable[[str, str, float], int]  # URL, table name, seconds → rows


def fresh_event(table: str) -> DataChangeEvent:
    """An event such as capture makes: two levels, two snapshots, two tags."""
    name = str(int.from_bytes(os.urandom(7), "big") + 1)
    return DataChangeEvent(
        table=table,
        partition=("2013-01-01", 5),
        snapshot_id=SnapshotId(name),
        prev_snapshot_id=SnapshotId("0"),
        snapshot_ts=1_700_000_000_000,
        tags=Tags({"complete": "true", "run": name}),
        table_uid=TableUid("0b9ae3e4"),
    )


def raw_row(table: str) -> dict[str, Any]:
    """The row of such an event, as somebody without this package would write it."""
    event = fresh_event(table)
    stored = RegisteredEvent(
        event=event, event_ts=0, position=Position(0, 1), canonical='["2013-01-01",5]'
    )
    row = row_of(stored, 1, event.identity_at(stored.canonical) or b"")
    return {name: row[name] for name in COLUMNS}


def timed(seconds: float, work: Callable[[], int]) -> int:
    """Rows written in so many seconds, after one call that opens the connection and compiles what
    is to be compiled.
    """
    work()
    deadline, rows = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        rows += work()
    return rows


def registering(url: str, table: str, seconds: float) -> int:
    store = DCEStore(open_engine(url))
    store.register([fresh_event(table)])
    return timed(seconds, lambda: len(store.register([fresh_event(table)]).registered))


def registering_bulk(url: str, table: str, seconds: float) -> int:
    store = DCEStore(open_engine(url))
    return timed(
        seconds, lambda: len(store.register([fresh_event(table) for _ in range(BATCH)]).registered)
    )


def sqlalchemy_insert(url: str, table: str, seconds: float) -> int:
    engine = open_engine(url)
    statement = insert(dce_event)

    def one() -> int:
        with engine.begin() as connection:
            connection.execute(statement, raw_row(table))
        return 1

    return timed(seconds, one)


def sqlalchemy_autocommit(url: str, table: str, seconds: float) -> int:
    engine: Engine = open_engine(url).execution_options(isolation_level="AUTOCOMMIT")
    statement = insert(dce_event)

    def one() -> int:
        with engine.connect() as connection:
            connection.execute(statement, raw_row(table))
        return 1

    return timed(seconds, one)


def sqlalchemy_bulk(url: str, table: str, seconds: float) -> int:
    engine = open_engine(url)

    def batch() -> int:
        with engine.begin() as connection:
            connection.execute(insert(dce_event), [raw_row(table) for _ in range(BATCH)])
        return BATCH

    return timed(seconds, batch)


def psycopg_insert(url: str, table: str, seconds: float) -> int:
    names = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    values = sql.SQL(", ").join(map(sql.Placeholder, COLUMNS))
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        statement: Any = (
            sql.SQL("INSERT INTO dce_event ({}) VALUES ({})")
            .format(names, values)
            .as_string(connection)
        )

        def one() -> int:
            row = raw_row(table)
            connection.execute(statement, {**row, "tags": json.dumps(row["tags"])})
            return 1

        return timed(seconds, one)


def psycopg_copy(url: str, table: str, seconds: float) -> int:
    names = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    with psycopg.connect(url, autocommit=True) as connection:
        statement = sql.SQL("COPY dce_event ({}) FROM STDIN").format(names)

        def batch() -> int:
            rows = [raw_row(table) for _ in range(BATCH)]
            with connection.cursor().copy(statement) as copy:
                for row in rows:
                    copy.write_row(
                        [
                            json.dumps(row["tags"]) if name == "tags" else row[name]
                            for name in COLUMNS
                        ]
                    )
            return BATCH

        return timed(seconds, batch)


def _work_in_process(
    work: Work, url: str, table: str, seconds: float, barrier: Any, results: Any
) -> None:
    rows = 0
    barrier.wait()
    try:
        rows = work(url, table, seconds)
    finally:
        results.put(rows)


def rate(work: Work, url: str, writers: int, seconds: float, *, hot: bool = False) -> float:
    """Rows per second of so many processes, each into a table of its own unless `hot`."""
    # every writer opens an engine of its own
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    barrier, results = context.Barrier(writers), context.Queue()
    tables = ["bronze.hot" if hot else f"bronze.t{number}" for number in range(writers)]
    processes = [
        context.Process(target=_work_in_process, args=(work, url, table, seconds, barrier, results))
        for table in tables
    ]
    for process in processes:
        process.start()
    rows = sum(results.get(timeout=seconds + 120) for _ in processes)
    for process in processes:
        process.join()
    return rows / seconds


def compared(
    name: str,
    url: str,
    writers: int,
    seconds: float,
    works: dict[str, Work],
    goals: dict[str, float],
    **how: bool,
) -> list[Line]:
    """The rate of the first of the works, and its ratio to each of the others: the median of the
    rounds.
    """
    rounds = [
        {label: rate(work, url, writers, seconds, **how) for label, work in works.items()}
        for _ in range(ROUNDS)
    ]
    ours, *others = works
    lines = [
        at_least(f"{name}: {label}", statistics.median(one[label] for one in rounds), "rows/s")
        for label in works
    ]
    for other in others:
        ratio = statistics.median(one[ours] / one[other] for one in rounds)
        lines.append(at_least(f"{name}: {ours} / {other}", ratio, "x", goals.get(other)))
    return lines


SINGLE: dict[str, Work] = {
    "register": registering,
    "SQLAlchemy insert": sqlalchemy_insert,
    "SQLAlchemy autocommit": sqlalchemy_autocommit,
    "psycopg insert": psycopg_insert,
}
BULK: dict[str, Work] = {"register 1000": registering_bulk, "COPY 1000": psycopg_copy}
SQLITE_SINGLE: dict[str, Work] = {"register": registering, "SQLAlchemy insert": sqlalchemy_insert}
SQLITE_BULK: dict[str, Work] = {
    "register 1000": registering_bulk,
    "SQLAlchemy insert 1000": sqlalchemy_bulk,
}


def on_postgres(seconds: float) -> Iterator[Line]:
    goals = {"SQLAlchemy insert": 0.85, "psycopg insert": 0.4}
    with started(find_binaries(), durable=True) as server:
        upgrade(open_engine(server))
        url = make_url(server).render_as_string(hide_password=False)
        yield from compared("PostgreSQL, 8 writers", url, 8, seconds, SINGLE, goals)
        yield from compared(
            "PostgreSQL, 8 writers, one table", url, 8, seconds, SINGLE, {}, hot=True
        )
        yield from compared("PostgreSQL, 1 writer", url, 1, seconds, SINGLE, {})
        yield from compared("PostgreSQL, bulk, 1 writer", url, 1, seconds, BULK, {"COPY 1000": 0.3})


def on_sqlite(seconds: float) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'dce.sqlite'}"
        upgrade(open_engine(url))
        yield from compared(
            "SQLite, 8 writers", url, 8, seconds, SQLITE_SINGLE, {"SQLAlchemy insert": 0.85}
        )
        yield from compared("SQLite, bulk, 1 writer", url, 1, seconds, SQLITE_BULK, {})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description="Rates of registration against the floor of the engine."
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each variant in each round")
    options = parser.parse_args()
    show(chain(on_postgres(options.seconds), on_sqlite(options.seconds)), as_json=options.json)


if __name__ == "__main__":
    main()
