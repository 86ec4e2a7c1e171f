"""What a command writes where, and what the rules of commands have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lakechime_dagster.lineage.columns import ColumnLineage, Kind, joined
from lakechime_dagster.lineage.plans.dump import Node
from lakechime_dagster.lineage.plans.frames import Frame
from lakechime_dagster.lineage.plans.places import Place, place_of
from lakechime_dagster.lineage.plans.reading import Reading
from lakechime_dagster.lineage.plans.values import CONSTANT, Value


@dataclass(frozen=True, kw_only=True)
class Write:
    """What a command writes where.

    `looked_up` says that the target is read to find rows in it, which makes it no input unless it is among `inputs`, or a
    column is made of it.
    """

    place: Place
    columns: tuple[ColumnLineage, ...] = ()
    indirect: Value = CONSTANT
    replaces: bool = False
    looked_up: bool = False
    inputs: frozenset[str] = frozenset()


Rule = Callable[[Node, Reading], Write]


def columns_by_name(frame: Frame) -> tuple[ColumnLineage, ...]:
    """The columns of a target are those of the query's output of the same name, wherever they stand.

    A dump does not tell names that Spark makes of expressions with literals; such a column is called by its place.
    """
    return joined(column.value.lineage(column.name or f"column {place}") for place, column in enumerate(frame.columns, 1))


def place_written(node: Node) -> Place:
    """Where a command writes to, by those of its parameters that tell it."""
    found = [_place_in(node.fields.get(key)) for key in PLACES]
    return Place(
        path=next((one.path for one in found if one.path), None),
        identifier=next((one.identifier for one in found if one.identifier), None),
    )


def _place_in(value: object) -> Place:
    if isinstance(value, Node):
        return place_of(next((node.fields for node in value.walk() if not node.plans()), {}))
    if isinstance(value, str):
        return Place(path=value)
    return place_of(value) if isinstance(value, Mapping) else Place()


def without(target: Value, condition: Value) -> Value:
    """A merge's condition without the target's side, where rows are only looked up."""
    own = target.sources | {source.then(Kind.TRANSFORMATION) for source in target.sources}
    return replace(condition, sources=condition.sources - own)


def is_kept(expression: Node, column: int | None) -> bool:
    """Whether a column is assigned itself."""
    while expression.name in ("Alias", "KnownNotNull"):
        expression = expression.node("child")
    return expression.name == "AttributeReference" and expression.number("exprId") == column


PLACES = (
    "table", "targetFileIndex", "tahoeFileIndex", "target", "catalogTable", "tableDesc", "name", "outputPath", "storage", "options",
    "sink", "sourceTable",
)  # fmt: skip
"""The parameters that may tell where a command writes to."""
