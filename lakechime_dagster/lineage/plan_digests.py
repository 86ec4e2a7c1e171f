"""Digests of plans."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from lakechime_dagster.lineage.columns import Names
from lakechime_dagster.lineage.plan_dump import Field, Node, Unknown, deeply, place_of
from lakechime_dagster.lineage.plan_values import read_at

CARRYING = frozenset(
    {
        "Project",
        "SubqueryAlias",
        "View",
        "Result",
        "Window",
        "ResolvedHint",
        "WithCTE",
        "CTERelationDef",
        "CTERelationRef",
        "Repartition",
    }
)
"""Nodes that give the rows of what is below them."""

CHOOSING = frozenset(
    {
        "Filter",
        "Sort",
        "GlobalLimit",
        "LocalLimit",
        "Offset",
        "Sample",
        "Aggregate",
        "Deduplicate",
        "Join",
        "LateralJoin",
        "AsOfJoin",
        "Union",
        "Expand",
        "Generate",
        "RepartitionByExpression",
        "RebalancePartitions",
        "CollectMetrics",
    }
)
"""Nodes whose rows are those below them and what their own expressions say; of others any column below may decide on them."""

COMPARING = frozenset({"Distinct", "Except", "Intersect", "UnionLoop"})
"""Nodes whose rows are decided by the values of all columns, whatever these are called."""

DECIDING = {"Aggregate": ("groupingExpressions",), "Generate": ("generator", "outer"), "LateralJoin": ("joinType", "condition")}
"""The parameters that decide on the rows of a node, where these are not all that are no plans."""

SIDES = frozenset({"Join", "LateralJoin", "AsOfJoin"})
"""Nodes of two sides, of which one may be the same table as the other: columns of one are not those of the other."""

BY_POSITION = frozenset({"Union", "Except", "Intersect", "Expand", "CTERelationRef", "UnionLoop"})
UNSAID = frozenset(
    {
        "exprId",
        "cteId",
        "id",
        "rdd",
        "resultId",
        "loopId",
        "resultIds",
        "maxDepth",
        "limit_",
        "rowsOf",
        "rowsId",
        "roots",
        "grouped",
    }
)
"""Parameters that are others each time, or once there are more files."""

DIGITS = 16


@dataclass(frozen=True)
class Digests:
    """Digests of the columns by name, in order, and of the rows."""

    columns: Mapping[str, str]
    rows: str


@dataclass(frozen=True)
class _Frame:
    """What a node gives: its columns by id, and their names in the same order."""

    columns: tuple[tuple[int, str], ...]
    rows: str
    names: tuple[str, ...] = ()

    def whole(self, names: tuple[str, ...] = ()) -> str:
        return _digest(self.rows, *names, *(digest for _, digest in self.columns))

    def beside(self, left: "_Frame") -> "_Frame":
        """The same as the right side of a join: a column that the left side has too is another one here."""
        taken = {digest for _, digest in left.columns}
        return _Frame(tuple((number, _apart(digest, taken)) for number, digest in self.columns), self.rows, self.names)


def _apart(digest: str, taken: Collection[str]) -> str:
    while digest in taken:
        digest = _digest(digest, "again")
    return digest


def digests_of(plan: Node) -> Digests:
    """The digests of a plan that was dumped with its texts."""
    frame = deeply(lambda: _Digesting(plan).frame(plan, {}), plan.depth)
    names = [one.name for one in plan.output or ()]
    return Digests(dict(zip(names, (digest for _, digest in frame.columns), strict=True)), frame.rows)


@dataclass
class _Digesting:
    plan: Node
    definitions: dict[int, Node] = field(default_factory=dict)
    defined: dict[int, _Frame] = field(default_factory=dict)
    framed: dict[tuple[int, int], tuple[_Frame, Mapping[int, str]]] = field(default_factory=dict)  # which keeps what has the second id

    def __post_init__(self) -> None:
        self.definitions = {node.number("id"): node for node in self.plan.walk() if node.name == "CTERelationDef"}

    def frame(self, node: Node, outer: Mapping[int, str]) -> _Frame:
        """What a node gives, each column with its digest; a node that several have as a part is looked at once."""
        key = id(node), id(outer)
        if key not in self.framed:
            self.framed[key] = self._frame(node, outer), outer
        return self.framed[key][0]

    def _frame(self, node: Node, outer: Mapping[int, str]) -> _Frame:
        below = [self.frame(child, outer) for child in node.plans()]
        if node.name == "CTERelationRef":
            below = [self._cte(node, outer)]
        if node.name == "WithCTE":
            below = [self.frame(node.node("plan"), outer)]
        if not below:
            return self._leaf(node, outer)
        if node.name == "LateralJoin":  # its right side sees the columns of the left one
            below.append(self.frame(node.node("right").node("plan"), _known(outer, below)))
        if node.name in SIDES:
            below[1:] = [one.beside(below[0]) for one in below[1:]]
        known = _known(outer, below)
        own = self._own(node, below, known)
        output = node.output or ()
        columns = tuple((one.id, self._column(node, place, one.id, own, below, known)) for place, one in enumerate(output))
        return _Frame(columns, self._rows(node, below, known), tuple(one.name for one in output))

    def _rows(self, node: Node, below: list[_Frame], known: Mapping[int, str]) -> str:
        if node.name in CARRYING and len(below) == 1:
            return below[0].rows
        return _digest(self._deciding(node, known), *(_counting(node, one) for one in below))

    def _cte(self, node: Node, outer: Mapping[int, str]) -> _Frame:
        number = node.number("cteId")
        if number not in self.defined:
            definition = self.definitions.get(number)
            self.defined[number] = _Frame((), "recursive")  # until it is known: a recursive one refers to itself
            self.defined[number] = self.frame(definition.node("child"), outer) if definition is not None else _Frame((), "undefined")
        return self.defined[number]

    def _leaf(self, node: Node, outer: Mapping[int, str]) -> _Frame:
        name = node.text("name") if node.name == "Table" else self._said(_without(node, "output"), outer) + _folders(node)
        output = node.output or ()
        columns = tuple((one.id, _digest(node.name, name, one.name)) for one in output)
        return _Frame(columns, _digest(node.name, name), tuple(one.name for one in output))

    def _own(self, node: Node, below: list[_Frame], known: Mapping[int, str]) -> dict[int, str]:
        """The columns that a node itself makes; of an aggregate what it groups by is part of each value.

        What it makes by no expression that has the column's id, as Python does of a frame, may rest on all that is below it.
        """
        if node.name == "Generate":
            said = self._deciding(node, known)
            return {one.number("exprId"): _digest(said, str(place)) for place, one in enumerate(node.nodes("generatorOutput"))}
        groups = self._said(node.fields.get("groupingExpressions"), known) if node.name == "Aggregate" else ""
        made = [one for one in _named(node) if one.name != "AttributeReference"]
        own = {number: self._made(one, groups, known) for one in made if isinstance(number := one.fields.get("exprId"), int)}
        others = [(place, one.id) for place, one in enumerate(node.output or ()) if one.id not in own and one.id not in known]
        if node.name in BY_POSITION or not others:
            return own
        whole = _digest(self._deciding(node, known), *(one.whole(one.names) for one in below))
        return own | {number: _digest(whole, str(place)) for place, number in others}

    def _made(self, named: Node, groups: str, known: Mapping[int, str]) -> str:
        """The digest of an expression; one that only gives a column another name has that of the column."""
        value = named
        while value.name == "Alias" and isinstance(child := value.fields.get("child"), Node):
            value = child
        said = self._said(value, known)
        return said if value.name == "AttributeReference" and not groups else _digest(said, groups)

    def _column(self, node: Node, place: int, number: int, own: Mapping[int, str], below: list[_Frame], known: Mapping[int, str]) -> str:
        if node.name in BY_POSITION:
            said = [one.columns[place][1] for one in below if place < len(one.columns)]
            if node.name == "CTERelationRef" and said:
                return said[0]
            return _digest(node.name, str(place), self._deciding(node, known) if node.name == "Expand" else "", *said)
        return own[number] if number in own else known[number]

    def _deciding(self, node: Node, known: Mapping[int, str]) -> str:
        """What of a node decides on its rows, as a text."""
        said = {name: node.fields.get(name) for name in DECIDING[node.name]} if node.name in DECIDING else _without(node)
        return f"{node.name}({self._said(said, known)})"

    def _said(self, value: Field, known: Mapping[int, str]) -> str:
        """A value as a text without ids: a column by its digest, an alias by what it names."""
        if isinstance(value, Node):
            return self._expression(value, known)
        if isinstance(value, Unknown):
            return value.name
        if isinstance(value, tuple):
            return f"[{','.join(self._said(one, known) for one in value)}]"
        if isinstance(value, Mapping):
            said = (f"{name}={self._said(one, known)}" for name, one in sorted(value.items()) if name not in UNSAID)
            return f"{{{','.join(said)}}}"
        return repr(value)

    def _expression(self, node: Node, known: Mapping[int, str]) -> str:
        number = node.fields.get("exprId")
        if node.name in ("AttributeReference", "OuterReference") and isinstance(number, int):
            return known.get(number, f"column {node.fields.get('name')}")
        if node.name == "Alias":
            return self._said(node.fields.get("child"), known)
        if node.output is not None or node.plans():
            frames = [self.frame(node, known)] if node.output is not None else [self.frame(child, known) for child in node.plans()]
            inside = ",".join(f"{one.rows}:{','.join(digest for _, digest in one.columns)}" for one in frames)
            return f"{node.name}<{inside}>({self._said(_without(node), known)})" if node.output is None else f"plan<{inside}>"
        return f"{node.name}({self._said(node.fields, known)})"


def _counting(node: Node, below: _Frame) -> str:
    """What of a frame below a node decides on the node's rows; what has no rule may go by the names of columns."""
    if node.name in CHOOSING:
        return below.rows
    return below.whole() if node.name in COMPARING else below.whole(below.names)


def _known(outer: Mapping[int, str], below: Iterable[_Frame]) -> Mapping[int, str]:
    """The columns that the expressions of a node may name."""
    return {**outer, **{number: digest for one in below for number, digest in one.columns}}


def _without(node: Node, *names: str) -> Mapping[str, Field]:
    """The parameters of a node that are no plans, without some."""
    return {name: value for name, value in node.fields.items() if name not in names and not _has_plan(value)}


def _folders(node: Node) -> str:
    """The folders of a leaf that reads several paths; which partitions and files are there is none of what it says."""
    place = place_of(node.fields)
    return ",".join(sorted(read_at(place, Names()).names)) if len(place.roots) > 1 else ""


def _has_plan(value: Field) -> bool:
    if isinstance(value, tuple):
        return any(_has_plan(one) for one in value)
    return isinstance(value, Node) and value.output is not None


def _named(node: Node) -> Iterable[Node]:
    for value in node.fields.values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Node) and one.output is None:
                yield one


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:DIGITS]
