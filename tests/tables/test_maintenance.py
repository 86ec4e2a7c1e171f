"""Maintenance as declared and as planned."""

import datetime as dt
import re
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.cdc import CDCMerge, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.maintenance import (
    BEFORE,
    DEFAULTS,
    FILES,
    LOG,
    Action,
    DataFile,
    Kind,
    Maintenance,
    OldFile,
    Plan,
    Reader,
    Subject,
    TableFiles,
    duration,
    kept,
    lowered,
    opened,
    plan,
    plan_together,
    raised,
    wanted,
)
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"every": "daily"}, "Maintenance, every: 'daily' is no schedule; write every(days=1)"),
    ({"budget": 0}, "Maintenance, budget: 0 is not a whole number of at least 1"),
    ({"min_files": True}, "Maintenance, min_files: True is not a whole number of at least 2"),
    (
        {"small_file": 10, "target_file": 19},
        (
            "Maintenance, target_file: 19 is less than twice small_file (10); what was joined would be "
            "small"
        ),
    ),
    (
        {"keep_for": dt.timedelta(hours=2)},
        "is not a timedelta of at least 7 days: readers and writers may still need the files",
    ),
    ({"remove_orphans": "yes"}, "Maintenance, remove_orphans: 'yes' is neither True nor False"),
    (
        {"properties": {"delta.x": 5}},
        "Maintenance, properties: {'delta.x': 5} is no map of names to texts, such as",
    ),
    (
        {"properties": {"delta.enableDeletionVectors": "true"}},
        (
            "Maintenance, properties: 'delta.enableDeletionVectors' is chosen by what is declared of "
            "the table, such as its readers"
        ),
    ),
    (
        {"properties": {"owner": "ann"}},
        (
            "Maintenance, properties: 'owner' may be a name of Spark's own, such as owner; write "
            "delta.…"
        ),
    ),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_what_cannot_work_is_refused_by_field_and_value(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(message)):
        Maintenance(**given)


def test_tables_carry_it_and_all_three_of_one_that_follows_a_database() -> None:
    maintenance = Maintenance(keep_for=dt.timedelta(days=30))
    computed = sql_table(
        "gold.total",
        sql="SELECT count(*) AS n FROM bronze.orders",
        refresh="full",
        storage=Storage(maintenance=maintenance),
    )
    follows = cdc_table(
        "shop.orders",
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(keys=("id",)),
        storage=Storage(maintenance=maintenance),
    )
    assert [table.maintenance for table in (computed, follows, follows.bronze)] == [maintenance] * 3


DAY = 86_400_000


NOW = 100 * DAY


POLICY = Maintenance(small_file=10, target_file=40, min_files=2, budget=10**9)


GIVEN_NAMES = count()


def make_file(size: int = 5, **fields: Any) -> DataFile:
    return DataFile(**{"path": f"f{next(GIVEN_NAMES)}", "size": size, "rows": 100} | fields)


def make_old(days: float, size: int = 1) -> OldFile:
    return OldFile(path=f"old{next(GIVEN_NAMES)}", size=size, since=NOW - round(days * DAY))


def planned(
    *live: DataFile, readers: tuple[Reader, ...] = (), policy: Maintenance = POLICY, **files: Any
) -> Plan:
    return plan(TableFiles(table="t", live=live, **files), readers, policy, NOW)


def kinds(made: Plan) -> list[Kind]:
    return [action.kind for action in made.actions]


# Rewriting
def test_small_files_of_a_partition_are_joined_and_large_ones_are_left() -> None:
    made = planned(
        *(make_file(partition=("a",)) for _ in range(3)),
        make_file(50, partition=("a",)),
        make_file(partition=("b",)),
    )
    (action,) = made.actions
    assert (action.kind, action.partition, action.files, action.bytes, action.below) == (
        Kind.COMPACT,
        ("a",),
        3,
        15,
        10,
    )
    assert action.reason == "3 files below 10 bytes, at most 40 bytes together in one"


def test_files_with_many_deleted_rows_are_rewritten_by_the_ratio_of_their_partition() -> None:
    many, few = (
        make_file(50, deleted=30, partition=("a",)),
        make_file(50, deleted=5, partition=("b",)),
    )
    (action,) = planned(many, few).actions
    assert (action.kind, action.partition, action.files) == (Kind.PURGE, ("a",), 1)
    assert action.reason == "30% of the rows of 1 files are deleted by vectors, more than 5%"


