"""Up to when a source is complete by what its database said of its open transactions."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.state import Probe, Until, compacted, kept, until

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
SOURCE = "m.shop.orders"


def a_probe(at: float, transaction: float | None = None, statement: float | None = None, table: str = "shop.orders") -> Probe:
    """What a database said at a time, in hours; its own question is the oldest statement unless another one is."""
    began = None if transaction is None else round(transaction * HOUR)
    return Probe(
        table=table, asked_ms=round(at * HOUR), statement_ms=round((at if statement is None else statement) * HOUR), transaction_ms=began
    )


def complete(*probes: Probe, now: float | Mapping[str, float], known: float | None = None, longest: float = 0.5) -> tuple[float, str]:
    """Up to when all is complete, in hours, and how that is known, with probes from before a step."""
    told = now if isinstance(now, Mapping) else {SOURCE: now}
    before = {source: round((at if known is None else known) * HOUR) for source, at in told.items()}
    found = until({source: round(at * HOUR) for source, at in told.items()}, before, probes, dt.timedelta(hours=longest))
    assert found is not None
    return found.at_ms / HOUR, found.why


def test_without_a_probe_the_declared_bound_counts() -> None:
    at, why = complete(now=5)
    assert (at, why) == (4.5, "m.shop.orders told of 1970-01-01 05:00:00+00:00, and its transactions last 0:30:00 at most, as is declared")


def test_a_source_that_was_read_past_a_probe_is_complete_up_to_it() -> None:
    at, why = complete(a_probe(4.9), now=5)
    assert at == 4.9
    assert why == "m.shop.orders was read past 1970-01-01 04:54:00+00:00, when its database had no transaction open that had changed rows"


@pytest.mark.parametrize(("told", "at"), [(5 * HOUR - SECOND, 4.5), (5 * HOUR, 5)])
def test_a_probe_is_passed_by_a_time_that_is_surely_later(told: int, at: float) -> None:
    """Of a change in the second of the question none can say on which side of it that was."""
    assert complete(a_probe(5), now=5, known=told / HOUR)[0] == at


def test_a_probe_that_was_not_passed_decides_nothing_but_what_it_holds_back() -> None:
    assert complete(a_probe(5), now=5.1, known=4.99)[0] == 4.6
    at, why = complete(a_probe(5, transaction=2), now=5.1, known=4.99)
    assert at == 2
    assert why.endswith(
        "was not read past 1970-01-01 05:00:00+00:00, when its database had a transaction open since 1970-01-01 02:00:00+00:00"
    )


def test_an_hour_in_which_a_long_transaction_wrote_is_not_complete_before_its_end_was_read() -> None:
    """It began at half past two, after the probe at two o'clock."""
    before, during, after = a_probe(2), [a_probe(at, transaction=2.5) for at in (3, 4, 5)], a_probe(6)
    assert complete(before, *during, now=5.5)[0] == 2
    assert complete(before, *during, after, now=5.5)[0] == 2
    assert complete(before, *during, after, now=6.5, known=6)[0] == 6


def test_a_transaction_may_hold_rows_of_a_statement_that_ran_at_the_last_probe_before_it_began() -> None:
    assert complete(a_probe(2, statement=1.5), a_probe(3, transaction=2.5), now=3.5)[0] == 1.5


def test_a_transaction_that_began_before_any_probe_holds_the_declared_bound() -> None:
    assert complete(a_probe(3, transaction=2.9), a_probe(4, transaction=2.9), now=5, known=4.4)[0] == 2.9
    assert complete(a_probe(3, transaction=2.9), now=3.2, known=3.1)[0] == 2.7


def test_a_long_statement_holds_too() -> None:
    assert complete(a_probe(4, statement=1), now=5, known=4.4)[0] == 1


@pytest.mark.parametrize(("known", "at"), [(4.5, 4), (4.6, 4.6)])
def test_where_the_database_is_no_longer_asked_the_declared_bound_counts_after_its_time(known: float, at: float) -> None:
    assert complete(a_probe(4), now=5.1, known=known)[0] == at


