"""What becomes of the rows that a table returns: rows of new keys are added and others merged, each
once whoever else writes meanwhile; equal ones are left alone, and odd names, shapes and values are
written or refused.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.events import Position, SnapshotId
from lakechime_dagster.errors import DeclarationError, TableUnreadableError
from lakechime_dagster.spark import commit as insert
from lakechime_dagster.spark.commit import Target, commit
from lakechime_dagster.spark.inputs import open_inputs
from lakechime_dagster.spark.job import InputJob, Outcome, TableJob
from lakechime_dagster.spark.ranges import (
    MAX_ALTERNATIVES,
    MAX_LISTED,
    literal_filter,
    narrowed,
    same,
)
from lakechime_dagster.spark.refresh import quarantine
from lakechime_dagster.spark.rows import REASON, keyed_difference, shaped, sift
from lakechime_dagster.spark.session import MAX_LITERALS, column, comparable, local
from lakechime_dagster.tables.options import ReadMode
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.refreshes import (
    Source,
    Subscription,
    balanced,
    make_subscription,
    open_log,
    read_rows,
)

pytestmark = pytest.mark.spark
ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "source", ROWS)


@pytest.fixture
def subscription(spark: SparkSession, tmp_path: Path, source: Source) -> Subscription:
    return make_subscription(
        spark, tmp_path, {"source": source}, lambda source: source, keys=("k",)
    )


@pytest.fixture
def begun(subscription: Subscription, source: Source) -> Subscription:
    """The subscription after its first execution."""
    source.write((1, "a"))
    subscription.run()
    return subscription


def operations(subscription: Subscription) -> list[str]:
    return [one["operation"] for one in reversed(DeltaTable(subscription.job.location).history())]


def overwrite(subscription: Subscription) -> None:
    """As another engine does it, which replaces what is there."""
    Source(Path(subscription.job.location), ROWS).write((1, "a"), (2, "theirs"), mode="overwrite")


def append(subscription: Subscription) -> None:
    """As a session of Spark's does it, which reads nothing of the table."""
    theirs = subscription.spark.newSession().createDataFrame([(2, "theirs")], "k BIGINT, v STRING")
    theirs.write.format("delta").mode("append").save(subscription.job.location)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let this happen once, when the rows are compared and about to be written."""
    waiting, snapshot_at = [happens], insert.snapshot_at

    def opened(*arguments: Any) -> Any:
        if waiting:
            waiting.pop()()
        return snapshot_at(*arguments)

    monkeypatch.setattr(insert, "snapshot_at", opened)


@pytest.mark.tier1
def test_rows_of_new_keys_are_added_and_others_merged(
    subscription: Subscription, source: Source
) -> None:
    source.write((1, "a"), (2, "b"))
    assert balanced(subscription.run()).counts.inserted == 2
    source.write((3, "c"))
    assert balanced(subscription.run()).counts.inserted == 1
    source.update({"v": "'d'"}, "k = 3")
    source.write((4, "e"))
    counts = balanced(subscription.run()).counts
    assert (counts.inserted, counts.updated, operations(subscription)[1:]) == (
        1,
        1,
        ["WRITE", "WRITE", "MERGE"],
    )
    assert subscription.rows == [(1, "a"), (2, "b"), (3, "d"), (4, "e")]
    changes = pa.table(
        DeltaTable(subscription.job.location).load_cdf(starting_version=1)
    ).to_pylist()
    assert sorted(
        (one["k"], one["_change_type"], one["_commit_version"])
        for one in changes
        if one["_commit_version"] < 3
    ) == [(1, "insert", 1), (2, "insert", 1), (3, "insert", 2)]


def test_added_rows_of_a_partition_are_one_file(
    spark: SparkSession, tmp_path: Path, source: Source
) -> None:
    subscription = make_subscription(
        spark,
        tmp_path,
        {"source": source},
        lambda source: source,
        keys=("k",),
        partitioned_by=("v",),
    )
    source.write((99, "a"))
    subscription.run()
    source.write(*[(number, "ab"[number % 2]) for number in range(40)])
    result = subscription.run()
    assert (result.counts.inserted, result.files, result.partitions) == (40, 2, (("a",), ("b",)))


@pytest.mark.parametrize("write", [append, overwrite])
def test_a_key_that_another_writer_brings_after_the_comparison_is_there_once(
    begun: Subscription,
    source: Source,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Subscription], None],
) -> None:
    source.write((2, "ours"))
    meanwhile(monkeypatch, lambda: write(begun))
    result = balanced(begun.run())
    assert (result.counts.inserted, result.counts.updated) == (0, 1)
    assert begun.rows == [(1, "a"), (2, "ours")]


def test_an_attempt_that_another_one_overtakes_adds_nothing(
    spark: SparkSession, begun: Subscription, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's commit is empty, so that it is its transaction alone that reports of it."""
    source.write((2, "b"))
    target = Target(
        name="target",
        location=begun.job.location,
        log=open_log(begun.job.location, "target"),
        keys=("k",),
    )
    other = CommitMetadata(
        consumer=begun.consumer, number=2, attempt=2, execution_id="e2", end=Checkpoint()
    )
    meanwhile(
        monkeypatch,
        lambda: commit(spark, target, other, lambda: lambda: target.append_nothing(spark)),
    )
    result, _ = begun.attempt(2, 1)
    assert result.outcome is Outcome.SKIPPED
    assert begun.rows == [(1, "a")]


