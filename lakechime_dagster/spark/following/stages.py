"""What the stages of a step of a table that follows a database hand on."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame

from lakechime_dagster.cdc.meaning.merging import Fate
from lakechime_dagster.cdc.meaning.needs import Need
from lakechime_dagster.cdc.remembering.defaults import Defaults
from lakechime_dagster.cdc.remembering.state import Role, StateRow
from lakechime_dagster.cdc.schemas.drift import Evolution
from lakechime_dagster.spark.following.change_rows import What
from lakechime_dagster.spark.following.remembered import Seen
from lakechime_dagster.spark.following.rows import Rows
from lakechime_dagster.spark.ranges import RangeRead
from lakechime_dagster.triggers.lanes import HOUR_MS

Counted = Mapping[tuple[str, str | None], int]  # rows by what they are, and their operation


@dataclass(frozen=True)
class Heard:
    """The messages of a step, and what was known before it.

    Attributes:
        read: How they were read.
        told: What they tell (`change_rows.TOLD_DDL`), each change in its epoch.
        before: What was remembered before the step; None of a table that begins.
        seen: What of the messages concerns more than their own keys.
        known: The same of what was remembered.
        has_more: The feed held more than was read of it: what comes next may be older than what came, and belong to a snapshot that
            has ended.
    """

    read: RangeRead
    told: Rows
    before: Rows | None
    seen: Seen
    known: Seen
    has_more: bool = False

    @property
    def is_new(self) -> bool:
        """Whether the table is made of these messages alone."""
        return self.read.images is None

    @cached_property
    def ended(self) -> list[StateRow]:
        """The truncations that snapshots mean which are complete now; none before all of their rows are read for certain."""
        return [] if self.has_more else self.seen.ended(self.known)

    @property
    def ends(self) -> tuple[StateRow, ...]:
        """All truncations."""
        return (*self.seen.truncations, *self.known.truncations, *self.ended)

    @property
    def marks(self) -> tuple[StateRow, ...]:
        """The first and last rows of snapshots, without their columns."""
        return tuple(one._replace(role=Role.MARK.value, columns=None) for one in self.seen.marks)

    @cached_property
    def defaults(self) -> Defaults:
        """What rows got that were there when a column was added."""
        return Defaults.of([*self.known.columns, *self.seen.columns])

    @cached_property
    def concerns_all(self) -> bool:
        """Whether rows may change of which no message tells."""
        return bool(self.seen.truncations or self.ended) or self.defaults.concern_others(Defaults.of(self.known.columns))

    def late_ends(self, complete_ms: int) -> list[int]:
        """The hour (since 1970) of each truncation among the messages whose hour was complete before; one without a time has none."""
        end_ms = complete_ms // HOUR_MS * HOUR_MS
        return [row.ts_ms // HOUR_MS for row in (*self.seen.truncations, *self.ended) if row.ts_ms and row.ts_ms < end_ms]

    @property
    def of_sources(self) -> list[StateRow]:
        """What is to be remembered of whole sources."""
        seen = self.seen
        return [*seen.truncations, *self.ended, *self.marks, *seen.places, *seen.beats, *seen.probes, *seen.columns, *seen.tables]


@dataclass(frozen=True)
class Merge:
    """What merging made of them.

    Attributes:
        found: The rows of `change_rows.merged_ddl`.
        counted: How many of them there are of each kind (`What.COUNTS`).
        evolution: What becomes of the table's columns.
        groups: Of each key that continues another one, or is continued, the group that is merged together.
        conflicting: The changes whose columns the table cannot hold, which were not merged; None where there are none.
    """

    found: Rows
    counted: Counted
    evolution: Evolution
    groups: Mapping[str, str]
    conflicting: DataFrame | None

    def rows(self, *needs: str) -> int:
        """How many rows of the table need one of these."""
        return sum(self.counted.get((What.ROWS, need), 0) for need in needs)

    @property
    def inserted(self) -> int:
        return self.rows(Need.INSERT, Need.RETURN)

    @property
    def updated(self) -> int:
        return self.rows(Need.UPDATE, Need.AMEND)

    @property
    def deleted(self) -> int:
        """How many rows the database deleted, whether they stay or not."""
        return self.rows(Need.DELETE, Need.END)

    @property
    def unchanged(self) -> int:
        return self.rows(Need.NOTHING)

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted

    @property
    def late(self) -> dict[int, int]:
        """How many changes came later than their hour was complete, by that hour (since 1970), the oldest first."""
        return dict(sorted((int(hour or 0), count) for (what, hour), count in self.counted.items() if what == What.LATE))

    def fates(self, heard: Heard, quarantined: int) -> dict[str, int]:
        """How many changes met which fate."""
        found = {fate.value: heard.seen.fates[fate.value] + self.counted.get((What.FATE, fate.value), 0) for fate in Fate}
        return found | {Fate.QUARANTINED.value: quarantined}
