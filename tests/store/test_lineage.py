"""Lineage is kept once, in whatever order and however often it is reported, on every database; what
is outside of a lake, and what people decide of columns.
"""

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
from lakechime_dagster.governance.store import PersonalDecisions
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import (
    ColumnLineage,
    ColumnRef,
    Consumer,
    ConsumerKind,
    Kind,
    LineageRecord,
    Producer,
    Read,
    Statement,
)
from lakechime_dagster.lineage.external import ExternalTable, Outside, outside_of
from lakechime_dagster.lineage.recording import (
    LineageToKeep,
    SqlLineage,
    digest,
    keep_reads,
    record_all_on,
)
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.triggers.interventions import By
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


LAKE = ("silver.orders", "gold.days")


def read_by(name: str, at: int, *refs: str) -> Read:
    found = tuple(
        ColumnRef(table, column) for table, _, column in (ref.rpartition(".") for ref in refs)
    )
    return Read(
        consumer=Consumer(ConsumerKind.DASHBOARD, "superset", name),
        refs=found,
        at_ms=at,
        owners=(f"team:{name}",),
        link="https://x",
    )


def look(engine: Engine, since: int = 0, most: int = 10) -> Outside:
    return outside_of(engine, LAKE, "local", since, most)


def keep(engine: Engine, *reads: Read) -> None:
    with writing(engine) as connection:
        keep_reads(connection, reads)


def test_who_read_last_comes_first_with_what_it_reads_and_the_rest_is_counted(
    engine: Engine,
) -> None:
    keep(
        engine,
        read_by("old", 10, "gold.days.n"),
        read_by("new", 30, "gold.days.n", "gold.days.day", "silver.orders.id"),
        read_by("mid", 20, "x.y.z"),
    )
    found = look(engine, most=2)
    assert [
        (one.consumer.name, one.tables, one.last_ms, one.owners, one.link)
        for one in found.consumers
    ] == [
        ("new", ("gold.days", "silver.orders"), 30, ("team:new",), "https://x"),
        ("mid", ("x.y",), 20, ("team:mid",), "https://x"),
    ]
    assert (found.more, look(engine, since=25).more, len(look(engine, since=25))) == (1, 0, 1)


def test_data_sets_that_the_lake_does_not_declare_are_reported_with_both_sides(
    engine: Engine,
) -> None:
    lineage = SqlLineage(engine)
    lineage.record(
        make_record(
            make_statement("silver.orders", id="mysql/shop.orders.id"), namespace="local", at=5
        )
    )
    lineage.record(
        make_record(
            make_statement("export.days", n="gold.days.n", m="raw.months.m"),
            namespace="airflow",
            at=7,
            owners=("team:x",),
        )
    )
    lineage.record(
        make_record(make_statement("scratch.ours", n="gold.days.n"), namespace="local", at=9)
    )
    lineage.record(
        make_record(
            make_statement("other.lake", n="scratch.ours.n"),
            namespace="elsewhere",
            job="laned",
            at=9,
        )
    )
    assert look(engine).tables == (
        ExternalTable(table="other.lake", last_ms=9, inputs=("scratch.ours",)),
        ExternalTable(
            table="export.days", last_ms=7, inputs=("gold.days", "raw.months"), owners=("team:x",)
        ),
        ExternalTable(table="raw.months", last_ms=7, readers=("export.days",)),
        ExternalTable(table="mysql/shop.orders", last_ms=5, readers=("silver.orders",)),
    )
    assert [one.table for one in look(engine, since=6, most=2).tables] == [
        "other.lake",
        "export.days",
    ]
    assert (look(engine, most=2).more, look(engine, since=8).more) == (2, 0)


def test_what_another_deployments_consumers_write_is_an_asset_there_and_not_shown(
    engine: Engine,
) -> None:
    from dataclasses import replace

    record = make_record(make_statement("their.table", n="gold.days.n"), namespace="theirs")
    SqlLineage(engine).record(replace(record, consumer="theirs/subscription"))
    assert look(engine).tables == ()


EMAIL, PATH = ColumnRef("bronze.people", "email"), ColumnRef("bronze.letters", "payload:$.to")
ANA, BO = By(who="ana", reason="seen"), By(who="bo", reason="they are made up")


def test_of_a_column_the_newest_decision_holds_and_all_are_kept(engine: Engine) -> None:
    decisions = PersonalDecisions(engine)
    assert decisions.holding() == {}
    decisions.decide(EMAIL, "email", ANA)
    decisions.decide(PATH, None, ANA)
    decisions.decide(ColumnRef("bronze.people", "Email"), None, BO)
    held = decisions.holding()
    assert {
        (ref.table, str(ref.column).lower()): (one.category, one.who, one.reason)
        for ref, one in held.items()
    } == {
        ("bronze.people", "email"): (None, "bo", "they are made up"),
        ("bronze.letters", "payload:$.to"): (None, "ana", "seen"),
    }
    assert [one.category for one in decisions.all()] == ["email", None, None]