def test_consumers_of_keys_merge(subscription: Subscription, source: Source) -> None:
    source.write((1, "a"))
    replace(subscription, consumer=ConsumerId("test", "subscription", "one")).run()
    assert operations(subscription)[-1] == "MERGE"


def test_rows_with_a_new_column_are_merged(begun: Subscription, source: Source) -> None:
    source.write((2, "b"))
    begun.run(compute=lambda source: source.withColumn("w", source.v))
    assert operations(begun)[-1] == "MERGE"


SCHEMA = pa.schema([("ID", pa.int64()), ("V", pa.string())])


def source_of(folder: Path) -> Source:
    source = Source(folder / "orders", SCHEMA)
    source.write((1, "a"), (2, "b"))
    return source


def subscription_of(
    spark: SparkSession, folder: Path, sql: str, **fields: object
) -> tuple[Source, Subscription]:
    source = source_of(folder)
    return source, make_subscription(
        spark, folder, {"orders": source}, sql=sql, **{"keys": ("id",), **fields}
    )


def columns(subscription: Subscription) -> list[str]:
    return DeltaTable(subscription.job.location).schema().to_arrow().names  # type: ignore[union-attr]


def test_a_key_that_is_returned_in_another_case_is_the_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, subscription = subscription_of(spark, tmp_path, "SELECT ID, V FROM orders")
    assert subscription.run().counts.inserted == 2
    assert columns(subscription) == ["id", "V"]
    source.update({"V": "'z'"}, "`ID` = 1")
    counts = subscription.run().counts
    assert (counts.updated, counts.inserted, counts.deleted) == (1, 0, 0)
    assert subscription.rows == [(1, "z"), (2, "b")]


@pytest.mark.parametrize("mode", [RefreshMode.ROWS, RefreshMode.FULL])
def test_a_table_that_is_there_is_written_by_its_own_columns(
    spark: SparkSession, tmp_path: Path, mode: RefreshMode
) -> None:
    _, subscription = subscription_of(spark, tmp_path, "SELECT id, v FROM orders", refresh=mode)
    write_deltalake(subscription.job.location, pa.table({"Id": [1, 2], "V": ["a", "old"]}))
    counts = subscription.run().counts
    assert (counts.updated, counts.unchanged, counts.inserted, counts.deleted) == (1, 1, 0, 0)
    assert subscription.rows == [(1, "a"), (2, "b")]


@pytest.mark.tier1
def test_a_key_that_is_not_returned_is_named_with_what_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, subscription = subscription_of(spark, tmp_path, "SELECT V AS name FROM orders")
    with pytest.raises(
        DeclarationError, match=r"target.*does not return the column id.*only name; return it"
    ):
        subscription.run()


