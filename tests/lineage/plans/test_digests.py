"""What a plan says as digests: equal as long as it says the same, other where it says something
else, and there is one of any plan.
"""

from collections.abc import Callable, Container
from functools import cache

import pytest

from lakechime_dagster.lineage.plan import Digests, digests_of
from lakechime_dagster.lineage.plan_dump import Field, Node
from lakechime_dagster.lineage.plan_statements import statements_of
from tests.lineage.plans.factories import Node as Made
from tests.lineage.plans.factories import alias, column, make_dump, project, table
from tests.lineage.plans.meanings import LAKE, stored

NAMING = frozenset({"Alias", "AttributeReference", "OuterReference"})
DOUBLED = frozenset({"SortOrder", "LateralSubquery"})
"""What a plan has twice, as the order of a window, or what says nothing beside the plan that is in
it.
"""


@cache
def plans(*parts: str) -> dict[str, tuple[Node, ...]]:
    several = {f"{part}/{shape}": dumps for part in parts for shape, dumps in stored(part).items()}
    return {
        shape: found
        for shape, dumps in several.items()
        if (found := tuple(one.plan for one in dumps if one.plan is not None))
    }


EVERY, SHAPES = (
    plans("frames", "writes", "handmade"),
    {name: plan for name, (plan,) in plans("frames").items()},
)


Change = Callable[[Node], Node]


def changed(value: Field, chosen: Container[Node], change: Change) -> Field:
    """A plan in which some of its nodes are others."""
    if isinstance(value, Node):
        fields = {name: changed(one, chosen, change) for name, one in value.fields.items()}
        return (
            change(value)
            if value in chosen
            else Node(value.name, fields, value.output, value.depth)
        )
    if isinstance(value, tuple):
        return tuple(changed(one, chosen, change) for one in value)
    return (
        {name: changed(one, chosen, change) for name, one in value.items()}
        if isinstance(value, dict)
        else value
    )


def digests_with(plan: Node, chosen: Container[Node], change: Change) -> Digests:
    other = changed(plan, chosen, change)
    assert isinstance(other, Node)
    return digests_of(other)


def another_name(table: Node) -> Node:
    return Node(table.name, {**table.fields, "name": "another"}, table.output, table.depth)


def another_class(expression: Node) -> Node:
    return Node(f"Other{expression.name}", expression.fields, expression.output, expression.depth)


def made(plan: Made) -> Digests:
    dump = make_dump(plan)
    assert dump.plan is not None
    return digests_of(dump.plan)


@pytest.mark.parametrize("shape", EVERY)
def test_any_plan_has_digests_which_are_the_same_each_time(shape: str) -> None:
    for plan in EVERY[shape]:
        found = digests_of(plan)
        assert list(found.columns) == list(dict.fromkeys(one.name for one in plan.output or ()))
        assert all((found.rows, *found.columns.values()))
        assert digests_of(plan) == found


@pytest.mark.parametrize("shape", SHAPES)
def test_another_expression_anywhere_is_another_digest(shape: str) -> None:
    plan = SHAPES[shape]
    was = digests_of(plan)
    expressions = [
        one for one in plan.walk() if one.output is None and one.name not in NAMING | DOUBLED
    ]
    assert [
        one.name for one in expressions if digests_with(plan, [one], another_class) == was
    ] == []


@pytest.mark.parametrize("shape", SHAPES)
def test_what_comes_from_another_table_has_another_digest(shape: str) -> None:
    plan, was = SHAPES[shape], digests_of(SHAPES[shape])
    (statement,) = statements_of(stored("frames")[shape.partition("/")[2]], LAKE).statements
    for name in {one.text("name") for one in plan.walk() if one.name == "Table"}:
        now = digests_with(
            plan,
            [one for one in plan.walk() if one.name == "Table" and one.text("name") == name],
            another_name,
        )
        refs = {
            one.column: {(source.ref.table, source.ref.column is None) for source in one.sources}
            for one in statement.columns
        }
        resting = [column for column, several in refs.items() if (name, False) in several]
        assert [column for column in resting if now.columns[column] == was.columns[column]] == []
        assert now != was


def differing(was: Made, now: Made) -> set[str]:
    """The columns whose digests differ, and `rows` if that of the rows does."""
    one, other = made(was), made(now)
    return {
        name
        for name, digest in {"rows": one.rows, **one.columns}.items()
        if digest != {"rows": other.rows, **other.columns}[name]
    }


def test_the_sides_of_a_table_that_is_joined_with_itself_are_apart() -> None:
    def day(number: int, key: int, amount: int) -> Made:
        return table("bronze.days", day=number, key=key, amount=amount)

    def joined(left: Made, right: Made, one: int, other: int) -> Made:
        condition = {"n": "EqualTo", "f": {"left": column(one), "right": column(other)}}
        fields = {"left": left, "right": right, "joinType": "inner", "condition": condition}
        return {"n": "Join", "f": fields, "out": [*left["out"], *right["out"]]}

    def pair(one: int = 2, other: int = 4, kept: int = 5) -> Made:
        return project(
            joined(day(1, 2, 3), day(4, 5, 6), one, other), alias(column(kept), "kept", 30)
        )

    assert differing(pair(), pair(kept=2)) == {"kept"}
    assert differing(pair(), pair(one=5, other=1)) == {"rows"}
    assert (
        differing(
            pair(),
            project(
                joined(day(11, 12, 13), day(14, 15, 16), 12, 14), alias(column(15), "kept", 30)
            ),
        )
        == set()
    )
    three = joined(joined(day(1, 2, 3), day(4, 5, 6), 2, 4), day(7, 8, 9), 5, 7)
    assert (
        len(
            {
                made(project(three, alias(column(number), "kept", 30))).columns["kept"]
                for number in (2, 5, 8)
            }
        )
        == 3
    )


LAKE_TABLE = table("bronze.orders", id=1, tags=2)


def test_rows_that_differ_by_a_column_that_is_left_out_later_are_others() -> None:
    def towns(of: Made) -> Made:
        distinct = project(LAKE_TABLE, alias(column(1), "id", 7), alias(of, "t", 8))
        return project(
            {"n": "Distinct", "f": {"child": distinct}, "out": distinct["out"]},
            alias(column(7), "id", 9),
        )

    upper, lower = ({"n": name, "f": {"child": column(2)}} for name in ("Upper", "Lower"))
    assert differing(towns(upper), towns(lower)) == {"rows"}
    assert differing(towns(upper), towns(upper)) == set()
