"""Lineage is kept once, in whatever order and however often it is reported, on every database."""

from collections.abc import Iterable
from itertools import permutations

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import reading, writing
from lakechime_dagster.dce.schema import metadata
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import (
    ColumnLineage,
    Kind,
    LineageRecord,
    Producer,
    Statement,
)
from lakechime_dagster.lineage.recording import LineageToKeep, SqlLineage, digest, record_all_on
from lakechime_dagster.lineage.store import LineageStandings
from tests.lineage.factories import make_record, make_statement, source
from tests.support.stores import fresh_memory

DELAY = make_statement(delay="bronze.flights.dep_delay")
WIND = make_statement(
    delay="bronze.flights.dep_delay", wind=source("bronze.weather.wind", Kind.AGGREGATION)
)
OPAQUE = make_statement(
    inputs=("bronze.flights",), opaque={"delay": "rows of an RDD"}, unknown=("an RDD",)
)
ELSEWHERE = make_statement("gold.other", delay="bronze.flights.dep_delay")
TIMES = range(1, 6)
RECORDS = st.builds(
    make_record,
    st.sampled_from([DELAY, WIND, OPAQUE, ELSEWHERE]),
    run=st.sampled_from("abcdefgh"),
    at=st.sampled_from(TIMES),
    job=st.sampled_from(["one", "two"]),
)


def test_a_record_is_read_back_as_it_was_reported(engine: Engine) -> None:
    statement = make_statement(
        delay=(
            source("bronze.flights.dep_delay"),
            source("bronze.flights.carrier", Kind.CONDITIONAL),
        ),
        who=source("crm.people.email", Kind.TRANSFORMATION, masking=True),
        rows=source("bronze.flights.", Kind.AGGREGATION),
        indirect=(source("bronze.weather.hour", Kind.JOIN),),
        inputs=("bronze.airlines",),
        opaque={"guess": "rows of an RDD"},
        unknown=("an RDD",),
        replaces=True,
        through={"who": "Python UDF hide"},
        udfs=("mapInPandas",),
    )
    assert SqlLineage(engine).record(make_record(statement, at=7, owners=("team:ops",)))
    (found,) = LineageStandings(engine).all()
    assert by_name(found.statement) == by_name(statement)
    assert (found.producer.job, found.last_ms, found.owners) == ("daily", 7, ("team:ops",))


def test_a_run_that_reports_what_the_one_before_it_reported_adds_no_rows(engine: Engine) -> None:
    SqlLineage(engine).record_all([make_record(run="a", at=1), make_record(run="b", at=2)])
    found = rows_of(engine)
    assert {name: found[name] for name in ("node", "writer", "statement", "input")} == {
        "node": 4,
        "writer": 1,
        "statement": 1,
        "input": 1,
    }
    (found,) = LineageStandings(engine).all()
    assert found.last_ms == 2


def test_what_is_unlike_what_the_run_before_reported_is_new(engine: Engine) -> None:
    reported = [
        make_record(DELAY, run="a", at=1),
        make_record(DELAY, run="b", at=2),
        make_record(WIND, run="c", at=5),
    ]
    assert [LineageToKeep(one).kept(engine) for one in reported] == [True, False, True]


def test_owners_are_those_of_the_newest_run_in_whatever_order_they_come(engine: Engine) -> None:
    several = [
        make_record(run=run, at=at, owners=(owner,))
        for run, at, owner in (("a", 1, "old"), ("b", 3, "new"), ("c", 2, "between"))
    ]
    for number, order in enumerate(permutations(several)):
        here = [
            LineageRecord(**{**vars(one), "producer": Producer(namespace="test", job=str(number))})
            for one in order
        ]
        for one in here:
            SqlLineage(engine).record(one)
    assert {one.owners for one in LineageStandings(engine).all()} == {("new",)}


def test_a_record_that_no_store_can_hold_keeps_nothing_of_its_neighbours(engine: Engine) -> None:
    with pytest.raises(InvalidValueError, match="run of a lineage record"):
        SqlLineage(engine).record_all([make_record(), make_record(run="")])
    assert set(rows_of(engine).values()) == {0}


def test_hostile_names_are_kept_as_far_as_a_store_can_hold_them(engine: Engine) -> None:
    columns = {
        "a\0b": "bronze.\ud800.é",
        "a\N{REPLACEMENT CHARACTER}b": "bronze.\N{REPLACEMENT CHARACTER}.é",
        "": "bronze.t.x",
    }
    found = [ColumnLineage(column=name, sources=(source(one),)) for name, one in columns.items()]
    statement = Statement(target="gold.'; drop table x --", columns=tuple(found))
    SqlLineage(engine).record(make_record(statement))
    (found,) = LineageStandings(engine).all()
    assert found.statement.target == "gold.'; drop table x --"
    assert [column.column for column in found.statement.columns] == [
        "",
        "a\N{REPLACEMENT CHARACTER}b",
    ]


def test_a_record_is_kept_with_the_transaction_that_it_came_in(engine: Engine) -> None:
    def unlucky() -> None:
        with writing(engine) as connection:
            assert record_all_on(connection, [make_record()])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        unlucky()
    assert LineageStandings(engine).all() == []


@given(st.lists(st.lists(RECORDS, max_size=4), max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_holds_is_what_the_newest_runs_reported_in_whatever_order_records_come(
    batches: list[list[LineageRecord]],
) -> None:
    engine = fresh_memory()
    for batch in batches:
        SqlLineage(engine).record_all(batch)
    found = {
        (one.producer, one.statement.target): by_name(one.statement)
        for one in LineageStandings(engine).all()
    }
    assert found == expected(record for batch in batches for record in batch)


def expected(records: Iterable[LineageRecord]) -> dict[tuple[Producer, str], Statement]:
    """By the newest run of each producer and target."""
    in_order = sorted(records, key=lambda one: (one.at_ms, digest(one.run_id)))
    return {(one.producer, one.target): by_name(one.statement) for one in in_order}


def by_name(statement: Statement) -> Statement:
    """The same with its columns in the order of their names."""
    columns: tuple[ColumnLineage, ...] = tuple(
        sorted(statement.columns, key=lambda column: column.column)
    )
    return Statement(**{**vars(statement), "columns": columns})


def rows_of(engine: Engine) -> dict[str, int]:
    tables = [table for name, table in metadata.tables.items() if name.startswith("lc_lineage_")]
    assert schema.node in tables
    with reading(engine) as connection:
        return {
            table.name.removeprefix("lc_lineage_"): connection.execute(
                sa.select(sa.func.count()).select_from(table)
            ).scalar_one()
            for table in tables
        }
