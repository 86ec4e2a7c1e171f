"""Plain functions over Arrow's batches, computed by Spark's workers or here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakechime_dagster.spark.ddl import arrow_of, struct_of

Batches = Iterator[pa.RecordBatch]
OnBatches = Callable[[Batches], Batches]

CHUNK = 10_000  # rows of a batch that is sent back
MOST = 50_000  # rows that are brought here at a time


class Computing(Protocol):
    """Where functions over batches are computed, and where frames that are asked for twice are kept until it is closed.

    `confs` are the settings under which its frames are best asked for.
    """

    @property
    def confs(self) -> Mapping[str, str]: ...

    @property
    def workers(self) -> "InWorkers":
        """What computes rows that are many."""
        ...

    def on_batches(self, rows: DataFrame, function: OnBatches, ddl: str, *, by: str | None = None, keep: bool = True) -> DataFrame:
        """The rows that a function makes of these; `by` names the column whose equal values come one after another.

        They are kept, unless they are asked for only once.
        """
        ...

    def keep(self, frame: DataFrame) -> DataFrame:
        """The same rows, which are not computed again."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class InWorkers:
    """By Spark's workers; frames are kept in the memory and on the disks of its executors."""

    held: ExitStack = field(default_factory=ExitStack)

    @property
    def confs(self) -> Mapping[str, str]:
        return {}

    @property
    def workers(self) -> "InWorkers":
        return self

    def on_batches(self, rows: DataFrame, function: OnBatches, ddl: str, *, by: str | None = None, keep: bool = True) -> DataFrame:
        found = on_batches(rows if by is None else rows.repartition(by).sortWithinPartitions(by), function, ddl)
        return self.keep(found) if keep else found

    def keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.held.callback(kept.unpersist)
        return kept

    def close(self) -> None:
        self.held.close()


@dataclass(frozen=True)
class Here:
    """In this process, where rows are few: each frame is data of the plans that read it, which then start few jobs or none.

    Nor are there plans that Spark keeps: it would make each one anew that reads a table to which a step commits. Rows that
    turn out to be more than `MOST` are left to the workers.
    """

    spark: SparkSession
    workers: InWorkers = field(default_factory=InWorkers)

    @property
    def confs(self) -> Mapping[str, str]:
        """No stage is planned anew, and so is a job of its own, by how little the last one gave."""
        return {"spark.sql.adaptive.enabled": "false"}

    def on_batches(self, rows: DataFrame, function: OnBatches, ddl: str, *, by: str | None = None, keep: bool = True) -> DataFrame:
        table = _brought(rows)
        if table is None:
            return self.workers.on_batches(rows, function, ddl, by=by, keep=keep)
        in_order = table if by is None or not table.num_rows else table.sort_by(by)
        batches = in_order.to_batches(max_chunksize=CHUNK)
        return self._data(pa.Table.from_batches(function(iter(batches)), arrow_of(ddl)), struct_of(ddl))

    def keep(self, frame: DataFrame) -> DataFrame:
        table = _brought(frame)
        return self.workers.keep(frame) if table is None else self._data(table, frame.schema)

    def close(self) -> None:
        self.workers.close()

    def _data(self, table: pa.Table, schema: StructType) -> DataFrame:
        """Rows as data of a plan; pyspark takes no columns without a chunk."""
        nothing = pa.RecordBatch.from_pylist([], table.schema)
        return self.spark.createDataFrame(table if table.num_rows else pa.Table.from_batches([nothing]), schema)


def _brought(frame: DataFrame) -> pa.Table | None:
    """The rows of a frame; None where they are more than `MOST`."""
    table = frame.limit(MOST + 1).toArrow()
    return table if table.num_rows <= MOST else None


def on_batches(rows: DataFrame, function: OnBatches, ddl: str) -> DataFrame:
    """The rows that a plain function over Arrow's batches makes of these, in Spark's workers."""
    return rows.mapInArrow(function, ddl)  # type: ignore[arg-type]


def rows_of(batches: Batches) -> Iterator[tuple[Any, ...]]:
    """The rows of batches, one after another."""
    for batch in batches:
        yield from zip(*[column.to_pylist() for column in batch.columns], strict=True)


def record_batches(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> Batches:
    """Rows as batches of a schema."""
    for start in range(0, len(rows), CHUNK):
        columns = zip(*rows[start : start + CHUNK], strict=True)
        arrays = [pa.array(list(values), schema.field(i).type) for i, values in enumerate(columns)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
