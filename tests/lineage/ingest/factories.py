"""Documents and events that name only what matters."""

from typing import Any

from lakechime_dagster.lineage.columns import Names
from lakechime_dagster.lineage.ingest import read_document
from lakechime_dagster.lineage.reports import RunReport
from lakechime_dagster.lineage.sql import SqlReader
from lakechime_dagster.lineage.sql_query import SqlSchema

TABLES = {
    "shop.orders": ("id", "customer", "amount"),
    "shop.customers": ("id", "name"),
    "gold.days": ("day", "total"),
}
NAMES = Names(locations={"gold.days": "s3://lake/gold/days"}, aliases={"hive.*": "*"})
VERSION = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
STORE = "s3://lake"


def make_reader() -> SqlReader:
    return SqlReader(SqlSchema(TABLES, NAMES))


def reported(document: Any, now_ms: int = 5) -> RunReport:
    """What one document reports."""
    return read_document(document, make_reader(), now_ms)


def make_document(
    sql: str | list[str] = "INSERT INTO gold.days SELECT id, amount FROM shop.orders", **more: Any
) -> dict[str, Any]:
    return {
        "producer": "airflow",
        "task": "daily",
        "sql": sql,
        "dialect": "spark",
        "at": 1_000,
        **more,
    }


def dataset(namespace: str, name: str, **facets: Any) -> dict[str, Any]:
    return {"namespace": namespace, "name": name, "facets": facets}


def make_event(
    state: str = "COMPLETE",
    *,
    inputs: tuple[dict[str, Any], ...] = (),
    outputs: tuple[dict[str, Any], ...] = (),
    run: str = "run-1",
    at: str = "2026-01-01T00:00:00Z",
    job: str = "spark.daily",
    version: str = VERSION,
    run_facets: dict[str, Any] | None = None,
    **facets: Any,
) -> dict[str, Any]:
    return {
        "eventType": state,
        "eventTime": at,
        "run": {"runId": run, "facets": run_facets or {}},
        "job": {"namespace": "spark", "name": job, "facets": facets},
        "inputs": list(inputs),
        "outputs": list(outputs),
        "producer": "https://example.org/spark",
        "schemaURL": version,
    }


def columns(**of: tuple[str, str, str]) -> dict[str, Any]:
    """A facet of columns, each of one field: `(data set, field, subtype)`; fields of data sets of
    the `STORE`.
    """
    fields = {
        name: {
            "inputFields": [
                {
                    "namespace": STORE,
                    "name": table,
                    "field": field,
                    "transformations": [{"type": kind_of(subtype), "subtype": subtype}],
                }
            ]
        }
        for name, (table, field, subtype) in of.items()
    }
    return {"fields": fields}


def kind_of(subtype: str) -> str:
    return "DIRECT" if subtype in ("IDENTITY", "TRANSFORMATION", "AGGREGATION") else "INDIRECT"
