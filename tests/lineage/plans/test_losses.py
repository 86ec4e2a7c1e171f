"""Whatever part of a plan a dump has lost, it is reported that something is not known: never does a
source go missing silently.
"""

import json
import random
from typing import Any

import pytest

from tests.lineage.plans.meanings import ZOO, read, reported
from tests.support.dumps import nested, nodes_of

PARTS = ("frames", "writes", "copy-on-write", "merge-on-read")
CASES = 1_000
LOST = {"o": "Lost"}  # as the dumper reports an object that it does not know


def holds_nodes(value: Any) -> bool:
    several = value if isinstance(value, list) else [value]
    return bool(several) and all(isinstance(one, dict) and "n" in one for one in several)


def losses(text: str) -> list[tuple[int, str]]:
    """Each place of a node in a dump with a parameter that holds others."""
    return [
        (position, key)
        for position, node in enumerate(nodes_of(json.loads(text)))
        for key, value in node["f"].items()
        if holds_nodes(value)
    ]


def stored_texts(part: str) -> dict[str, str]:
    """The dumps of one part of the zoo, by shape, with their nodes in each other."""
    shapes = json.loads((ZOO / f"{part}.json").read_text(encoding="utf-8"))
    return {
        name: json.dumps([nested(one) | {"nodes": None} for one in dumps_in(dumps)])
        for name, dumps in shapes.items()
    }


def dumps_in(dumps: Any) -> list[dict[str, Any]]:
    return dumps if isinstance(dumps, list) else [dumps]


def without(text: str, position: int, key: str) -> Any:
    dump = json.loads(text)
    list(nodes_of(dump))[position]["f"][key] = LOST
    return dump


@pytest.mark.tier2
def test_a_part_that_is_lost_changes_nothing_or_is_reported() -> None:
    shapes = {
        f"{part}/{name}": dumps for part in PARTS for name, dumps in stored_texts(part).items()
    }
    cases = [
        (shape, *loss)
        for shape, text in shapes.items()
        if "?" not in reported(read(json.loads(text)))
        for loss in losses(text)
    ]
    assert len(cases) > CASES
    silent = []
    for shape, position, key in random.Random(6).sample(cases, CASES):
        whole, poorer = (
            reported(read(json.loads(shapes[shape]))),
            reported(read(without(shapes[shape], position, key))),
        )
        if poorer != whole and "?" not in poorer and "not known" not in poorer:
            silent.append((shape, position, key))
    assert silent == []
