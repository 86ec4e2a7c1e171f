"""What statements say of columns; each line of golden/ is written by hand from the meaning of the SQL above it."""

from pathlib import Path

import pytest

from lakechime_dagster.lineage.sql.statements import statements_of_sql
from tests.lineage.sql.shapes import make_schema, told

CASES = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in sorted((Path(__file__).parent / "golden").glob("*.sql"))
    for number, block in enumerate(path.read_text(encoding="utf-8").strip().split("\n\n"))
]


@pytest.mark.parametrize("block", CASES)
def test_a_statement_tells_where_columns_come_from_and_what_is_not_known(block: str) -> None:
    dialect, sql, *expected = block.splitlines()
    assert told(sql, dialect.removeprefix("-- ")) == [one.removeprefix("--> ") for one in expected]


def test_only_what_leaves_no_row_replaces() -> None:
    several = {
        "INSERT OVERWRITE gold.days SELECT id, amount FROM shop.orders": True,
        "INSERT OVERWRITE gold.days PARTITION (day = 1) SELECT amount FROM shop.orders": False,
        "CREATE OR REPLACE TABLE gold.days AS SELECT id FROM shop.orders": True,
        "INSERT INTO gold.days SELECT id, amount FROM shop.orders": False,
    }
    assert {sql: statements_of_sql(sql, "spark", make_schema())[0].replaces for sql in several} == several


def test_what_is_read_is_an_input_though_no_column_is_taken() -> None:
    (found,) = statements_of_sql("INSERT INTO gold.days SELECT 1, COUNT(*) FROM shop.orders", "spark", make_schema())
    assert found.inputs == ("shop.orders",)


def test_names_of_a_catalog_go_by_aliases() -> None:
    schema = make_schema(hive_="*")
    assert told("SELECT name FROM hive.shop.customers", "trino", schema) == ["read: name = identity shop.customers.name"]
