"""What is refused before it is read."""

import logging

import pytest

from lakechime_dagster.errors import InvalidValueError
from tests.lineage.sql.shapes import reported


@pytest.mark.parametrize(
    ("sql", "reported_of"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("SELECT id FROM shop.orders WHERE d = {{ ds }}", "send the executed SQL"),
        ("SELECT id FROM shop.orders WHERE d = '{{ ds }}'", "send the executed SQL"),
        ("SELECT id FROM shop.orders [[WHERE id = {{x}}]]", "send the executed SQL"),
        ("SELECT id FROM {% if x %} shop.orders {% endif %}", "send the executed SQL"),
        ("SELECT id FROM shop.orders -- " + "x" * 10_000_000, "is too long"),
        (
            "SELECT " + "(" * 2_000 + "id" + ")" * 2_000 + " FROM shop.orders",
            "is nested too deeply",
        ),
        ("SELECT " + "NOT " * 3_000 + "id FROM shop.orders", "is nested too deeply"),
        ("SELECT id FROM shop.orders WHERE 'jane", "is cut off"),
        (
            "SELECT id FROM WHERE name = 'jane@example.org'",
            "does not parse as spark at line 1, column 20",
        ),
        ("SELECT " + "1," * 60_000 + "1", "is too long"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason_and_without_its_text(
    sql: str, reported_of: str
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        reported(sql)
    assert reported_of in str(refused.value)
    assert "jane" not in str(refused.value)


def test_a_condition_of_thousands_of_parts_is_read() -> None:
    sql = "SELECT id FROM shop.orders WHERE " + " OR ".join(
        f"amount = {number}" for number in range(3_000)
    )
    assert reported(sql) == ["read: id = identity shop.orders.id | filter shop.orders.amount"]


def test_an_unknown_dialect_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidValueError, match="trino"):
        reported("SELECT 1", "cobol")


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("postgres", "CALL refresh('jane')"),
        ("tsql", "EXEC refresh"),
        ("tsql", "CREATE PROCEDURE p AS BEGIN DELETE FROM gold.days; END"),
        ("tsql", "IF 1 = 2 DELETE FROM gold.days"),
        ("tsql", "ALTER PROCEDURE p AS BEGIN DELETE FROM gold.days; END"),
        (
            "tsql",
            "IF 1 = 2 BEGIN DELETE FROM gold.days; END ELSE BEGIN DELETE FROM shop.orders; END",
        ),
        ("tsql", "BEGIN TRY DELETE FROM gold.days END TRY BEGIN CATCH SELECT 1 END CATCH"),
        (
            "postgres",
            (
                "CREATE PROCEDURE p() BEGIN ATOMIC INSERT INTO gold.days SELECT 1; DELETE FROM "
                "gold.days; END"
            ),
        ),
        ("postgres", "CREATE PROCEDURE p() LANGUAGE SQL AS $$ DELETE FROM gold.days; $$"),
        (
            "bigquery",
            (
                "CREATE PROCEDURE d.p() BEGIN INSERT INTO gold.days SELECT 1, 2; DELETE FROM gold.days "
                "WHERE TRUE; END"
            ),
        ),
        (
            "oracle",
            (
                "CREATE PROCEDURE p IS BEGIN INSERT INTO gold.days SELECT 1, 2; DELETE FROM gold.days; "
                "END;"
            ),
        ),
        (
            "sqlite",
            (
                "CREATE TRIGGER t AFTER INSERT ON orders BEGIN INSERT INTO days SELECT new.id; DELETE "
                "FROM x; END"
            ),
        ),
        ("mysql", "ALTER ALGORITHM = MERGE VIEW gold.days AS SELECT id FROM shop.orders"),
    ],
)
def test_what_may_run_anything_is_refused_whole(dialect: str, sql: str) -> None:
    with pytest.raises(InvalidValueError, match="may run any statement"):
        reported(sql, dialect)


def test_statements_that_ran_into_each_other_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="end each statement with a semicolon"):
        reported("SELECT id FROM shop.orders DELETE", "tsql")


def test_what_is_not_understood_shows_its_text_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert reported("EXPLAIN SELECT id FROM shop.orders WHERE name = 'jane'") == []
    assert "jane" not in caplog.text
