"""Which partitions of readers a change of columns hits, where it is of some partitions or of some days; and how many it does not."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.partition import PartitionLevels, canonical_partition
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.tables import LakeTable, RefreshMode
from lakechime_dagster.lineage.backfill.partitions import HitPartitions, untouched
from lakechime_dagster.lineage.backfill.window import Window, time_level
from lakechime_dagster.resources.backfill import Asked, readers_hit, with_time_column
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.grid import from_milliseconds
from lakechime_dagster.triggers.model import PartitionTrigger


@dataclass(frozen=True, kw_only=True)
class ReaderPartitions:
    """Of one reader what is hit.

    Attributes:
        hit: Partitions, or keys where these stand for none, oldest first; None for a table that has none that is declared.
        others: How many there are that are not hit.
        what: Which rows, or why none, in words.
    """

    hit: tuple[str, ...] | None = None
    others: int = 0
    what: str = ""

    @property
    def is_hit(self) -> bool:
        return self.hit != ()


def partitions_hit(
    platform: Platform, lake: Lake, flows: Mapping[str, Flow], asked: Asked, partitions: Sequence[Sequence[object]] = ()
) -> dict[str, ReaderPartitions]:
    """By reader, inputs first, what of it is hit by a change of columns in a window, or in partitions of the tables that changed.

    Raises:
        InvalidValueError: a partition that the tables cannot have, or no column by which rows are of a day.
    """
    changed = {ref.table: lake.levels.get(ref.table, PartitionLevels()) for ref in asked.columns}
    known = {table: _canonical(table, levels, partitions) for table, levels in changed.items()} if partitions else {}
    window = _around(known, changed) if partitions else with_time_column(lake, asked)
    at = HitPartitions(window, lake.levels, known)
    now = from_milliseconds(platform.store.now())
    found: dict[str, ReaderPartitions] = {}
    for table, hit in readers_hit(platform, lake, asked).hits.items():
        declared = lake.table(table)
        flow = flows.get(table)
        if at.is_untouched(table, hit.inputs):
            found[table] = ReaderPartitions(hit=(), what=untouched(hit.inputs))
        elif flow is not None and isinstance(flow.trigger, PartitionTrigger):
            found[table] = _of_keys(at, table, flow, hit.inputs, now)
        else:
            is_whole = isinstance(declared, LakeTable) and declared.refresh is RefreshMode.FULL
            found[table] = ReaderPartitions(what="all of it" if is_whole else window.describe())
    return found


def _of_keys(at: HitPartitions, table: str, flow: Flow, inputs: Sequence[str], now: dt.datetime) -> ReaderPartitions:
    assert isinstance(flow.trigger, PartitionTrigger)
    keys = flow.trigger.keys(now)
    nothing = f"none of its {len(keys)} partitions reads what changed of {', '.join(inputs) or table}"
    hit = tuple(flow.dagster_key(key) or key.text for key in at.keys(table, flow, inputs, keys))
    return ReaderPartitions(hit=hit, others=len(keys) - len(hit), what="" if hit else nothing)


def _canonical(table: str, levels: PartitionLevels, partitions: Sequence[Sequence[object]]) -> frozenset[str]:
    if not levels:
        raise InvalidValueError("partition", list(partitions[0]), f"{table} is declared without partitions; give --since and --until")
    return frozenset(canonical_partition(one, levels) for one in partitions)  # pyright: ignore[reportArgumentType]


def _around(known: Mapping[str, frozenset[str]], changed: Mapping[str, PartitionLevels]) -> Window:
    """The days from the first of the partitions to the last, by which readers without declared partitions are told; all without a day."""
    days: list[dt.date] = []
    column: str | None = None
    for table, levels in changed.items():
        if (name := time_level(levels)) is None:
            return Window()
        column = column or name
        at = levels.names.index(name)
        days += [datetime_of_iso(str(json.loads(one)[at])).date() for one in known[table]]
    return Window(since=min(days).isoformat(), until=(max(days) + dt.timedelta(days=1)).isoformat(), column=column)
