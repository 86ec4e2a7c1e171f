"""What completed events of Trino tell."""

from typing import Any

import pytest

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Producer
from lakechime_dagster.lineage.facts import NO_SOURCE, reads_of, records_of
from tests.lineage.ingest.factories import make_trino_event, told

ORDERS = {"catalog": "hive", "schema": "shop", "table": "orders"}


def output(**columns: list[dict[str, Any]]) -> dict[str, Any]:
    listed = [{"columnName": name, "columnType": "bigint", "sourceColumns": sources} for name, sources in columns.items()]
    return {"catalogName": "hive", "schema": "gold", "table": "days", "columns": listed}


@pytest.mark.parametrize("columns", [("amount", "id"), ({"name": "amount", "type": "bigint"}, {"name": "id", "type": "bigint"})])
def test_a_query_is_a_read_of_its_user_by_the_columns_that_the_engine_names(columns: tuple[Any, ...]) -> None:
    (read,) = reads_of(told(make_trino_event(columns=columns)))
    assert read.consumer == Consumer(ConsumerKind.USER, "trino", "ann")
    assert read.refs == (ColumnRef("shop.orders", "amount"), ColumnRef("shop.orders", "id"))
    assert read.at_ms == 1_767_225_601_500


def test_a_table_of_which_no_column_is_read_is_read_all_the_same() -> None:
    (read,) = reads_of(told(make_trino_event(columns=())))
    assert read.refs == (ColumnRef("shop.orders"),)


def test_a_write_tells_the_sources_of_its_columns() -> None:
    sources = [{**ORDERS, "columnName": "amount", "transformationType": "AGGREGATION"}, {**ORDERS, "columnName": "id"}]
    (record,) = records_of(told(make_trino_event(output=output(total=sources, day=[]))))
    day, total = record.statement.columns
    assert [(str(one.ref), one.kind.value) for one in total.sources] == [
        ("shop.orders.amount", "aggregation"),
        ("shop.orders.id", "transformation"),
    ]
    assert day.opaque == (NO_SOURCE,)
    assert (record.target, record.producer) == ("gold.days", Producer(namespace="trino", job="superset"))
    assert reads_of(told(make_trino_event(output=output(total=sources)))) == ()


def test_a_query_that_failed_counts_for_nothing_and_no_text_is_kept() -> None:
    assert reads_of(told(make_trino_event("FAILED"))) == ()
    assert "jane" not in repr(told(make_trino_event()))


def test_an_event_that_lacks_something_is_told_by_its_field() -> None:
    with pytest.raises(InvalidValueError, match="context"):
        told({key: value for key, value in make_trino_event().items() if key != "context"})
