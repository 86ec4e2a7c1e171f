"""Declarations: what a correct one says, and what a wrong one is answered with."""

import datetime as dt
import functools
import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.tables.declare import spark_table, sql_table
from lakechime_dagster.tables.events import owner_of
from lakechime_dagster.tables.lake import Lake, find_cycle, load_lake, topological
from lakechime_dagster.tables.names import Account
from lakechime_dagster.tables.options import Asset, Maintenance, Read, ReadMode, Storage
from lakechime_dagster.tables.sql import (
    Unparsed,
    normalized,
    output_columns,
    parse_query,
    tables_of,
)
from lakechime_dagster.tables.tables import LakeTable, RefreshMode, SourceTable, code_digest
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger, TableName
from tests.support.declaring import grouped
from tests.tables.tables import HOUR, MINUTELY, REJOIN, flights, joined, make_table, planes, weather


def test_a_decorated_function_stays_callable_with_plain_frames() -> None:
    silver = make_table(
        compute=joined,
        keys=["flight"],
        reads={"flights": REJOIN, "weather": weather.snapshot()},
        trigger=MINUTELY,
    )
    assert silver("f", "w") == ("f", "w")
    assert silver(weather="w", flights="f") == ("f", "w")
    assert silver.__name__ == "joined"
    assert silver.__doc__ == joined.__doc__


def test_a_trigger_without_tables_waits_for_what_is_read() -> None:
    silver = make_table(
        compute=joined,
        keys=["flight"],
        reads={"flights": REJOIN, "weather": weather.snapshot()},
        trigger=MINUTELY,
    )
    assert silver.trigger is not None
    assert silver.trigger.tables == ("bronze.flights", "bronze.weather")


@pytest.mark.parametrize(
    ("refresh", "read"),
    [("rows", flights.changes()), ("full", flights.changes()), ("full", flights.snapshot())],
)
def test_an_input_whose_change_is_ignored_does_not_wake(refresh: str, read: Read) -> None:
    reads = {"flights": read, "weather": weather.snapshot(on_change="ignore")}
    silver = make_table(compute=joined, reads=reads, refresh=refresh, trigger=MINUTELY)
    assert silver.trigger is not None
    assert silver.trigger.tables == ("bronze.flights",)


def test_context_config_and_resources_are_injected_by_signature() -> None:
    class Limits:
        """Stands for a config class."""

    def compute(context, flights: Any, config: Limits, slack: "Slack") -> Any:  # type: ignore[no-untyped-def]  # noqa: F821
        return flights

    table = make_table(compute=compute)
    assert [injection.name for injection in table.injected] == ["context", "config", "slack"]
    assert table.injected[1].annotation is Limits


def test_sql_dependencies_are_read_from_the_sql() -> None:
    daily = sql_table(
        "gold.daily",
        sql=(
            "WITH f AS (SELECT * FROM bronze.flights) SELECT * FROM f JOIN bronze.weather USING "
            "(origin)"
        ),
    )
    assert daily.inputs == ("bronze.flights", "bronze.weather")
    assert daily.refresh is RefreshMode.FULL


def test_a_sql_file_lies_beside_the_declaring_module(tmp_path: Path) -> None:
    (tmp_path / "daily.sql").write_text(
        "-- Flights per day.\n-- Of all airports.\nSELECT flight_date FROM bronze.flights",
        encoding="utf-8",
    )
    code = (
        "from pathlib import Path\nfrom lakechime_dagster import sql_table\ndaily = "
        'sql_table("gold.daily", Path("daily.sql"))'
    )
    module = {"__file__": str(tmp_path / "my_lake.py"), "__name__": "my_lake"}
    exec(compile(code, module["__file__"], "exec"), module)
    daily: Any = module["daily"]
    assert isinstance(daily, LakeTable)
    assert daily.description == "Flights per day.\nOf all airports."
    assert daily.inputs == ("bronze.flights",)


def test_tables_of_the_sql_that_the_trigger_does_not_name_are_read_whole() -> None:
    sql = "SELECT f.* FROM bronze.flights f JOIN bronze.planes p USING (tailnum)"
    table = sql_table("silver.f", sql=sql, refresh="rows", trigger=SnapshotTrigger(flights))
    assert {read.table: read.mode for read in table.reads.values()} == {
        "bronze.flights": ReadMode.CHANGES,
        "bronze.planes": ReadMode.SNAPSHOT,
    }


def test_single_reads_of_sql_can_be_said_otherwise() -> None:
    sql = "SELECT f.* FROM bronze.flights f JOIN bronze.weather w USING (origin)"
    table = sql_table(
        "silver.f",
        sql=sql,
        refresh="rows",
        reads=[weather.snapshot(on_change="ignore")],
        trigger=MINUTELY,
    )
    assert table.trigger is not None
    assert table.trigger.tables == ("bronze.flights",)


