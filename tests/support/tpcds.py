"""TPC-DS, of which DuckDB knows the tables and the queries."""

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import sqlglot
from duckdb_extensions import import_extension

FILE = Path(__file__).parents[1] / "lineage" / "zoo" / "tpcds.json.gz"
_TYPES = {"VARCHAR": "STRING", "INTEGER": "INT"}


@cache
def _known() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The types of columns by table, and the queries by number, both as Spark says them."""
    with duckdb.connect() as connection:
        import_extension("tpcds")
        connection.execute("LOAD tpcds")
        connection.execute("CALL dsdgen(sf = 0)")
        columns = connection.execute(
            "select table_name, column_name, data_type from information_schema.columns order by "
            "table_name, ordinal_position"
        ).fetchall()
        queries = connection.execute(
            "select query_nr, query from tpcds_queries() order by query_nr"
        ).fetchall()
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind in columns:
        tables.setdefault(table, {})[column] = str(_TYPES.get(kind, kind))
    return tables, {
        str(number): sqlglot.transpile(query, read="duckdb", write="spark")[0]
        for number, query in queries
    }


def tables() -> Mapping[str, Mapping[str, str]]:
    return _known()[0]


def queries() -> Mapping[str, str]:
    return _known()[1]


def stored_dumps() -> dict[str, dict[str, Any]]:
    """The dumps of the queries' plans, by number."""
    return json.loads(gzip.decompress(FILE.read_bytes()))


def store_dumps(dumps: Mapping[str, object]) -> None:
    FILE.write_bytes(gzip.compress(json.dumps(dumps, separators=(",", ":")).encode(), 9, mtime=0))