@pytest.mark.tier1
def test_two_columns_of_one_name_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    def twice(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("ID AS id", "ID + 1 AS Id")

    subscription = make_subscription(
        spark, tmp_path, {"orders": source_of(tmp_path)}, twice, keys=("id",)
    )
    with pytest.raises(
        DeclarationError,
        match=r"target.*returns id and Id, which are one column to Spark; return one of them",
    ):
        subscription.run()


@pytest.mark.tier1
def test_rows_that_differ_by_a_microsecond_are_both_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "bad")
    target = Target(name="bad", location=location, log=open_log(location, "bad"))
    for attempt in (1, 2, 3):
        values = (
            f"timestamp_micros({min(attempt, 2)}) AS at, timestamp_ntz'1500-01-01 00:00:00.000001' "
            f"AS `local`, 'late' AS {REASON}"
        )
        commit_metadata = CommitMetadata(
            consumer=ConsumerId("test", "subscription"),
            number=1,
            attempt=attempt,
            end=Checkpoint(position=Position(0, 1)),
        )
        assert quarantine(spark, target, commit_metadata, spark.sql(f"SELECT {values}")) == (
            1 if attempt < 3 else 0
        )
    assert [json.loads(row[4]) for row in read_rows(location)] == [
        {"at": f"1970-01-01T00:00:00.00000{micros}Z", "local": "1500-01-01T00:00:00.000001"}
        for micros in (1, 2)
    ]


SHAPES = [
    "map('a', {})",
    "map({}, 1)",
    "array(map('a', {}))",
    "named_struct('in', map('a', array({})))",
    "map('a', map('b', {}))",
    "named_struct('at', {}, 'other.name', parse_json('[1]'))",
    "map(named_struct('at', {}), 1)",
]
LEAST = [
    ("timestamp_micros(1)", "timestamp_micros(2)"),
    ("timestamp_ntz'1500-02-28 00:00:00.000001'", "timestamp_ntz'1500-02-28 00:00:00.000002'"),
    ("date'1500-02-28'", "date'1500-03-01'"),
    ("named_struct('a', 'x,', 'b', 'y')", "named_struct('a', 'x', 'b', ',y')"),
    ("unhex('00ff')", "unhex('00fe')"),
]
DIFFERENT = [
    ("""parse_json('{"a": 1, "b": null}')""", """parse_json('{"a": 1}')"""),
    ("parse_json('null')", "CAST(NULL AS VARIANT)"),
    ("CAST(timestamp_micros(1) AS VARIANT)", "CAST(timestamp_micros(2) AS VARIANT)"),
    ("map('a', CAST(NULL AS INT))", "map('a', 1)"),
    ("map('a', 1)", "CAST(NULL AS MAP<STRING, INT>)"),
    (
        "named_struct('m', CAST(NULL AS MAP<STRING, INT>))",
        "CAST(NULL AS STRUCT<m: MAP<STRING, INT>>)",
    ),
]
EQUAL = [
    ("""parse_json('{"a": 1, "b": null}')""", """parse_json('{"b": null, "a": 1}')"""),
    ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"),
    ("CAST(NULL AS MAP<STRING, INT>)", "CAST(NULL AS MAP<STRING, INT>)"),
]


def are_equal(spark: SparkSession, pairs: list[tuple[str, str]]) -> list[bool]:
    """For each pair of SQL values whether they are equal, asked in one query."""
    values = [
        (f"{one} AS `one.{i}`", f"{other} AS `other.{i}`") for i, (one, other) in enumerate(pairs)
    ]
    rows = spark.sql(f"SELECT {', '.join(text for pair in values for text in pair)}")

    def value(name: str) -> Column:
        return comparable(column(name), rows.schema[name].dataType)

    return list(
        rows.select(
            *[same(value(f"one.{i}"), value(f"other.{i}")) for i in range(len(pairs))]
        ).collect()[0]
    )


@pytest.mark.tier1
def test_nested_values_differ_by_the_least_that_they_can_hold(spark: SparkSession) -> None:
    pairs = [(shape.format(one), shape.format(other)) for shape in SHAPES for one, other in LEAST]
    assert [pair for pair, equal in zip(pairs, are_equal(spark, pairs), strict=True) if equal] == []
    alike = [(one, one) for one, _ in pairs]
    assert [
        pair for pair, equal in zip(alike, are_equal(spark, alike), strict=True) if not equal
    ] == []


