"""What a stream's table has between versions, up to the end that a step has claimed; each segment of it is looked up once."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.commits import TableLog
from lakechime_dagster.dce.event import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotPlace, SnapshotRange
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.schema.learning import TypePlace
from lakechime_dagster.schema.steps import Part
from lakechime_dagster.spark.ranges import ReadMethod, read_range

COLUMNS = ("_src", "_ingested_at", "reason", "type", "producer", "hash", "flags", "payload")


@dataclass
class Slices:
    """The rows of a stream's table up to an end, behind any place.

    Attributes:
        cuts: Versions at which what is read is cut, so that types with several places read each file in one segment.
    """

    spark: SparkSession
    table: str
    log: TableLog
    end: SnapshotPlace
    cuts: tuple[int, ...] = ()
    _frames: dict[tuple[int, int], DataFrame] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version that is the end."""
        assert self.end.snapshot_id is not None
        return int(self.end.snapshot_id)

    def start(self, place: TypePlace) -> int:
        """The version behind which a place reads: its own, or the beginning where the table was made anew since."""
        return place.version if place.uid in (None, self.end.table_uid) else -1

    def is_anew(self, place: TypePlace) -> bool:
        """Whether the table was made anew since a type was read up to a place: what its own table has of it cannot be told."""
        return place.commits > 0 and place.uid not in (None, self.end.table_uid)

    def after(self, start: int) -> DataFrame:
        """The rows of all versions behind one, -1 for all.

        Raises:
            TableUnreadableError: they cannot be told from those before, as the log was cleaned up, or rows were changed.
        """
        return self.segment(start, self.version)

    def between(self, start: int, end: int) -> DataFrame:
        """The rows of the versions behind one, up to another, by the segments of all types.

        Raises:
            TableUnreadableError: they cannot be told from others.
        """
        segments = self.segments(start, end)
        try:
            return reduce(DataFrame.union, [self.segment(*one) for one in segments])
        except TableUnreadableError:
            if len(segments) == 1:
                raise
        return self.segment(start, end)  # a version between may be gone, whose rows the end still has

    def segments(self, start: int, end: int) -> list[tuple[int, int]]:
        """What lies between two versions, cut where others begin; each is a version behind which rows are, and their last one."""
        return list(pairwise([start, *sorted({cut for cut in self.cuts if start < cut < end}), end]))

    def segment(self, start: int, end: int) -> DataFrame:
        """The same, read as one."""
        if (start, end) not in self._frames:
            self._frames[start, end] = self._read(start, end)
        return self._frames[start, end]

    def _read(self, start: int, end: int) -> DataFrame:
        range_ = SnapshotRange(
            table=self.table, table_uid=self.end.table_uid, start=None if start < 0 else SnapshotId(str(start)), end=SnapshotId(str(end)),
            start_uid=self.end.table_uid,
        )  # fmt: skip
        read = read_range(self.spark, self.log, range_)
        rows = read.end if read.is_first else read.images
        if rows is None or read.method not in (ReadMethod.NOTHING, ReadMethod.LOG_FILES, ReadMethod.WHOLE):
            why = read.note or f"commits of it do more than append ({read.method.value})"
            remedy = (
                "put its log back as it was, or rebuild the table of each such type: `lakechime schema replay TYPE --rebuild --reason …`"
            )
            raise TableUnreadableError(f"{self.table} after version {start}: {read.verdict.value}, {why}; {remedy}")
        return rows.select(*COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Events:
    """The events of a part, each type's behind its own place: frames, each with all of its types, and why types cannot be read."""

    frames: tuple[DataFrame, ...]
    unread: dict[str, Exception]


def events_of(slices: Slices, part: Part) -> Events:
    """What a part reads: one frame that opens each file once; types whose oldest segment is gone are looked for by themselves."""
    behind = part.behind
    parts = list[tuple[int, DataFrame]]()
    lost = -2  # behind which nothing is readable by segments
    for start, end in reversed(slices.segments(min(behind.values()), part.end)) if behind else ():
        try:
            parts.append((start, slices.segment(start, end)))
        except TableUnreadableError:
            lost = start
            break
    together = {name: start for name, start in behind.items() if start > lost}
    segments = [of_types(rows, [name for name, begin in together.items() if begin <= start]) for start, rows in parts] if together else []
    frames, unread = [reduce(DataFrame.union, segments)] if segments else [], dict[str, Exception]()
    for start in sorted({behind[name] for name in {*behind} - {*together}}):
        names = [name for name, begin in behind.items() if begin == start]
        try:
            frames.append(of_types(slices.segment(start, part.end), names))
        except TableUnreadableError as error:
            unread |= dict.fromkeys(names, error)
    return Events(frames=tuple(frames), unread=unread)


def of_types(rows: DataFrame, names: Collection[str]) -> DataFrame:
    """The events of these types; refused rows are of none."""
    return rows.where(F.col("reason").isNull() & F.col("type").isin(*names)) if names else rows.limit(0)
