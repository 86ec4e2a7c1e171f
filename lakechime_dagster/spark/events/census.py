"""What kinds of events a slice has: counted by type and variation, with one event of each variation that was not known."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from lakechime_dagster.lake.contracts import MOST_COLUMNS
from lakechime_dagster.schema.event import JsonEvent, event_of
from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.producers import NOBODY, OTHER
from lakechime_dagster.schema.prototype import shape_of
from lakechime_dagster.schema.repository import Prototype
from lakechime_dagster.schema.variation import Variation, variation_of, within_columns

MAX_COUNTED = 1_000  # variations of a type, the commonest first: of events of others nothing is known but their type
MAX_LOOKED = 200  # of these that were not known: an event of each is kept as what it tells; of others the paths and kinds alone
MAX_JOINED = 20_000  # paths and kinds of others that a step takes in of a type, the commonest first
MAX_PRODUCERS = 50  # of a type, those who sent the most: of others it is told in sum what they sent in a step
MAX_SENDERS = MOST_COLUMNS + 1  # as each of those without room has brought a column, no more than all columns are without


@dataclass(frozen=True, kw_only=True)
class TypeCount:
    """The events of a type in a slice.

    Attributes:
        variations: Those without a flag, by the hash of their variation; of the commonest variations, also of events with a flag.
        is_cut: There are further variations.
        producers: All of them by who sent them; those of the fewest in sum.
        senders: Who sent a variation, by hash; of types that are looked at for it.
    """

    rows: int
    variations: Mapping[str, int]
    is_cut: bool = False
    producers: Mapping[str, int] = field(default_factory=dict)
    senders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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


def counted(events: DataFrame, *, by_producer: bool = False, watched: Collection[str] = ()) -> dict[str, TypeCount]:
    """The events of each type, counted; one job over the columns that tell it.

    Args:
        events: Of types, none of them refused.
        by_producer: Whether producers are told.
        watched: The types of which it is told who sent which variation.
    """
    each = _by_hash_and_producer(events, watched) if by_producer else _by_hash(events)
    order = Window.partitionBy("type", "of_producer").orderBy(F.col("rows").desc(), "hash", "producer")
    total = F.sum("rows").over(Window.partitionBy("type", "of_producer"))
    ranked = each.withColumn("total", total).withColumn("rank", F.row_number().over(order))
    most = F.when(F.col("of_producer"), MAX_PRODUCERS).otherwise(MAX_COUNTED + 1)
    found: dict[str, list[Row]] = {}
    for row in ranked.where(F.col("rank") <= most).collect():
        found.setdefault(row["type"], []).append(row)
    return {name: _type_count(rows) for name, rows in found.items()}


def _rows() -> tuple[Column, Column]:
    """The events of a group, and those of them without a flag."""
    return F.count(F.lit(1)).alias("rows"), F.count_if(F.col("flags").isNull()).alias("plain")


def _by_hash(events: DataFrame) -> DataFrame:
    by_hash = events.groupBy("type", "hash").agg(*_rows())
    nothing = {"producer": F.lit(None), "of_producer": F.lit(False), "senders": F.lit(None)}
    return by_hash.withColumns(nothing)


def _by_hash_and_producer(events: DataFrame, watched: Collection[str]) -> DataFrame:
    """The same, and beside it by producer; both from one count of all three."""
    each = events.groupBy("type", "hash", sender()).agg(*_rows())
    told = F.when(F.col("type").isin(*watched), F.col("producer")) if watched else F.lit(None).cast("string")
    counts = (
        F.sum("rows").alias("rows"),
        F.sum("plain").alias("plain"),
        some(F.col("sender")).alias("senders"),
        (F.grouping("hash") == 1).alias("of_producer"),
    )
    sets = [["type", "hash"], ["type", "producer"]]
    return each.withColumn("sender", told).groupingSets(sets, "type", "hash", "producer").agg(*counts)


def sender() -> Column:
    """Who sent an event, NOBODY where it does not tell."""
    return F.coalesce(F.col("producer"), F.lit(NOBODY)).alias("producer")


def some(producers: Column) -> Column:
    """Who is in a group, by name, up to so many that one is among them who has room, if any has."""
    return F.slice(F.sort_array(F.collect_set(producers)), 1, MAX_SENDERS)


def _type_count(rows: Sequence[Row]) -> TypeCount:
    hashed, sent = [row for row in rows if not row["of_producer"]], [row for row in rows if row["of_producer"]]
    return TypeCount(
        rows=hashed[0]["total"], variations={row["hash"]: row["plain"] for row in hashed[:MAX_COUNTED]}, is_cut=len(hashed) > MAX_COUNTED,
        producers=with_others({row["producer"]: row["rows"] for row in sent}, sent[0]["total"] if sent else 0),
        senders={row["hash"]: tuple(row["senders"]) for row in hashed[:MAX_COUNTED] if row["senders"]},
    )  # fmt: skip


def with_others(told: Mapping[str, int], total: int) -> dict[str, int]:
    """What is told of some, and of all others in sum."""
    others = total - sum(told.values())
    return {**told, OTHER: told.get(OTHER, 0) + others} if others else dict(told)


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
    told = (first, F.min("_src").alias("source"), some(sender()).alias("senders"))
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
        source=row["source"], position=position, producer=row["first"]["producer"], senders=tuple(row["senders"]),
    )  # fmt: skip


def _joined(events: DataFrame) -> DataFrame:
    """The paths and kinds of all variations of types, in a row what the same producers sent."""
    each = events.groupBy("type", "hash").agg(
        F.min_by("payload", "_src").alias("payload"), F.min("_src").alias("source"), some(sender()).alias("senders")
    )
    pairs = each.select("type", "source", "senders", "payload").mapInArrow(_pairs, _PAIRS)  # type: ignore[arg-type]
    senders = F.array_sort(F.array_distinct(F.flatten(F.collect_set("senders"))))
    by_pair = pairs.groupBy("type", "path", "kind").agg(
        F.count(F.lit(1)).alias("n"), F.min("source").alias("source"), F.slice(senders, 1, MAX_SENDERS).alias("senders")
    )
    commonest = F.row_number().over(Window.partitionBy("type").orderBy(F.col("n").desc(), "path", "kind"))
    kept = by_pair.withColumn("rank", commonest).where(F.col("rank") <= MAX_JOINED)
    one = F.collect_list(F.struct("path", "kind")).alias("pairs")
    return kept.groupBy("type", "senders").agg(one, F.min("source").alias("source")).orderBy("type", "source", "senders")


_PAIRS = "type string, source string, senders array<string>, path string, kind string"


def _pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of each event a row for each of its paths and kinds."""
    for batch in batches:
        told = [
            (at, path, kind)
            for at, payload in enumerate(batch.column("payload").to_pylist())
            if isinstance(event := event_of(payload), JsonEvent)
            for path, kind in within_columns(variation_of(event)).kinds
        ]
        rows = batch.select(["type", "source", "senders"]).take(pa.array([at for at, _, _ in told], pa.int64()))
        more = [pa.array([path for _, path, _ in told], pa.string()), pa.array([kind.value for *_, kind in told], pa.string())]
        yield pa.RecordBatch.from_arrays([*rows.columns, *more], names=[*rows.schema.names, "path", "kind"])


def _of_several(row: Row, position: int) -> Prototype:
    variation = Variation(frozenset((one["path"], Kind(one["kind"])) for one in row["pairs"]))
    senders = tuple(row["senders"])
    return Prototype(
        typed_hash=variation.typed_hash, names_hash=variation.names_hash, variation=variation, shape="", source=row["source"],
        position=position, producer=None if senders[0] == NOBODY else senders[0], senders=senders, is_joined=True,
    )  # fmt: skip