def test_a_probe_is_of_the_source_of_its_table_alone() -> None:
    assert complete(a_probe(4.9), now={SOURCE: 5, "m.shop.lines": 5})[0] == 4.5
    assert complete(a_probe(4.9), now={"shop.orders": 5})[0] == 4.9
    assert complete(a_probe(4.9), now={"east.shop.orders": 5, "west.shop.orders": 5})[0] == 4.5
    assert complete(a_probe(1, table="old.orders"), a_probe(4.9), now=5)[0] == 4.9


def test_nothing_is_known_of_no_source() -> None:
    assert until({}, {}, [a_probe(1)], dt.timedelta(0)) is None


def test_a_source_that_told_of_nothing_before_is_not_past_a_probe() -> None:
    found = until({SOURCE: 5 * HOUR}, {}, [a_probe(1)], dt.timedelta(hours=1))
    assert found == Until(4 * HOUR, "")


def test_a_probe_is_remembered_as_it_was() -> None:
    for probe in (a_probe(3, transaction=2.5), a_probe(3)):
        assert Probe.of(probe.row()) == probe
        assert probe.row().ts_ms is None  # it is no time of a source


def test_of_many_probes_the_newest_are_kept_and_of_older_ones_some() -> None:
    asked = [HOUR + at * MINUTE for at in range(60 * 24 * 30)]
    found = [Probe.of(row).asked_ms for row in compacted([Probe(table="t", asked_ms=at, statement_ms=at).row() for at in asked], {})]
    assert found[:5] == [asked[-1] - at * MINUTE for at in (0, 1, 2, 3, 4)]
    assert len(found) < 50
    assert all(newer - older <= (found[0] - older) / 4 + MINUTE for newer, older in pairwise(found))
    assert kept(kept([a_probe(1).row(), a_probe(1).row()])) == [a_probe(1).row()]


@dataclass(frozen=True)
class Transaction:
    """In tenths of a second: its first statement begins, waits for a lock, writes its row, and is over; so is the transaction later."""

    begins: int
    waits: int
    writes: int
    lasts: int

    @property
    def starts(self) -> int:
        return self.begins + self.waits

    @property
    def ended(self) -> int:
        return self.starts + self.writes

    @property
    def commits(self) -> int:
        return self.ended + self.lasts

    @property
    def row_ms(self) -> int:
        """The time of its row, which is cut to the second."""
        return second(self.begins)


def second(at: int) -> int:
    return at // 10 * SECOND


def asked(transactions: list[Transaction], at: int) -> Probe:
    """As a database answers at a moment."""
    running = [one.begins for one in transactions if one.begins <= at < one.ended]
    open_ones = [second(one.starts) for one in transactions if one.ended <= at < one.commits]
    oldest = min([at, *running])
    return Probe(
        table="shop.orders", asked_ms=second(at) + SECOND, statement_ms=second(oldest) - SECOND, transaction_ms=min(open_ones, default=None)
    )


@given(
    st.lists(st.builds(Transaction, st.integers(0, 250), st.integers(0, 60), st.integers(0, 40), st.integers(0, 150)), max_size=5),
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10), st.booleans()), min_size=5, max_size=20),
)
def test_nothing_comes_below_the_time_up_to_which_a_source_is_complete(
    transactions: list[Transaction], steps: list[tuple[int, int, bool]]
) -> None:
    """Beside many short transactions, whatever is open and waits, however far the log was read, and asked or not."""
    short = [Transaction(begins, waits=0, writes=0, lasts=0) for begins in range(0, 600, 3)]
    log = sorted([*transactions, *short], key=lambda one: one.commits)
    longest = dt.timedelta(milliseconds=max((100 * (one.commits - one.begins) for one in log), default=0) + SECOND)
    probes, known, now = list[Probe](), dict[str, int](), 0
    for passes, behind, may_ask in steps:
        now += passes
        read = [one for one in log if one.commits <= now - behind]
        told = {SOURCE: max(one.row_ms for one in read)} if read else {}
        found = until(told, known, probes, longest)
        if found is not None:
            assert [one for one in log[len(read) :] if one.row_ms < found.at_ms] == []
        probes = [*probes, asked(log, now)] if may_ask else probes
        known = told
