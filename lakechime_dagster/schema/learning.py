"""From new variations to the next layout of a type, and which of its changes break something.

New columns of new fields break nothing, and nor does what a contract rescues or discards, as it says.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lake.contracts import Contract, Mode, Pin
from lakechime_dagster.schema.event import ELEMENT, ROOT, Kind, Variation, field_path
from lakechime_dagster.schema.layout import (
    Column,
    Holds,
    Layout,
    Node,
    Observed,
    change_of,
    is_capped,
    is_name_taken,
    next_layout,
    observed_of,
    says_nothing,
    taking,
    tree_of,
)

MAX_BREAKING = 100  # that are told of a type in one step


class Broke(StrEnum):
    """How a change breaks something.

    Attributes:
        SIBLING: Values of a field that had a column go to a sibling of it.
        FROZEN: The contract keeps them out of all columns.
        CAP: The table has as many columns as it may, or as deep ones.
        RELAYOUT: A rebuild made the table's columns anew.
    """

    SIBLING = "sibling"
    FROZEN = "frozen"
    CAP = "cap"
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
    observed: Observed, before: Layout, found: Iterable[tuple[Variation, str | None]], layout: Layout, contract: Contract
) -> tuple[Breaking, ...]:
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
        kept_out = _Walk(layout, contract).kept_out(layout.columns, tree_of(observed_of(variation, 0)), ROOT) if new else ()
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
        return Broke.CAP if may_grow and is_capped(self.layout.is_full(self.contract), path, node, _kinds, _below) else None


def _kinds(node: Node) -> Iterable[Kind]:
    return node.kinds


def _below(node: Node) -> Iterable[Node]:
    return (*node.fields.values(), *((node.element,) if node.element is not None else ()))


NOWHERE = -1  # the place of a type of which nothing was read


@dataclass(frozen=True, kw_only=True)
class TypePlace:
    """Up to which version of a stream's table a type's own table holds its rows, and how many commits of the group it has.

    The count is tied to the place: whoever writes what lies behind the place commits under the number that follows, so that
    of all who do one is let in, however long they lived.

    Attributes:
        uid: Of the stream's table.
    """

    uid: str | None = None
    version: int = NOWHERE
    commits: int = 0


@dataclass(frozen=True, kw_only=True)
class KnownType:
    """A type as its group knows it.

    Attributes:
        table: The name of its table within its home.
        home: The group in whose folder its table lies; empty where that is the one that has it.
        layout: The columns of its payload, of which `layout_version` is the number; 0 before the first.
        failures: How often in a row it could not be written; it is not tried again before `due_ts`.
        due_ts: When events that a step left are read at the latest: those of a failed type, and of one that catches up. 0 where none are.
        told_ts: When people were told of it last.
        pending: Events that wait for a table, up to where its group has read, and `waits` why; empty where none do.
        written: Rows of its table in sum, `rescued` of them with something in `_rescued`; events that were `discarded`.
    """

    type: str
    table: str
    home: str = ""
    place: TypePlace = field(default_factory=TypePlace)
    layout: Layout = field(default_factory=Layout)
    layout_version: int = 0
    observed: Observed = field(default_factory=Observed)
    failures: int = 0
    due_ts: int = 0
    error: str = ""
    told_ts: int = 0
    pending: int = 0
    waits: str = ""
    written: int = 0
    rescued: int = 0
    discarded: int = 0

    def is_put_off(self, now_ms: int) -> bool:
        """Whether it failed, and is not tried again yet."""
        return self.failures > 0 and self.due_ts > now_ms


@dataclass(frozen=True, kw_only=True)
class Prototype:
    """A variation that was not known, by one event of it.

    Attributes:
        shape: The event with its values replaced by ones that tell nothing but their kind.
        source: The row's `_src`.
        position: The version of the stream's table with which it came.
        producer: Who sent that event; None where it does not tell.
        is_joined: It is no variation of one event: paths and kinds of several, of which the store keeps nothing else.
    """

    typed_hash: str
    names_hash: str
    variation: Variation
    shape: str
    source: str
    position: int
    producer: str | None = None
    is_joined: bool = False


def kept_of(found: Iterable[Prototype]) -> dict[str, Variation]:
    """The variations of single events, by hash."""
    return {one.typed_hash: one.variation for one in found if not one.is_joined}


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What a step found out of one type: the observed that includes it, and the layout that has a place for it.

    Attributes:
        place: From which a new type is read.
        prototypes: Of the variations that are new, those first that enlarge what was observed, which are `enlarging` many.
        before: The number of the layout to which it was added.
        decision: What the layout gained, or lost, for people.
        breaking: What of it breaks something.
    """

    type: str
    table: str
    home: str = ""
    place: TypePlace
    prototypes: tuple[Prototype, ...]
    enlarging: int
    observed: Observed
    layout: Layout
    is_new_layout: bool
    before: int
    decision: str = ""
    breaking: tuple[Breaking, ...] = ()

    def known_after(self, known: KnownType, layout_version: int) -> KnownType:
        """The type as the store knows it then."""
        return replace(known, layout=self.layout, layout_version=layout_version, observed=self.observed)

    def columns_added(self, known: KnownType) -> int:
        """How many columns of single values the layout gained."""
        return self.layout.leaves - known.layout.leaves


