"""The ways of values to each column of a plan (`ways`), read from a dump with its texts: of a plan over empty inputs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.personal.ways import NO_WAY, Step, Way, Ways, together
from lakechime_dagster.lineage.plans.deep import deeply
from lakechime_dagster.lineage.plans.dump import Field, Node

FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "Lower": ("child",), "Upper": ("child",), "StringTrim": ("srcStr", "trimStr"), "StringTrimLeft": ("srcStr", "trimStr"),
    "StringTrimRight": ("srcStr", "trimStr"), "StringReplace": ("srcExpr", "searchExpr", "replaceExpr"), "Concat": ("children",),
    "Md5": ("child",), "Sha1": ("child",), "Sha2": ("left", "right"), "Hex": ("child",), "Reverse": ("child",),
}  # fmt: skip
"""Functions that are followed, each with its arguments in order."""

SAME = frozenset({
    "Alias", "AggregateExpression", "First", "Last", "Min", "Max", "AnyValue", "CollectList", "CollectSet", "Explode", "KnownNotNull",
    "AssertNotNull", "WindowExpression", "Lag", "Lead", "NthValue", "ArrayDistinct", "SortArray",
})  # fmt: skip
"""What gives one of the values as it is, or several of them."""

TAKEN = {  # of these, by which part the value comes
    "AggregateExpression": "aggregateFunction", "MaxBy": "valueExpr", "MinBy": "valueExpr", "WindowExpression": "windowFunction",
    "Lag": "input", "Lead": "input", "NthValue": "input", "SortArray": "base",
}  # fmt: skip
CASTS = frozenset({"string", "binary", "bigint", "int", "smallint", "tinyint"})
BY_POSITION = frozenset({"Union", "Except", "Intersect"})
JSON_PATH = re.compile(r"\$(\.[^.\[\]'*]+|\[\*\])+")
JSON_ROOT = ":$"


def planned_ways(plan: Node) -> dict[str, Ways]:
    """The ways to each column that a plan gives, by name; a field of a struct that it makes is `column.field`."""
    columns = deeply(lambda: _Following(plan).frame(plan, {}), plan.depth)
    found: dict[str, Ways] = {}
    for one, (_, ways) in zip(plan.output or (), columns, strict=True):
        found |= _named(one.name, ways)
    return found


def _named(name: str, ways: Ways) -> dict[str, Ways]:
    found = {name: Ways(several=ways.several, lost=ways.lost)}
    for part, one in ways.fields.items():
        found |= _named(f"{name}.{part}", one)
    return found


Columns = list[tuple[int, Ways]]  # by id, in order


@dataclass
class _Following:
    plan: Node
    definitions: dict[int, Node] = field(default_factory=dict)
    defined: dict[int, Columns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.definitions = {node.number("id"): node for node in self.plan.walk() if node.name == "CTERelationDef"}

    def frame(self, node: Node, outer: Mapping[int, Ways]) -> Columns:
        """What a node gives."""
        output = node.output or ()
        if node.name == "Table":
            return [(one.id, Ways(several=frozenset({_whole(node.text("name"), one.name)}))) for one in output]
        if node.name == "WithCTE":
            return self._renamed(node, self.frame(node.node("plan"), outer))
        if node.name == "CTERelationRef":
            return self._renamed(node, self._cte(node.number("cteId"), outer))
        below = [self.frame(child, outer) for child in node.plans()]
        if node.name in BY_POSITION:
            taken = below if node.name == "Union" else below[:1]
            return [(one.id, together(columns[at][1] for columns in taken)) for at, one in enumerate(output)]
        known = {**outer, **{number: ways for columns in below for number, ways in columns}}
        own = self._own(node, known)
        reads = together(ways for columns in below for _, ways in columns).losing(f"{node.name} may do anything to it")
        return [(one.id, own.get(one.id, known.get(one.id, reads))) for one in output]

    def _renamed(self, node: Node, columns: Columns) -> Columns:
        return [(one.id, ways) for one, (_, ways) in zip(node.output or (), columns, strict=True)]

    def _cte(self, number: int, outer: Mapping[int, Ways]) -> Columns:
        if number not in self.defined:
            definition = self.definitions[number]
            self.defined[number] = [(one.id, NO_WAY) for one in definition.output or ()]  # of a recursive one while it is read
            self.defined[number] = self._renamed(definition, self.frame(definition.node("child"), outer))
        return self.defined[number]

    def _own(self, node: Node, known: Mapping[int, Ways]) -> dict[int, Ways]:
        """The columns that a node itself makes."""
        if node.name == "Generate":
            made = [one.number("exprId") for one in node.nodes("generatorOutput")]
            generator = node.node("generator")
            ways = self.ways(generator, known)
            several = ways if len(made) == 1 else ways.losing(f"{generator.name} gives several columns")
            return dict.fromkeys(made, several)
        if node.name == "Expand":
            rows = node.lists("projections")
            return {one.id: together(self.ways(row[at], known) for row in rows) for at, one in enumerate(node.output or ())}
        return {one.number("exprId"): self.ways(one, known) for one in _expressions(node) if one.name == "Alias"}

    def ways(self, node: Node, known: Mapping[int, Ways]) -> Ways:
        """The ways to the value of an expression."""
        name = node.name
        if name == "AttributeReference":
            return known.get(node.number("exprId"), NO_WAY)
        if isinstance(node.fields.get("replacement"), Node):
            return self.ways(node.node("replacement"), known)
        if name in SAME or name in TAKEN:
            return self.ways(node.node(TAKEN.get(name, "child")), known)
        match name:
            case "Coalesce" | "CreateArray":
                return together(self.ways(one, known) for one in node.nodes("children"))
            case "If":
                return self.ways(node.node("trueValue"), known).beside(self.ways(node.node("falseValue"), known))
            case "CaseWhen":
                values = [branch[1] for branch in node.lists("branches")]
                otherwise = node.optional("elseValue")
                return together(self.ways(one, known) for one in ([*values, otherwise] if otherwise else values))
            case "CreateNamedStruct":
                parts = node.nodes("children")
                return Ways(fields={_text(key): self.ways(one, known) for key, one in zip(parts[::2], parts[1::2], strict=True)})
            case "GetStructField" | "GetJsonObject" | "JsonToStructs":
                return self._part(node, known)
            case "Cast" if str(node.fields.get("dataType")) in CASTS:
                return self.ways(node.node("child"), known).then(Step("Cast", after=(str(node.fields["dataType"]),)))
            case _:
                return self._function(node, known)

    def _part(self, node: Node, known: Mapping[int, Ways]) -> Ways:
        """The ways to a field of a struct, or to a place in a JSON text."""
        if node.name == "JsonToStructs":
            return self.ways(node.node("child"), known).into(JSON_ROOT)
        if node.name == "GetJsonObject":
            path = _text(node.node("path"))
            whole = self.ways(node.node("json"), known)
            return whole.into(f":{path.replace('[*]', '[]')}") if JSON_PATH.fullmatch(path) else whole.losing(f"path {path}")
        whole = self.ways(node.node("child"), known)
        name = node.text("name")
        return whole.fields[name] if name in whole.fields else whole.into(f".{name}")

    def _function(self, node: Node, known: Mapping[int, Ways]) -> Ways:
        """One of `FUNCTIONS` of a value and constants; of others, and of several values, all is lost."""
        arguments = [one for name in FUNCTIONS.get(node.name, ()) for one in _listed(node.fields.get(name))]
        places = [at for at, one in enumerate(arguments) if not _is_constant(one)]
        if node.name in FUNCTIONS and len(places) == 1 and all(isinstance(one, Node) for one in arguments):
            before, value, after = arguments[: places[0]], arguments[places[0]], arguments[places[0] + 1 :]
            step = Step(node.name, tuple(map(_text, before)), tuple(map(_text, after)))
            return self.ways(value, known).then(step)
        return together(self.ways(one, known) for one in node.children()).losing(f"{node.name} is not followed")


def _whole(table: str, column: str) -> Way:
    return Way(ColumnRef(table, column))


def _expressions(node: Node) -> Iterable[Node]:
    for value in node.fields.values():
        yield from (one for one in _listed(value) if one.output is None)


def _listed(value: Field) -> list[Node]:
    several = value if isinstance(value, tuple) else (value,)
    return [one for one in several if isinstance(one, Node)]


def _is_constant(node: Node) -> bool:
    while node.name == "Cast":
        node = node.node("child")
    return node.name == "Literal"


def _text(node: Node) -> str:
    """The text of a constant, of which the dump has the SQL."""
    while node.name == "Cast":
        node = node.node("child")
    value = str(node.fields.get("value"))
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] == "'" else value
