"""Delay and loss of a CDC table."""

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lakechime_dagster.tables.databases import Limits


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """How a table, or its table of messages, goes on; times in milliseconds since the epoch.

    Attributes:
        waits: It has not read everything that arrived.
        blocked: Why it may not go on; empty where it may.
        open_ms: Since when it has been at an execution; None where it is at none.
        ticked_ms: When its sensor ticked last; None where it never did.
    """

    name: str
    waits: bool
    blocked: str = ""
    open_ms: int | None = None
    ticked_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class SourceTimes:
    """The newest time that a source reported, in milliseconds since the epoch.

    Attributes:
        in_messages: By a change in the table of messages.
        in_table: By a change that the table has.
        heartbeat: When a heartbeat of its connector arrived.
    """

    in_messages: int | None = None
    in_table: int | None = None
    heartbeat: int | None = None


@dataclass(frozen=True, kw_only=True)
class KeepingUp:
    """What was measured of a table.

    Attributes:
        unread: By file in bytes, or by partition in messages, what the source holds and the table
            of messages does not.
        problems: Why something could not be measured that should be.
        waiting: Rows outside of the table, as nobody sent a column; None where they are too many to
            be counted.
    """

    table: str
    now_ms: int
    consumers: tuple[Consumer, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    parsed: Mapping[str, SourceTimes] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    waiting: int | None = 0
    quarantined: int = 0

    def seconds_since(self, moment_ms: int | None) -> float | None:
        return None if moment_ms is None else (self.now_ms - moment_ms) / 1000

    @property
    def lags(self) -> dict[str, float]:
        """How many seconds old the newest news are, those of the source that is furthest behind: of
        the messages and of the table.
        """
        newest = {
            "messages": [one.in_messages for one in self.parsed.values()],
            "table": [one.in_table for one in self.parsed.values()],
        }
        return {
            name: max((self.now_ms - at) / 1000 for at in times if at is not None)
            for name, times in newest.items()
            if any(times)
        }


def beyond(found: KeepingUp, limits: Limits) -> list[str]:
    """What of the measures is beyond the limits, in words."""
    late = [*_stuck(found, limits), *_silent(found, limits)]
    return [*found.problems, *late, *_outside(found, limits)]


def _stuck(found: KeepingUp, limits: Limits) -> Iterator[str]:
    for consumer in found.consumers:
        if consumer.blocked:
            yield consumer.blocked
        elif consumer.waits and consumer.open_ms is not None:
            if _is_older(found, consumer.open_ms, limits.behind):
                yield (
                    f"{consumer.name} has been at one execution for "
                    f"{_words(found.seconds_since(consumer.open_ms))}, and more waits"
                )
        elif consumer.waits and consumer.ticked_ms is None:
            yield (
                f"{consumer.name} has something to read, and its sensor has never ticked: it is "
                f"stopped, or no daemon runs"
            )
        elif consumer.waits and _is_older(found, consumer.ticked_ms, limits.behind):
            yield (
                f"{consumer.name} has something to read, and its sensor has not ticked for "
                f"{_words(found.seconds_since(consumer.ticked_ms))}"
            )


def _silent(found: KeepingUp, limits: Limits) -> Iterator[str]:
    for source, parsed in sorted(found.parsed.items()):
        newest = max(
            (at for at in (parsed.in_messages, parsed.heartbeat) if at is not None), default=None
        )
        if (
            limits.quiet is not None
            and newest is not None
            and _is_older(found, newest, limits.quiet)
        ):
            yield (
                f"{source} has sent nothing for {_words(found.seconds_since(newest))}, not even a "
                f"heartbeat: is its connector stuck?"
            )


def _outside(found: KeepingUp, limits: Limits) -> Iterator[str]:
    if found.waiting is None or found.waiting > limits.waiting:
        many = (
            "too many rows to be counted wait"
            if found.waiting is None
            else f"{found.waiting:,} rows wait"
        )
        yield f"{many} outside of {found.table} for a column that nobody sent"
    if limits.quarantined is not None and found.quarantined > limits.quarantined:
        yield (
            f"{found.quarantined:,} rows are in {found.table}__quarantine, more than "
            f"{limits.quarantined:,}"
        )


def _is_older(found: KeepingUp, moment_ms: int | None, limit: dt.timedelta) -> bool:
    return moment_ms is not None and found.now_ms - moment_ms > limit.total_seconds() * 1000


def _words(seconds: float | None) -> str:
    return str(dt.timedelta(seconds=round(seconds or 0)))


# Changes that were lost: what transactions report, beside the changes that arrived


class End(NamedTuple):
    """A message of a transaction's end; its time in milliseconds since the epoch.

    Attributes:
        where: The message's topic, partition and offset.
        counts: How many changes it had of each table, as `schema.table`.
    """

    where: tuple[str, int, int]
    at_ms: int
    transaction: str
    counts: Mapping[str, int]


class Within(NamedTuple):
    """The changes of a source, which is a table of a server, in a transaction."""

    source: str
    transaction: str


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """What arrived in the period that is counted.

    Attributes:
        changes: How many different changes of each transaction.
        outside: How many changes of each source were read of the log, and name no transaction.
        newest: By source and partition of its topics when the newest change of a transaction was
            written there.
        unreadable: Messages that cannot be read, of which nobody knows the transaction.
        has_more: The source held more than was read of it.
    """

    changes: Mapping[Within, int]
    outside: Mapping[str, int]
    newest: Mapping[str, Mapping[tuple[str, int], int]]
    unreadable: int = 0
    has_more: bool = False

    @property
    def sources(self) -> set[str]:
        return {*self.newest, *self.outside, *(one.source for one in self.changes)}

    def is_past(self, source: str, at_ms: int) -> bool:
        """Whether each partition of a source has brought a later change: what was written before is
        there, as each is read in order.
        """
        newest = self.newest.get(source, {}).values()
        return bool(newest) and min(newest) > at_ms


@dataclass(frozen=True, kw_only=True)
class Lacking:
    """A transaction of which changes are lacking.

    Attributes:
        end: Its last message that arrived.
        expected: The changes that it had of the table.
        found: Those that arrived.
        is_sure: Nothing of it can be on its way, and no message is unreadable.
    """

    source: str
    end: End
    expected: int
    found: int
    is_sure: bool

    def __str__(self) -> str:
        topic, partition, offset = self.end.where
        return (
            f"{self.source}: of transaction {self.end.transaction}, which ended at "
            f"{topic}[{partition}]@{offset}, {self.found:,} of "
            f"{self.expected:,} changes arrived"
        )


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The transactions of a period, counted.

    Attributes:
        transactions: How many ended that changed the table.
        changes: How many changes of the table they had.
        on_their_way: Transactions of which changes may still come.
        lacking: Those of which changes are lost, the oldest first.
        problems: Why nothing is known of some.
    """

    transactions: int
    changes: int
    on_their_way: int
    lacking: tuple[Lacking, ...]
    problems: tuple[str, ...]
    unreadable: int

    @property
    def is_whole(self) -> bool:
        return not self.lacking and not self.problems


def counted(ends: Iterable[End], arrived: Arrived, now_ms: int, patience_ms: int) -> Counted:
    """Compare what transactions say they had with what arrived.

    A change that is lacking is lost once each partition of its source has brought a later one, or
    else once its transaction has ended so long ago. While the source holds more than was read, it
    may be there. A message that arrived twice counts once.
    """
    ended = list(ends)
    problems = dict(_problems(ended, arrived, now_ms - patience_ms))
    expectations = _by_source(ended, arrived.sources)
    lacking, on_their_way = list[Lacking](), 0
    for within, (end, expected) in expectations.items():
        found = arrived.changes.get(within, 0)
        if found >= expected or within.source in problems:
            continue
        is_past = arrived.is_past(within.source, end.at_ms)
        if not arrived.has_more and (is_past or end.at_ms < now_ms - patience_ms):
            is_sure = is_past and not arrived.unreadable
            lacking.append(
                Lacking(
                    source=within.source, end=end, expected=expected, found=found, is_sure=is_sure
                )
            )
        else:
            on_their_way += 1
    return Counted(
        transactions=len(expectations),
        changes=sum(expected for _, expected in expectations.values()),
        on_their_way=on_their_way,
        lacking=tuple(sorted(lacking, key=lambda one: one.end.at_ms)),
        problems=tuple(problems.values()),
        unreadable=arrived.unreadable,
    )


def _by_source(ends: Iterable[End], sources: Collection[str]) -> dict[Within, tuple[End, int]]:
    """Of each source and transaction its last end, and the most changes of any end: one that is
    sent again may count only the rest.
    """
    tables: dict[tuple[str, str], list[str]] = {}
    found: dict[Within, tuple[End, int]] = {}
    for end in ends:
        for table, count in end.counts.items():
            key = end.where[0], table
            if key not in tables:
                tables[key] = list(_sources_of(*key, sources))
            for source in tables[key]:
                within = Within(source, end.transaction)
                last, most = found.get(within, (end, 0))
                found[within] = max(last, end, key=lambda one: one.at_ms), max(most, count)
    return found


def _sources_of(topic: str, table: str, sources: Collection[str]) -> Iterator[str]:
    """The sources that a topic of transactions means by a table; it is named after its server,
    unless somebody named it otherwise.
    """
    suffix = "." + ".".join(table.split(".")[-2:])
    named = {source: source.removesuffix(suffix) for source in sources if source.endswith(suffix)}
    own = [source for source, server in named.items() if topic.startswith(f"{server}.")]
    return iter(own or named)


def _problems(ends: Collection[End], arrived: Arrived, before_ms: int) -> Iterator[tuple[str, str]]:
    """By source, why nothing is known of its changes."""
    in_transactions = {one.source for one in arrived.changes}
    for source, count in sorted(arrived.outside.items()):
        if source not in in_transactions:
            remedy = (
                "set `provide.transaction.metadata=true` in the connector, or leave transactions= "
                "out"
            )
            yield (
                source,
                (
                    f"{count:,} changes of {source} name no transaction, so that lost ones are not "
                    f"found: {remedy}"
                ),
            )
    for source in sorted(in_transactions):
        if (
            not ends
            and not arrived.has_more
            and max(arrived.newest[source].values(), default=before_ms) < before_ms
        ):
            yield (
                source,
                (
                    f"changes of {source} arrived, and no end of any transaction: is transactions= the "
                    f"connector's topic of them?"
                ),
            )
