"""What run events of OpenLineage report."""

from typing import Any

from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind
from lakechime_dagster.lineage.reports import NO_COLUMNS, NO_SOURCE
from tests.lineage.ingest.factories import STORE, columns, dataset, make_event, reported
from tests.lineage.sql.shapes import line

ORDERS = dataset("hive", "hive.shop.orders")
DAYS = dataset(
    STORE,
    "gold/days",
    columnLineage=columns(
        day=("raw/orders", "id", "IDENTITY"), total=("raw/orders", "amount", "AGGREGATION")
    ),
)


def test_an_event_reports_the_columns_of_its_outputs_by_their_kinds() -> None:
    facet = columns(day=("raw/orders", "id", "IDENTITY"))
    facet["fields"]["day"]["inputFields"] += [
        {
            "namespace": STORE,
            "name": "raw/orders",
            "field": "amount",
            "transformations": [{"type": "INDIRECT", "subtype": "CONDITIONAL"}],
        },
        {
            "namespace": STORE,
            "name": "raw/orders",
            "field": "who",
            "transformations": [{"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True}],
        },
    ]
    facet["dataset"] = [
        {
            "namespace": STORE,
            "name": "raw/orders",
            "field": "id",
            "transformations": [{"type": "INDIRECT", "subtype": "JOIN"}],
        }
    ]
    (record,) = reported(
        make_event(outputs=(dataset(STORE, "gold/days", columnLineage=facet),))
    ).records()
    raw = "s3://lake/raw/orders"
    assert line(record.statement) == (
        f"gold.days: day = conditional {raw}.amount + identity {raw}.id + transformation {raw}.who "
        f"masked | join {raw}.id"
    )


def test_names_go_by_location_by_alias_by_another_name_and_else_outside() -> None:
    symlinks = {
        "identifiers": [
            {"namespace": "hive://m:9083", "name": "hive.shop.customers", "type": "TABLE"}
        ]
    }
    inputs = (
        ORDERS,
        dataset(STORE, "warehouse/customers", symlinks=symlinks),
        dataset("postgres://db:5432", "app.public.users"),
    )
    (record,) = reported(
        make_event(inputs=inputs, outputs=(dataset("s3a://lake", "/gold/days/"),))
    ).records()
    assert record.target == "gold.days"
    assert record.statement.inputs == (
        "postgres://db:5432/app.public.users",
        "shop.customers",
        "shop.orders",
    )


def test_columns_of_which_nothing_is_reported_are_not_known() -> None:
    schema = {"fields": [{"name": "day", "type": "date"}, {"name": "extra", "type": "int"}]}
    facets = {"schema": schema, "columnLineage": columns(day=("raw/orders", "id", "IDENTITY"))}
    (record,) = reported(make_event(outputs=(dataset(STORE, "gold/days", **facets),))).records()
    assert [(one.column, one.opaque) for one in record.statement.columns] == [
        ("day", ()),
        ("extra", (NO_SOURCE,)),
    ]
    (record,) = reported(
        make_event(outputs=(dataset(STORE, "gold/days", schema=schema),))
    ).records()
    assert {one.opaque for one in record.statement.columns} == {(NO_COLUMNS,)}
    (record,) = reported(make_event(outputs=(dataset(STORE, "gold/days"),))).records()
    assert record.statement.unknown == (NO_COLUMNS,)


def test_sql_reports_the_columns_where_the_event_does_not() -> None:
    sql = {
        "query": "INSERT INTO hive.gold.days SELECT id, SUM(amount) FROM hive.shop.orders GROUP BY id",
        "dialect": "trino",
    }
    (record,) = reported(
        make_event(inputs=(ORDERS,), outputs=(dataset(STORE, "gold/days"),), sql=sql)
    ).records()
    assert line(record.statement).startswith(
        "gold.days: day = identity shop.orders.id, total = aggregation shop.orders.amount"
    )
    (record,) = reported(make_event(inputs=(ORDERS,), outputs=(DAYS,), sql=sql)).records()
    assert {
        source.ref.table for column in record.statement.columns for source in column.sources
    } == {"s3://lake/raw/orders"}


def test_sql_that_cannot_be_read_loses_nothing_else_of_the_event() -> None:
    event = make_event(
        inputs=(ORDERS,),
        outputs=(dataset(STORE, "gold/days"),),
        sql={"query": "SELECT {{ x }}", "dialect": "trino"},
    )
    (record,) = reported(event).records()
    assert record.statement.inputs == ("shop.orders",)
    assert any("send the executed SQL" in reason for reason in record.statement.unknown)


def test_the_engine_says_the_dialect_where_the_sql_does_not() -> None:
    facets: dict[str, Any] = {
        "sql": {"query": "SELECT name FROM shop.customers"},
        "jobType": {"integration": "SPARK", "processingType": "BATCH"},
    }
    (read,) = reported(
        make_event(inputs=(dataset("hive", "hive.shop.customers"),), **facets)
    ).reads()
    assert read.refs == (ColumnRef("shop.customers", "name"),)


def test_owners_and_the_parent_are_reported() -> None:
    parent = {
        "parent": {"run": {"runId": "r"}, "job": {"namespace": "airflow", "name": "dag.task"}}
    }
    owned = dataset(
        STORE, "gold/days", ownership={"owners": [{"name": "team:gold", "type": "OWNER"}]}
    )
    event = make_event(outputs=(owned,), run_facets=parent, ownership={"owners": [{"name": "ann"}]})
    (record,) = reported(event).records()
    assert (record.owners, record.links) == (("ann", "team:gold"), {"parent": "airflow/dag.task"})


def test_a_job_without_outputs_is_a_reader() -> None:
    (read,) = reported(make_event(inputs=(ORDERS,))).reads()
    assert (read.consumer, read.refs) == (
        Consumer(ConsumerKind.JOB, "spark", "spark.daily"),
        (ColumnRef("shop.orders"),),
    )
    assert reported(make_event(inputs=(ORDERS,), outputs=(DAYS,))).reads() == ()


def test_events_of_older_versions_report_whether_a_value_was_changed() -> None:
    field = {
        "inputFields": [{"namespace": STORE, "name": "raw/orders", "field": "id"}],
        "transformationType": "IDENTITY",
    }
    event = make_event(
        outputs=(dataset(STORE, "gold/days", columnLineage={"fields": {"day": field}}),), version=""
    )
    (record,) = reported(event).records()
    assert line(record.statement) == "gold.days: day = identity s3://lake/raw/orders.id"