def test_affected_keys_learn_which_source_columns_give_the_key() -> None:
    sql = """
        SELECT f.origin, upper(f.dest) AS target, date_trunc('month', w.day) AS month, count(*) AS n
        FROM bronze.flights f JOIN bronze.weather w ON f.origin = w.origin AND f.day = w.day
        GROUP BY 1, target, date_trunc('month', w.day)"""
    table = sql_table(
        "gold.n",
        sql=sql,
        keys=["origin", "target", "month"],
        refresh="affected_keys",
        reads=[weather.snapshot(on_change="ignore")],
    )
    given = {
        "origin": {"f.origin": "origin"},
        "target": {"f.dest": "dest"},
        "month": {"w.day": "day"},
    }
    assert table.key_columns == {"bronze.flights": given}


DAY = {"flight_date": "date"}


DAILY = every(days=1, start="2013-01-02")


def rows(sql: str, **declared: Any) -> Callable[[], object]:
    return lambda: sql_table("gold.t", sql=sql, refresh="rows", **grouped(**declared))


def groups(sql: str, keys: list[str], **declared: Any) -> Callable[[], object]:
    return lambda: sql_table(
        "gold.t", sql=sql, keys=keys, refresh="affected_keys", **grouped(**declared)
    )


def days(sql: str, **declared: Any) -> Callable[[], object]:
    return lambda: sql_table(
        "gold.t", sql=sql, refresh="partitions", **grouped(partitioned_by=DAY, **declared)
    )


def lake(*tables: Any) -> Callable[[], object]:
    return lambda: Lake("flights", tables)


def without_weather(weather: Any) -> Any:
    return weather


def misspelt(flights: Any, wether: "DataFrame") -> Any:  # type: ignore[name-defined] # noqa: F821
    return flights


TWO = {"flights": flights.changes(), "weather": weather.changes()}


UNREJOINED = {"flights": flights.changes(), "weather": weather.snapshot()}


REJOINED = {"flights": REJOIN, "weather": weather.snapshot()}


JOIN = "bronze.flights f JOIN bronze.weather w ON f.origin = w.origin"


PINNED = [weather.snapshot(on_change="ignore")]


NAMES = [
    (
        lambda: SourceTable("bronze flights"),
        "'bronze flights', name: the part 'bronze flights' must be of letters, digits and _",
    ),
    (lambda: SourceTable("a.b/../c"), "name: the part 'b/'"),
    (lambda: SourceTable("bronze.x\n"), r"name: the part 'x\n' must be"),
    (
        lambda: SourceTable("a.f__quarantine"),
        "a.f__quarantine, name: ends with __quarantine, which is kept for tables of refused rows",
    ),
    (
        lambda: SourceTable("a.b", storage=Storage(partitioned_by={"day": "datum"})),
        "a.b, partitioned_by: partition level 'day' 'datum': is not a level type",
    ),
    (
        lambda: SourceTable("a.b", asset=Asset(owner="ops")),
        "a.b, owner: 'ops' is neither an e-mail address nor of the form 'team:name'",
    ),
    (
        lambda: SourceTable("a.b", asset=Asset(fresh_within=dt.timedelta(seconds=30))),
        (
            "a.b, fresh_within: datetime.timedelta(seconds=30) is less than a minute, the least that "
            "Dagster watches a source by"
        ),
    ),
    (lambda: make_table("a." + "b" * 130), "name: has 132 characters; use at most 128"),
    (
        lambda: SourceTable("a.b", asset=Asset(dagster={"deps": []})),
        "a.b, dagster: 'deps' is set from the declaration itself; leave it out",
    ),
    (
        lambda: make_table(fresh_within=dt.timedelta(hours=1)),
        (
            "silver.flights, fresh_within: is measured by the watermark; give watermark=, the "
            "event-time column, too"
        ),
    ),
    (
        lambda: make_table(keys=["flight", "Flight"]),
        "silver.flights, keys: names column 'Flight' twice",
    ),
    (
        lambda: make_table(expect={"positive": "air_time >"}),
        "expect['positive']: 'air_time >' is not a SQL condition",
    ),
    (
        lambda: make_table(expect={"many": "count(*) > 1"}),
        "expect['many']: 'count(*) > 1' looks at more than one row",
    ),
]


DAY_OF_FLIGHTS = PartitionTrigger(
    [flights.partitions(flight_date=tick("-1d"), hour=range(24))], DAILY
)