def test_the_budget_goes_to_what_saves_most_files_per_byte_and_the_rest_says_so() -> None:
    good, poor = (
        [make_file(1, partition=("a",)) for _ in range(8)],
        [make_file(9, partition=("b",)) for _ in range(3)],
    )
    made = planned(*poor, *good, policy=replace(POLICY, budget=20))
    assert [(action.partition, action.bytes) for action in made.actions] == [(("a",), 8)]
    (refused,) = made.refused
    assert (refused.action.partition, refused.why) == (
        ("b",),
        "20 bytes are the budget of a run, of which 12 bytes are left",
    )


def test_a_clustered_table_whose_rows_lie_together_no_more_is_laid_out_again() -> None:
    """As after a MERGE that rewrote files which lay one after another into two that hold all
    keys.
    """
    scattered = [make_file(100, span=(0, 99)) for _ in range(2)]
    (action,) = planned(*scattered, is_clustered=True).actions
    assert (action.kind, action.partition, action.bytes) == (Kind.COMPACT, None, 200)
    assert action.reason == (
        "a value is looked for in 200 bytes, where 40 bytes would do; OPTIMIZE lays out the "
        "whole of the table"
    )
    assert planned(*scattered).actions == ()
    assert (
        planned(
            *(make_file(40, span=(n, n + 1)) for n in range(0, 10, 2)), is_clustered=True
        ).actions
        == ()
    )
    assert planned(*(make_file(100) for _ in range(2)), is_clustered=True).actions == ()


# Removing
def test_what_was_removed_longer_ago_than_is_kept_goes() -> None:
    made = planned(removed=(make_old(7.5), make_old(6.5)))
    assert [(action.kind, action.files, action.before) for action in made.actions] == [
        (Kind.VACUUM, 1, NOW - 7 * DAY)
    ]
    assert (
        kinds(
            planned(
                removed=(make_old(7.5),), policy=replace(POLICY, keep_for=dt.timedelta(days=30))
            )
        )
        == []
    )
    assert kinds(planned(removed=(make_old(7.5),), properties={FILES: "interval 30 days"})) == []


def test_a_day_before_what_a_consumer_reads_next_is_kept() -> None:
    policy = replace(POLICY, keep_for=dt.timedelta(days=20))
    made = planned(
        removed=(make_old(21.5), make_old(20.5)),
        readers=(Reader(name="r", since=NOW - 20 * DAY),),
        policy=policy,
    )
    assert [(action.files, action.before) for action in made.actions] == [(1, NOW - 21 * DAY)]


def test_orphans_are_reported_of_until_somebody_says_that_they_may_go() -> None:
    orphans = (make_old(8), make_old(4), make_old(1))
    made = planned(orphans=orphans)
    assert made.actions == ()
    assert [(refused.action.kind, refused.action.files) for refused in made.refused] == [
        (Kind.ORPHANS, 2)
    ]
    made = planned(
        orphans=orphans, removed=(make_old(9),), policy=replace(POLICY, remove_orphans=True)
    )
    assert [(action.kind, action.files) for action in made.actions] == [(Kind.ORPHANS, 2)]


# Those who read
def test_while_a_consumer_waits_nothing_is_touched_and_what_it_needs_is_kept_longer() -> None:
    held = Reader(name="gold.totals", since=NOW - 3 * DAY, waits="BLOCKED: attempt 5 failed")
    made = planned(
        make_file(), make_file(), removed=(make_old(9),), readers=(held, Reader(name="other"))
    )
    assert [(action.kind, dict(action.properties)) for action in made.actions] == [
        (Kind.RAISE, {FILES: "interval 17 days", BEFORE + FILES: ""})
    ]
    assert {refused.action.kind: refused.why for refused in made.refused} == dict.fromkeys(
        (Kind.COMPACT, Kind.VACUUM), "gold.totals waits: BLOCKED: attempt 5 failed"
    )


def test_where_the_log_is_kept_for_a_short_time_a_consumer_is_waited_for_sooner() -> None:
    """What is raised for it is no reason to wait for it no longer."""
    behind, short = (
        Reader(name="r", since=NOW - 3 * DAY, unread=NOW - 3 * DAY),
        {LOG: "interval 5 days"},
    )
    assert planned(make_file(), make_file(), readers=(behind,)).refused == ()
    made = planned(make_file(), make_file(), readers=(behind,), properties=short)
    assert [(action.kind, action.properties[LOG]) for action in made.actions] == [
        (Kind.RAISE, "interval 17 days")
    ]
    raised = {
        name: value
        for name, value in {**short, **made.actions[0].properties}.items()
        if value is not None
    }
    made = planned(make_file(), make_file(), readers=(behind,), properties=raised)
    assert (made.actions, [refused.action.kind for refused in made.refused]) == ((), [Kind.COMPACT])
    made = planned(properties=raised, readers=(Reader(name="r"),))
    assert [(action.kind, action.properties[LOG]) for action in made.actions] == [
        (Kind.LOWER, "interval 5 days")
    ]