def test_a_null_is_a_value_of_its_own_and_order_is_none(spark: SparkSession) -> None:
    assert are_equal(spark, DIFFERENT) == [False] * len(DIFFERENT)
    assert are_equal(spark, EQUAL) == [True] * len(EQUAL)


def one_row(spark: SparkSession, micros: int) -> DataFrame:
    return spark.sql(f"SELECT 1 AS k, map('at', timestamp_micros({micros})) AS v")


@pytest.mark.parametrize(("micros", "updated"), [(1, 0), (2, 1)])
def test_a_row_whose_map_differs_by_a_microsecond_is_updated(
    spark: SparkSession, micros: int, updated: int
) -> None:
    found = keyed_difference(one_row(spark, micros), one_row(spark, 1), ["k"])
    assert (found.updated, found.unchanged) == (updated, 1 - updated)


@pytest.mark.parametrize(
    "shape", ["map('a', timestamp_micros(id))", "map(CAST(CAST(id AS STRING) AS BINARY), 1)"]
)
def test_only_exact_repeats_of_a_row_are_one_row(spark: SparkSession, shape: str) -> None:
    repeated = spark.sql(
        f"SELECT k, {shape} AS v FROM VALUES (1, 1), (1, 1), (2, 1), (2, 2) AS t(k, id)"
    )
    sifted = sift(repeated, ["k"], {})
    assert (sifted.computed, sifted.deduplicated, sifted.quarantined) == (4, 1, 2)
    assert [row["k"] for row in sifted.good.collect()] == [1]
    sifted.kept.unpersist()


@pytest.mark.tier1
@pytest.mark.parametrize(
    ("before", "now", "value"),
    [
        (
            "named_struct('a', 'x', 'b', 'y')",
            "named_struct('b', 'y', 'a', 'x')",
            {"a": "x", "b": "y"},
        ),
        (
            "array(named_struct('a', 'x', 'b', 'y'))",
            "array(named_struct('b', 'y', 'a', 'x'))",
            [{"a": "x", "b": "y"}],
        ),
        (
            "map('k', named_struct('a', 'x', 'b', 'y'))",
            "map('k', named_struct('b', 'y', 'a', 'x'))",
            {"k": {"a": "x", "b": "y"}},
        ),
        ("named_struct('a', 'x')", "named_struct('b', 'y', 'a', 'x')", {"a": "x", "b": "y"}),
        ("named_struct('a', 'x', 'b', 1L)", "named_struct('a', 'z')", {"a": "z", "b": None}),
        ("named_struct('a', 'x')", "CAST(NULL AS struct<b:int, a:string>)", None),
        ("1L", "1", 1),
        ("CAST(1 AS decimal(10, 2))", "7S", 7),
        ("'x'", "7", "7"),
        ("1", "NULL", None),
    ],
)
def test_values_are_brought_under_a_type_by_name_and_by_widening(
    spark: SparkSession, before: str, now: str, value: object
) -> None:
    schema = spark.range(1).selectExpr(f"{before} AS v").schema
    row = shaped("silver.t", spark.range(1).selectExpr(f"{now} AS v"), schema).collect()[0]
    assert row.asDict(recursive=True) == {"v": value}


@pytest.mark.tier1
@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("1", "2.75D", "v is double, and int in the table"),
        (
            "DATE'2013-01-01'",
            "TIMESTAMP'2013-01-01 05:06:07'",
            "v is timestamp, and date in the table",
        ),
        ("1D", "9007199254740993L", "v is bigint, and double in the table"),
        (
            "named_struct('a', array(1))",
            "named_struct('a', array(1L))",
            "v.a.element is bigint, and int in the table",
        ),
    ],
)
def test_a_value_that_a_type_cannot_hold_is_refused(
    spark: SparkSession, before: str, now: str, said: str
) -> None:
    schema = spark.range(1).selectExpr(f"{before} AS v").schema
    with pytest.raises(
        DeclarationError,
        match=f"silver.t, columns: {said}, which would lose some of it; cast it to",
    ):
        shaped("silver.t", spark.range(1).selectExpr(f"{now} AS v"), schema)


