"""Up to when a source is complete whose database tells which transactions are open in it.

Changes in the log of MySQL and MariaDB carry the time at which their statement began, and stand in the order of commits: those
of a transaction that is open for an hour come when an hour of others has been read.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from lakechime_dagster.cdc.meaning.fold import BEFORE_ALL
from lakechime_dagster.cdc.meaning.wire import order_text
from lakechime_dagster.cdc.remembering.state import Role, StateRow
from lakechime_dagster.triggers.grid import from_milliseconds

NOT_ASKED = "the database was not asked for its open transactions"
SPACING = 4  # a probe is kept that is older than the next one by this part of its age


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a database said of its open transactions, in milliseconds of its own clock, each a whole second.

    Attributes:
        table: The one that is followed, as `schema.table`.
        asked_ms: All was asked before.
        statement_ms: The oldest statement that ran began then or later.
        transaction_ms: The oldest transaction that had changed rows began then or later, by the database's engine; None
            where there was none. Its first statement may have begun before it, and have waited for a lock of its table.
    """

    table: str
    asked_ms: int
    statement_ms: int
    transaction_ms: int | None = None

    def is_of(self, source: str) -> bool:
        """Whether a source is named as the table is."""
        return source == self.table or source.endswith(f".{self.table}")

    @property
    def oldest_ms(self) -> int:
        """Since when something was open."""
        return self.statement_ms if self.transaction_ms is None else min(self.statement_ms, self.transaction_ms)

    def row(self) -> StateRow:
        """How it is remembered."""
        told = {"asked": self.asked_ms, "statement": self.statement_ms, "transaction": self.transaction_ms}
        return StateRow(Role.PROBE.value, None, self.table, order_text(BEFORE_ALL), columns=orjson.dumps(told).decode())

    @classmethod
    def of(cls, row: StateRow) -> "Probe":
        told = orjson.loads(row.columns or "{}")
        return cls(table=row.source, asked_ms=told["asked"], statement_ms=told["statement"], transaction_ms=told["transaction"])


@dataclass(frozen=True)
class Asked:
    """What came of asking a database; without a probe and a problem it was not to be asked."""

    probe: Probe | None = None
    problem: str = ""


@dataclass(frozen=True, order=True)
class Until:
    """Up to when nothing can come any more, in milliseconds, and how that is known."""

    at_ms: int
    why: str = field(compare=False)


def settled_ms(probe: Probe, probes: Iterable[Probe]) -> int | None:
    """The time below which nothing can come any more, once all is read that was committed when a probe was asked.

    What was open then was not at an earlier probe that was asked before the oldest of it began: its statements ran at that
    one, or began after it. None where there is none so early.
    """
    began = probe.transaction_ms
    if began is None:
        return probe.statement_ms
    return max((one.statement_ms for one in probes if one.asked_ms <= began), default=None)


def until(now_ms: Mapping[str, int], known_ms: Mapping[str, int], probes: Sequence[Probe], longest: dt.timedelta) -> Until | None:
    """Up to when all of some sources are complete; None where nothing is known of their times.

    Args:
        now_ms: The newest time that each has told of.
        known_ms: The same before this step. What came before it is read with the step, also where it lies in another partition.
        probes: What was remembered of the table's database before the step.
        longest: How long a transaction lasts where the database was not asked, or not for so long.
    """
    of = {source: found for source in now_ms if (found := [probe for probe in probes if probe.is_of(source)])}
    asked = of if len(of) == 1 else {}  # of several with its name none is known to be the database's
    return min((_of_source(one, at, known_ms.get(one), asked.get(one, ()), longest) for one, at in now_ms.items()), default=None)


def _of_source(source: str, now_ms: int, known_ms: int | None, probes: Sequence[Probe], longest: dt.timedelta) -> Until:
    lasts = longest // dt.timedelta(milliseconds=1)
    declared = Until(now_ms - lasts, f"{source} told of {_shown(now_ms)}, and its transactions last {longest} at most, as is declared")
    newest = max((probe.asked_ms for probe in probes), default=None)
    if newest is None or known_ms is None or newest + lasts < known_ms:
        return declared
    passed = [(settled, probe) for probe in probes if probe.asked_ms <= known_ms and (settled := settled_ms(probe, probes)) is not None]
    if passed:
        settled, probe = max(passed, key=lambda one: (one[0], one[1].asked_ms))
        return Until(settled, f"{source} was read past {_shown(probe.asked_ms)}, when its database had {_open(probe)}")
    oldest = min(probes, key=lambda one: one.oldest_ms)
    held = Until(oldest.oldest_ms, f"{source} was not read past {_shown(oldest.asked_ms)}, when its database had {_open(oldest)}")
    return min(declared, held)


def _open(probe: Probe) -> str:
    if probe.transaction_ms is None:
        return "no transaction open that had changed rows"
    return f"a transaction open since {_shown(probe.transaction_ms)}"


def kept(rows: Iterable[StateRow]) -> list[StateRow]:
    """Of what was remembered what is still needed: the older the probes, the farther apart.

    A source that is behind by a time passes one that is a quarter of that older than it might be, at most.
    """
    found = list[tuple[Probe, StateRow]]()
    for probe, row in sorted(((Probe.of(row), row) for row in rows), key=lambda one: one[0].asked_ms, reverse=True):
        if not found or (found[-1][0].asked_ms - probe.asked_ms) * SPACING >= found[0][0].asked_ms - probe.asked_ms > 0:
            found.append((probe, row))
    return [row for _, row in found]


def _shown(at_ms: int) -> str:
    return from_milliseconds(at_ms).isoformat(sep=" ", timespec="seconds")
