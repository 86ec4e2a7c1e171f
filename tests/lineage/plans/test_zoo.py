"""Each shape of the zoo means what a person wrote down, and none of the rules could be missing."""

from functools import cache

import pytest

from lakechime_dagster.lineage.plan_expressions import EXPRESSIONS
from lakechime_dagster.lineage.plan_nodes import NODES
from lakechime_dagster.lineage.plan_statements import WRITES
from tests.lineage.plans.meanings import Dumps, known, reported, stored

PARTS = {
    "frames": "frames",
    "writes": "writes",
    "hive": "hive",
    "handmade": "handmade",
    "copy-on-write": "iceberg",
    "merge-on-read": "iceberg",
}
"""Each part of the zoo, and where what its shapes mean is written down."""

MEANINGS = {
    f"{part}/{shape}": meaning
    for part, written in PARTS.items()
    for shape, meaning in known(written).items()
}


@cache
def dumps() -> dict[str, Dumps]:
    return {f"{part}/{shape}": dump for part in PARTS for shape, dump in stored(part).items()}


@pytest.mark.parametrize("shape", MEANINGS)
def test_a_shape_means_what_a_person_wrote_down(shape: str) -> None:
    assert meaning(shape) == MEANINGS[shape]


def meaning(shape: str) -> str:
    part, _, name = shape.partition("/")
    return reported(dumps()[shape], name if part == "frames" else "r")


def test_the_zoo_has_a_meaning_for_each_dump() -> None:
    assert dumps().keys() == MEANINGS.keys()


@pytest.mark.parametrize("shape", sorted(known("writes").keys() & known("iceberg").keys()))
def test_a_statement_means_the_same_of_a_delta_and_of_an_iceberg_table(shape: str) -> None:
    assert sorted(known("iceberg")[shape].splitlines()) == sorted(
        known("writes")[shape].splitlines()
    )


@cache
def holding() -> dict[str, list[str]]:
    """The shapes in whose dumps a node is, by its class."""
    found: dict[str, list[str]] = {}
    for shape, several in dumps().items():
        for name in {node.name for dump in several if dump.plan for node in dump.plan.walk()}:
            found.setdefault(name, []).append(shape)
    return found


TABLES = {"nodes": NODES, "expressions": EXPRESSIONS, "writes": WRITES}


@pytest.mark.parametrize(
    ("table", "rule"), [(table, rule) for table, rules in TABLES.items() for rule in rules]
)
def test_without_any_one_rule_a_shape_means_something_else(
    table: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(TABLES[table], rule)  # pyright: ignore[reportArgumentType]
    assert any(meaning(shape) != MEANINGS[shape] for shape in holding().get(rule, ()))