READS = [
    (
        lambda: make_table(trigger=DAY_OF_FLIGHTS),
        (
            "silver.flights, refresh='rows': would read the whole of its inputs for each key of its "
            "partition trigger; use"
        ),
    ),
    (
        lambda: make_table("bronze.flights"),
        "bronze.flights, reads['flights']: reads the table itself",
    ),
    (
        lambda: make_table(compute=without_weather),
        "reads['flights']: is no parameter of without_weather(); its parameters are weather",
    ),
    (lambda: make_table(compute=misspelt), "parameter 'wether': is no input; reads= names flights"),
    (
        lambda: flights.changes(rejoin=weather),
        "bronze.flights, changes(rejoin=, on=): needs on=[columns that both tables have]",
    ),
    (
        lambda: flights.changes(rejoin=TableName("bronze.weather", cluster="eu"), on=["origin"]),
        (
            "bronze.flights, changes(rejoin=): names bronze.weather of the cluster 'eu'; all tables of "
            "a lake are of its own cluster"
        ),
    ),
    (
        lambda: make_table(compute=joined, reads=TWO),
        "refresh='rows': reads bronze.flights and bronze.weather as changes, and a join of two",
    ),
    (
        lambda: make_table(compute=joined, reads=REJOINED),
        "keys: is empty; rows that changes(rejoin='bronze.weather') gives again",
    ),
    (
        lambda: make_table(keys=["a"], reads={"flights": REJOIN}),
        "changes(rejoin='bronze.weather'): needs bronze.weather in reads= too, as snapshot()",
    ),
    (
        lambda: make_table(compute=joined, keys=["a"], refresh="affected_keys", reads=REJOINED),
        "is for refresh='rows'; with 'affected_keys' read",
    ),
    (
        lambda: make_table(compute=joined, reads=UNREJOINED, trigger=MINUTELY),
        "trigger: a change of bronze.weather wakes it, but bronze.weather is read as a",
    ),
    (
        lambda: make_table(trigger=SnapshotTrigger([flights, planes])),
        "trigger: waits for bronze.planes, which is not read",
    ),
    (
        lambda: make_table(
            refresh="full",
            reads={"flights": flights.snapshot(on_change="ignore")},
            trigger=MINUTELY,
        ),
        (
            "trigger: nothing wakes it, as the changes of all its tables are ignored; leave out "
            "on_change='ignore' of one"
        ),
    ),
    (
        lambda: make_table(reads={"flights": flights.snapshot()}),
        "refresh='rows': reads no input as changes",
    ),
    (
        lambda: make_table(refresh="affected_keys"),
        "keys: is empty; refresh='affected_keys' needs the columns that name a group",
    ),
    (
        lambda: make_table(refresh="partitions"),
        "partitioned_by: is empty; refresh='partitions' needs",
    ),
    (
        lambda: make_table(refresh="partitions", partitioned_by=DAY, keys=["flight"]),
        "keys: lacks the partition column 'flight_date'",
    ),
]


