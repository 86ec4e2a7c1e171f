"""Two readers that know nothing of each other, of plans and of SQL as text, agree on each column of
TPC-DS, by position.
"""

from collections.abc import Iterable
from functools import cache

import pytest

from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Names, Source, Statement
from lakechime_dagster.lineage.plan_dump import deeply, dump_of
from lakechime_dagster.lineage.plan_expressions import Frame
from lakechime_dagster.lineage.plan_nodes import Checkpoints, Reading
from lakechime_dagster.lineage.sql import statements_of_sql
from lakechime_dagster.lineage.sql_query import SqlSchema
from tests.support.tpcds import queries, stored_dumps, tables

COLUMNS = 618


@cache
def by_plan() -> dict[str, Frame]:
    found = {}
    for number, dump in ((number, dump_of(one)) for number, one in stored_dumps().items()):
        assert dump.plan
        plan, reading = dump.plan, Reading(dump.plan, Names(), Checkpoints([dump]))
        found[number] = deeply(lambda plan=plan, reading=reading: reading.read(plan), dump.depth)
    return found


@cache
def by_text() -> dict[str, Statement]:
    schema = SqlSchema({table: tuple(columns) for table, columns in tables().items()})
    found = {}
    for number, query in queries().items():
        names = ", ".join(f"c{position}" for position in range(len(by_plan()[number].columns)))
        (found[number],) = statements_of_sql(f"insert into made ({names}) {query}", "spark", schema)
    return found


def plan_columns(number: str) -> list[ColumnLineage]:
    return [
        column.value.lineage(f"c{position}")
        for position, column in enumerate(by_plan()[number].columns)
    ]


def direct(column: ColumnLineage) -> set[Source]:
    """What the values of a column are made of; that a count of rows is made of data sets as a
    whole, plans alone report.
    """
    return {source for source in column.sources if source.kind.is_direct and source.ref.column}


def used(columns: Iterable[ColumnLineage], indirect: Iterable[Source]) -> set[ColumnRef]:
    """All columns that take part in whatever way."""
    return {
        source.ref
        for source in [*indirect, *(source for column in columns for source in column.sources)]
        if source.ref.column
    }


@pytest.fixture(scope="module", params=range(1, 100), ids=str)
def number(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_values_are_made_of_the_same_columns_in_the_same_way(number: str) -> None:
    assert [direct(column) for column in plan_columns(number)] == [
        direct(column) for column in by_text()[number].columns
    ]


def test_the_same_columns_take_part_in_a_query(number: str) -> None:
    plan, text = by_plan()[number], by_text()[number]
    assert used(plan_columns(number), plan.indirect.sources) == used(text.columns, text.indirect)


def test_all_columns_of_all_queries_are_compared_and_none_is_opaque() -> None:
    columns = [
        column
        for number in by_plan()
        for column in (*plan_columns(number), *by_text()[number].columns)
    ]
    assert len(columns) == 2 * COLUMNS
    assert not [column for column in columns if column.opaque]
