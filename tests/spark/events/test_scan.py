"""Both back-ends tell of every payload what the plain function tells."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.schema.scan import scanned
from lakechime_dagster.spark.events.scan import COLUMNS, scan
from lakechime_dagster.spark.events.tokenizer import Tokenizer, load_tokenizer
from tests.spark.events.payloads import Chance, odd

pytestmark = pytest.mark.spark

VECTORS = json.loads((Path(__file__).parents[2] / "schema" / "variations.json").read_text(encoding="utf-8"))
TYPES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ((("type",), ("p",)), (("a", "b"), ("a",)), (("a",), ("a", "b")), ((), ()))
Row = tuple[str | None, ...]


@pytest.fixture(scope="module")
def tokenizer(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    found = load_tokenizer(spark, tmp_path_factory.mktemp("tokenizers"))
    assert found is not None
    return found


@pytest.fixture(params=["in the JVM", "in Python"])
def back_end(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Tokenizer | None:
    return tokenizer if request.param == "in the JVM" else None


def frame(spark: SparkSession, payloads: Sequence[bytes | None]) -> DataFrame:
    numbered = {"n": pa.array(range(len(payloads)), pa.int32()), "payload": pa.array(payloads, pa.binary())}
    return spark.createDataFrame(pa.table(numbered)).repartition(2)


def told(rows: DataFrame) -> list[Row]:
    table = rows.orderBy("n").toArrow()
    return list(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))


def plainly(payload: bytes | None, type_field: tuple[str, ...], producer_field: tuple[str, ...] = ()) -> Row:
    found = scanned(payload or b"", type_field, producer_field)
    return (found.reason, found.type, found.producer, found.typed_hash, found.names_hash, ",".join(found.flags) or None)


def differences(
    spark: SparkSession, payloads: Sequence[bytes], back_end: Tokenizer | None, *fields: tuple[str, ...]
) -> list[tuple[bytes, Row, Row]]:
    """Payloads of which a back-end does not tell what the plain function tells, the shortest first."""
    found = told(scan(frame(spark, payloads), "payload", *fields, back_end=back_end))
    wanted = [plainly(payload, *fields) for payload in payloads]
    different = [one for one in zip(payloads, found, wanted, strict=True) if one[1] != one[2]]
    return sorted(different, key=lambda one: len(one[0]))[:3]


@pytest.mark.parametrize("name", ["a", "b"])
def test_golden_vectors(spark: SparkSession, back_end: Tokenizer | None, name: str) -> None:
    """Those that have a text at this name, which then is their type."""
    vectors = [vector for vector in VECTORS if isinstance(json.loads(vector["event"]).get(name), str)]
    rows = told(scan(frame(spark, [vector["event"].encode() for vector in vectors]), "payload", (name,), back_end=back_end))
    assert [row[3:5] for row in rows] == [(vector["typed_hash"], vector["names_hash"]) for vector in vectors]
    assert rows


def test_what_golden_vectors_are_made_of_within_other_events(spark: SparkSession, back_end: Tokenizer | None) -> None:
    payloads = [f'{{"type":"t","of":{vector["event"]}}}'.encode() for vector in VECTORS]
    assert not differences(spark, payloads, back_end, ("type",))


@pytest.mark.parametrize("fields", TYPES, ids=str)
def test_what_only_some_readers_take_and_what_is_at_a_bound(
    spark: SparkSession, back_end: Tokenizer | None, fields: tuple[tuple[str, ...], ...]
) -> None:
    assert not differences(spark, odd(), back_end, *fields)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), fields=st.sampled_from(TYPES))
def test_the_jvm_tells_of_any_bytes_what_the_plain_function_tells(
    spark: SparkSession, tokenizer: Tokenizer, seed: int, fields: tuple[tuple[str, ...], ...]
) -> None:
    assert not differences(spark, Chance(seed, fields[0]).payloads(3000), tokenizer, *fields)


def test_python_workers_tell_of_any_bytes_what_the_plain_function_tells(spark: SparkSession) -> None:
    assert not differences(spark, Chance(1, ("type",)).payloads(3000), None, ("type",), ("p",))
