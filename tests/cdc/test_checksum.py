"""A database and the lake give the same texts, hashes and checksums of equal rows, whichever engine
computes them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.compare import Comparison, Queries, Summary, comparison_of, quoted
from lakechime_dagster.errors import InvalidValueError
from tests.cdc.checksums import (
    TABLES,
    Asked,
    comparison,
    lake_rows,
    lake_types,
    reported,
    row_hash,
    row_text,
    texts_of,
)

UNCHECKED = {  # by table, the columns that are not compared
    "mariadb-types.zero_dates": set[str](),
    "postgres-types.moments": {"iv"},
    "postgres-types.numbers": {"bv"},
    "postgres-types.texts": {"ip", "net", "mac", "span", "ta", "ia", "ba", "ua", "na", "fa"},
}
ORDERED = {  # keys of each kind, and of several columns
    "mariadb-edges.names",
    "mariadb-edges.pairs",
    "mariadb-types.moment_keys",
    "mariadb-types.wide_keys",
    "postgres-edges.moments_as_keys",
    "postgres-edges.uuids",
    "postgres-types.text_keys",
}
PARAMETERS = "spark.sql.legacy.parameterSubstitution.constantsOnly"


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_plain_python_gives_the_text_and_hash_that_the_database_gave(name: str, table: str):
    known = reported(name, table)
    compared = comparison(name, table, known.types)
    assert {
        key: (row_text(compared, row), row_hash(compared, row))
        for key, row in by_key(compared, lake_rows(name, table))
    } == known.rows
    assert compared.unchecked.keys() == UNCHECKED.get(f"{name}.{table}", set())


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_the_checksum_of_a_range_is_that_of_its_rows(name: str, table: str):
    known = reported(name, table)
    for low, high, summary in known.ranges:
        start, end = (
            (0 if low is None else known.order.index(low) + 1),
            (None if high is None else known.order.index(high) + 1),
        )
        keys = known.order[start:end]
        assert summary == Summary(
            len(keys), len(set(keys)), sum(known.rows[key][1] for key in keys)
        )


def test_columns_of_both_tables_are_matched_in_letters_of_whatever_case() -> None:
    source, lake = (
        {"id": "int(11)", "Name": "varchar(9)", "only": "int(11)"},
        {"ID": "int", "name": "string"},
    )
    compared = comparison_of(Dialect.MYSQL, source, lake, ["Id"], ["NAME"])
    assert (compared.keys, [*compared.columns], [*compared.unchecked]) == (
        ("id",),
        ["id", "Name"],
        ["only"],
    )


def by_key(
    compared: Comparison, rows: list[Mapping[str, Any]]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    twins = {key: compared.columns[key].twin for key in compared.keys}
    return ((tuple(twin(row[key]) for key, twin in twins.items()), row) for row in rows)


@pytest.mark.spark
def test_spark_gives_the_texts_hashes_and_order_that_the_databases_gave(spark: SparkSession):
    """Whatever the session's zone, and with ANSI mode off, by which numbers have other texts."""
    session = spark.newSession()
    for conf, value in {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.ansi.enabled": "false",
        PARAMETERS: "true",
    }.items():
        session.conf.set(conf, value)
    parts, parameters, expected = list[str](), dict[str, Any](), list[tuple[str, list[str]]]()
    for name, table in TABLES:
        schema = ", ".join(
            f"{quoted(Dialect.SPARK, column)} {kind}"
            for column, kind in lake_types(name, table).items()
        )
        rows = [
            tuple(row[column] for column in lake_types(name, table))
            for row in lake_rows(name, table)
        ]
        session.createDataFrame(rows, schema).createOrReplaceTempView(view_of(name, table))
        for label, query, answer in questions(name, table):
            mine = f"q{len(parts)}_"
            names = [f"c{i}" for i in range(len(answer[0]))]
            texts = ", ".join(f"CAST({one} AS STRING)" for one in names)
            parts.append(
                f"SELECT '{label}', array({texts}) FROM ({query.sql.replace(':p', f':{mine}p')}) "
                f"q({', '.join(names)})"
            )
            parameters |= {mine + parameter: value for parameter, value in query.parameters.items()}
            expected += [(label, [str(value) for value in row]) for row in answer]
    # as one statement, which takes Spark least time
    found = session.sql(" UNION ALL ".join(parts), args=parameters).collect()
    assert sorted(map(tuple, found)) == sorted(expected)


def asked(side: Queries, ask: Callable[[Queries], object]) -> Asked:
    """The query by which a side answers."""
    found = Asked()
    ask(replace(side, run=found))
    return found


def view_of(name: str, table: str) -> str:
    return f"{name}_{table}".replace("-", "_")


