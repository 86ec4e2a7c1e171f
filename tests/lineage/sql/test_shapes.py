"""What statements say of columns; each line of golden/ is written by hand from the meaning of the
SQL above it.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lakechime_dagster.lineage.sql import statements_of_sql
from lakechime_dagster.lineage.sql_query import SqlSchema
from tests.lineage.plans.meanings import known, said
from tests.lineage.sql.shapes import make_schema, reported
from tests.support.zoo import SCHEMAS, TEXTS

CASES = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in sorted((Path(__file__).parent / "golden").glob("*.sql"))
    for number, block in enumerate(path.read_text(encoding="utf-8").strip().split("\n\n"))
]


@pytest.mark.parametrize("block", CASES)
def test_a_statement_reports_where_columns_come_from_and_what_is_not_known(block: str) -> None:
    dialect, sql, *expected = block.splitlines()
    assert reported(sql, dialect.removeprefix("-- ")) == [
        one.removeprefix("--> ") for one in expected
    ]


COLUMNS = {
    table: re.findall(r"(\w+) \S+(?:, |$)", re.sub(r"<.*?>", "", columns))
    for table, columns in SCHEMAS.items()
}
OTHERWISE = {
    "nothing_from_a_column": "a plan does not show the name that Spark makes of a literal",
    "aggregate_with_filter": "Spark counts what holds by a sum, which masks nothing",
    "total_without_groups": "a plan reports of which tables rows are counted",
    "first_and_count_in_a_window": "likewise",
    "count_over_a_join": "likewise",
    "grouping_sets": "likewise",
    "exists": "likewise, of rows that are looked for",
    "pivot_in_sql": "what PIVOT does with columns is not followed, and said so",
    "natural_join": "SQL has the first value that is not null, as COALESCE",
    "recursive_cte": "of a recursive query it is only known from which columns, and said so",
    "cube_with_grouping": "Spark makes a number of the grouping set",
    "unpivot": "likewise of PIVOT",
    "stacked": "a plan reports the columns of a generator apart",
    "explode_outer_with_position": "a plan reports what makes several rows of one",
    "inlined_structs": "likewise",
    "intersect_rows": "a plan filters the rows of the one side by the other",
}


@pytest.mark.parametrize("shape", TEXTS)
def test_a_text_means_what_its_plan_means(shape: str) -> None:
    (found,) = statements_of_sql(
        re.sub(r"\{(\w+)\}", r"\1", TEXTS[shape]), "spark", SqlSchema(COLUMNS)
    )
    is_same = sorted(said(replace(found, target=shape)).splitlines()) == sorted(
        known("frames")[shape].splitlines()
    )
    assert is_same == (shape not in OTHERWISE), OTHERWISE.get(shape)


def test_only_what_leaves_no_row_replaces() -> None:
    several = {
        "INSERT OVERWRITE gold.days SELECT id, amount FROM shop.orders": True,
        "INSERT OVERWRITE gold.days PARTITION (day = 1) SELECT amount FROM shop.orders": False,
        "CREATE OR REPLACE TABLE gold.days AS SELECT id FROM shop.orders": True,
        "INSERT INTO gold.days SELECT id, amount FROM shop.orders": False,
    }
    assert {
        sql: statements_of_sql(sql, "spark", make_schema())[0].replaces for sql in several
    } == several


def test_what_is_read_is_an_input_though_no_column_is_taken() -> None:
    (found,) = statements_of_sql(
        "INSERT INTO gold.days SELECT 1, COUNT(*) FROM shop.orders", "spark", make_schema()
    )
    assert found.inputs == ("shop.orders",)


def test_names_of_a_catalog_go_by_aliases() -> None:
    schema = make_schema(hive_="*")
    assert reported("SELECT name FROM hive.shop.customers", "trino", schema) == [
        "read: name = identity shop.customers.name"
    ]