def test_a_struct_that_grows_is_merged_and_compared(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path / "source", pa.schema([("k", pa.int64()), ("v", pa.string())]))
    source.write((1, "a"), (2, "b"))
    subscription = make_subscription(
        spark,
        tmp_path,
        {"source": source},
        sql="SELECT k, struct(v AS a) AS s FROM source",
        keys=("k",),
    )
    subscription.run()
    source.update({"v": "'z'"}, "k = 2")
    subscription.job = replace(
        subscription.job, sql="SELECT k, struct(upper(v) AS b, v AS a) AS s FROM source"
    )
    assert subscription.run().counts.updated == 1
    assert subscription.rows == [(1, {"a": "a", "b": None}), (2, {"a": "z", "b": "Z"})]


def make_source(folder: Path) -> Source:
    """A table of two commits, a row each."""
    source = Source(folder / "names", pa.schema([("k", pa.int64()), ("name", pa.string())]))
    source.write((1, "one"))
    source.write((2, "two"))
    return source


def clean_up(source: Source) -> None:
    DeltaTable(str(source.location)).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False
    )


def pinned_at(source: Source, version: int) -> TableJob:
    pinned = SnapshotId(str(version))
    names = InputJob(
        alias="names",
        table="names",
        location=str(source.location),
        mode=ReadMode.SNAPSHOT,
        pinned=pinned,
    )
    return TableJob(name="target", location="", inputs=(names,))