def questions(name: str, table: str) -> Iterator[tuple[str, Asked, Sequence[Sequence[object]]]]:
    """What the lake is asked of a table, and what the database answered: of its rows, and of a
    range for each kind of key.
    """
    known, label = reported(name, table), f"{name}.{table}"
    lake = comparison(name, table, known.types).lake(Asked(), view_of(name, table))
    hashes = {key: (*key, value) for key, (_, value) in known.rows.items()}
    yield f"{label}: texts", texts_of(lake), [(*key, *row) for key, row in known.rows.items()]
    if label in ORDERED:
        half = len(known.order) // 2
        middle = known.order[half]
        yield f"{label}: middle", asked(lake, lambda one: one.middle(None, None, half)), [middle]
        yield (
            f"{label}: rows",
            asked(lake, lambda one: one.rows(None, middle)),
            [hashes[key] for key in known.order[: half + 1]],
        )


TEXTS = st.none() | st.text(alphabet=":n0123 ', \x00é💡", max_size=6)


@given(one=st.lists(TEXTS, min_size=3, max_size=3), other=st.lists(TEXTS, min_size=3, max_size=3))
def test_rows_have_one_text_only_if_all_their_values_are_equal(
    one: list[str | None], other: list[str | None]
):
    compared = a_comparison(a="varchar(9)", b="varchar(9)", c="varchar(9)")
    texts = [row_text(compared, dict(zip("abc", row, strict=True))) for row in (one, other)]
    assert (texts[0] == texts[1]) == (one == other)


def a_comparison(
    dialect: Dialect = Dialect.MYSQL, lake_type: str = "string", **types: str
) -> Comparison:
    return comparison_of(dialect, types, dict.fromkeys(types, lake_type), list(types)[:1])


@pytest.mark.parametrize(
    ("dialect", "source_type", "lake_type"),
    [
        (Dialect.MYSQL, "json", "string"),
        (Dialect.MYSQL, "point", "string"),
        (Dialect.MYSQL, "decimal(10,2)", "double"),
        (Dialect.MYSQL, "date", "timestamp"),
        (Dialect.POSTGRES, "integer[]", "array<int>"),
        (Dialect.POSTGRES, "bit varying(12)", "string"),
        (Dialect.POSTGRES, "interval", "bigint"),
        (Dialect.POSTGRES, "inet", "string"),
        (Dialect.POSTGRES, "money", "decimal(19,2)"),
    ],
)
def test_a_column_without_a_text_that_both_sides_give_is_named(
    dialect: Dialect, source_type: str, lake_type: str
):
    of_key = "int(11)" if dialect is Dialect.MYSQL else "integer"
    compared = comparison_of(
        dialect, {"id": of_key, "it": source_type}, {"id": "int", "it": lake_type}, ["id"]
    )
    assert list(compared.columns) == ["id"]
    assert compared.unchecked == {
        "it": f"{source_type} as {lake_type} has no text that is equal for equal values"
    }


@pytest.mark.parametrize(
    ("key", "reason"), [("there", "json as string"), ("not_there", "no such column")]
)
def test_a_key_must_be_comparable(key: str, reason: str):
    with pytest.raises(InvalidValueError, match=rf"keys '{key}'.*{reason}"):
        comparison_of(Dialect.MYSQL, {"there": "json"}, {"there": "string"}, [key])


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (float("nan"), -float("nan"))])
def test_equal_floats_have_one_text(one: float, other: float):
    compared = a_comparison(lake_type="double", it="double")
    assert row_hash(compared, {"it": one}) == row_hash(compared, {"it": other})


def test_a_range_of_several_columns_begins_with_what_an_index_serves():
    types = dict.fromkeys("ab", "bigint")
    query = Asked()
    table = comparison_of(Dialect.POSTGRES, types, types, ["a", "b"]).source(query, "shop", "t")
    table.rows(("1", "2"), ("3", "4"))
    where = query.sql.partition(" WHERE ")[2]
    assert where == (
        't."a" >= :p0 AND ((t."a" > :p0) OR (t."a" = :p0 AND t."b" > :p1))'
        ' AND t."a" <= :p2 AND ((t."a" < :p2) OR (t."a" = :p2 AND t."b" <= :p3))'
    )
    assert query.parameters == {"p0": 1, "p1": 2, "p2": 3, "p3": 4}


def test_the_rows_of_one_shard_are_compared_by_themselves():
    lake = a_comparison(id="varchar(9)").lake(Asked(), "db", "orders", only={"shard": "eu"})
    asks: list[Callable[[Queries], object]] = [
        lambda one: one.summary(None, None),
        lambda one: one.rows(None, None),
        lambda one: one.middle(None, None, 1),
        lambda one: one.at([("1",)]),
    ]
    for query in (asked(lake, ask) for ask in asks):
        assert "FROM `db`.`orders` t WHERE t.`shard` = :p0" in query.sql
        assert query.parameters["p0"] == "eu"
