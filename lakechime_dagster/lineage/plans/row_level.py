"""MERGE, UPDATE and DELETE of tables that leave it to Spark to find the rows, as Iceberg's do: a rule for what Spark makes of each.

Spark rewrites them to the rows that are to be written, of whole files or of what changes in them. Beside the target's columns
these rows have one that says what is to be done, and some by which a row is found again; none of them is a column of the target.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from lakechime_dagster.lineage.columns import ColumnLineage, Kind, joined
from lakechime_dagster.lineage.plans.dump import Attribute, Field, MissingPartError, Node, Unknown
from lakechime_dagster.lineage.plans.frames import Frame, Scope
from lakechime_dagster.lineage.plans.reading import Reading
from lakechime_dagster.lineage.plans.targets import Write, is_kept, place_written, without
from lakechime_dagster.lineage.plans.values import together

OPERATION = "__row_operation"
CLAUSES = ("matchedInstructions", "notMatchedInstructions", "notMatchedBySourceInstructions")
ASSIGNED: Mapping[str, str | None] = MappingProxyType({
    "Keep Copy$": "output", "Keep Update$": "output", "Keep Insert$": "output", "Split": "otherOutput",
    "Keep Delete$": None, "Discard": None,
})  # fmt: skip
"""Which parameter of an instruction holds what rows become; of some rows nothing is left."""


def rewritten(node: Node, reading: Reading) -> Write:
    """`ReplaceData` and `WriteDelta`, which are one statement in two ways."""
    return _merged(node, reading) if node.node("query").name == "MergeRows" else _changed(node, reading)


def inserted(node: Node, reading: Reading) -> Write | None:
    """An append that is a MERGE which only inserts, of those rows of the source that the target has not; None of any other.

    It looks into the very relation that it writes to, while one that a query names itself has ids of its own.
    """
    table, join = node.fields.get("table"), _below(node.node("query"))
    is_merge = isinstance(table, Node) and join.fields.get("joinType") == "left anti" and join.node("right").output == table.output
    return _merged(node, reading) if is_merge else None


def deleted(node: Node, reading: Reading) -> Write:
    """A DELETE that a table does by itself: of all rows, or of those that a condition holds for."""
    target, condition = reading.read(node.node("table")), node.node("condition")
    indirect = reading.scope(target).value(condition).then(Kind.FILTER)
    return Write(place=place_written(node), indirect=indirect, replaces=condition.name == "Literal", looked_up=True)


def truncated(node: Node, reading: Reading) -> Write:
    """All rows go."""
    return Write(place=place_written(node), replaces=True, looked_up=True)


def _merged(node: Node, reading: Reading) -> Write:
    """MERGE: its condition joins the rows, those of each clause decide on some, and what these become is in its instruction.

    Of the target's rows those may be left out before that its own part of the condition does not hold for.
    """
    query, join = node.node("query"), _below(node.node("query"))
    if join.name != "Join":
        raise MissingPartError(f"{query.name} of {join.name}")
    sides = ("left", "right") if join.text("joinType") == "left anti" else ("right", "left")
    source = reading.read(join.node(sides[0]))
    inputs = frozenset(reading.tables)
    target = reading.read(join.node(sides[1]))
    here, condition = reading.scope(target, source), join.optional("condition")
    indirect = [source.deciding()]
    if condition is not None:
        indirect.append(without(target.value(), here.value(condition)).then(Kind.JOIN))
    columns: list[ColumnLineage] = []
    rows = _Rows(_table(node), query.output or (), target, here)
    if query.name == "Project":
        columns += rows.assigned(query.nodes("projectList"))
    for instruction in _instructions(query):
        indirect.append(here.value(instruction.node("condition")).then(Kind.FILTER))
        columns += rows.instructed(instruction)
    return Write(place=place_written(node), columns=joined(columns), indirect=together(indirect), looked_up=True, inputs=inputs)


def _changed(node: Node, reading: Reading) -> Write:
    """UPDATE and DELETE: their condition decides on the rows; what an UPDATE assigns is what rows that it holds for become."""
    condition = node.node("condition")
    indirect = reading.scope(reading.read(node.node("originalTable"))).value(condition).then(Kind.FILTER)
    columns: list[ColumnLineage] = []
    for plan, expressions in _updates(node.node("query"), condition):
        below = reading.read(plan.node("child"))
        columns += _Rows(_table(node), plan.output or (), below, reading.scope(below)).assigned(expressions)
    return Write(place=place_written(node), columns=joined(columns), indirect=indirect, looked_up=True)


class _Rows:
    """Rows that are written, by their output; `target` is where its rows come from, and `here` where expressions look columns up."""

    def __init__(self, table: tuple[Attribute, ...], output: tuple[Attribute, ...], target: Frame, here: Scope) -> None:
        names = {one.name.casefold(): one.name for one in table}
        self._columns = [names.get(one.name.casefold()) for one in output]  # of what is none of the target no name
        self._ids = {column.name: column.id for column in target.columns}
        self._here = here

    def assigned(self, expressions: tuple[Node, ...]) -> list[ColumnLineage]:
        """The columns of the target that get something else than they have."""
        return [
            self._here.value(expression).lineage(name)
            for name, expression in zip(self._columns, expressions, strict=True)
            if name is not None and not is_kept(expression, self._ids.get(name))
        ]

    def instructed(self, instruction: Node) -> list[ColumnLineage]:
        """What an instruction assigns; of an unknown one that each column may be made of all in it."""
        context = instruction.fields.get("context")
        name = f"{instruction.name} {context.name}" if isinstance(context, Unknown) else instruction.name
        if name not in ASSIGNED:
            value = self._here.values(instruction.children()).then(Kind.TRANSFORMATION).because(f"unknown instruction {name}")
            return [value.lineage(column) for column in self._columns if column is not None]
        field = ASSIGNED[name]
        return [] if field is None else self.assigned(instruction.nodes(field))


def _table(node: Node) -> tuple[Attribute, ...]:
    """The columns of the table that is written to."""
    return node.node("table").output or ()


def _instructions(query: Node) -> Iterator[Node]:
    for clause in CLAUSES if query.name == "MergeRows" else ():
        yield from query.nodes(clause)


def _below(query: Node) -> Node:
    """What the rows are made of that a MERGE writes."""
    return query.node("child") if query.name in ("MergeRows", "Project") else query


def _updates(query: Node, condition: Node) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """The nodes below which there are the target's rows, and what each makes of them; none of what leaves rows as they are.

    Where the condition asks other tables, files are written anew as those rows that it holds for, and the others.
    """
    is_named = query.name == "Project" and any(one.fields.get("name") == OPERATION for one in query.nodes("projectList"))
    top = query.node("child") if is_named else query
    for plan in top.nodes("children") if top.name == "Union" else (top,):
        if plan.name == "Project":
            yield plan, tuple(_where(one, condition, all_hold=top is not plan) for one in plan.nodes("projectList"))
        elif plan.name == "Expand":
            yield plan, _second(plan)
        elif plan.name != "Filter":
            raise MissingPartError(f"rows of {plan.name}")


def _where(expression: Node, condition: Node, *, all_hold: bool) -> Node:
    """What a column becomes where the condition holds; the others of a file that is written anew keep theirs."""
    value = expression.node("child") if expression.name == "Alias" else expression
    if value.name != "If":
        return expression
    asked = value.node("predicate")
    return value.node("trueValue") if _is_same(asked, condition) or (all_hold and asked.name == "Literal") else expression


def _is_same(one: Field, other: Field) -> bool:
    """Whether two parts of a dump are alike, but for literals, which are not dumped."""
    if isinstance(one, Node) and isinstance(other, Node) and one is not other:
        return (
            one.name == other.name
            and one.fields.keys() == other.fields.keys()
            and _is_same(tuple(one.fields.values()), tuple(other.fields.values()))
        )
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return one == other


def _second(plan: Node) -> tuple[Node, ...]:
    """Of an UPDATE that writes what changes: for each row one that takes it away, and one that puts another in its place."""
    rows = plan.lists("projections")
    if len(rows) != 2 or any(one.name not in ("Literal", "AttributeReference") for one in rows[0]):
        raise MissingPartError("unknown rows of Expand")
    return rows[1]