SQL = [
    (
        lambda: sql_table("gold.t", sql=Path("nowhere.sql")),
        "nowhere.sql' cannot be read (FileNotFoundError)",
    ),
    (
        lambda: sql_table("gold.t", sql="SELEC * FROM x"),
        "gold.t, sql: is not understood, line 1, column",
    ),
    (
        lambda: sql_table("gold.t", sql="DELETE FROM a.b"),
        "gold.t, sql: is a DELETE statement; write one SELECT",
    ),
    (lambda: sql_table("gold.t", sql="SELECT 1"), "gold.t, sql: reads no table"),
    (
        lambda: sql_table("gold.t", sql="SELECT * FROM gold.t"),
        "gold.t, sql: reads the table itself",
    ),
    (
        lambda: sql_table("gold.t", sql="SELECT * FROM a.b VERSION AS OF 3"),
        "b AS OF: inputs are pinned by the run; remove the clause",
    ),
    (
        lambda: sql_table("gold.t", sql="SELECT * FROM delta.`/tmp/x`"),
        "reads the path '/tmp/x'; declare it as a SourceTable",
    ),
    (
        lambda: sql_table("gold.t", sql="SELECT * FROM a.b", reads=[flights.changes()]),
        "reads: bronze.flights is not in the SQL, which reads a.b",
    ),
    (
        lambda: sql_table("gold.t", sql="SELECT * FROM bronze.flights", reads=[REJOIN]),
        "changes(rejoin='bronze.weather'): SQL has its own joins",
    ),
    (
        lambda: sql_table("gold.t", sql="SELECT a FROM a.b", keys=["k"]),
        "keys: 'k' is no column of the SQL; it gives a",
    ),
    (
        rows(f"SELECT f.x, w.x FROM {JOIN}", reads=[weather.snapshot()], trigger=MINUTELY),
        "trigger: a change of bronze.weather wakes it",
    ),
    (
        rows("SELECT count(*) AS n FROM bronze.flights"),
        (
            "refresh='rows': cannot keep the aggregate COUNT(*) up to date; use affected_keys, "
            "partitions or full"
        ),
    ),
    (rows("SELECT a, 1 FROM bronze.flights GROUP BY a"), "cannot keep GROUP BY up to date"),
    (rows("SELECT DISTINCT a FROM bronze.flights"), "cannot keep DISTINCT up to date"),
    (rows("SELECT a FROM bronze.flights LIMIT 5"), "cannot keep LIMIT up to date"),
    (
        rows("SELECT row_number() OVER (ORDER BY a) AS r FROM bronze.flights"),
        "cannot keep the window ROW_NUMBER() OVER (ORDER BY a",
    ),
    (
        rows(f"SELECT f.x FROM {JOIN}"),
        "cannot keep the JOIN of two changing inputs, bronze.flights and bronze.weather, up to date",
    ),
    (
        rows("SELECT a.x FROM bronze.flights a JOIN bronze.flights b ON a.k = b.p"),
        "cannot keep the JOIN of two changing inputs, bronze.flights, up",
    ),
    (
        rows("SELECT a FROM x.y UNION SELECT a FROM bronze.flights"),
        "cannot keep UNION (DISTINCT) up to date",
    ),
    (
        rows(
            "SELECT w.a FROM bronze.weather w LEFT JOIN bronze.flights f ON f.o = w.o", reads=PINNED
        ),
        "the LEFT JOIN with a changing input on the side that",
    ),
    (
        rows(
            "SELECT a FROM bronze.weather WHERE o IN (SELECT o FROM bronze.flights)", reads=PINNED
        ),
        "a subquery over a changing input",
    ),
    (
        rows("SELECT rand() AS r FROM bronze.flights"),
        "cannot keep RAND(), which is another value on each run, up to date",
    ),
    (
        groups("SELECT a FROM bronze.flights", ["a"]),
        "refresh='affected_keys': needs GROUP BY the keys: add it",
    ),
    (
        groups("SELECT a, b, 1 AS n FROM bronze.flights GROUP BY a, b", ["a"]),
        "groups by b, which is no key: GROUP BY and keys must be the same",
    ),
    (
        groups("SELECT a, max(b) AS b FROM bronze.flights GROUP BY a", ["a", "b"]),
        "does not group by the key 'b'",
    ),
    (
        groups("SELECT a, b FROM bronze.flights GROUP BY ROLLUP (a, b)", ["a", "b"]),
        "cannot keep ROLLUP, CUBE or GROUPING SETS up to date",
    ),
    (
        groups("SELECT a, sum(1) OVER () AS s FROM bronze.flights GROUP BY a", ["a"]),
        "cannot keep a window over groups up to date",
    ),
    (
        groups("SELECT x, 1 FROM bronze.flights LATERAL VIEW explode(xs) v AS x GROUP BY x", ["x"]),
        (
            "cannot find the groups touched through LATERAL VIEW EXPLODE(xs) v AS x: compute it in a "
            "table of its own"
        ),
    ),
    (
        groups("SELECT a, 1 FROM bronze.flights TABLESAMPLE (10 PERCENT) GROUP BY a", ["a"]),
        "cannot find the groups touched through TABLESAMPLE (10 PERCENT)",
    ),
    (
        groups(f"SELECT f.dest, 1 FROM {JOIN} GROUP BY f.dest", ["dest"]),
        "a change of bronze.weather does not determine 'dest': read bronze.weather as",
    ),
    (
        groups(
            "SELECT w.o, 1 FROM bronze.flights f LEFT JOIN bronze.weather w ON f.o = w.o GROUP BY "
            "w.o",
            ["o"],
        ),
        "which an outer join may leave empty",
    ),
    (
        groups("SELECT a, 1 FROM (SELECT a FROM bronze.flights) x GROUP BY a", ["a"]),
        "cannot look through the query 'x' to a changing input",
    ),
    (
        groups("SELECT a, 1 FROM bronze.flights UNION ALL SELECT a, 1 FROM x.y", ["a"]),
        "needs one SELECT … GROUP BY, and this is a UNION",
    ),
    (
        days("SELECT count(*) AS n FROM bronze.flights"),
        (
            "refresh='partitions': the partition column 'flight_date' is no column of the SQL: select "
            "it"
        ),
    ),
    (
        days("SELECT flight_date, o FROM bronze.flights GROUP BY o"),
        "cannot keep GROUP BY without the partition column 'flight_date'",
    ),
    (
        days("SELECT flight_date, sum(1) OVER (PARTITION BY o) AS s FROM bronze.flights"),
        "cannot keep the window SUM(1) OVER (PARTITION BY o) over more",
    ),
    (
        days("SELECT date_add(flight_date, 1) AS flight_date FROM bronze.flights"),
        "takes the partition column 'flight_date' from DATE_ADD(flight_date, 1)",
    ),
    (
        days(f"SELECT f.flight_date FROM {JOIN}"),
        "a change of bronze.weather does not determine 'flight_date'",
    ),
    (
        days("SELECT max(flight_date) AS flight_date, o FROM bronze.flights GROUP BY o"),
        (
            "takes the partition column 'flight_date' from MAX(flight_date), and not from the inputs' "
            "column of the same name"
        ),
    ),
    (
        days(
            "SELECT flight_date FROM bronze.flights WHERE o > (SELECT avg(o) FROM bronze.flights)"
        ),
        (
            "cannot keep a subquery over a changing input up to date: write it as a join by the "
            "partition columns"
        ),
    ),
    (
        days(
            "WITH o AS (SELECT o FROM bronze.flights GROUP BY o) SELECT f.flight_date FROM "
            "bronze.flights f JOIN o USING (o)"
        ),
        "the partition column 'flight_date' is no column of the SQL in SELECT o FROM bronze.flights",
    ),
    (
        days(
            "SELECT flight_date FROM bronze.flights UNION ALL SELECT flight_date FROM "
            "bronze.weather ORDER BY 1 LIMIT 3"
        ),
        "cannot keep LIMIT up to date; use affected_keys or full",
    ),
    (
        days(
            "SELECT flight_date, o FROM bronze.flights UNION ALL SELECT o AS x, flight_date FROM "
            "bronze.weather"
        ),
        (
            "takes the partition column 'flight_date' from o, and not from the inputs' column of the "
            "same name"
        ),
    ),
    (
        days(
            "SELECT o, flight_date FROM x.y UNION ALL (SELECT * FROM bronze.flights)",
            reads=[Read(table="x.y", mode=ReadMode.SNAPSHOT)],
        ),
        "cannot know which columns SELECT * FROM bronze.flights brings to the UNION: name them",
    ),
    (
        days(
            "SELECT o, flight_date FROM x.y UNION ALL SELECT o FROM bronze.flights",
            reads=[Read(table="x.y", mode=ReadMode.SNAPSHOT)],
        ),
        "has fewer columns in SELECT o FROM bronze.flights than in the first query of the UNION",
    ),
    (
        days("SELECT * FROM bronze.flights TABLESAMPLE (10 PERCENT)"),
        "cannot look through TABLESAMPLE, PIVOT or LATERAL",
    ),
]


