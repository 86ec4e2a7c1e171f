"""Orders of a backfill: what a lane is to do again, and which other orders must be done before.

An order is done by the lane's next execution, whoever claims it, beside what came: work = touched and ordered. While an order of an
input is open, the lane is not claimed. `tests/models/orders.py` is the model of it.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.compat import StrEnum


class OrderState(StrEnum):
    """WAITING and TAKEN are open. A SKIPPED one ended with a step that a person gave up, a CANCELLED one was never taken.

    LATER is of a key whose partitions are not all there: it holds the key like a waiting one, but nobody waits for it, as it may never
    fire, and it is void once no order of its backfill is open.
    """

    LATER = "LATER"
    WAITING = "WAITING"
    TAKEN = "TAKEN"
    DONE = "DONE"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, kw_only=True)
class Span:
    """Which rows of its inputs a lane without a fire key is to take as if they had changed.

    Those of `tables` whose `column` is at or after `since` and before `until`, ISO dates or times, of which None is no bound; all
    rows of a table that has no such column.
    """

    tables: tuple[str, ...]
    column: str | None = None
    since: str | None = None
    until: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"tables": list(self.tables), "column": self.column, "since": self.since, "until": self.until}

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> "Span":
        return cls(tables=tuple(wire["tables"]), column=wire["column"], since=wire["since"], until=wire["until"])

    def __str__(self) -> str:
        bounds = [f"{sign} {bound}" for sign, bound in ((">=", self.since), ("<", self.until)) if bound is not None]
        which = f" with {self.column} {' and '.join(bounds)}" if self.column is not None and bounds else ""
        return f"rows of {', '.join(self.tables)}{which}"


@dataclass(frozen=True, kw_only=True)
class Order:
    """What one lane is to do for a backfill.

    Attributes:
        number: Its number within the backfill; inputs come before their readers.
        key: The lane's, "" for that of a snapshot trigger.
        waits_for: The numbers of the orders of its inputs.
        span: What to do again; None for a fire key, whose partition is done whole.
        why: What it reads of what changed, in words.
    """

    number: int
    flow: str
    key: str = ""
    waits_for: tuple[int, ...] = ()
    span: Span | None = None
    why: str = ""
    state: OrderState = OrderState.WAITING
    execution_id: str | None = None

    @property
    def is_open(self) -> bool:
        return self.state in (OrderState.WAITING, OrderState.TAKEN)


@dataclass(frozen=True, kw_only=True)
class LaneOrders:
    """The orders that wait for a lane's next claim: their ids, and why they may not be taken now, "" where they may."""

    ids: tuple[int, ...] = ()
    backfills: tuple[str, ...] = ()
    held_back: str = ""

    @property
    def sentence(self) -> str:
        """Why the lane is to run; empty where nothing is ordered, or is held back."""
        several = len(self.backfills) > 1
        return f"ordered by backfill{'s' if several else ''} {', '.join(self.backfills)}" if self.ids and not self.held_back else ""


def first_day_after(moment: dt.datetime) -> dt.date:
    """The first day of which nothing is before a moment: a day of which a part is, is all of it."""
    return moment.date() + dt.timedelta(days=int(moment.time() != dt.time()))


NO_ORDERS = LaneOrders()
