"""What of a type's new variations breaks something: a field goes on in a sibling, or its values are kept out of all columns.

New columns of new fields break nothing, and nor does what a contract rescues or discards, as it says.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lake.contracts import Contract, Mode, Pin
from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.layout import Column, Holds, Layout, change_of
from lakechime_dagster.schema.observed import Node, Observed, Pair, observed_of, says_nothing, tree_of
from lakechime_dagster.schema.places import is_capped, is_name_taken, taking
from lakechime_dagster.schema.shape import with_ways
from lakechime_dagster.schema.variation import ELEMENT, ROOT, Variation, field_path

MAX_BREAKING = 100  # that are told of a type in one step


class Broke(StrEnum):
    """How a change breaks something.

    Attributes:
        SIBLING: Values of a field that had a column go to a sibling of it.
        FROZEN: The contract keeps them out of all columns.
        CAP: The table has as many columns as it may, or as deep ones.
        PRODUCER_CAP: Who sends them has brought as many columns as he may.
        RELAYOUT: A rebuild made the table's columns anew.
    """

    SIBLING = "sibling"
    FROZEN = "frozen"
    CAP = "cap"
    PRODUCER_CAP = "producer_cap"
    RELAYOUT = "relayout"


@dataclass(frozen=True, kw_only=True)
class Breaking:
    """A change that breaks something, told once: when its path and kind come first.

    Attributes:
        path: Empty of the whole event.
        kind: Of the values, or what the sibling holds.
        producer: Who sent the event that brought it; None where nobody is told, or a person let it in.
    """

    path: str
    kind: str
    how: Broke
    producer: str | None = None


def breaking(
    observed: Observed, before: Layout, found: Iterable[tuple[Variation, str | None]], layout: Layout, contract: Contract,
    withheld: frozenset[Pair] = frozenset(),
) -> tuple[Breaking, ...]:  # fmt: skip
    """What breaks with variations, each with its producer, that lead from what was observed, and a layout, to a further layout.

    At most MAX_BREAKING are told.
    """
    seen = {(path, kind) for path, one in observed.paths.items() for kind in one.kinds}
    brought: dict[tuple[str, Kind], str | None] = {}
    several: list[Breaking] = []
    for variation, producer in found:
        new = variation.kinds - seen
        seen |= new
        brought |= dict.fromkeys(new, producer)
        kept_out = (
            _Walk(layout, contract, with_ways(withheld)).kept_out(layout.columns, tree_of(observed_of(variation, 0)), ROOT) if new else ()
        )
        told = (Breaking(path=path, kind=kind, how=how, producer=producer) for path, kind, how in kept_out if (path, kind) in new)
        several += islice(told, MAX_BREAKING)
    siblings = (
        Breaking(path=path, kind=column.holds.value, how=Broke.SIBLING, producer=_who(brought, path, column))
        for path, column in _siblings(before.columns, layout.columns, ROOT)
    )
    return tuple(islice((*siblings, *several), MAX_BREAKING))


def _who(brought: dict[tuple[str, Kind], str | None], path: str, column: Column) -> str | None:
    return next((producer for (where, kind), producer in brought.items() if where == path and column.takes(kind)), None)


def _siblings(before: Sequence[Column], after: Sequence[Column], path: str) -> Iterator[tuple[str, Column]]:
    """The siblings that only the later columns have, of fields that had a column, each with its path."""
    had, fields = {one.name: one for one in before}, {one.field for one in before}
    for one in after:
        here = field_path(path, one.field)
        if one.name in had:
            yield from _siblings_within(had[one.name], one, here)
        elif one.is_sibling and one.field in fields:
            yield here, one


def _siblings_within(before: Column, after: Column, path: str) -> Iterator[tuple[str, Column]]:
    if after.holds is Holds.OBJECT:
        yield from _siblings(before.fields, after.fields, path)
    elif after.element is not None and before.element is not None:
        yield from _siblings_within(before.element, after.element, path + ELEMENT)


@dataclass(frozen=True)
class _Walk:
    """Goes through a variation and the columns of a layout at once."""

    layout: Layout
    contract: Contract
    withheld: frozenset[Pair]

    def kept_out(self, columns: Sequence[Column], node: Node, path: str) -> Iterator[tuple[str, Kind, Broke]]:
        """The paths and kinds of an object's fields, and of what is within them, that have no column, and what hinders it."""
        for name, inner in sorted(node.fields.items()):
            own = [one for one in columns if one.field == name]
            is_clash = not own and is_name_taken(columns, name)
            if not is_clash and (own or not says_nothing(inner)):
                yield from self._values(own, inner, field_path(path, name))

    def _values(self, own: Sequence[Column], node: Node, path: str, *, is_element: bool = False) -> Iterator[tuple[str, Kind, Broke]]:
        for kind in sorted(node.kinds - {Kind.NULL}):
            column = taking(own, kind)
            if column is None:
                how = self._hinders(own, kind, node, path, is_element=is_element)
                yield from () if how is None else ((path, kind, how),)
            elif column.holds is Holds.OBJECT:
                yield from self.kept_out(column.fields, node, path)
            elif column.element is not None and node.element is not None:
                yield from self._values([column.element], node.element, path + ELEMENT, is_element=True)

    def _hinders(self, own: Sequence[Column], kind: Kind, node: Node, path: str, *, is_element: bool) -> Broke | None:
        if self.contract.pins.get(path) is Pin.IGNORE:
            return None
        mode = self.contract.mode(change_of([one.holds for one in own], kind, path), path)
        if mode is Mode.FREEZE:
            return Broke.FROZEN
        may_grow = mode in (Mode.EVOLVE, Mode.VARIANT) and not is_element
        if may_grow and (path, kind) in self.withheld:
            return Broke.PRODUCER_CAP
        return Broke.CAP if may_grow and is_capped(self.layout.is_full(self.contract), path, node, _kinds, _below) else None


def _kinds(node: Node) -> Iterable[Kind]:
    return node.kinds


def _below(node: Node) -> Iterable[Node]:
    return (*node.fields.values(), *((node.element,) if node.element is not None else ()))
