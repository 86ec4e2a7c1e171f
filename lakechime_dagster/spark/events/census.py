"""What kinds of events a slice has: counted by type and variation, with one event of each variation that was not known."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from lakechime_dagster.schema.event import JsonEvent, event_of
from lakechime_dagster.schema.layout import MAX_LEAVES
from lakechime_dagster.schema.producers import NOBODY, OTHER
from lakechime_dagster.schema.prototype import shape_of
from lakechime_dagster.schema.repository import Prototype
from lakechime_dagster.schema.variation import variation_of

MAX_COUNTED = 1_000  # variations of a type, the commonest first: of events of others nothing is known but their type
MAX_LOOKED = 200  # of these that were not known: a step does not read more events of a type one by one
MAX_PRODUCERS = 50  # of a type, those who sent the most: of others it is told in sum what they sent in a step
MAX_SENDERS = MAX_LEAVES + 1  # as each of those without room has brought a column, no more than all columns are without


@dataclass(frozen=True, kw_only=True)
class TypeCount:
    """The events of a type in a slice.

    Attributes:
        flagged: Those with a flag.
        variations: The others, by hash; of the commonest.
        producers: All of them by who sent them; those of the fewest in sum.
        senders: Who sent a variation, by hash; of types that are looked at for it.
    """

    rows: int
    flagged: int
    variations: Mapping[str, int]
    producers: Mapping[str, int] = field(default_factory=dict)
    senders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


NOTHING = TypeCount(rows=0, flagged=0, variations={})


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
    order = Window.partitionBy("type", "of_producer").orderBy(F.col("hash").isNull().desc(), F.col("rows").desc(), "hash", "producer")
    total = F.sum("rows").over(Window.partitionBy("type", "of_producer"))
    ranked = each.withColumn("total", total).withColumn("rank", F.row_number().over(order))
    most = F.when(F.col("of_producer"), MAX_PRODUCERS).otherwise(MAX_COUNTED)
    found: dict[str, list[Row]] = {}
    for row in ranked.where(F.col("rank") <= most).collect():
        found.setdefault(row["type"], []).append(row)
    return {name: _type_count(rows) for name, rows in found.items()}


def _by_hash(events: DataFrame) -> DataFrame:
    by_hash = events.groupBy("type", _hash()).agg(F.count(F.lit(1)).alias("rows"))
    nothing = {"producer": F.lit(None), "of_producer": F.lit(False), "senders": F.lit(None)}
    return by_hash.withColumns(nothing)


def _by_hash_and_producer(events: DataFrame, watched: Collection[str]) -> DataFrame:
    """The same, and beside it by producer; both from one count of all three."""
    each = events.groupBy("type", _hash(), sender()).agg(F.count(F.lit(1)).alias("rows"))
    told = F.when(F.col("type").isin(*watched), F.col("producer")) if watched else F.lit(None).cast("string")
    counts = (F.sum("rows").alias("rows"), some(F.col("sender")).alias("senders"), (F.grouping("hash") == 1).alias("of_producer"))
    sets = [["type", "hash"], ["type", "producer"]]
    return each.withColumn("sender", told).groupingSets(sets, "type", "hash", "producer").agg(*counts)


def sender() -> Column:
    """Who sent an event, NOBODY where it does not tell."""
    return F.coalesce(F.col("producer"), F.lit(NOBODY)).alias("producer")


def _hash() -> Column:
    """Of events without a flag."""
    return F.when(F.col("flags").isNull(), F.col("hash")).alias("hash")


def some(producers: Column) -> Column:
    """Who is in a group, by name, up to so many that one is among them who has room, if any has."""
    return F.slice(F.sort_array(F.collect_set(producers)), 1, MAX_SENDERS)


def _type_count(rows: Sequence[Row]) -> TypeCount:
    hashed, sent = [row for row in rows if not row["of_producer"]], [row for row in rows if row["of_producer"]]
    return TypeCount(
        rows=hashed[0]["total"], flagged=sum(row["rows"] for row in hashed if row["hash"] is None),
        variations={row["hash"]: row["rows"] for row in hashed if row["hash"] is not None},
        producers=with_others({row["producer"]: row["rows"] for row in sent}, sent[0]["total"] if sent else 0),
        senders={row["hash"]: tuple(row["senders"]) for row in hashed if row["senders"] and row["hash"] is not None},
    )  # fmt: skip


def with_others(told: Mapping[str, int], total: int) -> dict[str, int]:
    """What is told of some, and of all others in sum."""
    others = total - sum(told.values())
    return {**told, OTHER: told.get(OTHER, 0) + others} if others else dict(told)


def prototypes(events: DataFrame, unknown: Mapping[str, Collection[str]], position: int) -> dict[str, list[Prototype]]:
    """An event of each variation that was not known, the first by `_src`, as what it tells; by type, in the order of hashes."""
    wanted = {(kind, one) for kind, several in unknown.items() for one in sorted(several)[:MAX_LOOKED]}
    if not wanted:
        return {}
    kinds, hashes = sorted({kind for kind, _ in wanted}), sorted({one for _, one in wanted})
    first = F.min_by(F.struct("payload", "producer"), "_src").alias("first")
    chosen = events.where(F.col("type").isin(kinds) & F.col("hash").isin(hashes))
    told = (first, F.min("_src").alias("source"), some(sender()).alias("senders"))
    rows = chosen.groupBy("type", "hash").agg(*told)
    found: dict[str, list[Prototype]] = {}
    for row in sorted(rows.collect(), key=lambda row: (row["type"], row["hash"])):
        if (row["type"], row["hash"]) in wanted:
            found.setdefault(row["type"], []).append(_prototype(row, position))
    return found


def _prototype(row: Row, position: int) -> Prototype:
    event = event_of(row["first"]["payload"])
    assert isinstance(event, JsonEvent)  # as its row has no reason
    variation = variation_of(event)
    return Prototype(
        typed_hash=row["hash"], names_hash=variation.names_hash, variation=variation, shape=shape_of(event), source=row["source"],
        position=position, producer=row["first"]["producer"], senders=tuple(row["senders"]),
    )  # fmt: skip