# Laws
PARTITIONS = st.sampled_from([("a",), ("b",), ("c",)])


LIVE = st.builds(
    lambda size, deleted, partition: make_file(size, deleted=deleted, partition=partition),
    st.integers(1, 60),
    st.one_of(st.just(0), st.integers(1, 99)),
    PARTITIONS,
)


OLD = st.builds(make_old, st.floats(0, 60), st.integers(1, 50))


READERS = st.builds(
    lambda age, later, waits: Reader(
        name="r",
        since=None if age is None else NOW - round(age * DAY),
        unread=None if age is None else NOW - round(age * later * DAY),
        waits=waits,
    ),
    st.one_of(st.none(), st.floats(0, 60)),
    st.floats(0, 1),
    st.sampled_from(["", "", "BLOCKED: by somebody"]),
)


WORLDS = st.builds(
    lambda live, removed, orphans: TableFiles(
        table="t", live=tuple(live), removed=tuple(removed), orphans=tuple(orphans)
    ),
    st.lists(LIVE, max_size=20),
    st.lists(OLD, max_size=8),
    st.lists(OLD, max_size=4),
)


POLICIES = st.builds(
    lambda budget, keep, orphans: replace(
        POLICY, budget=budget, keep_for=dt.timedelta(days=keep), remove_orphans=orphans
    ),
    st.sampled_from([20, 60, 200, 10**9]),
    st.integers(7, 40),
    st.booleans(),
)


@given(WORLDS, st.lists(READERS, max_size=3), POLICIES)
def test_nothing_that_a_consumer_has_not_read_or_a_reader_may_need_is_removed(
    files: TableFiles, readers: list[Reader], policy: Maintenance
) -> None:
    after = executed(files, plan(files, readers, policy, NOW), policy)
    gone = {old.path: old for old in files.removed} | {old.path: old for old in files.orphans}
    for old in (*after.removed, *after.orphans):
        gone.pop(old.path, None)
    kept = policy.keep_for // dt.timedelta(milliseconds=1)
    unread = [reader.since for reader in readers if reader.since is not None]
    for old in gone.values():
        assert old.since < NOW - kept
        assert all(old.since < since for since in unread)
        assert not any(reader.waits for reader in readers)
    assert {old.path for old in files.live} <= {old.path for old in (*after.live, *after.removed)}


@given(WORLDS, POLICIES)
def test_no_run_rewrites_more_than_its_budget(files: TableFiles, policy: Maintenance) -> None:
    made = plan(files, [], policy, NOW)
    assert made.rewrites <= policy.budget
    before, after = {file.path: file for file in files.live}, executed(files, made, policy).live
    assert (
        sum(before[path].size for path in before.keys() - {file.path for file in after})
        <= made.rewrites
    )


@given(WORLDS, st.lists(READERS, max_size=3), POLICIES)
def test_after_it_was_done_there_is_nothing_more_to_do(
    files: TableFiles, readers: list[Reader], policy: Maintenance
) -> None:
    """Deleted rows make what was rewritten smaller, so that it may be joined once more: with files
    without them once is enough.
    """
    policy = replace(policy, budget=10**9)
    rounds = 2 if any(file.deleted for file in files.live) else 1
    for _ in range(rounds):
        files = executed(files, plan(files, readers, policy, NOW), policy)
    assert plan(files, readers, policy, NOW).actions == ()


# What Delta does of it, in small
def executed(files: TableFiles, made: Plan, policy: Maintenance) -> TableFiles:
    for action in made.actions:
        files = done(files, action, policy)
    return files


def done(files: TableFiles, action: Action, policy: Maintenance) -> TableFiles:
    match action.kind:
        case Kind.RAISE | Kind.LOWER | Kind.PROPERTIES:
            merged = {**files.properties, **action.properties}
            return replace(
                files,
                properties={name: value for name, value in merged.items() if value is not None},
            )
        case Kind.VACUUM | Kind.ORPHANS:
            orphans = tuple(
                one
                for one in files.orphans
                if action.kind is Kind.VACUUM or one.since >= action.before
            )
            return replace(
                files,
                removed=tuple(one for one in files.removed if one.since >= action.before),
                orphans=orphans,
            )
        case Kind.COMPACT:
            taken = [
                file
                for file in files.live
                if file.partition == action.partition and file.size < action.below
            ]
            return rewritten(
                files, [one for one in bins(taken, policy.target_file) if len(one) > 1]
            )
        case Kind.PURGE:
            taken = [
                file for file in files.live if file.partition == action.partition and file.deleted
            ]
            return rewritten(files, bins(taken, policy.target_file))