A = sql_table("gold.a", sql="SELECT * FROM gold.b")


B = sql_table("gold.b", sql="SELECT * FROM gold.c JOIN bronze.flights USING (x)")


C = sql_table("gold.c", sql="SELECT * FROM gold.a")


HOURLY_FLIGHTS = SourceTable("bronze.flights", storage=Storage(partitioned_by=HOUR))


STRINGS = SourceTable("bronze.flights", storage=Storage(partitioned_by={"flight_date": "string"}))


ELSEWHERE = SourceTable("bronze.flights", storage=Storage(partitioned_by={"day": "date"}))


WAITS = PartitionTrigger([HOURLY_FLIGHTS.partitions(flight_date=tick("-1d"), hour=5)], DAILY)


WAITING = make_table(refresh="full", trigger=WAITS)


WHOLE_DAYS = sql_table(
    "gold.days",
    sql="SELECT flight_date FROM bronze.flights",
    refresh="partitions",
    storage=Storage(partitioned_by=DAY),
)


LAKES = [
    (lambda: Lake("my lake", [flights]), "Lake 'my lake', name: must be of letters, digits and _"),
    (
        lake(make_table()),
        (
            "silver.flights, reads['flights']: reads bronze.flights, which is not in the lake; declare "
            "it as a SourceTable"
        ),
    ),
    (lake(A), "gold.a, sql: reads gold.b, which is not in the lake"),
    (
        lake(flights, A, B, C),
        "gold.a, reads: is a cycle: gold.a ← gold.b ← gold.c ← gold.a; break it",
    ),
    (
        lake(flights, make_table(), make_table()),
        "silver.flights, name: is written by two declarations; keep one",
    ),
    (
        lake(flights, SourceTable("bronze.Flights")),
        "bronze.Flights, name: differs from bronze.flights in letter case only",
    ),
    (
        lake(flights, SourceTable("bronze")),
        "bronze.flights, name: would lie inside the folder of bronze",
    ),
    (
        lake(
            SourceTable("a.b", storage=Storage(location="/x")),
            SourceTable("a.c", storage=Storage(location="/x/")),
        ),
        "a.c, location: is the location of a.b too",
    ),
    (
        lake(
            flights,
            make_table(
                refresh="full",
                trigger=PartitionTrigger([weather.partitions(flight_date=1, hour=1)], DAILY),
            ),
        ),
        "trigger: waits for bronze.weather, which is",
    ),
    (
        lake(ELSEWHERE, WAITING),
        "silver.flights, trigger: bronze.flights has no level 'flight_date'; its levels are day",
    ),
    (
        lake(ELSEWHERE, WHOLE_DAYS),
        (
            "gold.days, partitioned_by: 'flight_date' is no partition level of bronze.flights (it has "
            "day), so its changes"
        ),
    ),
    (
        lake(STRINGS, WHOLE_DAYS),
        (
            "gold.days, partitioned_by: 'flight_date' is date here and string in bronze.flights; use "
            "one type"
        ),
    ),
]


