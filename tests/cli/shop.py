"""A table that follows a database, its tables written by delta-rs as an execution of Spark leaves
them.
"""

import datetime as dt
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from lakechime_dagster.cdc.change import Change, Operation, Order
from lakechime_dagster.cdc.job import format_of
from lakechime_dagster.cdc.record import Changes, Message, Record, bronze_row
from lakechime_dagster.cdc.spark_remembered import position_row
from lakechime_dagster.cdc.state import COLUMNS, Role, StateRow, change_row
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.cdc import CHANGES, STATE, CDCMerge, CDCTable, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import DELETED_AT
from lakechime_dagster.tables.sources import JsonLines
from tests.cdc.merge.lake import Lake as Merged
from tests.support.cli import Cli
from tests.support.declaring import grouped
from tests.support.iceberg import IcebergWorld
from tests.support.replica import ARROW, BRONZE

NAME = "shop.orders"
KEPT = ("consumer", "number", "execution", "reason", "row")


def orders(**declared: Any) -> CDCTable:
    return cdc_table(
        NAME,
        **grouped(
            **{
                "source": JsonLines("in"),
                "envelope": Debezium(),
                "merge": CDCMerge(keys=("id",)),
                **declared,
            }
        ),
    )


@dataclass
class Shop:
    """The lake of a shop, declared in a module that the command line loads, and what its tables
    hold.
    """

    lakechime: Cli
    table: CDCTable
    merged: Merged = field(default_factory=Merged)
    state: list[StateRow] = field(default_factory=list)

    @classmethod
    def declared(cls, lakechime: Cli, *others: Any, **declared: Any) -> "Shop":
        table = orders(**declared)
        module = ModuleType("shop_lake")
        module.__dict__["lake"] = Lake("shop", [table, *others])
        lakechime.monkeypatch.setitem(sys.modules, "shop_lake", module)
        lakechime.monkeypatch.setenv("LAKECHIME_LAKE", "shop_lake:lake")
        return cls(lakechime, table, Merged(keeps_deleted=table.merge.keeps_deleted))

    def location(self, suffix: str = "") -> str:
        return str(self.lakechime.home / "warehouse" / "shop" / f"orders{suffix}")

    def send(self, *records: Record) -> None:
        """Messages come to the bronze table, and an execution merges them."""
        reader = format_of(self.table.bronze).reader()
        self.write(
            CHANGES,
            [bronze_row(Message(one, list(one.headers.items())), reader) for one in records],
            BRONZE,
        )
        readings = [reading for one in records if isinstance(reading := reader.read(one), Changes)]
        types = {name: ddl for reading in readings for name, ddl in reading.types.items()}
        changes = [change for reading in readings for change in reading.changes]
        before = len(self.merged.state)
        self.merged.execute(changes)
        ends = [
            change_row(change, Role.TRUNCATION)
            for change in changes
            if change.operation is Operation.TRUNCATE
        ]
        self.remember(*self.merged.state[before:], *ends, *_checkpoints(changes))
        columns = {name: {**ARROW, "date": pa.date32()}[ddl] for name, ddl in types.items()}
        ended = {key: end for key, (_, end) in self.merged.kept_rows.items()}
        rows = [
            {
                **row,
                "__cdc": reported.order,
                DELETED_AT: None
                if (end := ended[key]) is None
                else dt.datetime.fromtimestamp(end / 1000, dt.timezone.utc),
            }
            for key, (reported, row) in self.merged.targets.items()
        ]
        kept = [(DELETED_AT, ARROW["timestamp"])] if self.merged.keeps_deleted else []
        schema = pa.schema([*columns.items(), *kept, ("__cdc", pa.string())])
        table = pa.Table.from_pylist(rows, schema=schema)
        if self.table.format is TableFormat.ICEBERG:
            IcebergWorld(load_settings().iceberg_catalog).fill(NAME, table)
        else:
            write_deltalake(self.location(), table, mode="overwrite")

    def remember(self, *rows: StateRow) -> None:
        schema = pa.schema([(name, ARROW[ddl]) for name, ddl in COLUMNS.items()])
        reported = [{"number": 1, **row._asdict()} for row in rows]
        write_deltalake(
            self.location(STATE), pa.Table.from_pylist(reported, schema=schema), mode="append"
        )

    def refuse(self, *texts: tuple[int, str, str]) -> None:
        """Rows of the quarantine: execution, reason, and what was refused as JSON."""
        schema = pa.schema(
            [
                ("consumer", pa.string()),
                ("number", pa.int64()),
                *((name, pa.string()) for name in KEPT[2:]),
            ]
        )
        rows = [("consumer", number, "e1", reason, row) for number, reason, row in texts]
        self.write("__quarantine", rows, schema)

    def write(self, suffix: str, rows: Sequence[Sequence[Any]], schema: pa.Schema) -> None:
        data = pa.Table.from_pylist(
            [dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema
        )
        write_deltalake(self.location(suffix), data, mode="append")


def _checkpoints(changes: Iterable[Change]) -> list[StateRow]:
    """How far the partitions of the sources came."""
    newest: dict[tuple[str, str, int], tuple[Order, int]] = {}
    for change in changes:
        line = change.source, change.order.topic, change.order.partition
        newest[line] = max(
            (change.order, change.event_ms or 0), newest.get(line, (change.order, 0))
        )
    return [
        position_row(
            source, (topic, partition), (order.epoch, order.position), order.offset, at or None
        )
        for (source, topic, partition), (order, at) in newest.items()
    ]


def counted(answer: Any) -> Counter[str]:
    """The roles of what an explanation says is remembered."""
    return Counter(row["role"] for row in answer["remembered"])
