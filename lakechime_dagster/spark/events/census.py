"""What kinds of events a slice has: counted by type and variation, with one event of each variation that was not known."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from lakechime_dagster.schema.event import JsonEvent, Kind, Variation, event_of, shape_of, variation_of, within_columns
from lakechime_dagster.schema.learning import Prototype

MAX_COUNTED = 1_000  # variations of a type, the commonest first: of events of others nothing is known but their type
MAX_LOOKED = 200  # of these that were not known: an event of each is kept as what it tells; of others the paths and kinds alone
MAX_JOINED = 20_000  # paths and kinds of others that a step takes in of a type, the commonest first


@dataclass(frozen=True, kw_only=True)
class TypeCount:
    """The events of a type in a slice.

    Attributes:
        variations: Those without a flag, by the hash of their variation; of the commonest variations, also of events with a flag.
        is_cut: There are further variations.
    """

    rows: int
    variations: Mapping[str, int]
    is_cut: bool = False


NOTHING = TypeCount(rows=0, variations={})


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What came: the types by name, and the rows that no type could be told of, by reason."""

    types: tuple[str, ...]
    refused: Mapping[str, int]


def seen(rows: DataFrame) -> Seen:
    """What is there of all groups; one job over the two columns that tell it."""
    kinds = rows.groupBy("reason", F.when(F.col("reason").isNull(), F.col("type")).alias("type")).count().collect()
    return Seen(
        types=tuple(sorted(row["type"] for row in kinds if row["reason"] is None)),
        refused={row["reason"]: row["count"] for row in kinds if row["reason"] is not None},
    )


def counted(events: DataFrame) -> dict[str, TypeCount]:
    """The events of each type, none of them refused, counted; one job over the columns that tell it."""
    plain = F.count_if(F.col("flags").isNull()).alias("plain")
    each = events.groupBy("type", "hash").agg(F.count(F.lit(1)).alias("rows"), plain)
    order = Window.partitionBy("type").orderBy(F.col("rows").desc(), "hash")
    total = F.sum("rows").over(Window.partitionBy("type"))
    ranked = each.withColumn("total", total).withColumn("rank", F.row_number().over(order))
    found: dict[str, list[Row]] = {}
    for row in ranked.where(F.col("rank") <= MAX_COUNTED + 1).collect():
        found.setdefault(row["type"], []).append(row)
    return {name: _type_count(rows) for name, rows in found.items()}


def _type_count(rows: Sequence[Row]) -> TypeCount:
    variations = {row["hash"]: row["plain"] for row in rows[:MAX_COUNTED]}
    return TypeCount(rows=rows[0]["total"], variations=variations, is_cut=len(rows) > MAX_COUNTED)


def prototypes(
    events: DataFrame, unknown: Mapping[str, Collection[str]], position: int, cut: Collection[str] = ()
) -> dict[str, list[Prototype]]:
    """What the variations tell that were not known, by type: an event of each, the first by `_src`, in the order of their hashes.

    Of more than MAX_LOOKED, and of types in `cut`, of which more variations came than are counted, the others are joined.
    """
    wanted = {(kind, one) for kind, several in unknown.items() for one in sorted(several)[:MAX_LOOKED]}
    if not wanted and not cut:
        return {}
    kinds, hashes = sorted({kind for kind, _ in wanted}), sorted({one for _, one in wanted})
    first = F.min_by(F.struct("payload", "producer"), "_src").alias("first")
    told = (first, F.min("_src").alias("source"))
    found: dict[str, list[Prototype]] = {}
    if wanted:
        chosen = events.where(F.col("type").isin(kinds) & F.col("hash").isin(hashes))
        for row in sorted(chosen.groupBy("type", "hash").agg(*told).collect(), key=lambda row: (row["type"], row["hash"])):
            if (row["type"], row["hash"]) in wanted:
                found.setdefault(row["type"], []).append(_prototype(row, position))
    many = sorted({*cut, *(kind for kind, several in unknown.items() if len(several) > MAX_LOOKED)})
    if many:
        for row in _joined(events.where(F.col("type").isin(many))).collect():
            found.setdefault(row["type"], []).append(_of_several(row, position))
    return found


def _prototype(row: Row, position: int) -> Prototype:
    event = event_of(row["first"]["payload"])
    assert isinstance(event, JsonEvent)  # as its row has no reason
    variation = variation_of(event)
    return Prototype(
        typed_hash=row["hash"], names_hash=variation.names_hash, variation=within_columns(variation), shape=shape_of(event),
        source=row["source"], position=position, producer=row["first"]["producer"],
    )  # fmt: skip


def _joined(events: DataFrame) -> DataFrame:
    """The paths and kinds of all variations of types, a row of each type."""
    first = F.min_by(F.struct("payload", "producer"), "_src").alias("first")
    each = events.groupBy("type", "hash").agg(first, F.min("_src").alias("source"))
    pairs = each.select("type", "source", "first.payload", "first.producer").mapInArrow(_pairs, _PAIRS)  # type: ignore[arg-type]
    by_pair = pairs.groupBy("type", "path", "kind").agg(F.count(F.lit(1)).alias("n"), F.min(F.struct("source", "producer")).alias("first"))
    commonest = F.row_number().over(Window.partitionBy("type").orderBy(F.col("n").desc(), "path", "kind"))
    kept = by_pair.withColumn("rank", commonest).where(F.col("rank") <= MAX_JOINED)
    one = F.collect_list(F.struct("path", "kind")).alias("pairs")
    return kept.groupBy("type").agg(one, F.min("first").alias("first")).orderBy("type")


_PAIRS = "type string, source string, producer string, path string, kind string"


def _pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of each event a row for each of its paths and kinds."""
    for batch in batches:
        told = [
            (at, path, kind)
            for at, payload in enumerate(batch.column("payload").to_pylist())
            if isinstance(event := event_of(payload), JsonEvent)
            for path, kind in within_columns(variation_of(event)).kinds
        ]
        rows = batch.select(["type", "source", "producer"]).take(pa.array([at for at, _, _ in told], pa.int64()))
        more = [pa.array([path for _, path, _ in told], pa.string()), pa.array([kind.value for *_, kind in told], pa.string())]
        yield pa.RecordBatch.from_arrays([*rows.columns, *more], names=[*rows.schema.names, "path", "kind"])


def _of_several(row: Row, position: int) -> Prototype:
    variation = Variation(frozenset((one["path"], Kind(one["kind"])) for one in row["pairs"]))
    return Prototype(
        typed_hash=variation.typed_hash, names_hash=variation.names_hash, variation=variation, shape="", source=row["first"]["source"],
        position=position, producer=row["first"]["producer"], is_joined=True,
    )  # fmt: skip