@pytest.mark.parametrize(
    ("declare", "message"),
    [*NAMES, *READS, *SQL, *LAKES],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_a_wrong_declaration_is_answered_with_table_field_and_remedy(
    declare: Callable[[], object], message: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(message)):
        declare()


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM a.x, b.y", ("a.x", "b.y")),
        ("SELECT * FROM a.x JOIN c.a.x USING (k)", ("a.x", "c.a.x")),
        ("WITH x AS (SELECT * FROM a.x) SELECT * FROM x", ("a.x",)),
        ("WITH x AS (SELECT * FROM x) SELECT * FROM x", ("x",)),
        (
            "WITH p AS (SELECT 1 FROM a.x), q AS (SELECT * FROM p) SELECT * FROM q JOIN b.p",
            ("a.x", "b.p"),
        ),
        (
            "SELECT (SELECT max(k) FROM b.y) FROM a.x WHERE EXISTS (SELECT 1 FROM c.z)",
            ("a.x", "b.y", "c.z"),
        ),
        ("SELECT * FROM range(10) r JOIN a.x ON r.id = x.k", ("a.x",)),
        ("SELECT * FROM VALUES (1) v(k) JOIN a.x USING (k)", ("a.x",)),
        ("SELECT * FROM a.x LATERAL VIEW explode(z) t AS q", ("a.x",)),
        ("SELECT 1 FROM a.x UNION ALL SELECT 2 FROM b.y", ("a.x", "b.y")),
        ("SELECT * FROM `a`.`x`", ("a.x",)),
        (
            "SELECT /*+ BROADCAST(y), REPARTITION(3) */ * FROM a.x JOIN b.y y USING (k)",
            ("a.x", "b.y"),
        ),
        ("SELECT parse_json(s):a[0] FROM a.x", ("a.x",)),
        (
            "WITH RECURSIVE r AS (SELECT k FROM a.x UNION ALL SELECT k + 1 FROM r) SELECT * FROM r",
            ("a.x",),
        ),
    ],
)
def test_the_tables_of_a_query_are_those_that_lie_in_the_lake(
    sql: str, tables: tuple[str, ...]
) -> None:
    assert set(tables_of(parse_query("t", sql))) == set(tables)
    assert len(tables_of(parse_query("t", sql))) == len(tables)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [("SELECT a, b.c, d AS e FROM x.y b", ("a", "c", "e")), ("SELECT a, b.* FROM x.y b", None)],
)
def test_the_columns_of_a_query_are_known_unless_a_star_hides_them(
    sql: str, columns: tuple[str, ...] | None
) -> None:
    query = parse_query("t", sql)
    assert not isinstance(query, Unparsed)
    assert output_columns(query) == columns


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        (
            (
                "SELECT extract(DAY FROM a.at) FROM a.x JOIN `b`.`y` y ON k IS DISTINCT FROM y.k GROUP "
                "BY window(at, '1 h')"
            ),
            ("a.x", "b.y"),
        ),
        (
            (
                "WITH p AS (SELECT 1 FROM a.x), q(n) AS (TABLE b.y) SELECT n FROM q ANTI JOIN c.a.z "
                "JOIN s.f(1) |> LIMIT 1"
            ),
            ("a.x", "b.y", "c.a.z"),
        ),
        (
            (
                "FROM a.x |> JOIN b.y USING (k) |> AGGREGATE sum(k), sum(z) GROUP BY k |> UNION ALL "
                "TABLE c.z"
            ),
            ("a.x", "b.y", "c.z"),
        ),
    ],
)
def test_of_a_query_that_only_spark_can_parse_the_tables_are_the_names_behind_from_and_join(
    sql: str, tables: tuple[str, ...]
) -> None:
    query = parse_query("t", sql)
    assert isinstance(query, Unparsed)
    assert query.tables == tables


def test_what_reads_names_is_read_too_where_only_spark_can_parse_the_query() -> None:
    windows = (
        "SELECT count(*) AS n FROM bronze.x, f(1, TABLE(bronze.y)) GROUP BY window(at, '1 hour')"
    )
    reads = [SourceTable("bronze.y").snapshot()]
    table = sql_table("gold.n", sql=windows, reads=reads)
    assert {read.table: read.mode for read in table.reads.values()} == {
        "bronze.x": ReadMode.CHANGES,
        "bronze.y": ReadMode.SNAPSHOT,
    }
    with pytest.raises(
        DeclarationError,
        match=r"cannot be checked, as the SQL is not understood: line 1, .*; use full",
    ):
        sql_table("gold.n", sql=windows, reads=reads, refresh="rows")
    with pytest.raises(
        DeclarationError,
        match=r"gold.n, sql: is not understood, .*; name its tables, such as reads=",
    ):
        sql_table("gold.n", sql="FROM orders |> WHERE k > 1")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM IDENTIFIER('b.y')",
        "SELECT * FROM a.x JOIN identifier('b' || '.y') AS y USING (k)",
        "SELECT * FROM a.x WHERE k IN (SELECT k FROM b.IDENTIFIER('y'))",
    ],
)
def test_a_table_named_by_an_expression_is_refused_where_it_is_declared(sql: str) -> None:
    with pytest.raises(DeclarationError, match=r"t, sql: names a table by IDENTIFIER"):
        parse_query("t", sql)
    columns = parse_query("t", "SELECT IDENTIFIER('k'), 'FROM IDENTIFIER(1)' FROM a.x")
    assert tables_of(columns) == ("a.x",)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("parse_json(s)", "s"),
        ("'a\\'b'", "'ab'"),
        ("'O''B'", "'O' 'B'"),
        ("r'\\d'", "'\\d'"),
        ("1L", "1"),
    ],
)
def test_texts_that_say_something_else_are_not_normalized_to_one(one: str, other: str) -> None:
    assert normalized(f"SELECT {one} AS z FROM a.x") != normalized(f"SELECT {other} AS z FROM a.x")


orders = SourceTable("bronze.orders")


def of(function: Any, **fields: Any) -> str:
    return code_digest(
        spark_table(
            "silver.paid", keys=["id"], reads={"orders": orders.changes()}, **grouped(**fields)
        )(function)
    )


def plain() -> Callable[..., Any]:
    def paid(orders: Any) -> Any:
        return orders.where("amount > 0")

    return paid


