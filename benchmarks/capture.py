"""What it costs to ask tables for new commits: `python benchmarks/capture.py [--json] [--tables
1000]`.

Most tables are idle at most polls. A poll that finds something costs what is new, not what the
table has: the history is forty times as long in the second measurement. The floor is what the
library takes to open the table.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from deltalake import DeltaTable
from pyiceberg.table import Table

from benchmarks._lines import Line, at_most, show
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from tests.support import iceberg
from tests.support.iceberg import IcebergWorld
from tests.support.tables import rows, write

ROUNDS = 5
SHORT, LONG = 5, 200  # commits that a table has already
DAY = iceberg.rows(1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Cost of asking tables for new commits.")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    parser.add_argument("--tables", type=int, default=1_000, help="how many tables are idle")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["LAKECHIME_HOME"] = home
        platform = open_platform()
        show([*idle(platform, options.tables), *growing(platform)], as_json=options.json)


def idle(platform: Platform, count: int) -> Iterator[Line]:
    """A poll of many tables in which nothing happened, against opening each."""
    catalog = IcebergWorld(platform.settings.iceberg_catalog).catalog
    catalog.create_namespace_if_not_exists("ice")
    for number in range(count):
        write(f"{platform.warehouse}/delta/t{number}", rows((None, 1, number, "x")))
        catalog.create_table(f"ice.t{number}", iceberg.SCHEMA).append(DAY)
    for kind, opened in (
        (TableFormat.DELTA, lambda name: DeltaTable(platform.location(name)).version()),
        (TableFormat.ICEBERG, lambda name: catalog.load_table(name).current_snapshot()),
    ):
        schema = "delta" if kind is TableFormat.DELTA else "ice"
        tables = [
            SourceTable(f"{schema}.t{number}", storage=Storage(format=kind))
            for number in range(count)
        ]
        reconcile(platform, tables)
        polled = timed(lambda tables=tables: reconcile(platform, tables))
        floor = timed(lambda tables=tables, opened=opened: [opened(one.name) for one in tables])
        yield at_most(f"poll of {count:,} idle tables, {kind}", polled, "s")
        yield at_most(f"the same against opening each table, {kind}", polled / floor, "x", 2)


def growing(platform: Platform) -> Iterator[Line]:
    """A poll that finds one commit, of a table with a long history against one with a short."""
    world = IcebergWorld(platform.settings.iceberg_catalog)
    world.catalog.create_namespace_if_not_exists("grown")
    took = dict[tuple[TableFormat, int], float]()
    for length in (SHORT, LONG):
        table = world.catalog.create_table(f"grown.i{length}", iceberg.SCHEMA)
        location = f"{platform.warehouse}/grown/d{length}"
        for number in range(length):
            table.append(DAY)
            write(location, rows((None, 1, number, "x")))
        took[TableFormat.ICEBERG, length] = found(
            platform,
            SourceTable(
                table.name()[-2] + "." + table.name()[-1], storage=Storage(format="iceberg")
            ),
            lambda table=table: appended(table),
        )
        took[TableFormat.DELTA, length] = found(
            platform,
            SourceTable(f"grown.d{length}"),
            lambda location=location: write(location, rows((None, 1, 0, "x"))),
        )
    for kind in (TableFormat.DELTA, TableFormat.ICEBERG):
        long, short = took[kind, LONG], took[kind, SHORT]
        yield at_most(f"poll that finds a commit after {LONG:,}, {kind}", long * 1000, "ms")
        yield at_most(f"the same against one after {SHORT}, {kind}", long / short, "x", 5)


def appended(table: Table) -> None:
    """One more snapshot."""
    table.append(DAY)


def found(platform: Platform, table: SourceTable, change: Callable[[], object]) -> float:
    """Median seconds of a poll after a change."""
    reconcile(platform, [table])
    took = []
    for _ in range(ROUNDS):
        change()
        took.append(once(lambda: reconcile(platform, [table])))
    return statistics.median(took)


def timed(work: Callable[[], object]) -> float:
    """Median seconds of several rounds."""
    return statistics.median(once(work) for _ in range(ROUNDS))


def once(work: Callable[[], object]) -> float:
    """Seconds of one round."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