class SchemaRepository(Protocol):
    """The types of the groups of one deployment."""

    def types(self, group: str) -> dict[str, KnownType]:
        """What is known of a group's types, by name."""
        ...

    def variations(self, group: str, types: Collection[str]) -> dict[str, dict[str, Variation]]:
        """The variations of these types that are kept, by hash; a type of which none is has an empty map."""
        ...

    def layouts(self, group: str, type_name: str) -> list[Layout]:
        """The layouts of a type, the first one first."""
        ...

    def learn(self, group: str, several: Sequence[Learning]) -> dict[str, int]:
        """Keep what was found out, all in one transaction, before any table is touched; the number of each type's layout.

        Raises:
            LaneConflictError: A type's layout is not what this was added to, or another group has the type by now: read anew, and
                decide again.
        """
        ...

    def propose(self, group: str, one: Learning, replay_id: int) -> int:
        """Keep what a rebuild found out, and the layout that it gives the type's table; the number of that.

        It holds once the table has it, as `adopt` says: until then the type is written as it was.

        Raises:
            LaneConflictError: As of `learn`.
        """
        ...

    def adopt(self, group: str, type_name: str, step: int, version: int) -> None:
        """From now on a layout holds that was proposed, as the type's table has it with the commit of this step; done again nothing."""
        ...


def learned(known: KnownType, found: Sequence[Prototype], contract: Contract) -> Learning | None:
    """What variations that were not known tell of a type; None where there is nothing to keep, as the type is known already."""
    found = [one for one in found if not one.is_joined or known.observed.is_enlarged_by(one.variation)]
    observed, enlarging, others = _joined(known.observed, found)
    layout = next_layout(known.layout, observed, contract)
    is_new = layout != known.layout
    if not found and not is_new and known.layout_version:
        return None
    decision = "\n".join(f"+ {name} {holds}" for name, holds in gained(known.layout, layout)) or "no column"
    return Learning(
        type=known.type, table=known.table, home=known.home, place=known.place, prototypes=(*enlarging, *others), enlarging=len(enlarging),
        observed=observed, layout=layout, is_new_layout=is_new or not known.layout_version, before=known.layout_version, decision=decision,
        breaking=breaking(known.observed, known.layout, [(one.variation, one.producer) for one in found], layout, contract),
    )  # fmt: skip


def relearned(known: KnownType, found: Sequence[Prototype], contract: Contract) -> Learning:
    """What all events of a type tell of it, with a layout that is made anew: the same in whatever order and split they came."""
    observed, enlarging, others = _joined(known.observed, found)
    layout = next_layout(Layout(), observed, contract)
    told = [*(f"+ {name} {holds}" for name, holds in gained(known.layout, layout))]
    told += [f"- {name} {holds}" for name, holds in gained(layout, known.layout)]
    return Learning(
        type=known.type, table=known.table, home=known.home, place=known.place, prototypes=(*enlarging, *others), enlarging=len(enlarging),
        observed=observed, layout=layout, is_new_layout=layout != known.layout, before=known.layout_version,
        decision="\n".join(["rebuild", *told]),
    )  # fmt: skip


def _joined(observed: Observed, found: Sequence[Prototype]) -> tuple[Observed, list[Prototype], list[Prototype]]:
    """What was observed with more variations, those of them that enlarge it and are to be kept, and the others to be kept."""
    enlarging, others = list[Prototype](), list[Prototype]()
    for one in found:
        if not one.is_joined:
            (enlarging if observed.is_enlarged_by(one.variation) else others).append(one)
        observed = observed.joined(observed_of(one.variation, one.position))
    return observed, enlarging, others


def registered(known: KnownType) -> Learning | None:
    """A type that waits for a table, kept with its place, so that nothing of it is lost once it gets one; None where it has one."""
    if known.layout_version:
        return None
    return Learning(
        type=known.type, table=known.table, home=known.home, place=known.place, prototypes=(), enlarging=0, observed=known.observed,
        layout=known.layout, is_new_layout=False, before=0,
    )  # fmt: skip


def gained(before: Layout, after: Layout) -> list[tuple[str, str]]:
    """The columns of single values that only the later layout has: the name, with those that it lies in, and what it holds.

    One that a rebuild made to hold something else is another.
    """
    had = {*columns_of(before.columns)}
    return [one for one in columns_of(after.columns) if one not in had]


def columns_of(columns: Sequence[Column], within: str = "") -> Iterator[tuple[str, str]]:
    """The columns of single values, each with the names of what it lies in before it."""
    for column in columns:
        name = f"{within}.{column.name}" if within and column.name else within + (column.name or "[]")
        if column.holds is Holds.OBJECT:
            yield from columns_of(column.fields, name)
        elif column.holds is Holds.ARRAY and column.element is not None:
            yield from columns_of((column.element,), name)
        else:
            yield name, column.holds.value