def commented() -> Callable[..., Any]:
    @functools.cache
    def paid(orders: Any) -> Any:
        """Orders that are paid."""
        # more than nothing
        return orders.where("amount > 0")

    return paid


def other() -> Callable[..., Any]:
    def paid(orders: Any) -> Any:
        return orders.where("amount > 1")

    return paid


class Paid:
    def __call__(self, orders: Any) -> Any:
        return orders


def test_the_digest_of_a_function_is_that_of_what_its_source_says() -> None:
    assert of(plain()) == of(plain()) == of(commented()) != of(other())
    assert of(functools.partial(plain())) == of(plain())
    whole = of(lambda orders: orders)
    assert whole != of(lambda orders: orders.limit(1))
    assert of(Paid()) == of(Paid()) != of(plain())


def test_a_declared_code_version_is_the_digest_of_a_function() -> None:
    first, second = ({"code_version": version} for version in ("1", "2"))
    assert of(plain(), dagster=first) == of(other(), dagster=first) != of(plain(), dagster=second)


SAME_AND_OTHER = (
    "SELECT 1 AS id FROM bronze.orders",
    "select 1 as id -- one\nfrom bronze.orders",
    "SELECT 2 AS id FROM bronze.orders",
)


def test_the_digest_of_sql_is_that_of_what_it_says() -> None:
    said, spaced, other = (sql_table("silver.paid", sql=sql, keys=["id"]) for sql in SAME_AND_OTHER)
    assert code_digest(said) == code_digest(spaced) != code_digest(other)


SILVER = make_table(
    compute=joined, keys=["flight"], reads={"flights": REJOIN, "weather": weather.snapshot()}
)


GOLD = sql_table(
    "gold.routes", sql="SELECT * FROM silver.flights JOIN bronze.weather USING (origin)"
)


def test_tables_come_in_an_order_in_which_inputs_are_first() -> None:
    lake = Lake("flights", [GOLD, SILVER, weather, flights])
    names = [table.name for table in lake.tables]
    assert names.index("silver.flights") < names.index("gold.routes")
    assert names.index("bronze.weather") < names.index("silver.flights")
    assert lake.targets == (SILVER, GOLD)
    assert set(lake.sources) == {flights, weather}


GRAPHS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=4), max_size=8
)


@given(GRAPHS)
def test_a_graph_has_either_a_cycle_or_an_order(inputs: dict[str, list[str]]) -> None:
    cycle = find_cycle(inputs)
    if cycle is None:
        order = topological(inputs)
        assert sorted(order) == sorted(inputs)
        assert all(
            order.index(name) < order.index(table)
            for table in order
            for name in inputs[table]
            if name in inputs
        )
    else:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        assert all(following in inputs[table] for table, following in itertools.pairwise(cycle))


def test_alarms_are_urls_or_variables_and_are_not_shown() -> None:
    lake = Lake("shop", [SourceTable("bronze.orders")], alarms=["$OPS", "mailto://ada:secret@mail"])
    assert (lake.alarms, "secret" in repr(lake)) == (("$OPS", "mailto://ada:secret@mail"), False)
    with pytest.raises(
        DeclarationError, match=r"Lake shop, alarms\[1\]: is neither a URL of apprise"
    ) as refused:
        Lake("shop", [], alarms=["$OPS", "my secret"])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "no.such.package:lake",
            "names no module no.such.package; is it installed or on PYTHONPATH",
        ),
        ("tests.e2e.lake:pond", "tests.e2e.lake has no Lake of the name pond"),
        ("json:dumps", "json has no Lake of the name dumps"),
    ],
)
def test_what_is_no_lake_is_reported_with_its_name(name: str, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        load_lake(name)


GROUPS = """
from lakechime_dagster import Contract, JsonLines, Lake, Maintenance, Storage, event_group, event_stream
game = event_stream("game", source=JsonLines("in"))
lake = Lake("play", [
    game,
    event_group("shop", game, match="shop.*", types={"shop.buy": Contract(columns="frezee")}),
    event_group("levels", game, match="level.*", contract=Contract(max_types=0)),
    event_group("kept", game, match="kept.*", storage=Storage(maintenance=Maintenance(budget=0))),
    event_group("owned", game, match="owned.*", owner="somebody"),
    event_group("fights", game, match="fight.*"),
])
"""


def test_a_group_whose_declaration_is_wrong_fails_alone_and_keeps_its_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "groups_lake.py").write_text(GROUPS)
    monkeypatch.syspath_prepend(tmp_path)
    lake = load_lake("groups_lake:lake")
    monkeypatch.delitem(sys.modules, "groups_lake")
    assert {group.name: group.problem.partition(": ")[0] for group in lake.groups} == {
        "shop": "shop, types['shop.buy']",
        "levels": "levels, contract",
        "kept": "kept, maintenance",
        "owned": "owned, owner",
        "fights": "",
        "game_other": "",
    }
    assert [owner_of(lake.groups, kind).name for kind in ("shop.buy", "level.up", "other")] == [
        "shop",
        "levels",
        "game_other",
    ]
    graph = build_definitions(lake).resolve_asset_graph()
    assert [graph.get(dg.AssetKey(name)).is_executable for name in ("shop", "fights")] == [
        False,
        True,
    ]
    with pytest.raises(DeclarationError, match="frezee"):
        exec(GROUPS, {})