@pytest.mark.parametrize("way", ["overwritten", "compacted"])
def test_a_pinned_snapshot_whose_files_were_cleaned_up_is_answered_with_a_remedy(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    source = make_source(tmp_path)
    source.optimize() if way == "compacted" else source.write((1, "uno"), mode="overwrite")
    clean_up(source)
    with pytest.raises(
        TableUnreadableError,
        match=r"names: files of snapshot 1 were removed by a clean-up; the next attempt must read",
    ):
        open_inputs(spark, pinned_at(source, 1), open_log)


def test_files_that_came_and_went_after_a_pinned_snapshot_are_not_missed(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = make_source(tmp_path)
    source.delete("k = 2")
    clean_up(source)
    (names,) = open_inputs(spark, pinned_at(source, 0), open_log)
    assert [tuple(row) for row in names.end.collect()] == [(1, "one")]


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process in New York, whose clocks were put forward on 2013-03-10; the JVM stays where it
    is.
    """
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


EVERY_KIND = [
    "cast(id AS tinyint) AS small",
    "id % 2 = 0 AS flag",
    "cast(id AS decimal(20, 3)) / 3 AS price",
    "cast(id AS float) / 3 AS ratio",
    "cast(id AS double) / 7 AS share",
    "date_add(DATE'0001-01-01', cast(id AS int)) AS day",
    "TIMESTAMP'2013-03-10 06:30:00' AS at",
    "TIMESTAMP_NTZ'2013-03-10 02:30:00.123456' AS there",
    r"""concat("it's \\\n ", '$', '{spark.app.name}', id) AS name""",
]


@pytest.mark.parametrize("count", [4, MAX_LITERALS + 50], ids=["listed", "bounded"])
@pytest.mark.parametrize(
    "value",
    [
        "timestampadd(HOUR, cast(id AS INT), TIMESTAMP_NTZ'2013-03-10 00:30:00')",
        "timestampadd(HOUR, cast(id AS INT), TIMESTAMP'2013-03-10 00:30:00')",
        "date_add(DATE'0001-01-01', cast(id AS INT))",
        "date_add(DATE'9999-12-30', cast(id AS INT))",
    ],
    ids=["local time", "instant", "early date", "late date"],
)
def test_times_and_dates_are_found_in_a_process_of_another_zone(
    spark: SparkSession, new_york: None, value: str, count: int
) -> None:
    rows = spark.range(count + 20).selectExpr("id", f"{value} AS at")
    wanted = rows.where(f"id < {count}").select("at")
    found = narrowed(rows, wanted, {"at": column("at")})
    assert sorted(row["id"] for row in found.select("id").collect()) == list(range(count))


def test_long_values_are_bounded_without_a_checkpoint_that_holds_all_of_them(
    spark: SparkSession,
) -> None:
    """Together they would not fit into the driver's memory."""
    values = spark.range(1500).selectExpr("concat(id, repeat('x', 1000000)) AS name")
    condition = literal_filter(values, {"name": column("name")})
    assert condition is not None
    rows = spark.createDataFrame([("3x",), ("4x",), ("z",)], "name STRING")
    assert rows.where(condition).count() == 2


def is_one(left: DataFrame, right: DataFrame) -> bool:
    return (
        left.schema.simpleString() == right.schema.simpleString()
        and not left.exceptAll(right).count()
        and not right.exceptAll(left).count()
    )


def test_few_rows_of_every_kind_become_data_of_the_plan_as_they_are(
    spark: SparkSession, new_york: None
) -> None:
    values = spark.range(3).selectExpr(*EVERY_KIND)
    values = values.union(values.select(*[F.lit(None).alias(name) for name in values.columns]))
    held = local(values.union(values))
    assert held is not None
    assert is_one(held, values.distinct())


@pytest.mark.tier1
def test_what_is_data_of_the_plan_is_narrowed_by_without_a_job(spark: SparkSession) -> None:
    held, rows = local(spark.range(3)), spark.range(10)
    assert held is not None
    spark.sparkContext.setJobGroup(group := uuid4().hex, "")
    found = narrowed(rows, held, {"id": column("id")})
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    assert found.count() == 3
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(group)


@pytest.mark.tier1
@pytest.mark.parametrize("key", ["id", "cast(id AS INT)", "concat('it''s ', id)"])
def test_many_keys_that_are_data_of_the_plan_are_listed_without_a_job_and_a_join(
    spark: SparkSession, key: str
) -> None:
    rows = spark.range(2000).selectExpr(f"{key} AS key")
    wanted = rows.where("hash(key) % 3 = 0").toArrow()
    held = spark.createDataFrame(wanted, rows.schema)
    assert held.count() > MAX_LITERALS
    spark.sparkContext.setJobGroup(group := uuid4().hex, "")
    found = narrowed(rows, held, {"key": column("key")}, MAX_LISTED)
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    assert "Join" not in str(found._jdf.queryExecution().optimizedPlan())  # type: ignore[operator]
    assert found.toArrow().sort_by("key") == wanted.sort_by("key")


@pytest.mark.tier1
def test_null_among_many_listed_keys_is_found_too(spark: SparkSession) -> None:
    rows = spark.range(1000).selectExpr("nullif(id, 7) AS key")
    assert (
        narrowed(
            rows, rows.where("key IS NULL OR key < 500"), {"key": column("key")}, MAX_LISTED
        ).count()
        == 500
    )


@pytest.mark.parametrize(
    "values",
    ["range(201)", "(SELECT repeat('x', 1001) AS name)", "(SELECT array(1) AS listed)"],
    ids=["many", "long", "of no literals"],
)
def test_rows_that_are_many_or_long_or_have_no_literals_stay_where_they_are(
    spark: SparkSession, values: str
) -> None:
    assert local(spark.sql(f"SELECT * FROM {values}")) is None


@pytest.mark.parametrize("alternatives", [0, MAX_ALTERNATIVES], ids=["by a join", "by literals"])
def test_values_of_several_columns_are_wanted_together(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, alternatives: int
) -> None:
    monkeypatch.setattr("lakechime_dagster.spark.ranges.MAX_ALTERNATIVES", alternatives)
    rows = spark.sql(
        "SELECT * FROM VALUES (1, 'a'), (1, 'b'), (2, 'a'), (2, null), (null, 'b'), (null, null) "
        "AS t(k, name)"
    )
    wanted = spark.sql(
        "SELECT * FROM VALUES ('b', 1), (null, 2), (null, null), ('b', 7) AS t(name, k)"
    )
    found = narrowed(rows, wanted, {"k": column("k"), "name": column("name")})
    assert {tuple(row) for row in found.collect()} == {(1, "b"), (2, None), (None, None)}


def test_nothing_is_wanted_by_no_values(spark: SparkSession) -> None:
    assert narrowed(spark.range(3), spark.range(0), {"id": column("id")}).count() == 0


@pytest.mark.tier1
def test_both_zeros_are_one_value(spark: SparkSession) -> None:
    rows, wanted = spark.sql("SELECT -0.0D AS x"), spark.sql("SELECT 0.0D AS x")
    assert narrowed(rows, wanted, {"x": column("x")}).count() == 1
