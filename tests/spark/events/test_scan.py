"""Both back-ends report of every payload what the plain function reports."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.silver.bronze import COLUMNS, Tokenizer, load_tokenizer, scan
from lakechime_dagster.silver.event import scanned
from tests.spark.events.payloads import Chance, odd

pytestmark = pytest.mark.spark

VECTORS = json.loads(
    (Path(__file__).parents[2] / "silver" / "variations.json").read_text(encoding="utf-8")
)
TYPES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("type",), ("p",)),
    (("a", "b"), ("a",)),
    (("a",), ("a", "b")),
    ((), ()),
)
Row = tuple[str | None, ...]


@pytest.fixture(scope="module")
def tokenizer(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    found = load_tokenizer(spark, tmp_path_factory.mktemp("tokenizers"))
    assert found is not None
    return found


@pytest.fixture(params=["in the JVM", "in Python"])
def back_end(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Tokenizer | None:
    return tokenizer if request.param == "in the JVM" else None


def frame(spark: SparkSession, payloads: Sequence[bytes | None], partitions: int = 2) -> DataFrame:
    numbered = {
        "n": pa.array(range(len(payloads)), pa.int32()),
        "payload": pa.array(payloads, pa.binary()),
    }
    return spark.createDataFrame(pa.table(numbered)).repartition(partitions)


def reported(rows: DataFrame) -> list[Row]:
    table = rows.orderBy("n").toArrow()
    return list(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))


def plainly(
    payload: bytes | None, type_field: tuple[str, ...], producer_field: tuple[str, ...] = ()
) -> Row:
    found = scanned(payload or b"", type_field, producer_field)
    return (
        found.reason,
        found.type,
        found.producer,
        found.typed_hash,
        ",".join(found.flags) or None,
    )


def differences(
    spark: SparkSession,
    payloads: Sequence[bytes],
    back_end: Tokenizer | None,
    *fields: tuple[str, ...],
    partitions: int = 2,
) -> list[tuple[bytes, Row, Row]]:
    """Payloads of which a back-end does not report what the plain function reports, the shortest
    first.
    """
    found = reported(
        scan(frame(spark, payloads, partitions), "payload", *fields, back_end=back_end)
    )
    wanted = [plainly(payload, *fields) for payload in payloads]
    different = [one for one in zip(payloads, found, wanted, strict=True) if one[1] != one[2]]
    return sorted(different, key=lambda one: len(one[0]))[:3]


@pytest.mark.parametrize("name", ["a", "b"])
def test_golden_vectors(spark: SparkSession, back_end: Tokenizer | None, name: str) -> None:
    """Those that have a text at this name, which then is their type."""
    vectors = [
        vector for vector in VECTORS if isinstance(json.loads(vector["event"]).get(name), str)
    ]
    rows = reported(
        scan(
            frame(spark, [vector["event"].encode() for vector in vectors]),
            "payload",
            (name,),
            back_end=back_end,
        )
    )
    assert [row[3] for row in rows] == [vector["typed_hash"] for vector in vectors]
    assert rows


@pytest.mark.parametrize("fields", TYPES, ids=str)
def test_what_only_some_readers_take_and_what_is_at_a_bound(
    spark: SparkSession, back_end: Tokenizer | None, fields: tuple[tuple[str, ...], ...]
) -> None:
    assert not differences(spark, odd(), back_end, *fields)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), fields=st.sampled_from(TYPES))
def test_the_jvm_reports_of_any_bytes_what_the_plain_function_reports(
    spark: SparkSession, tokenizer: Tokenizer, seed: int, fields: tuple[tuple[str, ...], ...]
) -> None:
    assert not differences(spark, Chance(seed, fields[0]).payloads(3000), tokenizer, *fields)


def test_python_workers_report_of_any_bytes_what_the_plain_function_reports(
    spark: SparkSession,
) -> None:
    assert not differences(spark, Chance(1, ("type",)).payloads(3000), None, ("type",), ("p",))


def event(fields: Mapping[str, object]) -> bytes:
    return json.dumps({"type": "t"} | dict(fields)).encode()


def test_ids_as_names_are_forgotten_in_time_and_reported_all_the_same(
    spark: SparkSession, tokenizer: Tokenizer
) -> None:
    """More paths than are remembered, of one task and in one payload, and what is known of all
    comes in between.
    """
    ids = [event({f"{number}-{i}": {"b": []} for i in range(200)}) for number in range(400)]
    many = event({str(i): 1 for i in range(150_000)})
    payloads = [
        one for between in (*ids, many) for one in (event({"a": 1}), event({"a": "x"}), between)
    ]
    assert not differences(spark, [*payloads, *payloads[-5:]], tokenizer, ("type",), partitions=1)


def test_other_columns_are_kept_and_those_of_these_names_replaced(
    spark: SparkSession, back_end: Tokenizer | None
) -> None:
    rows = spark.sql(
        """SELECT 1 AS `a.b`, 'old' AS Type, '{"type":"tä"}' AS text, named_struct('c', ARRAY(2)) AS more"""
    )
    found = scan(rows, "text", ("type",), back_end=back_end)
    assert found.columns == ["a.b", "text", "more", *COLUMNS]
    (row,) = found.collect()
    assert (row["a.b"], row["text"], row["more"].asDict(), row["type"], row["reason"]) == (
        1,
        '{"type":"tä"}',
        {"c": [2]},
        "tä",
        None,
    )


def test_a_payload_is_read_once_whatever_is_asked_of_it(
    spark: SparkSession, tokenizer: Tokenizer
) -> None:
    rows = scan(frame(spark, [b"{}"]), "payload", ("type",), back_end=tokenizer).where(
        "reason IS NULL AND type LIKE 'a%'"
    )
    plan = rows.groupBy("type", "hash").count()._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[operator]
    assert plan.count("lakechime_json_scan_") == 1


def test_fields_are_distinguished_whatever_their_names_are(
    spark: SparkSession, back_end: Tokenizer | None
) -> None:
    for field in (("a.b",), ("a", "b"), ("a\ud800",), ("",), ("ä",)):
        payload = b'{"a.b":"1","a":{"b":"2"},"a\\ud800":"3","":"4","\xc3\xa4":"5"}'
        assert not differences(spark, [payload], back_end, field, field)
