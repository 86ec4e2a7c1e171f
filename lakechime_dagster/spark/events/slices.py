"""What a stream's table has behind a place, up to the end that a step has claimed; each place is looked up once."""

from collections.abc import Collection
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.commits import TableLog
from lakechime_dagster.dce.event import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotPlace, SnapshotRange
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.schema.repository import TypePlace
from lakechime_dagster.spark.ranges import ReadMethod, read_range

COLUMNS = ("_src", "_ingested_at", "reason", "type", "producer", "hash", "flags", "payload")


@dataclass
class Slices:
    """The rows of a stream's table up to an end, behind any place."""

    spark: SparkSession
    table: str
    log: TableLog
    end: SnapshotPlace
    _frames: dict[int, DataFrame] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version that is the end."""
        assert self.end.snapshot_id is not None
        return int(self.end.snapshot_id)

    def start(self, place: TypePlace) -> int:
        """The version behind which a place reads: its own, or the beginning where the table was made anew since."""
        return place.version if place.uid in (None, self.end.table_uid) else -1

    def after(self, start: int) -> DataFrame:
        """The rows of the versions behind one, -1 for all.

        Raises:
            TableUnreadableError: they cannot be told from those before, as the log was cleaned up, or rows were changed.
        """
        if start not in self._frames:
            self._frames[start] = self._read(start)
        return self._frames[start]

    def _read(self, start: int) -> DataFrame:
        assert self.end.snapshot_id is not None
        range_ = SnapshotRange(
            table=self.table, table_uid=self.end.table_uid, start=None if start < 0 else SnapshotId(str(start)), end=self.end.snapshot_id,
            start_uid=self.end.table_uid,
        )  # fmt: skip
        read = read_range(self.spark, self.log, range_)
        rows = read.end if read.is_first else read.images
        if rows is None or read.method not in (ReadMethod.NOTHING, ReadMethod.LOG_FILES, ReadMethod.WHOLE):
            why = read.note or f"commits of it do more than append ({read.method.value})"
            remedy = "put its log back as it was"
            raise TableUnreadableError(f"{self.table} after version {start}: {read.verdict.value}, {why}; {remedy}")
        return rows.select(*COLUMNS)


def of_types(rows: DataFrame, names: Collection[str]) -> DataFrame:
    """The events of these types; refused rows are of none."""
    return rows.where(F.col("reason").isNull() & F.col("type").isin(*names)) if names else rows.limit(0)
