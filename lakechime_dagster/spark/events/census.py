"""What kinds of events a slice has: counted by type and variation, with one event of each variation that was not known."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from lakechime_dagster.schema.event import JsonEvent, event_of
from lakechime_dagster.schema.prototype import shape_of
from lakechime_dagster.schema.repository import Prototype
from lakechime_dagster.schema.variation import variation_of

MAX_COUNTED = 1_000  # variations of a type, the commonest first: of events of others nothing is known but their type
MAX_LOOKED = 200  # of these that were not known: a step does not read more events of a type one by one


@dataclass(frozen=True, kw_only=True)
class TypeCount:
    """The events of a type in a slice.

    Attributes:
        flagged: Those with a flag.
        variations: The others, by hash; of the commonest.
    """

    rows: int
    flagged: int
    variations: Mapping[str, int]


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


def counted(events: DataFrame) -> dict[str, TypeCount]:
    """The events of each type, counted; one job over the columns that tell it."""
    is_flagged = F.col("flags").isNotNull()
    by_hash = events.groupBy("type", F.when(~is_flagged, F.col("hash")).alias("hash")).agg(F.count(F.lit(1)).alias("rows"))
    order = Window.partitionBy("type").orderBy(F.col("hash").isNull().desc(), F.col("rows").desc(), "hash")
    ranked = by_hash.withColumn("total", F.sum("rows").over(Window.partitionBy("type"))).withColumn("rank", F.row_number().over(order))
    found: dict[str, TypeCount] = {}
    for row in ranked.where(F.col("rank") <= MAX_COUNTED).collect():
        before = found.get(row["type"], TypeCount(rows=row["total"], flagged=0, variations={}))
        if row["hash"] is None:
            found[row["type"]] = TypeCount(rows=before.rows, flagged=row["rows"], variations=before.variations)
        else:
            variations = {**before.variations, row["hash"]: row["rows"]}
            found[row["type"]] = TypeCount(rows=before.rows, flagged=before.flagged, variations=variations)
    return found


def prototypes(events: DataFrame, unknown: Mapping[str, Collection[str]], position: int) -> dict[str, list[Prototype]]:
    """An event of each variation that was not known, the first by `_src`, as what it tells; by type, in the order of hashes."""
    wanted = {(kind, one) for kind, several in unknown.items() for one in sorted(several)[:MAX_LOOKED]}
    if not wanted:
        return {}
    kinds, hashes = sorted({kind for kind, _ in wanted}), sorted({one for _, one in wanted})
    first = F.min_by(F.struct("payload", "producer"), "_src").alias("first")
    chosen = events.where(F.col("type").isin(kinds) & F.col("hash").isin(hashes))
    rows = chosen.groupBy("type", "hash").agg(first, F.min("_src").alias("source"))
    found: dict[str, list[Prototype]] = {}
    for row in sorted(rows.collect(), key=lambda row: (row["type"], row["hash"])):
        if (row["type"], row["hash"]) in wanted:
            found.setdefault(row["type"], []).append(_prototype(row["first"], row["hash"], row["source"], position))
    return found


def _prototype(first: Row, typed_hash: str, source: str, position: int) -> Prototype:
    event = event_of(first["payload"])
    assert isinstance(event, JsonEvent)  # as its row has no reason
    variation = variation_of(event)
    return Prototype(
        typed_hash=typed_hash, names_hash=variation.names_hash, variation=variation, shape=shape_of(event), source=source,
        position=position, producer=first["producer"],
    )  # fmt: skip
