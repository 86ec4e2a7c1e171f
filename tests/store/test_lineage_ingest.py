"""What documents report adds up in any order, however often each comes, on every database."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.answers import reached_tables
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.recording import SqlLineage, Taken, keep_reports
from lakechime_dagster.lineage.service import network_at
from lakechime_dagster.lineage.store import LineageStandings, SqlReads
from tests.lineage.factories import make_record, make_statement, source
from tests.lineage.ingest.factories import (
    NAMES,
    STORE,
    TABLES,
    columns,
    dataset,
    make_document,
    make_event,
    reported,
)
from tests.support.stores import fresh_memory

LAKE = NAMES.with_tables(TABLES)
OF_ID = dataset(STORE, "gold/days", columnLineage=columns(day=("raw/orders", "id", "IDENTITY")))
OF_AMOUNT = dataset(
    STORE, "gold/days", columnLineage=columns(total=("raw/orders", "amount", "AGGREGATION"))
)
SEVERAL = [
    make_event("START", inputs=(dataset("hive", "hive.shop.orders"),)),
    make_event("RUNNING", outputs=(OF_ID,)),
    make_event("COMPLETE", outputs=(OF_AMOUNT,), at="2026-01-01T00:00:02Z"),
    make_event("COMPLETE", outputs=(dataset(STORE, "gold/other"),), at="2026-01-01T00:00:01Z"),
    make_event("COMPLETE", run="run-2", outputs=(OF_ID,), at="2026-01-01T00:00:01.500Z"),
    make_event("FAIL", run="run-3", outputs=(OF_AMOUNT,)),
    make_document("SELECT name FROM shop.customers", dashboard="Sales", at=7_000, owners=["ann"]),
    make_document(
        "SELECT id FROM shop.customers", dashboard="Sales", at=9_000, owners=["joe"], run="r"
    ),
    make_document(at=8_000),
]


def take(engine: Engine, documents: Iterable[Any], way: str = "test") -> Taken:
    return keep_reports(engine, [reported(one) for one in documents], way, LAKE)


def known(engine: Engine) -> tuple[Any, ...]:
    """All that can be asked: what holds of each target, and who read what."""
    holds = sorted(
        str((one.producer, one.statement, one.last_ms, one.owners, one.links))
        for one in LineageStandings(engine).all()
    )
    return holds, SqlReads(engine).of_tables(["shop.customers", "shop.orders"])


def fresh() -> Engine:
    return fresh_memory()


EXPECTED = fresh()
take(EXPECTED, SEVERAL)


@given(st.permutations([*range(len(SEVERAL)), *range(0, len(SEVERAL), 2)]), st.integers(1, 5))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_order_of_documents_and_their_repeats_make_no_difference(
    order: list[int], size: int
) -> None:
    engine = fresh()
    for at in range(0, len(order), size):
        take(engine, [SEVERAL[number] for number in order[at : at + size]])
    assert known(engine) == known(EXPECTED)


def test_a_repeat_is_counted_and_changes_nothing(engine: Engine) -> None:
    first = take(engine, SEVERAL)
    again = take(engine, SEVERAL)
    assert (first.documents, first.repeated, first.records) == (9, 0, 3)
    assert (again.documents, again.repeated, again.records) == (9, 7, 0)


def test_who_reads_a_column_is_kept_with_the_first_and_the_last_time(engine: Engine) -> None:
    for at in (5_000, 9_000, 7_000):
        take(
            engine,
            [
                make_document(
                    "SELECT name FROM shop.customers WHERE id = 1",
                    dashboard="Sales",
                    at=at,
                    owners=[f"at-{at}"],
                )
            ],
        )
    by_id, by_name = SqlReads(engine).of_tables(["shop.customers"])
    assert (by_id.refs, by_name.refs) == (
        (ColumnRef("shop.customers", "id"),),
        (ColumnRef("shop.customers", "name"),),
    )
    assert (by_name.at_ms, by_name.owners, by_name.consumer.name) == (9_000, ("at-9000",), "Sales")


def test_nobody_is_another_answer_than_not_known(engine: Engine) -> None:
    reads = SqlReads(engine)
    assert reads.ways() == []
    take(engine, [make_document()], "api")
    (way,) = reads.ways()
    assert reads.of_tables(["shop.customers"]) == []
    assert way.name == "api"


def test_what_comes_of_a_run_after_all_of_it_was_dropped_takes_nothing_back(engine: Engine) -> None:
    take(engine, SEVERAL[:3])
    before = known(engine)
    with writing(engine) as connection:
        connection.execute(sa.delete(schema.pending_run))
    take(engine, SEVERAL[2:3])
    assert known(engine) == before


def test_hostile_names_are_kept_as_far_as_a_store_can_hold_them(engine: Engine) -> None:
    hostile = "x'; DROP TABLE y --<script>\0"
    event = make_event(
        outputs=(
            dataset(
                STORE, hostile, columnLineage=columns(**{hostile: ("raw", hostile, "IDENTITY")})
            ),
        )
    )
    assert take(engine, [event]).records == 1
    take(engine, [make_document(f"SELECT `{hostile}` FROM shop.customers", dashboard="<b>\0")])
    (found,) = LineageStandings(engine).all()
    assert found.statement.target.startswith("s3://lake/x'; DROP TABLE y --<script>")


def test_columns_join_in_whatever_letter_case_others_report_them(engine: Engine) -> None:
    first = make_event(
        outputs=(
            dataset(
                STORE, "gold/days", columnLineage=columns(Day=("raw/orders", "ID", "IDENTITY"))
            ),
        )
    )
    SqlLineage(engine).record(
        make_record(make_statement("s3://lake/raw/orders", id="shop.customers.name"))
    )
    take(engine, [first])
    take(
        engine,
        [
            make_document(
                "INSERT INTO elsewhere.last SELECT d.DAY AS day FROM gold.days AS d",
                at=2,
                namespace="dwh",
            )
        ],
    )
    SqlLineage(engine).record(
        make_record(
            make_statement(
                "own.last", day=source("gold.days.dAY"), indirect=(source("gold.days.DAY"),)
            )
        )
    )
    for start in ("shop.customers.name", "s3://lake/raw/orders.id", "gold.days.Day"):
        table, _, column = start.rpartition(".")
        found = {
            one.table
            for one in reached_tables(network_at(engine), [ColumnRef(table, column)]).tables
            if one.columns
        }
        assert {"own.last", "dwh/elsewhere.last"} <= found, start
    take(engine, [make_document("SELECT id FROM shop.orders", user="ann", at=3)])
    assert {str(*one.refs) for one in SqlReads(engine).of_tables(["shop.orders"])} == {
        "shop.orders.id"
    }


def test_letter_case_makes_no_two_columns_of_one(engine: Engine) -> None:
    SqlLineage(engine).record(make_record(make_statement("cased", Id="a.x")))
    SqlLineage(engine).record(
        make_record(make_statement("next", one="cased.ID", two="cased.id"), job="next")
    )
    found = {one.statement.target: one.statement for one in LineageStandings(engine).all()}
    assert {str(one.ref) for column in found["next"].columns for one in column.sources} == {
        "cased.Id"
    }
