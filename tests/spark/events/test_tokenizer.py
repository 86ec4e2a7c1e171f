"""The tokenizer comes into any JVM that lets it, beside those of other revisions; where it does
not, the log says why.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from lakechime_dagster.silver import bronze as tokenizer
from lakechime_dagster.silver.bronze import SOURCE, load_tokenizer, scan
from lakechime_dagster.spark.warm import start_warm_driver
from tests.spark.drivers.test_standalone import master
from tests.support.spark import run_client, small_settings

pytestmark = pytest.mark.spark

__all__ = ["master"]

CLIENT = """
    from lakechime_dagster.silver import bronze as tokenizer
    from lakechime_dagster.silver.bronze import scan
    def reasons(driver):
        found = tokenizer.load_tokenizer(driver.spark, home / "the tokenizers", log=log)
        payloads = driver.spark.range(0, 100, 1, 4).selectExpr("CAST(IF(id < 98, '{\\"type\\":\\"t\\"}', '{') AS BINARY) AS payload")
        rows = scan(payloads, "payload", ("type",), back_end=found).groupBy("reason").count().collect()
        return found is not None, sorted((str(row["reason"]), row["count"]) for row in rows)
"""
OTHER = """
    class Other:
        def read_text(self, encoding, source=tokenizer.SOURCE):
            return source.read_text(encoding=encoding).replace('"not_json"', '"OTHER"')
    tokenizer.SOURCE = Other()
"""


@pytest.fixture
def other_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A revision of its own, that names a reason after the test."""
    path = tmp_path / "JsonScan.java"
    path.write_text(
        SOURCE.read_text(encoding="utf-8").replace('"not_json"', f'"{tmp_path.name}"'),
        encoding="utf-8",
    )
    monkeypatch.setattr(tokenizer, "SOURCE", path)
    return path


def reason(spark: SparkSession, back_end: tokenizer.Tokenizer | None) -> str:
    (row,) = scan(
        spark.sql("SELECT CAST('{' AS BINARY) AS payload"), "payload", ("type",), back_end=back_end
    ).collect()
    return row["reason"]


def test_two_revisions_are_beside_each_other_in_one_jvm(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_source: Path
) -> None:
    other = load_tokenizer(spark, tmp_path)
    monkeypatch.undo()
    ours = load_tokenizer(spark, tmp_path)
    assert ours is not None
    assert other is not None
    assert (reason(spark, other), reason(spark, ours), reason(spark, other)) == (
        tmp_path.name,
        "not_json",
        tmp_path.name,
    )


def test_a_jar_that_is_whole_is_not_compiled_again(spark: SparkSession, tmp_path: Path) -> None:
    source = SOURCE.read_text(encoding="utf-8")
    jar = tokenizer._jar(spark, source, "0", tmp_path)
    written, content = jar.stat().st_ino, jar.read_bytes()
    assert tokenizer._jar(spark, "no Java", "0", tmp_path).stat().st_ino == written
    jar.write_bytes(content[:-100])
    assert len(tokenizer._jar(spark, source, "0", tmp_path).read_bytes()) == len(content)
    assert list(tmp_path.iterdir()) == [jar]


def test_a_folder_that_cannot_be_written_is_reported_in_a_line(
    spark: SparkSession, tmp_path: Path, other_source: Path
) -> None:
    said: list[str] = []
    assert load_tokenizer(spark, other_source / "folder", said.append) is None
    (line,) = said
    assert line.startswith(
        "JSON is read in Python, many times slower, because Spark does not load our tokenizer: "
        "[Errno "
    )


def test_a_session_of_spark_connect_has_none(tmp_path: Path) -> None:
    said: list[str] = []
    connect = ConnectSession("sc://127.0.0.1:1")  # nobody listens there, and nobody is asked
    assert load_tokenizer(connect, tmp_path, said.append) is None  # type: ignore[arg-type]
    assert said == [
        (
            "JSON is read in Python, many times slower, because a session of Spark Connect loads no "
            "classes"
        )
    ]


def test_clients_of_a_warm_driver_have_each_their_own_revision(
    tmp_path: Path, spark_jars: Path
) -> None:
    settings = small_settings("warm")
    host = start_warm_driver(settings, tmp_path, spark_jars, is_exercised=False)
    try:
        assert host.wait_warmed(240), host.log_file.read_text()
        asked = "\n    with open_here() as driver: say(driver.kind, reasons(driver))\n"
        said = [
            run_client(code + asked, tmp_path, spark_jars, settings)
            for code in (CLIENT, CLIENT + OTHER, CLIENT)
        ]
    finally:
        host.stop()
    assert said == [
        [f"warm (True, [('None', 98), ('{reason}', 2)])"]
        for reason in ("not_json", "OTHER", "not_json")
    ]
    assert len(list((tmp_path / "the tokenizers").glob("*.jar"))) == 2


@pytest.mark.tier3
def test_executors_of_a_cluster_have_it_from_the_driver(
    master: str, tmp_path: Path, spark_jars: Path
) -> None:
    settings = small_settings(
        master, conf={"spark.executor.memory": "512m", "spark.cores.max": "2"}
    )
    code = CLIENT + "\n    with open_here() as driver: say(reasons(driver))\n"
    assert run_client(code, tmp_path, spark_jars, settings) == [
        "(True, [('None', 98), ('not_json', 2)])"
    ]
