"""What it costs to ask tables for new commits: `python -m benchmarks.capture [--json] [--tables
1000] [--commits 10000] [--partitions 100000] [--hive-partitions 2000]`.

Most tables are idle at most polls. A poll that finds something should cost what is new, not what the
table has: histories and partitions are a hundred times as many in the second measurement. The floor
is what the library takes to open the table. Making 100,000 partitions of a Hive table takes a
metastore ten minutes and more.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from deltalake import DeltaTable
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from benchmarks._lines import Line, at_most, show
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.formats import hive
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from tests.support import iceberg
from tests.support.iceberg import IcebergWorld
from tests.support.metastore import HiveTable, running_metastore
from tests.support.tables import rows, write

ROUNDS = 5
SHORT = 100  # commits that a table has already
FEW = 1_000  # partitions that it has
DAY = iceberg.rows(1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Cost of asking tables for new commits.")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    parser.add_argument("--tables", type=int, default=1_000, help="how many tables are idle")
    parser.add_argument("--commits", type=int, default=10_000, help="of the long history")
    parser.add_argument(
        "--partitions", type=int, default=100_000, help="of the Delta and the Iceberg table"
    )
    parser.add_argument("--hive-partitions", type=int, default=2_000, help="of the Hive table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["LAKECHIME_HOME"] = home
        platform = open_platform()
        lines = itertools.chain(
            idle(platform, options.tables),
            growing(platform, options.commits),
            partitioned(platform, options.partitions),
            listed(Path(home), options.hive_partitions),
        )
        show(lines, as_json=options.json)


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


def growing(platform: Platform, commits: int) -> Iterator[Line]:
    """A poll that finds one commit, of a table with a long history against one with a short."""
    world = IcebergWorld(platform.settings.iceberg_catalog)
    catalog = world.catalog
    catalog.create_namespace_if_not_exists("grown")
    took = dict[tuple[TableFormat, int], float]()
    opened = dict[int, float]()
    for length in (SHORT, commits):
        location = f"{platform.warehouse}/grown/d{length}"
        written(location, length)
        took[TableFormat.DELTA, length] = found(
            platform,
            SourceTable(f"grown.d{length}"),
            lambda location=location: write(location, rows((None, 1, 0, "x"))),
        )
        name = f"grown.i{length}"
        with_history(world, name, length)
        took[TableFormat.ICEBERG, length] = found(
            platform,
            SourceTable(name, storage=Storage(format="iceberg")),
            lambda name=name: catalog.load_table(name).append(DAY),
        )
        opened[length] = min(
            once(lambda name=name: catalog.load_table(name)) for _ in range(ROUNDS)
        )
    for kind in (TableFormat.DELTA, TableFormat.ICEBERG):
        long, short = took[kind, commits], took[kind, SHORT]
        yield at_most(f"poll that finds a commit after {commits:,}, {kind}", long * 1000, "ms")
        yield at_most(f"the same against one after {SHORT}, {kind}", long / short, "x", 5)
    floor = opened[commits]
    poll = took[TableFormat.ICEBERG, commits]
    yield at_most(
        f"the poll after {commits:,} against opening the table, ICEBERG", poll / floor, "x", 2
    )


def partitioned(platform: Platform, count: int) -> Iterator[Line]:
    """A poll that finds one new partition, of a table that has many against one that has few."""
    world = IcebergWorld(platform.settings.iceberg_catalog)
    world.catalog.create_namespace_if_not_exists("many")
    took, dropped = dict[tuple[TableFormat, int], float](), dict[int, float]()
    for partitions in (FEW, count):
        name = f"many.d{partitions}"
        location = platform.location(name)
        written(location, 2, [f"p{number}" for number in range(partitions)])
        numbers = itertools.count()
        took[TableFormat.DELTA, partitions] = found(
            platform,
            SourceTable(name),
            lambda location=location, numbers=numbers: write(
                location, rows((None, 1, 0, f"new {next(numbers)}")), partition_by=["value"]
            ),
        )
        name = f"many.i{partitions}"
        table, declared = with_partitions(world, name, partitions), Storage(format="iceberg")
        regions = itertools.count()
        took[TableFormat.ICEBERG, partitions] = found(
            platform,
            SourceTable(name, storage=declared),
            lambda table=table, regions=regions: table.append(
                iceberg.rows(1, region=f"new {next(regions)}")
            ),
        )
        dropped[partitions] = found(
            platform,
            SourceTable(name, storage=declared),
            lambda table=table, regions=regions: table.delete(f"region = 'p{next(regions):06}'"),
        )
    for kind in (TableFormat.DELTA, TableFormat.ICEBERG):
        many, few = took[kind, count], took[kind, FEW]
        yield at_most(f"poll that finds one of {count:,} partitions, {kind}", many * 1000, "ms")
        yield at_most(f"the same against one of {FEW:,}, {kind}", many / few, "x", 5)
    more, less = dropped[count], dropped[FEW]
    yield at_most(f"poll that finds one of {count:,} dropped, ICEBERG", more * 1000, "ms")
    yield at_most(f"the same against one of {FEW:,}, ICEBERG", more / less, "x", 5)


def listed(home: Path, count: int) -> Iterator[Line]:
    """The same of a Hive table: where the metastore's log names the partition, and where the files
    of all are listed, as they are every five minutes.
    """
    took = dict[tuple[bool, int], float]()
    with running_metastore(home) as metastore:
        os.environ["LAKECHIME_METASTORE"] = metastore.url
        platform = open_platform()
        for partitions in (FEW, count):
            table = HiveTable(metastore, home / str(partitions)).create("day int")
            table.add_many(map(str, range(partitions)))
            declared = SourceTable(table.name, storage=Storage(format="hive"))
            numbers = itertools.count(partitions)
            for are_listed in (False, True):
                hive.WHOLE_LISTING_MS = 0 if are_listed else 3_600_000
                took[are_listed, partitions] = found(
                    platform,
                    declared,
                    lambda table=table, numbers=numbers: table.add(str(next(numbers))),
                )
    named, whole = took[False, count], took[True, count]
    yield at_most(
        f"poll that finds one of {count:,} partitions by the log, HIVE", named * 1000, "ms"
    )
    yield at_most(f"the same against one of {FEW:,}, HIVE", named / took[False, FEW], "x", 5)
    yield at_most(f"poll that lists {count:,} partitions, HIVE", whole, "s")


def written(location: str, commits: int, partitions: Sequence[str] = ()) -> None:
    """A Delta table of so many commits, the second of which has a file in each partition: only its
    log is written, with a checkpoint of most of it.
    """
    write(location, rows((None, 1, 0, "x")), partition_by=["value"] if partitions else None)
    for version in range(1, commits):
        files = partitions if partitions and version == 1 else ("x",)
        lines: list[object] = [{"commitInfo": {"timestamp": version, "operation": "WRITE"}}]
        for number, partition in enumerate(files):
            add = {"path": f"f{version}-{number}.parquet", "size": 1, "modificationTime": 1}
            values = {"value": partition} if partitions else {}
            lines.append({"add": {**add, "partitionValues": values, "dataChange": True}})
        text = "\n".join(json.dumps(one) for one in lines)
        Path(location, "_delta_log", f"{version:020}.json").write_text(text)
    DeltaTable(location).create_checkpoint()


def with_history(world: IcebergWorld, name: str, snapshots: int) -> None:
    """An Iceberg table of so many snapshots, which all have the files of the first."""
    table = world.catalog.create_table(name, iceberg.SCHEMA)
    table.append(DAY)
    location = table.metadata_location
    wire = json.loads(Path(urlsplit(location).path).read_text())
    (first,) = wire["snapshots"]
    for number in range(2, snapshots + 1):
        last = wire["snapshots"][-1]
        own = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": first["timestamp-ms"],
        }
        wire["snapshots"].append({**first, **own, "parent-snapshot-id": last["snapshot-id"]})
        wire["snapshot-log"].append({"snapshot-id": number, "timestamp-ms": first["timestamp-ms"]})
    wire |= {"current-snapshot-id": snapshots, "last-sequence-number": snapshots}
    wire["refs"] = {"main": {"snapshot-id": snapshots, "type": "branch"}}
    longer = location.replace("00001-", "00002-")
    Path(urlsplit(longer).path).write_text(json.dumps(wire))
    world.catalog.drop_table(name)
    world.catalog.register_table(name, longer)


def with_partitions(world: IcebergWorld, name: str, partitions: int) -> Table:
    """An Iceberg table with a file in each of so many partitions, as many to a manifest as a table
    of few has: only its metadata are written.
    """
    spec = iceberg.by(IdentityTransform(), "region", 4)
    table = world.catalog.create_table(name, iceberg.SCHEMA, partition_spec=spec)
    for first in range(0, partitions, FEW):
        with table.transaction() as change, change.update_snapshot().fast_append() as files:
            for number in range(first, first + FEW):
                region = f"p{number:06}"
                files.append_data_file(
                    DataFile.from_args(
                        content=DataFileContent.DATA,
                        file_path=f"{table.location()}/data/{number}.parquet",
                        file_format=FileFormat.PARQUET,
                        partition=Record(region),
                        record_count=1,
                        file_size_in_bytes=1,
                        value_counts={4: 1},
                        null_value_counts={4: 0},
                        lower_bounds={4: region.encode()},
                        upper_bounds={4: region.encode()},
                    )
                )
    return table


def found(platform: Platform, table: SourceTable, change: Callable[[], object]) -> float:
    """Seconds of the quickest of some polls, each after a change."""
    reconcile(platform, [table])
    took = []
    for _ in range(ROUNDS):
        change()
        took.append(once(lambda: reconcile(platform, [table])))
    return min(took)


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
