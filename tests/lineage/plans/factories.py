"""Small dumps, made by hand."""

from typing import Any

from lakechime_dagster.lineage.plan_dump import Dump, dump_of

Node = dict[str, Any]


def table(name: str, **columns: int) -> Node:
    """A marked input with columns of these ids."""
    return {
        "n": "Table",
        "f": {"name": name},
        "out": [[number, column] for column, number in columns.items()],
    }


def column(number: int, name: str = "a") -> Node:
    return {"n": "AttributeReference", "f": {"name": name, "exprId": number}}


def alias(child: Node, name: str, number: int) -> Node:
    return {"n": "Alias", "f": {"child": child, "name": name, "exprId": number}}


def literal() -> Node:
    return {"n": "Literal", "f": {"type": "int", "isNull": False}}


def project(child: Node, *expressions: Node) -> Node:
    output = [[one["f"]["exprId"], one["f"]["name"]] for one in expressions]
    return {"n": "Project", "f": {"projectList": list(expressions), "child": child}, "out": output}


def rdd(number: int, **columns: int) -> Node:
    return {
        "n": "LogicalRDD",
        "f": {"rdd": {"rdd": number}},
        "out": [[one, name] for name, one in columns.items()],
    }


def make_dump(plan: Node | None, name: str = "result", **others: object) -> Dump:
    return dump_of(
        {"v": 1, "name": name, "error": None if plan else "no plan", "plan": plan} | others
    )
