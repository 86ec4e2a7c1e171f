"""Dumps as they are read, and never trusted."""

import pytest

from lakechime_dagster.lineage.plan_dump import MissingPartError, Node, dump_of


def test_nodes_stand_in_a_list_behind_their_parts() -> None:
    nodes = [
        {"n": "OneRowRelation", "f": {}, "out": []},
        {"n": "Project", "f": {"projectList": [], "child": {"#": 0}}},
    ]
    plan = dump_of({"v": 1, "name": "result", "error": None, "plan": {"#": 1}, "nodes": nodes}).plan
    assert plan
    assert [one.name for one in plan.walk()] == ["Project", "OneRowRelation"]


def test_a_node_without_an_output_has_that_of_its_only_child() -> None:
    table = {"n": "Table", "f": {"name": "t"}, "out": [[1, "a"]]}
    plan = dump_of(
        {
            "v": 1,
            "plan": {"n": "Filter", "f": {"condition": {"n": "Literal", "f": {}}, "child": table}},
        }
    ).plan
    assert plan
    assert [one.name for one in plan.output or ()] == ["a"]


@pytest.mark.parametrize(
    "value", [{}, {"v": 1}, {"v": 1, "plan": 7}, {"v": 1, "plan": {"#": 0}, "nodes": [7]}]
)
def test_what_is_no_dump_says_so(value: dict[str, object]) -> None:
    dump = dump_of(value)
    assert dump.plan is None
    assert dump.error


def test_a_part_that_was_not_dumped_is_never_taken_for_nothing() -> None:
    node = Node("Expand", {"projections": None, "child": 7, "keys": (7,)})
    for ask in (
        lambda: node.lists("projections"),
        lambda: node.node("child"),
        lambda: node.nodes("keys"),
        lambda: node.text("name"),
    ):
        with pytest.raises(MissingPartError, match="the dump of Expand has no"):
            ask()
