"""Small Iceberg tables for tests, written by pyiceberg: a producer that is not our Spark."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, Transform
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestamptzType

from lakechime_dagster.formats.changes import TAGS_KEY

SCHEMA = Schema(
    NestedField(1, "day", DateType()),
    NestedField(2, "id", LongType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "region", StringType()),
)
BY_DAY = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))


def by(transform: Transform, name: str, column: int = 3) -> PartitionSpec:
    """A spec of one field."""
    return PartitionSpec(PartitionField(column, 1000, transform, name))


@dataclass(frozen=True)
class IcebergWorld:
    """The tables of a catalog, by its properties."""

    properties: dict[str, str]

    @classmethod
    def within(cls, folder: Path) -> "IcebergWorld":
        """A catalog of SQLite in a folder."""
        return cls(
            {
                "type": "sql",
                "uri": f"sqlite:///{folder / 'catalog.sqlite'}",
                "warehouse": str(folder / "warehouse"),
            }
        )

    @property
    def catalog(self) -> Catalog:
        return load_catalog("lakechime", **self.properties)

    def fill(self, name: str, rows: pa.Table) -> None:
        """A new table of just these rows, in place of what has the name."""
        self.catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        if self.catalog.table_exists(name):
            self.catalog.drop_table(name)
        self.catalog.create_table(name, rows.schema).append(rows)

    def create(self, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, **more: str) -> Table:
        """A new table `bronze.ice`."""
        self.catalog.create_namespace_if_not_exists("bronze")
        return self.catalog.create_table("bronze.ice", SCHEMA, partition_spec=spec, properties=more)


def rows(*days: int, hour: int = 0, region: str = "eu") -> pa.Table:
    """A row for each of these days of May 2024, at an hour."""
    moments = [dt.datetime(2024, 5, day, hour, tzinfo=dt.timezone.utc) for day in days]
    columns: Mapping[str, Sequence[object]] = {
        "day": [moment.date() for moment in moments],
        "id": list(days),
        "at": moments,
        "region": [region for _ in days],
    }
    return pa.table(dict(columns), schema=SCHEMA.as_arrow())


def tagged(**tags: str) -> dict[str, str]:
    """The properties of a snapshot that bring tags."""
    return {TAGS_KEY: json.dumps(tags)}


def branched(table: Table, name: str) -> None:
    """Make a branch at the current snapshot."""
    current = table.metadata.current_snapshot_id
    assert current is not None
    table.manage_snapshots().create_branch(snapshot_id=current, branch_name=name).commit()
