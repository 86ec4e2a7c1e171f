"""Two tables are compared by checksums of ranges, down to the rows that differ, as if each row were
compared.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.compare import (
    Differences,
    Fault,
    Key,
    Row,
    Summary,
    chunks,
    compare,
    confirmed,
    named_there,
)


@dataclass
class Table:
    """A table in memory, in the order of its keys; `asked` counts its queries."""

    held: list[Row]
    asked: int = field(default=0)

    def summary(self, low: Key | None, high: Key | None) -> Summary:
        rows = self.rows(low, high)
        return Summary(len(rows), len({key for key, _ in rows}), sum(value for _, value in rows))

    def rows(self, low: Key | None, high: Key | None) -> list[Row]:
        self.asked += 1
        return [
            (key, value)
            for key, value in self.held
            if (low is None or low < key) and (high is None or key <= high)
        ]

    def middle(self, low: Key | None, high: Key | None, offset: int) -> Key | None:
        keys = sorted(key for key, _ in self.rows(low, high))  # which counts it
        return keys[offset] if offset < len(keys) else None

    def at(self, keys: Sequence[Key]) -> list[Row]:
        self.asked += 1
        return [(key, value) for key, value in self.held if key in keys]


def a_key(number: int) -> Key:
    return (f"{number:06}",)


def a_row(number: int, version: int = 0) -> Row:
    return a_key(number), int.from_bytes(
        hashlib.md5(f"{number} {version}".encode()).digest()[:8], signed=True
    )


def a_table(count: int) -> Table:
    return Table([a_row(number) for number in range(count)])


def faults_of(source: Table, lake: Table) -> dict[Key, Fault]:
    """By brute force."""
    found = dict[Key, Fault]()
    for key in {key for key, _ in source.held + lake.held}:
        ours, theirs = (
            sorted(value for other, value in side.held if other == key) for side in (source, lake)
        )
        if ours != theirs:
            found[key] = (
                Fault.MISSING
                if not theirs
                else Fault.EXTRA
                if not ours
                else Fault.DIFFERENT
                if len(ours) == len(theirs)
                else Fault.DUPLICATE
            )
    return found


ROWS = st.lists(
    st.builds(
        lambda number, version: a_row(number, version), st.integers(0, 60), st.integers(0, 3)
    ),
    max_size=50,
)


@given(
    kept=ROWS,
    gone=ROWS,
    added=ROWS,
    leaf=st.integers(1, 8),
    max_queries=st.none() | st.integers(0, 60),
)
def test_the_differences_are_those_of_comparing_each_row(
    kept: list[Row], gone: list[Row], added: list[Row], leaf: int, max_queries: int | None
):
    """Or their keys are in a range of which it is said that it was not looked into."""
    ours, theirs = Table(kept + gone), Table(kept + added)
    found = (
        compare(ours, theirs, leaf=leaf)
        if max_queries is None
        else compare(ours, theirs, leaf=leaf, max_queries=max_queries)
    )
    asked = ours.asked + theirs.asked
    all_faults = faults_of(ours, theirs)
    unreached = {
        key
        for low, high in found.unresolved
        for key, _ in ours.rows(low, high) + theirs.rows(low, high)
    }
    assert found.faults == {key: fault for key, fault in all_faults.items() if key not in unreached}
    assert unreached == set() or max_queries is not None
    assert asked <= 2 + (1_000 if max_queries is None else max_queries)


def test_one_row_among_many_is_found_with_few_queries():
    ours, theirs = a_table(10_000), a_table(10_000)
    theirs.held[7_777] = (a_key(7_777), 1)
    found = compare(ours, theirs, leaf=100)
    assert found.faults == {a_key(7_777): Fault.DIFFERENT}
    assert ours.asked + theirs.asked <= 40


def test_equal_tables_take_one_query_each():
    ours, theirs = a_table(100), a_table(100)
    assert compare(ours, theirs, leaf=1) == Differences({})
    assert (ours.asked, theirs.asked) == (1, 1)


def test_a_table_of_many_ranges_is_compared_to_its_end():
    ours, theirs = a_table(100), a_table(100)
    theirs.held[99] = (a_key(99), 1)
    found = compare(ours, theirs, ranges=list(chunks(ours, 2)), max_queries=10)
    assert found == Differences({a_key(99): Fault.DIFFERENT})


def test_a_comparison_that_its_queries_end_has_rows_to_show_and_says_where_it_ended():
    ours, theirs = a_table(2_000), Table([])
    found = compare(
        ours, theirs, ranges=[(None, a_key(999)), (a_key(999), None)], leaf=10, max_queries=100
    )
    assert len(found.faults) > 50
    last = max(found.faults)
    assert found.unresolved[0][0] == last
    assert found.unresolved[-1] == (a_key(999), None)


def test_a_row_that_arrived_meanwhile_is_no_fault():
    ours, theirs = a_table(10), a_table(9)
    theirs.held[2] = (a_key(2), 1)
    suspects = compare(ours, theirs)
    assert set(suspects.faults.values()) == {Fault.MISSING, Fault.DIFFERENT}
    theirs.held.append(ours.held[9])
    assert confirmed(suspects, ours.held, theirs, at_once=1).faults == {a_key(2): Fault.DIFFERENT}


@given(source=ROWS, size=st.integers(1, 60))
def test_chunks_hold_each_key_once_and_few_rows(source: list[Row], size: int):
    table = Table(list({key: (key, value) for key, value in source}.values()))
    ranges = list(chunks(table, size))
    assert [low for low, _ in ranges] == [None, *(high for _, high in ranges[:-1])]
    assert ranges[-1][1] is None
    counts = [table.summary(low, high).count for low, high in ranges]
    assert counts[:-1] == [size] * (len(counts) - 1)
    assert counts[-1] < size


@pytest.mark.parametrize(
    ("names", "lake", "there"),
    [
        ({}, ["id", "A"], {"id": "id", "A": "A"}),
        ({"amt": "amount"}, ["id", "Amount"], {"id": "id", "amt": "Amount"}),
        ({"a": "b", "b": "a"}, ["a", "b"], {"b": "a", "a": "b"}),
        ({"amt": "amount"}, ["amt", "amount"], {"amt": "amount"}),  # amt was there before
        ({"amt": "amount"}, ["id", "amt"], {"id": "id"}),  # amount is not there yet
    ],
)
def test_the_lakes_columns_are_compared_with_those_of_which_they_are_other_names(
    names: dict[str, str], lake: list[str], there: dict[str, str]
) -> None:
    assert named_there(names, lake) == there
