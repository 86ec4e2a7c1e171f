"""What a range gives, against a plain-Python count of the rows that delta-rs reads at both ends."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakechime_dagster.dce.snapshots import Verdict
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.spark.ranges import CHANGE, RangeRead, ReadMethod, net_changes, read_range
from tests.support.refreshes import Source, read_rows

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("p", pa.int32()), ("k", pa.int64()), ("v", pa.string())])
# a counterexample is not made smaller: each try costs seconds of Spark
SHORT = (Phase.explicit, Phase.reuse, Phase.generate)
Row = tuple[Any, ...]

ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("update"), st.integers(0, 9), st.sampled_from("xyz")),
    st.tuples(st.just("delete"), st.integers(0, 9), st.none()),
    st.tuples(st.just("replace"), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.just("restore"), st.integers(1, 3), st.none()),
    st.tuples(st.just("optimize"), st.none(), st.none()),
)


def play(source: Source, actions: list[tuple[str, Any, Any]]) -> None:
    """A history with unique keys; `restore` goes back some versions, keys never come twice
    otherwise.
    """
    key = 0
    for action, one, other in actions:
        new = (
            [(one, key + i, "new") for i in range(other)] if action in ("append", "replace") else []
        )
        key += len(new)
        match action:
            case "append":
                source.write(*new)
            case "update":
                source.update({"v": f"'{other}'"}, f"k % 10 = {one}")
            case "delete":
                source.delete(f"k % 10 = {one}")
            case "replace":
                source.write(*new, mode="overwrite", predicate=f"p = {one}")
            case "restore":
                source.restore(max(0, source.log.version - one))
            case _:
                source.optimize()


def images(read: RangeRead) -> Counter[Row]:
    """Per row, how many more there are at the end than at the start."""
    assert read.changes is not None
    total: Counter[Row] = Counter()
    for row in read.changes.select("p", "k", "v", CHANGE).collect():
        total[tuple(row)[:3]] += row[CHANGE]
    return Counter({row: count for row, count in total.items() if count})


def difference(source: Source, start: int, end: int) -> Counter[Row]:
    now, before = (
        Counter(read_rows(source.location, end)),
        Counter(read_rows(source.location, start)),
    )
    return Counter({row: now[row] - before[row] for row in now | before if now[row] != before[row]})


def applied(source: Source, start: int, read: RangeRead) -> list[Row]:
    """The rows of the start with the net changes by key put on them."""
    assert read.changes is not None
    upserts, deletes = net_changes(read.changes, ["k"])
    state = {row[1]: row for row in read_rows(source.location, start)}
    for row in deletes.collect():
        state.pop(row["k"], None)
    state |= {row["k"]: (row["p"], row["k"], row["v"]) for row in upserts.collect()}
    return sorted(state.values(), key=repr)


@settings(
    max_examples=3,
    deadline=None,
    phases=SHORT,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=st.lists(ACTIONS, min_size=3, max_size=7), change_feed=st.booleans(), data=st.data())
def test_the_images_of_any_range_are_the_difference_of_its_ends(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    actions: list[tuple[str, Any, Any]],
    change_feed: bool,
    data: st.DataObject,
) -> None:
    source = Source(tmp_path_factory.mktemp("range") / "t", SCHEMA, ("p",), change_feed)
    source.write(*[(p, 1000 + 10 * p + i, "old") for p in range(3) for i in range(2)])
    play(source, [("append", 0, 1), *actions])
    end = data.draw(st.integers(1, source.log.version), label="end")
    start = data.draw(st.integers(0, end - 1), label="start")
    read = read_range(spark, source.log, source.range(start, end))
    assert read.verdict.is_incremental
    assert read.method is not ReadMethod.WHOLE
    assert images(read) == difference(source, start, end)
    assert applied(source, start, read) == read_rows(source.location, end)


@pytest.mark.parametrize("change_feed", [True, False])
def test_each_method_is_taken_where_it_is_the_cheapest(
    spark: SparkSession, tmp_path: Path, change_feed: bool
) -> None:
    source = Source(tmp_path / "t", SCHEMA, ("p",), change_feed)
    source.write((0, 1, "a"), (1, 2, "b"))
    source.write((0, 3, "c"))
    source.optimize()
    source.update({"v": "'z'"}, "k = 1")
    ways = {
        "first": read_range(spark, source.log, source.range(None, 1)),
        "appends": read_range(spark, source.log, source.range(0, 2)),
        "optimize": read_range(spark, source.log, source.range(1, 2)),
        "update": read_range(spark, source.log, source.range(0, 3)),
    }
    assert {name: read.method for name, read in ways.items()} == {
        "first": ReadMethod.WHOLE,
        "appends": ReadMethod.LOG_FILES,
        "optimize": ReadMethod.NOTHING,
        "update": ReadMethod.CHANGE_FEED if change_feed else ReadMethod.VERSION_DIFF,
    }
    assert (ways["first"].is_first, ways["first"].must_replace, ways["first"].end.count()) == (
        True,
        False,
        3,
    )
    assert images(ways["appends"]) == {(0, 3, "c"): 1}
    assert images(ways["optimize"]) == {}
    assert images(ways["update"]) == {(0, 3, "c"): 1, (0, 1, "a"): -1, (0, 1, "z"): 1}


def test_a_change_feed_that_began_within_the_range_is_not_relied_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path / "t", SCHEMA, ("p",), change_feed=False)
    source.write((0, 1, "a"))
    source.delete("k = 1")
    DeltaTable(str(source.location)).alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true"}
    )
    source.write((0, 2, "b"))
    read = read_range(spark, source.log, source.range(0))
    assert read.method is ReadMethod.VERSION_DIFF
    assert images(read) == {(0, 1, "a"): -1, (0, 2, "b"): 1}
    source.update({"v": "'z'"}, "k = 2")
    assert read_range(spark, source.log, source.range(3)).method is ReadMethod.CHANGE_FEED


def test_deletion_vectors_are_read_by_either_method(spark: SparkSession, tmp_path: Path) -> None:
    location = tmp_path / "t"
    for has_feed in (True, False):
        table = f"delta.`{location}{has_feed}`"
        spark.sql(
            f"CREATE TABLE {table} (p INT, k BIGINT, v STRING) USING delta TBLPROPERTIES"
            f" (delta.enableDeletionVectors = true, delta.enableChangeDataFeed = "
            f"{str(has_feed).lower()})"
        )
        spark.sql(f"INSERT INTO {table} VALUES (0, 1, 'a'), (0, 2, 'b'), (0, 3, 'c')")
        spark.sql(f"DELETE FROM {table} WHERE k = 2")
        source = Source(Path(f"{location}{has_feed}"), SCHEMA)
        read = read_range(spark, source.log, source.range(1))
        assert read.method is (ReadMethod.CHANGE_FEED if has_feed else ReadMethod.VERSION_DIFF)
        assert images(read) == {(0, 2, "b"): -1}


def test_files_that_a_clean_up_took_make_the_range_expired_not_wrong(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path / "t", SCHEMA, (), change_feed=False)
    source.write((0, 1, "a"))
    source.update({"v": "'z'"}, "k = 1")
    source.write((0, 2, "b"))
    DeltaTable(str(source.location)).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False
    )
    read = read_range(spark, source.log, source.range(0))
    assert (read.verdict, read.must_replace) == (Verdict.EXPIRED, True)
    assert read.end.count() == 2
    with pytest.raises(TableUnreadableError, match="removed by a clean-up"):
        read_range(spark, source.log, source.range(None, 0))


def test_a_reader_of_everything_needs_nothing_of_what_was_joined_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path / "t", SCHEMA, (), change_feed=False)
    source.write((0, 1, "a"))
    source.write((0, 2, "b"))
    source.optimize()
    DeltaTable(str(source.location)).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False
    )
    source.write((0, 3, "c"))
    source.optimize()
    source.update({"v": "'z'"}, "k = 1")
    read = read_range(spark, source.log, source.range(1))
    assert read.method is ReadMethod.VERSION_DIFF
    assert images(read) == {(0, 1, "a"): -1, (0, 1, "z"): 1, (0, 3, "c"): 1}
    (joined,) = [file.path for commit in source.log.commits(1, 2) for file in commit.moved_in]
    # the second OPTIMIZE moved it, the update changed what it became
    (source.location / joined).unlink()
    assert read_range(spark, source.log, source.range(1)).verdict is Verdict.EXPIRED


@pytest.mark.parametrize("adds_column", [False, True])
def test_a_start_that_the_log_can_no_longer_rebuild_makes_the_range_expired(
    spark: SparkSession, tmp_path: Path, adds_column: bool
) -> None:
    source = Source(tmp_path / "t", SCHEMA, change_feed=adds_column)
    source.write((0, 1, "a"))
    source.write((0, 2, "b"))
    if adds_column:
        source.schema = SCHEMA.append(pa.field("w", pa.string()))
        source.write((0, 3, "c", "new"), schema_mode="merge")
    source.update({"v": "'z'"}, "k = 1")
    DeltaTable(str(source.location)).create_checkpoint()
    for version in (0, 1):
        (source.location / "_delta_log" / f"{version:020d}.json").unlink()
    read = read_range(spark, source.log, source.range(1))
    assert (read.verdict, read.must_replace) == (Verdict.EXPIRED, True)
    assert read.note == "the log was cleaned up: snapshot 1 can no longer be rebuilt"
    assert read.end.count() == 2 + adds_column


@pytest.mark.parametrize("change_feed", [True, False])
def test_a_range_over_which_a_column_changes_its_type_is_not_read_by_increments(
    spark: SparkSession, tmp_path: Path, change_feed: bool
) -> None:
    source = Source(tmp_path / "t", SCHEMA, change_feed=change_feed)
    source.write((0, 1, "a"))
    source.schema = pa.schema([("p", pa.int32()), ("k", pa.int64()), ("v", pa.int64())])
    source.write((0, 1, 5), mode="overwrite", schema_mode="overwrite")
    read = read_range(spark, source.log, source.range(0))
    assert (read.verdict, read.must_replace) == (Verdict.EXPIRED, True)
    assert "another type" in read.note
    assert [tuple(row) for row in read.end.collect()] == [(0, 1, 5)]


def test_a_range_over_which_a_column_is_renamed_is_not_read_by_increments(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path / "t", SCHEMA)
    source.write((0, 1, "a"), (0, 2, "b"))
    table = f"delta.`{source.location}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    mapped = source.log.version
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN v TO w")
    spark.sql(f"UPDATE {table} SET w = 'z' WHERE k = 1")
    renamed = read_range(spark, source.log, source.range(mapped))
    assert (renamed.verdict, renamed.must_replace) == (Verdict.EXPIRED, True)
    later = read_range(spark, source.log, source.range(mapped + 1))
    assert later.method is ReadMethod.CHANGE_FEED


def test_a_range_over_which_a_column_is_added_is_read_by_its_change_feed(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path / "t", SCHEMA)
    source.write((0, 1, "a"), (0, 2, "b"))
    source.schema = SCHEMA.append(pa.field("w", pa.string()))
    source.write((0, 3, "c", "new"), schema_mode="merge")
    source.update({"v": "'z'"}, "k = 1")
    read = read_range(spark, source.log, source.range(0))
    assert read.method is ReadMethod.CHANGE_FEED
    assert images(read) == {(0, 1, "z"): 1, (0, 1, "a"): -1, (0, 3, "c"): 1}
