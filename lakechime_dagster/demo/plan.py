"""What the replay does in which hour, as a function of a seed."""

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.demo.airport import Line, lines_of
from lakechime_dagster.demo.data import DAYS, FIRST_DAY, HOURS, planes, rows_of
from lakechime_dagster.errors import InvalidValueError

FLIGHTS, WEATHER = "bronze.flights", "bronze.weather"
TABLES = (FLIGHTS, WEATHER)
TAIL = 34  # ticks after the last day, in which only what is outstanding is written
HELD_ORIGIN = "JFK"
MISREAD_BY = 20.0  # degrees Fahrenheit
POISON_EVERY = 7  # days
FORGOTTEN, FORGOTTEN_EVERY = "BOEING", 3  # whose planes an export lacks; days
CORRECTED_AFTER = 6  # hours
Partition = tuple[str, dt.date, int]  # table, day, hour


class Content(StrEnum):
    """What a partition holds: all its rows, or something that a mishap made of them."""

    WHOLE = "whole"
    HELD_BACK = "held back"  # without the rows of HELD_ORIGIN
    MISREAD = "misread"  # every temperature too high
    POISONED = "poisoned"  # and one more row, without carrier


class How(StrEnum):
    """How rows are written: APPEND the content, REPLACE the partition by it, COMPLETE what was held
    back.
    """

    APPEND = "append"
    REPLACE = "replace"
    COMPLETE = "complete"


@dataclass(frozen=True, kw_only=True)
class Write:
    """A commit to one partition; `note` says aloud what is unusual about it."""

    partition: Partition
    content: Content = Content.WHOLE
    how: How = How.APPEND
    note: str = ""

    @property
    def rows(self) -> pa.Table:
        """The rows that are written."""
        return (
            held_rows(self.partition)
            if self.how is How.COMPLETE
            else content_of(self.partition, self.content)
        )


@dataclass(frozen=True, kw_only=True)
class Complete:
    """A statement that a partition is complete, rows or not."""

    partition: Partition


Action = Write | Complete


@dataclass(frozen=True, kw_only=True)
class FleetExport:
    """An export of the planes that were in service on a day; a partial one lacks those of
    FORGOTTEN, and is replaced hours later.
    """

    day: dt.date
    is_partial: bool
    hour: int  # of the night after

    @property
    def name(self) -> str:
        """By which the exports of a day are ordered."""
        return f"{self.day}.{self.hour:02}"

    @property
    def note(self) -> str:
        if self.is_partial:
            return f"partial: the fleet of {self.day} lacks {FORGOTTEN.title()}'s planes"
        return f"restated: the fleet of {self.day}" if self.hour else ""

    @property
    def rows(self) -> pa.Table:
        """The planes, by their tail numbers."""
        of_day = pa.concat_tables([rows_of(FLIGHTS, self.day, hour) for hour in range(HOURS)])
        is_there = pc.field("tailnum").isin(of_day["tailnum"].unique().to_pylist())
        is_kept = pc.field("manufacturer") != FORGOTTEN if self.is_partial else pc.scalar(True)
        return planes().filter(is_there & is_kept)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a replay has written up to a tick: the content of each partition, and which are marked
    complete.

    `fleet` has the newest export of each day. Of the airports' events it has written the files of
    the first `hours` ticks by the `seed`.
    """

    seed: int = 0
    hours: int = 0
    fleet: dict[dt.date, FleetExport] = field(default_factory=dict)
    contents: dict[Partition, Content] = field(default_factory=dict)
    complete: set[Partition] = field(default_factory=set)

    @property
    def complete_days(self) -> list[dt.date]:
        """The days all of whose hours are complete in both tables."""
        return self.days_of(*TABLES)

    def days_of(self, *tables: str) -> list[dt.date]:
        """The days all of whose hours are complete in these tables."""
        counts = Counter(day for table, day, _ in self.complete if table in tables)
        return sorted(day for day, count in counts.items() if count == len(tables) * HOURS)

    def airport_lines(self) -> Iterator[Line]:
        """The lines of the airports' files, in their order."""
        for tick in range(self.hours):
            yield from lines_of(self.seed, tick)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The replay of the first `days` days by a seed."""

    seed: int = 2013
    days: int = DAYS

    def __post_init__(self) -> None:
        if not 1 <= self.days <= DAYS:
            raise InvalidValueError("days", self.days, f"is not a number of days from 1 to {DAYS}")

    @property
    def ticks(self) -> int:
        return self.days * HOURS + TAIL

    def airport_lines(self, tick: int) -> tuple[Line, ...]:
        """The airports' events of a tick; none after the last day."""
        return lines_of(self.seed, tick) if tick < self.days * HOURS else ()

    def actions(self, tick: int) -> tuple[Action, ...]:
        """What happens in a tick, in order."""
        today = tick // HOURS
        return tuple(
            action for day in range(today - 2, today + 1) for action in self._day(day).get(tick, ())
        )

    def fleet_export(self, tick: int) -> FleetExport | None:
        """The export of a tick: of the day before, at midnight, and hours later where that was
        partial.
        """
        index, hour = divmod(tick - HOURS, HOURS)
        was_partial = index % FORGOTTEN_EVERY == 1
        if not 0 <= index < self.days or hour not in (
            (0, CORRECTED_AFTER) if was_partial else (0,)
        ):
            return None
        day = FIRST_DAY + dt.timedelta(days=index)
        return FleetExport(day=day, is_partial=was_partial and hour == 0, hour=hour)

    def written(self, ticks: int) -> Written:
        """What has been written by the first `ticks` ticks."""
        state = Written(seed=self.seed, hours=min(ticks, self.days * HOURS))
        for tick in range(min(ticks, self.ticks)):
            if (export := self.fleet_export(tick)) is not None:
                state.fleet[export.day] = export
            for action in self.actions(tick):
                if isinstance(action, Complete):
                    state.complete.add(action.partition)
                else:
                    state.contents[action.partition] = action.content
        return state

    def _day(self, index: int) -> dict[int, tuple[Action, ...]]:
        return _actions_of_day(self.seed, index) if 0 <= index < self.days else {}


