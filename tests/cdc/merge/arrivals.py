"""How changes come to a table that tests follow: in parts, or late; again and again, as connectors
report them.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from lakechime_dagster.cdc.change import READ, UPSERT, Change, Order


class Table(Protocol):
    """A table that takes changes, and forgets what is final below an order."""

    def execute(self, changes: Sequence[Change]) -> object: ...

    def collect(self, low_watermark: Order) -> object: ...


def at(position: int, rank: int = UPSERT) -> Order:
    return Order(
        position=(position,), rank=rank, topic="changes", partition=0, offset=3 * position + rank
    )


def delivered_again(changes: Sequence[Change], share: float, dice: random.Random) -> list[Change]:
    """Some of them, as they come again in another place of their topic."""
    return [
        replace(one, order=one.order._replace(offset=one.order.offset + 1000))
        for one in changes
        if dice.random() < share
    ]


def follow_in_parts(table: Table, changes: Sequence[Change], dice: random.Random) -> None:
    """All of them as they stand, in up to four executions."""
    cuts = sorted({0, len(changes), *(dice.randrange(len(changes) + 1) for _ in range(3))})
    for start, end in itertools.pairwise(cuts):
        table.execute(changes[start:end])


def follow_in_time(
    table: Table, changes: Sequence[Change], lateness: int, dice: random.Random
) -> None:
    """One after the other, each at most so late; what is final is collected now and then."""
    by_arrival = sorted(
        changes,
        key=lambda change: (change.order.position[0] + dice.randint(0, lateness), dice.random()),
    )
    for index, change in enumerate(by_arrival):
        table.execute([change])
        expected = min((later.order for later in by_arrival[index + 1 :]), default=at(10**6))
        if dice.random() < 0.5:
            table.collect(at(expected.position[0], READ))
