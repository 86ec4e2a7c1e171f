"""Laws of the refresh modes: SQL that a mode accepts is kept equal to a full recomputation, checked
in DuckDB.

Good and bad queries are put together from parts; those that are refused are left out.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import product

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.options import Read, ReadMode, Storage
from lakechime_dagster.tables.tables import LakeTable

ROWS = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("v", pa.int64())])
LAW = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
Rows = list[tuple[int | None, int | None, int | None]]

cells = st.one_of(st.none(), st.integers(0, 1))
some_rows: st.SearchStrategy[Rows] = st.lists(
    st.tuples(cells, cells, cells), min_size=1, max_size=5
)

JOINS = [
    "",
    "JOIN s.w w ON f.a = w.a",
    "JOIN s.w w USING (a)",
    "JOIN s.w w ON f.a < w.a",
    "LEFT JOIN s.w w ON f.a = w.a AND w.b > 0",
    "LEFT JOIN s.w w ON f.a = w.a AND f.b = w.b",
    "LEFT JOIN (SELECT a, max(b) AS b FROM s.w GROUP BY a) w ON f.a = w.a",
    "LEFT JOIN (SELECT b, max(a) AS a FROM s.w GROUP BY b) w ON f.a = w.a",
    "RIGHT JOIN s.w w ON f.a = w.a",
    "FULL JOIN s.w w ON f.a = w.a",
    "LEFT SEMI JOIN s.w w ON f.a = w.a",
    "LEFT ANTI JOIN s.w w ON f.a = w.a",
]
FILTERS = [
    "",
    "WHERE f.b IS NULL",
    "WHERE f.a > (SELECT min(v) FROM s.w)",
    "WHERE EXISTS (SELECT 1 FROM s.f g WHERE g.b > f.b)",
]


@dataclass(frozen=True)
class Change:
    """Two states of both tables."""

    old_f: Rows
    new_f: Rows
    old_w: Rows
    new_w: Rows


@st.composite
def appends(draw: st.DrawFn) -> Change:
    """Rows that only came to f."""
    old, more, other = draw(some_rows), draw(some_rows), draw(some_rows)
    return Change(old, old + more, other, other)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """At most one row of each table went and one came, so that most of both is as it was."""
    states: list[Rows] = []
    for _ in range(2):
        old = draw(some_rows)
        gone, came = (
            draw(st.integers(0, 2 * len(old))),
            draw(st.lists(st.tuples(cells, cells, cells), max_size=1)),
        )
        states += [old, [row for checkpoint, row in enumerate(old) if checkpoint != gone] + came]
    return Change(*states)


class State:
    """Spark SQL over one state of both tables, in DuckDB."""

    def __init__(self, f: Rows, w: Rows) -> None:
        # small tables; and windows over them race in 1.5.5
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("CREATE SCHEMA s")
        for name, rows in (("f", f), ("w", w)):
            columns = [
                pa.array([row[checkpoint] for row in rows], pa.int64()) for checkpoint in range(3)
            ]
            self._connection.register("rows", pa.table(columns, schema=ROWS))
            self._connection.execute(f"CREATE TABLE s.{name} AS FROM rows")

    def __enter__(self) -> "State":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def bag(self, sql: str) -> "Counter[tuple[object, ...]]":
        """The rows that a query gives, each as often as it does; none for text that is no valid SQL
        in any engine.
        """
        try:
            return Counter(self._connection.execute(as_duckdb(sql)).fetchall())
        except duckdb.BinderException:
            return Counter()


@cache
def as_duckdb(sql: str) -> str:
    """Spark SQL over s.f and s.w as DuckDB reads it."""
    [text] = sqlglot.transpile(sql, read="spark", write="duckdb")
    return text


@cache
def keys_over(table: LakeTable, name: str) -> str:
    """The keys of a table as terms over the columns of one input that give them."""
    query = sqlglot.parse_one(str(table.sql), dialect="spark", into=exp.Select)
    terms = {
        projection.alias: exp.Paren(this=projection.unalias().copy())
        for projection in query.selects
    }
    for key, own in table.key_columns[name].items():
        for column in list(terms[key].find_all(exp.Column)):
            column.replace(exp.column(own[f"{column.table}.{column.name}"]))
    return ", ".join(terms[key].sql("spark") for key in table.keys)


def accepted(
    sql: str, refresh: str, keys: tuple[str, ...] = (), pinned: str = "", partition: str = ""
) -> LakeTable | None:
    """The declaration, or None when it is refused."""
    reads = [Read(table=pinned, mode=ReadMode.SNAPSHOT)] if pinned else []
    try:
        return sql_table(
            "gold.t",
            sql=sql,
            refresh=refresh,
            keys=keys,
            reads=reads,
            storage=Storage(partitioned_by={partition: "int"} if partition else None),
        )
    except DeclarationError:
        return None


def changed_rows(old: Rows, new: Rows) -> Rows:
    """The rows that went and those that came."""
    before, after = Counter(old), Counter(new)
    return list((before - after) + (after - before))


PLAIN = ["f.a, f.b", "f.a, (SELECT count(*) FROM s.w) AS n"]
FOLDING = [
    "max(f.v) AS m",
    "DISTINCT f.b",
    "sum(f.v) OVER (PARTITION BY f.b) AS s",
    "f.a, (SELECT count(*) FROM s.f) AS n",
]


@cache
def row_queries() -> list[str]:
    """What `rows` accepts with w pinned."""
    tails = ["", "LIMIT 2", "UNION SELECT a, b FROM s.w"]
    several = [
        f"SELECT {' '.join(parts)}"
        for parts in product(PLAIN + FOLDING, ["FROM s.f f"], JOINS, FILTERS, tails)
    ]
    return [sql for sql in several if accepted(sql, "rows", pinned="s.w" if "s.w" in sql else "")]


@pytest.mark.tier2
@given(appends())
@LAW
def test_sql_that_rows_accepts_gives_for_more_rows_just_more_rows(change: Change) -> None:
    came = list((Counter(change.new_f) - Counter(change.old_f)).elements())
    with (
        State(change.old_f, change.old_w) as old,
        State(came, change.new_w) as more,
        State(change.new_f, change.new_w) as new,
    ):
        wrong = [sql for sql in row_queries() if new.bag(sql) != old.bag(sql) + more.bag(sql)]
    assert wrong == []


@cache
def group_queries() -> list[LakeTable]:
    """What `affected_keys` accepts."""
    terms = [
        ["f.a"],
        ["f.b"],
        ["w.a"],
        ["w.b"],
        ["f.a", "f.b"],
        ["f.a + f.b"],
        ["f.a", "w.b"],
        ["coalesce(f.a, 0)"],
    ]
    several = []
    for grouped, join, where, tail in product(
        terms, JOINS, FILTERS, ["", "HAVING count(*) > 1", "LIMIT 1"]
    ):
        keys = tuple(f"k{checkpoint}" for checkpoint in range(len(grouped)))
        columns = ", ".join(f"{term} AS {key}" for term, key in zip(grouped, keys, strict=True))
        sql = (
            f"SELECT {columns}, count(*) AS n, sum(f.v) AS s FROM s.f f {join} {where} GROUP BY "
            f"{', '.join(grouped)} {tail}"
        )
        several.append(accepted(sql, "affected_keys", keys=keys))
    return [table for table in several if table is not None]


@pytest.mark.tier2
@given(changes())
@LAW
def test_groups_that_differ_are_among_those_that_changed_rows_report(change: Change) -> None:
    rows = {
        "s.f": changed_rows(change.old_f, change.new_f),
        "s.w": changed_rows(change.old_w, change.new_w),
    }
    with (
        State(change.old_f, change.old_w) as old,
        State(change.new_f, change.new_w) as new,
        State(rows["s.f"], rows["s.w"]) as changed,
    ):
        wrong = []
        for table in group_queries():
            touched: set[tuple[object, ...]] = set()
            for name in table.key_columns:
                touched |= set(changed.bag(f"SELECT {keys_over(table, name)} FROM {name}"))
            before, after = old.bag(str(table.sql)), new.bag(str(table.sql))
            differing = {row[: len(table.keys)] for row in (before - after) + (after - before)}
            wrong += [] if differing <= touched else [table.sql]
    assert wrong == []


@cache
def partition_queries() -> list[str]:
    """What `partitions` accepts, by column a."""
    columns = ["f.a", "f.a + 1 AS a", "w.a", "max(f.a) AS a"]
    measures = [
        ("f.b", ""),
        ("count(*) AS n", "GROUP BY f.a"),
        ("sum(f.v) OVER (PARTITION BY f.a) AS s", ""),
        ("sum(f.v) OVER () AS s", ""),
    ]
    several = []
    for column, (measure, tail), join, where in product(
        columns, [*measures, ("f.b", "LIMIT 2"), ("f.b", "GROUP BY f.b")], JOINS, FILTERS
    ):
        several.append(f"SELECT {column}, {measure} FROM s.f f {join} {where} {tail}")
    nested = (
        "SELECT a, max(b) AS b FROM (SELECT * FROM s.f UNION ALL SELECT * FROM s.w) u GROUP BY a"
    )
    return [sql for sql in [nested, *several] if accepted(sql, "partitions", partition="a")]


@pytest.mark.tier2
@given(changes())
@LAW
def test_partitions_that_differ_are_among_those_that_changed_rows_lie_in(change: Change) -> None:
    rows = {
        "s.f": changed_rows(change.old_f, change.new_f),
        "s.w": changed_rows(change.old_w, change.new_w),
    }
    wrong = []
    with State(change.old_f, change.old_w) as old, State(change.new_f, change.new_w) as new:
        for sql in partition_queries():
            before, after = old.bag(sql), new.bag(sql)
            touched = {row[0] for name, several in rows.items() if name in sql for row in several}
            wrong += (
                [] if {row[0] for row in (before - after) + (after - before)} <= touched else [sql]
            )
    assert wrong == []
