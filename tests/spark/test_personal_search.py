"""The rows of people in tables of every kind: which are found, and that no value of anybody is in a
plan, a log or a message.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.governance.requests import Searched, Subject, TaggedPath
from lakechime_dagster.governance.spark_search import Match, keys_frame, matches
from lakechime_dagster.spark.session import session_confs

pytestmark = pytest.mark.spark


def subject(line: int, **values: str) -> Subject:
    return Subject(line, tuple(sorted(values.items())))


def found(
    spark: SparkSession,
    location: str | Path,
    paths: dict[str, str],
    *several: Subject,
    **options: Any,
) -> list[Match]:
    """The matches in a table."""
    one = Searched(
        table="t",
        paths=tuple(TaggedPath(name, category) for name, category in paths.items()),
        **options,
    )
    return sorted(
        matches(keys_frame(spark, several), one, str(location)),
        key=lambda match: (match.subject, match.row),
    )


def shown(several: list[Match]) -> list[tuple[int, tuple[str, ...], Any]]:
    return [(one.subject, one.by, json.loads(one.row)) for one in several]


def test_a_row_is_found_by_columns_of_any_type_once_for_each_subject(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        {
            "id": 17,
            "email": "a",
            "mails": ["b", "a", "a"],
            "who": {"name": "x", "all": [{"mail": "c"}]},
        },
        {"id": 18, "email": None, "mails": None, "who": None},
    ]
    write_deltalake(tmp_path / "t", pa.Table.from_pylist(rows))
    paths = {
        "Email": "email",
        "mails": "email",
        "who.all.mail": "email",
        "id": "customer",
        "gone": "email",
    }
    asked = [
        subject(1, email="a"),
        subject(2, email="c", customer="017"),
        subject(3, email="d", customer="18"),
        subject(4, customer="no"),
    ]
    expected = [
        (1, ("Email", "mails"), rows[0]),
        (2, ("who.all.mail", "id"), rows[0]),
        (3, ("id",), rows[1]),
    ]
    assert shown(found(spark, tmp_path / "t", paths, *asked)) == expected


def test_addresses_are_found_in_small_letters_too_and_other_values_only_as_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        {"mail": "ann@example.com", "id": "aB1"},
        {"mail": "Ann@Example.com", "id": "ab1"},
        {"mail": None, "id": None},
    ]
    write_deltalake(tmp_path / "t", pa.Table.from_pylist(rows))
    assert (
        len(found(spark, tmp_path / "t", {"mail": "email"}, subject(1, email="Ann@Example.com")))
        == 2
    )
    assert len(found(spark, tmp_path / "t", {"id": "customer"}, subject(1, customer="aB1"))) == 1


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[None]:
    """All that Spark reports of what it does meanwhile, written as its history server reads it."""
    folder.mkdir()
    context: Any = spark.sparkContext._jsc.sc()  # type: ignore[attr-defined]
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    conf = (
        context.conf()
        .clone()
        .set("spark.eventLog.compress", "false")
        .set("spark.eventLog.rolling.enabled", "false")
    )
    none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "app", none, jvm.java.net.URI(folder.as_uri()), conf, context.hadoopConfiguration()
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield
        context.listenerBus().waitUntilEmpty()
    finally:
        context.removeSparkListener(listener)
        listener.stop()


def test_no_value_of_anybody_is_in_a_plan_a_log_or_a_message(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Neither those that are asked for nor those of rows, where Spark and its connection report all
    they can.
    """
    rows = [
        {"id": 4711_0815, "email": "Xanthippe", "payload": '{"to": "Xanthippe"}'},
        {"id": 1, "email": "Yolanda", "payload": "{"},
    ]
    write_deltalake(tmp_path / "t", pa.Table.from_pylist(rows))
    paths = {"email": "email", "id": "customer", "payload:$.to": "email"}
    asked = [subject(1, email="Xanthippe", customer="47110815"), subject(2, customer="Zenobia")]
    caplog.set_level(logging.DEBUG)
    with (
        event_log(spark, tmp_path / "events"),
        session_confs(spark, {"spark.sql.ui.explainMode": "extended"}),
    ):
        assert len(found(spark, tmp_path / "t", paths, *asked, texts=("payload",))) == 2
    said = capfd.readouterr()
    log = "".join(one.read_text() for one in (tmp_path / "events").rglob("*") if one.is_file())
    assert "SparkListenerSQLExecutionStart" in log
    assert "BroadcastHashJoin" in log
    for name in ("Xanthippe", "47110815", "Yolanda", "Zenobia"):
        assert name not in log
        assert name not in caplog.text
        assert name not in said.out + said.err


def test_a_table_that_cannot_be_read_is_named_without_what_spark_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_deltalake(
        tmp_path / "t",
        pa.table({"email": ["Xanthippe"], "name": ["Xanthippe"]}),
        partition_by=["name"],
    )
    (file,) = tmp_path.glob("t/*/*.parquet")
    file.unlink()  # Spark reports its path
    with pytest.raises(TableUnreadableError) as refused:
        found(spark, tmp_path / "t", {"email": "email"}, subject(1, email="Xanthippe"))
    assert "t cannot be searched: Spark says" in str(refused.value)
    assert "Xanthippe" not in str(refused.value)
    assert refused.value.__cause__ is None
