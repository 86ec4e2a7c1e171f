"""What SQL reads and gives, as far as it is understood without Spark."""

import pytest

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.options import ReadMode
from lakechime_dagster.tables.sql import Unparsed, normalized, output_columns, parse_query, tables_of
from lakechime_dagster.tables.tables import SourceTable


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM a.x, b.y", ("a.x", "b.y")),
        ("SELECT * FROM a.x JOIN c.a.x USING (k)", ("a.x", "c.a.x")),
        ("WITH x AS (SELECT * FROM a.x) SELECT * FROM x", ("a.x",)),
        ("WITH x AS (SELECT * FROM x) SELECT * FROM x", ("x",)),
        ("WITH p AS (SELECT 1 FROM a.x), q AS (SELECT * FROM p) SELECT * FROM q JOIN b.p", ("a.x", "b.p")),
        ("SELECT (SELECT max(k) FROM b.y) FROM a.x WHERE EXISTS (SELECT 1 FROM c.z)", ("a.x", "b.y", "c.z")),
        ("SELECT * FROM range(10) r JOIN a.x ON r.id = x.k", ("a.x",)),
        ("SELECT * FROM VALUES (1) v(k) JOIN a.x USING (k)", ("a.x",)),
        ("SELECT * FROM a.x LATERAL VIEW explode(z) t AS q", ("a.x",)),
        ("SELECT 1 FROM a.x UNION ALL SELECT 2 FROM b.y", ("a.x", "b.y")),
        ("SELECT * FROM `a`.`x`", ("a.x",)),
        ("SELECT /*+ BROADCAST(y), REPARTITION(3) */ * FROM a.x JOIN b.y y USING (k)", ("a.x", "b.y")),
        ("SELECT parse_json(s):a[0] FROM a.x", ("a.x",)),
        ("WITH RECURSIVE r AS (SELECT k FROM a.x UNION ALL SELECT k + 1 FROM r) SELECT * FROM r", ("a.x",)),
    ],
)
def test_the_tables_of_a_query_are_those_that_lie_in_the_lake(sql: str, tables: tuple[str, ...]) -> None:
    assert set(tables_of(parse_query("t", sql))) == set(tables)
    assert len(tables_of(parse_query("t", sql))) == len(tables)


@pytest.mark.parametrize(("sql", "columns"), [("SELECT a, b.c, d AS e FROM x.y b", ("a", "c", "e")), ("SELECT a, b.* FROM x.y b", None)])
def test_the_columns_of_a_query_are_known_unless_a_star_hides_them(sql: str, columns: tuple[str, ...] | None) -> None:
    query = parse_query("t", sql)
    assert not isinstance(query, Unparsed)
    assert output_columns(query) == columns


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT window.start, count(*) FROM a.x GROUP BY window(at, '1 hour')", ("a.x",)),
        ("SELECT extract(DAY FROM at) FROM a.x, `b`.y y JOIN LATERAL f(k) ON k IS DISTINCT FROM y.k GROUP BY window(at)", ("a.x", "b.y")),
        ("WITH p AS (SELECT 1 FROM a.x), q(n) AS (TABLE p) SELECT n FROM q, (b.y JOIN c.z) GROUP BY window(n)", ("a.x", "b.y", "c.z")),
        ("WITH RECURSIVE r(n) MAX RECURSION LEVEL 5 AS (SELECT k FROM a.x UNION ALL SELECT n FROM r) SELECT * FROM r, range(2)", ("a.x",)),
        ("SELECT (SELECT k FROM b.y) FROM VALUES (1, 2) LATERAL VIEW explode(z) t AS w ANTI JOIN c.z GROUP BY window(w)", ("b.y", "c.z")),
        ("FROM a.x |> JOIN b.y USING (k) |> AGGREGATE sum(k), sum(z) GROUP BY k |> UNION ALL TABLE c.z", ("a.x", "b.y", "c.z")),
        ("TABLE a.x UNION TABLE b.y;", ("a.x", "b.y")),
        ("WITH p AS (FROM a.x |> WHERE k > 1) SELECT * FROM p, (FROM b.y |> SELECT extract(DAY FROM at)) q", ("a.x", "b.y")),
    ],
)
def test_of_a_query_that_only_spark_can_parse_the_tables_are_those_behind_from_and_join(sql: str, tables: tuple[str, ...]) -> None:
    query = parse_query("t", sql)
    assert isinstance(query, Unparsed)
    assert query.tables == tables


def test_what_reads_names_is_read_too_where_only_spark_can_parse_the_query() -> None:
    windows = "SELECT count(*) AS n FROM bronze.x, f(1, TABLE(bronze.y)) GROUP BY window(at, '1 hour')"
    table = sql_table("gold.n", sql=windows, reads=[SourceTable("bronze.y").snapshot()])
    assert {read.table: read.mode for read in table.reads.values()} == {"bronze.x": ReadMode.CHANGES, "bronze.y": ReadMode.SNAPSHOT}
    with pytest.raises(DeclarationError, match=r"cannot be checked, as the SQL is not understood: line 1, .*; use full"):
        sql_table("gold.n", sql=windows, refresh="rows")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM IDENTIFIER('b.y')",
        "SELECT * FROM a.x JOIN identifier('b' || '.y') AS y USING (k)",
        "SELECT * FROM a.x WHERE k IN (SELECT k FROM b.IDENTIFIER('y'))",
        "FROM IDENTIFIER('b.y') |> WHERE k > 1",
        "SELECT count(*) FROM a.x, IDENTIFIER(:y) GROUP BY window(at, '1 hour')",
    ],
)
def test_a_table_named_by_an_expression_is_refused_where_it_is_declared(sql: str) -> None:
    with pytest.raises(DeclarationError, match=r"t, sql: names a table by IDENTIFIER"):
        parse_query("t", sql)
    columns = parse_query("t", "SELECT IDENTIFIER('k'), 'FROM IDENTIFIER(1)' FROM a.x |> EXTEND IDENTIFIER('k') AS j")
    assert tables_of(columns) == ("a.x",)


@pytest.mark.parametrize(
    ("one", "other"), [("parse_json(s)", "s"), ("'a\\'b'", "'ab'"), ("'O''B'", "'O' 'B'"), ("r'\\d'", "'\\d'"), ("1L", "1")]
)
def test_texts_that_say_something_else_are_not_normalized_to_one(one: str, other: str) -> None:
    assert normalized(f"SELECT {one} AS z FROM a.x") != normalized(f"SELECT {other} AS z FROM a.x")
