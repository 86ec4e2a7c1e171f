"""What was ever seen of a type: its paths with their kinds, joined from variations in whatever order they come.

A semilattice: joining is commutative, associative, idempotent, and only ever adds. No pin, contract, cap or count enters it, so
that two that saw the same events know the same, and what is decided from it can be decided again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.variation import ELEMENT, Variation

SAYS_NOTHING = frozenset({Kind.NULL, Kind.EMPTY_OBJECT, Kind.EMPTY_ARRAY})
Names = tuple[str | None, ...]  # of the fields that lead to a value; None is an element of an array
Pair = tuple[str, Kind]  # a path, and a kind of what is there


@dataclass(frozen=True)
class Seen:
    """A path: the kinds of what was there, and the first and the last position at which one of them came first."""

    kinds: frozenset[Kind]
    first: int
    last: int

    def joined(self, other: "Seen") -> "Seen":
        return Seen(self.kinds | other.kinds, min(self.first, other.first), max(self.last, other.last))


@dataclass(frozen=True)
class Observed:
    """The paths of a type, as spelled; two that differ in letter case only are two."""

    paths: Mapping[str, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", MappingProxyType(dict(self.paths)))

    def joined(self, other: "Observed") -> "Observed":
        """What both have seen."""
        found = dict(self.paths)
        for path, seen in other.paths.items():
            found[path] = found[path].joined(seen) if path in found else seen
        return Observed(found)

    def without(self, pairs: Collection[Pair]) -> "Observed":
        """What would have been seen without these kinds at these paths; the paths themselves stay."""
        found = dict(self.paths)
        for path, kind in pairs:
            if path in found:
                found[path] = replace(found[path], kinds=found[path].kinds - {kind})
        return Observed(found) if pairs else self

    def is_enlarged_by(self, variation: Variation) -> bool:
        """Whether a variation has a path, or a kind at a path, that was not seen."""
        return any(path not in self.paths or kind not in self.paths[path].kinds for path, kind in variation.kinds)


def observed_of(variation: Variation, position: int) -> Observed:
    """What a variation shows that came first at a position, such as a version of the bronze table."""
    kinds: dict[str, set[Kind]] = {}
    for path, kind in variation.kinds:
        kinds.setdefault(path, set()).add(kind)
    return Observed({path: Seen(frozenset(several), position, position) for path, several in kinds.items()})


@dataclass
class Node:
    """A path as a tree has it: the kinds of what is there, the fields of its objects by their names, the elements of its arrays."""

    kinds: frozenset[Kind] = frozenset()
    fields: dict[str, "Node"] = field(default_factory=dict)
    element: "Node | None" = None


def says_nothing(node: Node) -> bool:
    """Whether what is there is null, empty, or an object of such fields: it asks for no column, and without one nothing is lost."""
    return not node.kinds - SAYS_NOTHING - {Kind.OBJECT} and all(map(says_nothing, node.fields.values()))


def tree_of(observed: Observed) -> Node:
    """The paths as a tree, whose root is the event."""
    root = Node()
    for path, seen in observed.paths.items():
        node = root
        for name in names_of(path):
            if name is None:
                node.element = node = node.element or Node()
            else:
                node = node.fields.setdefault(name, Node())
        node.kinds = seen.kinds
    return root


def names_of(path: str) -> Names:
    """The fields that lead to a path, None where it leads into an array."""
    names: list[str | None] = []
    for part in path.split("/")[1:]:
        name = part.partition("[")[0]  # a name's own is told otherwise
        names += [_unescaped(name), *([None] * part[len(name) :].count(ELEMENT))]
    return tuple(names)


def _unescaped(name: str) -> str:
    return name.replace("~2", "[").replace("~1", "/").replace("~0", "~")