def bins(files: list[DataFile], size: int) -> list[list[DataFile]]:
    """Smallest first, as many as fit, as Delta's OPTIMIZE packs them."""
    packed: list[list[DataFile]] = [[]]
    for file in sorted(files, key=lambda file: file.size):
        if packed[-1] and sum(one.size for one in packed[-1]) + file.size > size:
            packed.append([])
        packed[-1].append(file)
    return [one for one in packed if one]


def rewritten(files: TableFiles, groups: list[list[DataFile]]) -> TableFiles:
    gone = {file.path for group in groups for file in group}
    made = [
        make_file(
            max(1, sum(file.size * (100 - file.deleted) // 100 for file in group)),
            rows=sum(100 - file.deleted for file in group),
            partition=group[0].partition,
        )
        for group in groups
    ]
    removed = tuple(
        OldFile(path=file.path, size=file.size, since=NOW)
        for file in files.live
        if file.path in gone
    )
    live = (*(file for file in files.live if file.path not in gone), *made)
    return replace(files, live=live, removed=(*files.removed, *removed))


SPANS = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda two: (min(two), max(two))),
        st.integers(1, 9),
    )
)


def test_where_the_span_of_a_file_is_not_known_nothing_is_said() -> None:
    assert (opened([((0, 4), 10), (None, 10)]), opened([])) == (0, 0)


@given(SPANS)
def test_it_is_what_a_look_at_each_file_finds(files: list[tuple[tuple[int, int], int]]) -> None:
    found = [
        sum(size for (low, high), size in files if low <= span[0] <= high) for span, _ in files
    ]
    assert opened(files) == (sum(found) / len(found) if found else 0)


@pytest.mark.parametrize(("dimensions", "size"), [(1, 10), (2, 40), (4, 80)])
def test_laid_out_by_several_columns_a_value_of_one_lies_in_more_files(
    dimensions: int, size: int
) -> None:
    assert wanted(160, 10, dimensions) == size
    assert wanted(5, 10, dimensions) == 10


ONE_DAY = dt.timedelta(days=1)


PROPERTIES = st.dictionaries(
    st.sampled_from([LOG, FILES]), st.integers(1, 90).map(lambda days: f"interval {days} days")
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("interval 1 week", 7 * ONE_DAY),
        ("interval 30 days", 30 * ONE_DAY),
        ("INTERVAL 1 day 12 hours", 1.5 * ONE_DAY),
        ("168 hours", 7 * ONE_DAY),
        ("interval 1 month", None),
        ("", None),
    ],
)
def test_intervals_of_delta_are_read(text: str, meant: dt.timedelta | None) -> None:
    assert duration(text) == meant


def test_only_what_is_kept_too_short_is_raised_and_for_longer_than_needed() -> None:
    assert raised({}, 2 * ONE_DAY, 7 * ONE_DAY) == {FILES: "interval 16 days", BEFORE + FILES: ""}
    assert raised({FILES: "interval 16 days", BEFORE + FILES: ""}, 8 * ONE_DAY, 7 * ONE_DAY) == {}
    assert raised({FILES: "interval 16 days", BEFORE + FILES: ""}, 10 * ONE_DAY, 7 * ONE_DAY) == {
        FILES: "interval 24 days"
    }


@given(
    PROPERTIES,
    st.lists(st.integers(0, 100), min_size=1, max_size=4).map(sorted),
    st.integers(7, 30),
)
def test_raised_as_often_as_may_be_it_keeps_enough_and_is_lowered_to_what_it_was(
    given: dict[str, str], ages: list[int], ahead: int
) -> None:
    now = dict(given)
    for age in ages:
        now |= {
            name: value
            for name, value in raised(now, age * ONE_DAY, ahead * ONE_DAY).items()
            if value is not None
        }
        assert all(kept(now, name) >= (age + ahead) * ONE_DAY for name in DEFAULTS)
        assert raised(now, age * ONE_DAY, ahead * ONE_DAY) == {}
    after = {name: value for name, value in {**now, **lowered(now)}.items() if value is not None}
    assert after == given


def test_tables_that_are_planned_together_share_a_budget_that_goes_where_it_saves_most() -> None:
    poor, good = (
        Subject(files=TableFiles(table=name, live=live), readers=(), policy=POLICY)
        for name, live in (
            ("poor", tuple(make_file(9) for _ in range(3))),
            ("good", tuple(make_file(1) for _ in range(8))),
        )
    )
    made = {one.table: one for one in plan_together([poor, good], 20, NOW)}
    assert {name: [action.bytes for action in one.actions] for name, one in made.items()} == {
        "poor": [],
        "good": [8],
    }
    assert [one.why for one in made["poor"].refused] == [
        "20 bytes are the budget of a run, of which 12 bytes are left"
    ]
    assert [one.rewrites for one in plan_together([poor, good], 35, NOW)] == [27, 8]
