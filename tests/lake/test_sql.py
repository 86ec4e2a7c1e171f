"""What SQL reads and gives, and how it is read from views."""

import pytest

from lakechime_dagster.lake.sql import output_columns, parse_query, tables_of, with_views


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
        ("WITH RECURSIVE r AS (SELECT k FROM a.x UNION ALL SELECT k + 1 FROM r) SELECT * FROM r", ("a.x",)),
    ],
)
def test_the_tables_of_a_query_are_those_that_lie_in_the_lake(sql: str, tables: tuple[str, ...]) -> None:
    assert set(tables_of(parse_query("t", sql))) == set(tables)
    assert len(tables_of(parse_query("t", sql))) == len(tables)


def test_the_columns_of_a_query_are_known_unless_a_star_hides_them() -> None:
    assert output_columns(parse_query("t", "SELECT a, b.c, d AS e FROM x.y b")) == ("a", "c", "e")
    assert output_columns(parse_query("t", "SELECT a, b.* FROM x.y b")) is None


@pytest.mark.parametrize(
    ("sql", "over_views"),
    [
        ("SELECT x.k FROM a.x", "SELECT x.k FROM `v1` AS `x`"),
        ("SELECT a.x.k FROM a.x", "SELECT x.k FROM `v1` AS `x`"),
        ("SELECT q.k FROM a.x q JOIN b.y USING (k)", "SELECT q.k FROM `v1` AS q JOIN b.y USING (k)"),
        ("WITH x AS (SELECT 1 FROM a.x) SELECT * FROM x", "WITH x AS (SELECT 1 FROM `v1` AS `x`) SELECT * FROM x"),
    ],
)
def test_a_query_reads_from_views_without_changing_otherwise(sql: str, over_views: str) -> None:
    assert with_views(sql, {"a.x": "v1"}) == over_views
