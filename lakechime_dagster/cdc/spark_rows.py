"""Rows of an execution: on Spark's workers, or collected where they are few."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakechime_dagster.spark.ranges import pinned
from lakechime_dagster.spark.session import (
    CHUNK,
    OnBatches,
    arrow_of,
    ddl_of,
    on_batches,
    record_batches,
    rows_of,
    struct_of,
)

if TYPE_CHECKING:
    from lakechime_dagster.formats.delta import DeltaLog

MOST = 50_000  # rows that are brought here at a time
_compute: Any = pc
Holds = Mapping[str, Collection[str] | None]  # by column some values; None stands for any but null


@dataclass(frozen=True)
class InWorkers:
    """Computes functions over rows by Spark's workers, and keeps rows that are asked for twice until
    it is closed, in the memory and on the disks of its executors.
    """

    spark: SparkSession
    held: ExitStack = field(default_factory=ExitStack)

    @property
    def confs(self) -> Mapping[str, str]:
        """The settings under which frames are best asked for."""
        return {}

    @property
    def workers(self) -> "InWorkers":
        """What computes rows that are many."""
        return self

    def rows(self, frame: DataFrame, *, are_few: bool = False) -> "Rows":
        """The rows of a frame, of which it may be known that they are few."""
        return Spread(frame, self)

    def made(self, rows: Sequence[tuple[Any, ...]], ddl: str) -> "Rows":
        """Rows of plain values."""
        return Spread(self.spark.createDataFrame(list(rows), struct_of(ddl)), self)

    def of_version(self, log: "DeltaLog", version: int, ddl: str) -> "Rows":
        """All rows of a version of a table, which has these columns."""
        return Spread(pinned(self.spark, log.location, version), self).shaped(ddl)

    def near(self, rows: "Rows") -> "Rows":
        """The same rows where these functions are computed, if they are not too many."""
        return rows

    def close(self) -> None:
        self.held.close()


@dataclass(frozen=True)
class Here:
    """In this process, where rows are few: Spark is asked for those that lie in tables, and for
    nothing more.

    Nor does it keep plans: it would plan each one again that reads a table to which an execution
    commits. Rows that turn out to be more than `MOST` are left to the workers.
    """

    workers: InWorkers

    @property
    def confs(self) -> Mapping[str, str]:
        """No stage is planned again as a job of its own, by how little the last one gave."""
        return {"spark.sql.adaptive.enabled": "false"}

    def rows(self, frame: DataFrame, *, are_few: bool = False) -> "Rows":
        """Where it is not known, a limit looks at one part of the frame after another."""
        table = (frame if are_few else frame.limit(MOST + 1)).toArrow()
        # as rows have it that functions made
        table = table.cast(pa.schema([one.with_nullable(True) for one in table.schema]))
        return (
            Brought(table, frame.schema, self)
            if table.num_rows <= MOST
            else Spread(frame, self.workers)
        )

    def made(self, rows: Sequence[tuple[Any, ...]], ddl: str) -> "Rows":
        return Brought(
            pa.Table.from_batches(record_batches(rows, arrow_of(ddl)), arrow_of(ddl)),
            struct_of(ddl),
            self,
        )

    def of_version(self, log: "DeltaLog", version: int, ddl: str) -> "Rows":
        """Few rows are read without Spark, where the table has nothing that only Spark reads."""
        table = log.rows(version)
        if table is None:
            return self.rows(self.workers.of_version(log, version, ddl).frame, are_few=True)
        return Brought(table, struct_of(ddl), self).shaped(ddl)

    def near(self, rows: "Rows") -> "Rows":
        return self.rows(rows.frame) if isinstance(rows, Spread) else rows

    def close(self) -> None:
        self.workers.close()


@dataclass(frozen=True)
class Spread:
    """Rows of named columns, in no order: those of a frame."""

    frame: DataFrame
    workers: InWorkers

    @property
    def are_here(self) -> bool:
        """Whether they are data of plans that read their frame, which is the same whenever it is
        asked for.
        """
        return False

    def where(self, holds: Holds) -> "Rows":
        """Those of which any of these columns holds what is said."""
        conditions = [
            F.col(name).isNotNull() if values is None else F.col(name).isin(*values)
            for name, values in holds.items()
        ]
        return replace(self, frame=self.frame.where(reduce(lambda a, b: a | b, conditions)))

    def shaped(
        self,
        ddl: str,
        names: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> "Rows":
        """With the columns of a list: each from the one that `names` gives for it, else its own, a
        value, or null.
        """
        names, values = names or {}, values or {}

        def column(name: str) -> Any:
            there = names.get(name, name)
            return (
                F.col(there)
                if there in self.frame.columns and name not in values
                else F.lit(values.get(name))
            )

        return replace(
            self,
            frame=self.frame.select(
                *[column(one.name).cast(one.dataType).alias(one.name) for one in struct_of(ddl)]
            ),
        )

    def translated(self, name: str, values: Mapping[str, str]) -> "Rows":
        """With other values in a column where the map has one for its value."""
        table = self.frame.sparkSession.createDataFrame(
            list(values.items()), ddl_of({name: "string", "__other": "string"})
        )
        other = F.coalesce("__other", name).alias(name)
        joined = self.frame.join(F.broadcast(table), name, "left")
        return replace(
            self,
            frame=joined.select(
                *[other if one == name else F.col(one) for one in self.frame.columns]
            ),
        )

    def distinct(self, name: str) -> "Rows":
        """The values of a column, each once."""
        return replace(self, frame=self.frame.select(name).distinct())

    def among(self, name: str, others: "Rows") -> "Rows":
        """Those whose value in a column is one that others have there."""
        return replace(
            self,
            frame=self.frame.join(others.frame.select(name), name, "left_semi").select(
                *self.frame.columns
            ),
        )

    def union(self, others: "Rows") -> "Rows":
        return replace(self, frame=self.frame.unionByName(others.frame))

    def on_batches(
        self, function: OnBatches, ddl: str, *, by: str | None = None, keep: bool = True
    ) -> "Rows":
        """The rows that a function makes of these; `by` names the column whose equal values come
        one after another.

        They are kept, unless they are asked for only once.
        """
        rows = self.frame if by is None else self.frame.repartition(by).sortWithinPartitions(by)
        found = replace(self, frame=on_batches(rows, function, ddl))
        return found.kept() if keep else found

    def kept(self) -> "Rows":
        """The same, which are not computed again."""
        kept = self.frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.workers.held.callback(kept.unpersist)
        return replace(self, frame=kept)

    def tuples(self, *names: str) -> list[tuple[Any, ...]]:
        """The values of these columns."""
        return [tuple(row) for row in self.frame.select(*names).collect()]


@dataclass(frozen=True)
class Brought:
    """The same of rows that are in this process."""

    table: pa.Table
    schema: StructType
    here: Here

    @property
    def are_here(self) -> bool:
        return True

    @property
    def frame(self) -> DataFrame:
        """As data of the plans that read it; pyspark takes no columns without a chunk."""
        nothing = pa.RecordBatch.from_pylist([], self.table.schema)
        return self.here.workers.spark.createDataFrame(
            self.table if self.table.num_rows else pa.Table.from_batches([nothing]), self.schema
        )

    def where(self, holds: Holds) -> "Rows":
        columns = [(self.table[name], values) for name, values in holds.items()]
        masks = [
            _compute.is_valid(one)
            if values is None
            else _compute.is_in(one, pa.array(values, one.type))
            for one, values in columns
        ]
        return replace(self, table=self.table.filter(reduce(_compute.or_, masks)))

    def shaped(
        self,
        ddl: str,
        names: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> "Rows":
        names, values, schema = names or {}, values or {}, arrow_of(ddl)

        def column(one: pa.Field) -> Any:
            there = names.get(one.name, one.name)
            if there in self.table.column_names and one.name not in values:
                return self.table[there].cast(one.type)
            return pa.repeat(pa.scalar(values.get(one.name), one.type), self.table.num_rows)

        return replace(
            self,
            table=pa.table([column(one) for one in schema], schema=schema),
            schema=struct_of(ddl),
        )

    def translated(self, name: str, values: Mapping[str, str]) -> "Rows":
        index, now = self.table.schema.get_field_index(name), self.table[name]
        there = pa.array([values.get(one, one) for one in now.to_pylist()], now.type)
        return replace(
            self, table=self.table.set_column(index, self.table.schema.field(index), there)
        )

    def distinct(self, name: str) -> "Rows":
        found = pa.table(
            [self.table[name].unique()], schema=pa.schema([self.table.schema.field(name)])
        )
        return replace(self, table=found, schema=StructType([self.schema[name]]))

    def among(self, name: str, others: "Rows") -> "Rows":
        if not isinstance(others, Brought):
            return self._spread.among(name, others)
        return replace(
            self,
            table=self.table.filter(
                _compute.is_in(self.table[name], others.table[name].combine_chunks())
            ),
        )

    def union(self, others: "Rows") -> "Rows":
        if not isinstance(others, Brought):
            return self._spread.union(others)
        return replace(
            self, table=pa.concat_tables([self.table, others.table.select(self.table.column_names)])
        )

    def on_batches(
        self, function: OnBatches, ddl: str, *, by: str | None = None, keep: bool = True
    ) -> "Rows":
        in_order = self.table if by is None or not self.table.num_rows else self.table.sort_by(by)
        batches = in_order.to_batches(max_chunksize=CHUNK)
        return replace(
            self,
            table=pa.Table.from_batches(function(iter(batches)), arrow_of(ddl)),
            schema=struct_of(ddl),
        )

    def kept(self) -> "Rows":
        return self

    def tuples(self, *names: str) -> list[tuple[Any, ...]]:
        return list(rows_of(iter(self.table.select(list(names)).to_batches())))

    @property
    def _spread(self) -> "Rows":
        return Spread(self.frame, self.here.workers)


Rows = Spread | Brought
Computing = InWorkers | Here
