"""Who reads what a change of columns hits, without writing any of it: dashboards, people, jobs elsewhere."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.answers import Hits
from lakechime_dagster.lineage.graph.reach import Certainty
from lakechime_dagster.lineage.reads import ACTIVE_MS, Consumer, Read


@dataclass(frozen=True, kw_only=True)
class ConsumerHit:
    """A consumer that is hit, by the columns that it reads, and how surely at best; `last_ms` is when it read one of them last."""

    consumer: Consumer
    certainty: Certainty
    refs: tuple[ColumnRef, ...]
    last_ms: int
    owners: tuple[str, ...] = ()
    link: str = ""

    def is_active(self, now_ms: int) -> bool:
        """Whether it read of them in the last day."""
        return now_ms - self.last_ms <= ACTIVE_MS


def consumers_hit(changed: Collection[ColumnRef], found: Hits, reads: Iterable[Read]) -> tuple[ConsumerHit, ...]:
    """The consumers that are hit, the surest and those that read last first; `found` is what the changed columns lead to."""
    hit = certainties(changed, found)
    consumers: dict[Consumer, list[tuple[Certainty, ColumnRef, Read]]] = {}
    for one in reads:
        for ref in one.refs:
            if (certainty := _of(ref, hit)) is not None:
                consumers.setdefault(one.consumer, []).append((certainty, ref, one))
    several = [_hit(consumer, why) for consumer, why in consumers.items()]
    return tuple(sorted(several, key=lambda one: (one.certainty, -one.last_ms, one.consumer)))


def certainties(changed: Collection[ColumnRef], found: Hits) -> dict[ColumnRef, Certainty]:
    """How surely columns are hit, and rows of data sets; those that are changed themselves are DIRECT."""
    hit = {ColumnRef(one.table, column.name): column.certainty for one in found.hits for column in one.columns}
    hit |= {ColumnRef(one.table): one.rows for one in found.hits if one.rows is not None}
    return hit | dict.fromkeys(changed, Certainty.DIRECT)


def _of(ref: ColumnRef, hit: Mapping[ColumnRef, Certainty]) -> Certainty | None:
    """How surely a read is hit: by its column, by the rows of its data set, or perhaps where it is not told which columns it reads."""
    known = [certainty for one in (ref, ColumnRef(ref.table)) if (certainty := hit.get(one)) is not None]
    if known:
        return min(known)
    is_perhaps = ref.column is None and any(one.table == ref.table for one in hit)
    return Certainty.UNSURE if is_perhaps else None


def _hit(consumer: Consumer, why: list[tuple[Certainty, ColumnRef, Read]]) -> ConsumerHit:
    newest = max((read for _, _, read in why), key=lambda read: read.at_ms)
    return ConsumerHit(
        consumer=consumer, certainty=min(certainty for certainty, _, _ in why), refs=tuple(sorted({ref for _, ref, _ in why})),
        last_ms=newest.at_ms, owners=newest.owners, link=newest.link,
    )  # fmt: skip
