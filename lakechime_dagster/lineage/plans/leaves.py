"""What the leaves of a plan give: tables, constants, and rows whose origin a plan does not show."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from lakechime_dagster.lineage.plans.dump import Node
from lakechime_dagster.lineage.plans.frames import Column, Frame, Scope, of_tables
from lakechime_dagster.lineage.plans.values import CONSTANT, Value

NAMELESS = "rows of a data source without a name"
DATABASE = "rows of a query of a database, or of one without an address"  # that is told without its users and passwords
PROGRAM = "rows of the program"

Rule = Callable[[Node, Scope], Frame]


def _table(node: Node, scope: Scope) -> Frame:
    found = scope.reader.data_sets(node)
    if not found.names and not found.unknown:
        return _unseen(node, DATABASE if _is_database(node) else NAMELESS)
    return of_tables(found.names, node.output or ()).because(*found.unknown)


def _is_database(node: Node) -> bool:
    relation = node.fields.get("relation")
    name = relation.get("o") if isinstance(relation, Mapping) else getattr(relation, "name", None)
    return name == "JDBCRelation"


def _constant(node: Node, scope: Scope) -> Frame:
    """Rows that stand in the statement itself."""
    return Frame(tuple(Column(one.id, one.name, CONSTANT) for one in node.output or ()))


def _local(node: Node, scope: Scope) -> Frame:
    """Rows that Spark was given: by VALUES in a text, or by a program, which may have them from anywhere."""
    is_stated = node.text("rowsOf") == "nobody" or scope.reader.is_stated(node.number("rowsId"))
    return _constant(node, scope) if is_stated else _unseen(node, PROGRAM)


def stated_rows(plan: Node) -> frozenset[int]:
    """The numbers of those rows that stand in a text of SQL.

    A self join repeats rows under newer ids, by which it is not told any more whose they are: the first to have them says it.
    """
    found: dict[int, Node] = {}
    for node in (node for node in plan.walk() if node.name == "LocalRelation"):
        number = node.fields.get("rowsId")
        if isinstance(number, int) and (number not in found or _first_id(node) < _first_id(found[number])):
            found[number] = node
    return frozenset(number for number, node in found.items() if node.fields.get("rowsOf") == "text")


def _first_id(node: Node) -> int:
    return min((one.id for one in node.output or ()), default=0)


def _rdd(node: Node, scope: Scope) -> Frame:
    """Rows of an RDD: those of a checkpoint that was made meanwhile, else from a program."""
    return scope.reader.checkpointed(node) or _unseen(node, "rows of an RDD")


def _unseen(node: Node, reason: str) -> Frame:
    value = Value().because(reason)
    return Frame(tuple(Column(one.id, one.name, value) for one in node.output or ()), rows=value)


TABLES = ("Table", "LogicalRelation", "DataSourceV2Relation", "HiveTableRelation")
LEAVES: Mapping[str, Rule] = MappingProxyType({
    **dict.fromkeys(TABLES, _table),
    "LocalRelation": _local, "OneRowRelation": _constant, "Range": _constant,
    "LogicalRDD": _rdd,
})  # fmt: skip
"""By the class of the node."""
