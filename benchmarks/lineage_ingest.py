"""What it costs to take what other programs report: `python -m benchmarks.lineage_ingest [--json]
[--messages 5000]`.

SQL is that of TPC-DS, by the schema of its 24 tables. All columns of a query in one pass stand
beside sqlglot's own lineage, a column at a time, as its documentation shows it. Documents and
events are reported by many tasks over few statements, into SQLite, 500 in a transaction.
"""

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
from deltalake import write_deltalake
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage

from benchmarks._lines import Line, at_least, run_of_messages
from lakechime_dagster.lineage.ingest import LineageIngest
from lakechime_dagster.lineage.sql import statements_of_sql
from lakechime_dagster.lineage.sql_query import SqlSchema
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable
from tests.support.tpcds import queries, tables

DOCUMENTS = 5_000
TASKS = 1_000
EVERY = 4  # queries of TPC-DS, of which one is taken


def measure(documents: int, every: int = EVERY) -> Iterator[Line]:
    """Ratios first, then rates."""
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    yield at_least(
        "TPC-DS: a column at a time / all columns in one pass", _per_column(every), "times", 3
    )
    yield at_least(
        "queries of TPC-DS that were never met",
        _rate(len(_some(every)), lambda: _read_all(every)),
        "/s",
    )
    yield at_least(
        "documents of SQL, one statement for ten tasks",
        _rate(documents, lambda: _take(_documents(documents))),
        "/s",
        500,
    )
    yield at_least(
        "documents of SQL, each a query of a dashboard",
        _rate(documents, lambda: _take(_reads(documents))),
        "/s",
        500,
    )
    yield at_least(
        "run events of OpenLineage, START and COMPLETE",
        _rate(documents, lambda: _take(_events(documents))),
        "/s",
        500,
    )


def _rate(count: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def _some(every: int) -> list[str]:
    return list(queries().values())[::every]


def _read_all(every: int) -> None:
    schema = SqlSchema({name: tuple(columns) for name, columns in tables().items()})
    for query in _some(every):
        statements_of_sql(query, "spark", schema)


def _per_column(every: int) -> float:
    """How many times as long it takes to ask sqlglot for each column of a query."""
    schema = SqlSchema({name: tuple(columns) for name, columns in tables().items()})
    known: dict[str, object] = {name: dict(columns) for name, columns in tables().items()}
    ours = theirs = 0.0
    for query in _some(every):
        started = time.perf_counter()
        (found,) = statements_of_sql(query, "spark", schema)
        took = time.perf_counter() - started
        started = time.perf_counter()
        try:
            for column in found.columns:
                lineage(column.column, query, schema=known, dialect="spark")
        except (SqlglotError, ValueError):  # a column that it calls otherwise
            continue
        theirs += time.perf_counter() - started
        ours += took
    return theirs / ours


def _documents(count: int) -> Iterator[bytes]:
    for number in range(count):
        task = number % TASKS
        query = (
            f"SELECT customer, SUM(amount) AS total, MAX(day) FROM shop.orders WHERE id > {number} "
            f"GROUP BY 1"
        )
        sql = f"INSERT INTO gold.t{task // 10} {query}"
        yield _line(
            producer="airflow",
            task=f"task {task}",
            sql=sql,
            dialect="spark",
            at=number,
            owners=["team:gold"],
        )


def _reads(count: int) -> Iterator[bytes]:
    random = Random(1)
    for number in range(count):
        task, column = number % TASKS, random.choice(("id", "customer", "amount", "day"))
        sql = (
            f"SELECT {column}, COUNT(*) FROM shop.orders o JOIN shop.customers c ON o.customer = "
            f"c.id WHERE c.name = 'n{number}' GROUP BY 1"
        )
        yield _line(
            producer="superset",
            task=f"chart {task}",
            sql=sql,
            dialect="trino",
            at=number,
            dashboard=f"board {task // 5}",
            user="ann",
        )


def _events(count: int) -> Iterator[bytes]:
    for number in range(count):
        run, state = divmod(number, 2)
        fields = {
            name: {
                "inputFields": [
                    {
                        "namespace": "s3://lake",
                        "name": "raw/orders",
                        "field": name,
                        "transformations": [{"type": "DIRECT", "subtype": "IDENTITY"}],
                    }
                ]
            }
            for name in (f"column_{at}" for at in range(20))
        }
        outputs = [
            {
                "namespace": "s3://lake",
                "name": f"gold/t{run % 100}",
                "facets": {"columnLineage": {"fields": fields}},
            }
        ]
        yield _line(
            eventType="COMPLETE" if state else "START",
            eventTime="2026-01-01T00:00:00Z",
            run={"runId": str(run)},
            job={"namespace": "spark", "name": f"job {run % TASKS}"},
            inputs=[{"namespace": "s3://lake", "name": "raw/orders"}],
            outputs=outputs if state else [],
            schemaURL="https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        )


def _line(**document: object) -> bytes:
    return json.dumps(document).encode()


def _take(lines: Iterator[bytes]) -> None:
    columns = {"shop.orders": ("id", "customer", "amount", "day"), "shop.customers": ("id", "name")}
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'dce.sqlite'}"
        platform = open_platform(load_settings(home=Path(folder), store_url=store))
        for table, names in columns.items():
            empty = pa.schema([(name, pa.string()) for name in names]).empty_table()
            write_deltalake(platform.location(table), empty)
        lake = Lake("shop", [SourceTable(table) for table in columns])
        taken = LineageIngest(platform, lake).take_lines(lines, "benchmark")
        platform.store.engine.dispose()
        if taken.refused:
            raise SystemExit(f"{len(taken.refused)} lines were refused: {taken.refused[0]}")


if __name__ == "__main__":
    run_of_messages(__doc__, measure, DOCUMENTS)