@lru_cache(maxsize=DAYS * 4)
def _actions_of_day(seed: int, index: int) -> dict[int, tuple[Action, ...]]:
    """All that is ever written for one day, by tick."""
    dice = random.Random(f"{seed}/{index}")
    day, midnight = FIRST_DAY + dt.timedelta(days=index), index * HOURS
    late, held, misread, poisoned = dice.sample(range(6, 21), 4)
    actions: dict[int, list[Action]] = {}

    def at(hour: int, *several: Action) -> None:
        actions.setdefault(midnight + hour, []).extend(several)

    for hour in range(HOURS):
        flights, weather = (FLIGHTS, day, hour), (WEATHER, day, hour)
        named = f"{day} {hour:02}:00"
        if hour == misread:
            at(hour, Write(partition=weather, content=Content.MISREAD), Complete(partition=weather))
            again = Write(
                partition=weather, how=How.REPLACE, note=f"restated: the weather of {named}"
            )
            at(hour + dice.randint(3, 9), again)
        else:
            at(hour, Write(partition=weather), Complete(partition=weather))
        if hour == late:
            at(
                hour + dice.randint(2, 9),
                Write(partition=flights, note=f"late: the flights of {named}"),
                Complete(partition=flights),
            )
        elif hour == held:
            at(
                hour,
                Write(partition=flights, content=Content.HELD_BACK),
                Complete(partition=flights),
            )
            rest = Write(
                partition=flights,
                how=How.COMPLETE,
                note=f"late: {HELD_ORIGIN}'s flights of {named}",
            )
            at(hour + dice.randint(20, 33), rest)
        elif hour == poisoned and index % POISON_EVERY == 0:
            bad = Write(
                partition=flights,
                content=Content.POISONED,
                note=f"poisoned: a flight of {named} without carrier",
            )
            at(hour, bad, Complete(partition=flights))
        else:
            at(hour, Write(partition=flights), Complete(partition=flights))
    return {tick: tuple(several) for tick, several in actions.items()}


def content_of(partition: Partition, content: Content) -> pa.Table:
    """The rows that a partition of this content holds."""
    rows = rows_of(*partition)
    match content:
        case Content.WHOLE:
            return rows
        case Content.HELD_BACK:
            return rows.filter(pc.field("origin") != HELD_ORIGIN)
        case Content.MISREAD:
            index = rows.schema.get_field_index("temp")
            return rows.set_column(
                index,
                rows.schema.field(index),
                pc.add(rows["temp"], MISREAD_BY),  # pyright: ignore[reportAttributeAccessIssue]
            )
        case Content.POISONED:
            index = rows.schema.get_field_index("carrier")
            poison = rows.slice(0, 1)
            nothing = pa.nulls(poison.num_rows, pa.string())
            return pa.concat_tables(
                [rows, poison.set_column(index, rows.schema.field(index), nothing)]
            )


def held_rows(partition: Partition) -> pa.Table:
    """The rows that a held back partition lacks."""
    return rows_of(*partition).filter(pc.field("origin") == HELD_ORIGIN)
