"""What documents of ours report, and what is wrong with others."""

from typing import Any

import pytest

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Producer
from tests.lineage.ingest.factories import make_document, make_event, reported
from tests.lineage.sql.shapes import line


def test_a_document_reports_what_its_sql_wrote_and_who_owns_the_task() -> None:
    (record,) = reported(make_document(owners=["team:ops", "ann"])).records()
    assert (
        line(record.statement)
        == "gold.days: day = identity shop.orders.id, total = identity shop.orders.amount"
    )
    assert (record.producer, record.at_ms) == (Producer(namespace="airflow", job="daily"), 1_000)
    assert (record.owners, record.statement.inputs) == (("ann", "team:ops"), ("shop.orders",))


def test_several_texts_are_one_run() -> None:
    sql = [
        "CREATE TABLE gold.new AS SELECT id FROM shop.orders",
        "INSERT INTO gold.days (day) SELECT id FROM shop.customers",
    ]
    found = reported(make_document(sql=sql)).records()
    assert [record.target for record in found] == ["gold.days", "spark/gold.new"]
    assert len({record.run_id for record in found}) == 1


def test_several_texts_are_one_session() -> None:
    sql = [
        "SELECT id, amount INTO #work FROM shop.orders",
        "UPDATE #work SET amount = 1",
        "INSERT INTO gold.days SELECT id, amount FROM #work",
    ]
    (record,) = reported(make_document(sql=sql, dialect="tsql")).records()
    assert (
        line(record.statement)
        == "gold.days: day = identity shop.orders.id, total = identity shop.orders.amount"
    )


def test_a_query_is_a_read_of_its_dashboard_and_of_its_user() -> None:
    document = make_document(
        "SELECT name FROM shop.customers WHERE id = 7",
        dashboard="Sales",
        user="ann",
        link="https://bi/1",
    )
    by_dashboard, by_user = reported(document).reads()
    assert by_dashboard.consumer == Consumer(ConsumerKind.DASHBOARD, "airflow", "Sales")
    assert by_dashboard.refs == (
        ColumnRef("shop.customers", "id"),
        ColumnRef("shop.customers", "name"),
    )
    assert (by_dashboard.at_ms, by_dashboard.link, by_user.link) == (1_000, "https://bi/1", "")
    assert by_user.consumer == Consumer(ConsumerKind.USER, "airflow", "ann")
    assert reported(document).records() == ()


def test_a_query_of_nobody_is_a_read_of_its_task() -> None:
    (read,) = reported(make_document("SELECT COUNT(*) FROM shop.customers")).reads()
    assert (read.consumer, read.refs) == (
        Consumer(ConsumerKind.JOB, "airflow", "daily"),
        (ColumnRef("shop.customers"),),
    )


@pytest.mark.parametrize("state", ["START", "RUNNING", "FAIL", "ABORT", "OTHER"])
def test_what_did_not_succeed_counts_for_nothing(state: str) -> None:
    assert reported(make_document(state=state)).records() == ()
    assert reported(make_document("SELECT id FROM shop.orders", state=state)).reads() == ()


def test_no_value_of_the_sql_is_kept() -> None:
    assert "jane" not in repr(
        reported(
            make_document(
                "SELECT id, 'jane' AS x FROM shop.customers WHERE name = 'jane@example.org'"
            )
        )
    )


STATES = "Input should be 'START', 'RUNNING', 'COMPLETE', 'ABORT', 'FAIL' or 'OTHER'"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "is no JSON object"),
        ({}, "producer '…': is missing; give it; task '…': is missing"),
        (make_document(sql="SELECT id FROM"), "does not parse"),
        (make_document(sql="SELECT {{ x }}"), "send the executed SQL"),
        (make_document(dialect="cobol"), "dialect 'cobol'"),
        (
            make_document(dashbord="Sales"),
            "dashbord '…': is no field of a document; it has producer, task, sql, dialect, ",
        ),
        (make_document(state="DONE"), f"state 'DONE': {STATES}"),
        (
            make_document(state="DONE", at="at jane's"),
            f"state 'DONE': {STATES}; at '…': is no time; give",
        ),
        (make_document(owners="jane", state="success"), f"; state 'success': {STATES}"),
        (make_document(state=None), f"state None: {STATES}"),
        (make_document(state={"jane": 1}), f"state '…': {STATES}"),
        (make_document(state="x\u202e" * 100), r"state 'x\u202ex\u202e"),
        ({**make_event(), "eventType": "DONE"}, f"eventType 'DONE': {STATES}"),
        (make_document(at="yesterday"), "at"),
        (make_document(task="x" * 600), "task"),
        (make_document(task="a\0b"), "task"),
        (make_document(at=-1), "at"),
        (
            make_event(version="https://openlineage.io/spec/3-0-0/OpenLineage.json"),
            "send events of version 1 or 2",
        ),
        (
            {key: value for key, value in make_event().items() if key != "run"},
            "only run events are read",
        ),
        (
            {**make_event(), "eventTime": "soon"},
            "eventTime '…': is no time; give milliseconds since 1970, or a time such as",
        ),
        ({**make_event(), "outputs": [{"namespace": "s3://lake"}]}, "outputs.0.name"),
    ],
)
def test_what_cannot_be_read_is_reported_by_its_field(document: Any, says: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        reported(document)
    assert says in str(refused.value)
    assert "jane" not in str(refused.value)
