"""External assets of what only runs and other programs record."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import orjson

from lakechime_dagster.lineage.columns import ACTIVE_MS, RECIPIENT_MS, Consumer

Node = TypeVar("Node")
MOST = 5_000  # that are shown; the rest is counted
IN_USE_MS = RECIPIENT_MS  # what was not used for so long is not shown


@dataclass(frozen=True, kw_only=True)
class UsedConsumer:
    """A dashboard, a person or a job that read data sets, the last time at `last_ms`."""

    consumer: Consumer
    tables: tuple[str, ...]
    last_ms: int
    owners: tuple[str, ...] = ()
    link: str = ""

    def is_active(self, now_ms: int) -> bool:
        """Whether it read in the last day."""
        return now_ms - self.last_ms <= ACTIVE_MS


@dataclass(frozen=True, kw_only=True)
class ForeignTable:
    """A data set that the lake does not declare, and of which a run told last at `last_ms`.

    `inputs` are what it is written from by programs elsewhere; `readers` are data sets that are written from it.
    """

    table: str
    last_ms: int
    inputs: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outside:
    """The consumers and data sets that were used last, those first; `more` of them are left out."""

    consumers: tuple[UsedConsumer, ...] = ()
    tables: tuple[ForeignTable, ...] = ()
    more: int = 0

    def __len__(self) -> int:
        return len(self.consumers) + len(self.tables)

    def digest(self, now_ms: int) -> str:
        """Another one when something else is to be shown: not for each read, but for one that comes, goes, or is active no more."""
        consumers = [
            [one.consumer.kind, one.consumer.namespace, one.consumer.name, one.tables, one.owners, one.link, one.is_active(now_ms)]
            for one in self.consumers
        ]
        tables = [[one.table, one.inputs, one.readers, one.owners] for one in self.tables]
        return hashlib.blake2b(orjson.dumps([sorted(consumers), sorted(tables), self.more]), digest_size=16).hexdigest()


def most_lately(consumers: Iterable[UsedConsumer], tables: Iterable[ForeignTable], total: int, most: int = MOST) -> Outside:
    """The `most` of them that were used last; there are `total` in all."""
    ordered: list[UsedConsumer | ForeignTable] = sorted([*consumers, *tables], key=lambda one: -one.last_ms)
    shown = ordered[:most]
    return Outside(
        consumers=tuple(one for one in shown if isinstance(one, UsedConsumer)),
        tables=tuple(one for one in shown if isinstance(one, ForeignTable)),
        more=max(0, total - len(shown)),
    )


def in_circles(inputs: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """What may stand on a circle of inputs: all of those that do, and what lies between two circles."""
    before = {name: {one for one in several if one in inputs} for name, several in inputs.items()}
    left = set(before)
    while True:
        fed = {name for name in left if before[name] & left}
        feeding = {one for name in fed for one in before[name] & left}
        if fed & feeding == left:
            return left
        left = fed & feeding