ORDERS = SourceTable("shop.orders")


def test_a_lake_says_what_other_engines_call_its_tables() -> None:
    lake = Lake("shop", [ORDERS], aliases={"hive.*": "*", "pg.public.orders": "shop.orders"})
    assert lake.aliases["pg.public.orders"] == "shop.orders"
    assert Lake("shop", [ORDERS]).aliases == {}


@pytest.mark.parametrize(
    ("said", "meant", "problem"),
    [
        ("hive.*", "shop.orders", "end both with"),
        ("hive.orders", "*", "end both with"),
        ("hive.orders", "shop.nothing", "which is not in the lake"),
        ("", "shop.orders", "must be a name"),
    ],
)
def test_an_alias_that_means_nothing_is_refused(said: str, meant: str, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        Lake("shop", [ORDERS], aliases={said: meant})


def hive_table(refresh: str, **storage: Any) -> LakeTable:
    return sql_table(
        "gold.orders",
        sql="SELECT id FROM shop.orders",
        keys=["id"],
        refresh=refresh,
        storage=Storage(format="hive", **storage),
    )


def test_a_hive_table_that_whole_partitions_cannot_keep_up_to_date_is_refused() -> None:
    with pytest.raises(DeclarationError, match="refresh: is rows, and of a Hive table only whole"):
        hive_table("rows")
    with pytest.raises(DeclarationError, match="maintenance: has no effect on a table of Hive"):
        hive_table("full", maintenance=Maintenance())


def test_computed_tables_have_the_format_of_their_lake_unless_they_declare_one() -> None:
    totals = sql_table("gold.totals", sql="SELECT id FROM shop.orders", refresh="rows")
    own = sql_table("gold.own", sql="SELECT id FROM shop.orders", storage=Storage(format="delta"))
    lake = Lake("shop", [ORDERS, totals, own], table_format="iceberg")
    assert {one.name: one.format for one in lake.tables} == {
        "shop.orders": TableFormat.DELTA,
        "gold.totals": TableFormat.ICEBERG,
        "gold.own": TableFormat.DELTA,
    }
    with pytest.raises(DeclarationError, match=r"gold\.totals, refresh: is rows, and of a Hive"):
        Lake("shop", [ORDERS, totals], table_format="hive")
    with pytest.raises(DeclarationError, match="Lake shop, table_format: 'orc' is none of delta"):
        Lake("shop", [ORDERS], table_format="orc")


WRITER = Account(
    "shop-writer", {"fs.s3a.access.key": "$SHOP_KEY", "fs.s3a.endpoint": "https://store"}
)


def test_a_session_gets_the_settings_and_a_file_system_of_its_own() -> None:
    found = WRITER.confs("s3a://lake/shop/orders", {"SHOP_KEY": "secret"})
    assert found == {
        "fs.s3a.impl.disable.cache": "true",
        "fs.s3a.access.key": "secret",
        "fs.s3a.endpoint": "https://store",
    }
    assert "fs.s3a" not in repr(WRITER)


@pytest.mark.parametrize(
    "location", ["/lake/orders", "lake/orders", "file:///lake/orders", "hdfs://names/lake/orders"]
)
def test_an_account_that_has_no_effect_is_refused(location: str) -> None:
    settings = {"fs.permissions.umask-mode": "077", **WRITER.settings}
    writer = Account("shop-writer", settings)
    with pytest.raises(
        DeclarationError,
        match=r"a\.b, write_as: fs\.s3a\.access\.key of Account\('shop-writer'\) has no effect at",
    ):
        sql_table(
            "a.b", sql="SELECT n FROM a.c", storage=Storage(write_as=writer, location=location)
        )
    with pytest.raises(DeclarationError, match="has no effect"):
        writer.confs(location, {"SHOP_KEY": "secret"})
    assert (
        Account("shop-writer", {"fs.permissions.umask-mode": "077"}).confs(location, {})[
            "fs.permissions.umask-mode"
        ]
        == "077"
    )


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Account(" ", {"fs.a": "b"}), "Account, name: ' ' is no name, such as shop-writer"),
    (
        lambda: Account("a", {}),
        "Account, settings: is no map of settings, such as {'fs.s3a.access.key': '$SHOP_KEY'}",
    ),
    (
        lambda: Account("a", {"spark.x": "b"}),
        "Account, settings: 'spark.x' is none of a file system's, which begin with fs.",
    ),
    (
        lambda: Account("a", {"fs.x": 5}),  # pyright: ignore[reportArgumentType]
        "Account, settings: the value of fs.x is no text, or $NAME of a variable",
    ),
    (
        lambda: sql_table("a.b", sql="SELECT n FROM a.c", storage=Storage(write_as="x")),  # pyright: ignore[reportArgumentType]
        "a.b, write_as: 'x' is no Account(name, {'fs.…': …})",
    ),
]


@pytest.mark.parametrize(("declare", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_cannot_work_is_refused(declare: Callable[[], object], said: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(said)):
        declare()
