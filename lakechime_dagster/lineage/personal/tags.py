"""Where personal data goes: tags of columns followed along the lineage of columns, with how sure that is and by which way.

DIRECT sources carry a tag on. A hash or a mask makes a pseudonym of it, and a count ends it. What only decides (INDIRECT), and what
could not be told, is kept apart, so that nobody takes "perhaps" for "yes", or "not known" for "no".
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from lakechime_dagster.lineage.columns import ColumnRef, Kind
from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.lineage.graph.parts import kind_of


class Reach(IntEnum):
    """How a tag has come to a column, the surest first.

    Attributes:
        PERSONAL: Its values are there.
        PSEUDONYM: Something of which they are known again, such as a hash.
        UNSURE: They may be there, as something on the way could not be told.
        INDIRECT: They decide on it and are not in it; such a tag goes no further.
    """

    PERSONAL = 0
    PSEUDONYM = 1
    UNSURE = 2
    INDIRECT = 3

    @property
    def word(self) -> str:
        """As people read it."""
        return ("personal", "pseudonym", "not known", "only decides")[self]


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """A column, or with None as its column all of a data set, that a category of personal data has come to.

    `path` leads from the column that was declared, or decided, to be personal to this one, by the shortest way; both are in it.
    """

    ref: ColumnRef
    category: str
    reach: Reach
    path: tuple[ColumnRef, ...]

    @property
    def is_source(self) -> bool:
        """Whether it was declared or decided, not followed."""
        return len(self.path) == 1


@dataclass(frozen=True, kw_only=True)
class Leak:
    """A column that holds personal data where it should be known to, or should not be."""

    tagged: Tagged
    is_public: bool

    @property
    def remedy(self) -> str:
        """What a person may do."""
        name, category = self.tagged.ref, self.tagged.category
        if self.is_public:
            return f"{name} is of a table declared public: leave the column out, or public=True"
        return f'declare columns={{"{name.column}": personal("{category}")}} of {name.table}, or decide that it is not personal'


def followed(network: Network, tags: Mapping[ColumnRef, str], cleared: Collection[ColumnRef] = ()) -> tuple[Tagged, ...]:
    """All that tags come to, each column once a category by the surest way, in the order of names.

    Args:
        network: How columns came from columns.
        tags: Categories of columns that are personal; behind a name `:$.path` leads into a JSON text, `.field` into a struct.
        cleared: Columns of which a person has decided that they are not personal: no tag comes to them or passes.
    """
    found: list[Tagged] = []
    for category in sorted(set(tags.values())):
        starts = sorted(ref for ref, one in tags.items() if one == category)
        found += _followed(network, starts, category, {*cleared} - {*starts})
    return tuple(sorted(found, key=lambda one: (one.ref, one.reach, one.category)))


def leaks(found: Iterable[Tagged], tags: Collection[ColumnRef], public: Collection[str], tables: Collection[str]) -> tuple[Leak, ...]:
    """What is surely wrong: values in columns of the lake's tables that are not tagged, and anything personal in public ones.

    A pseudonym needs no tag of its own, and has no place in a public table.
    """
    known: dict[str, list[str]] = {}
    for ref in tags:
        known.setdefault(ref.table, []).append(_name(ref))
    several = []
    for one in found:
        is_public = one.ref.table in public and one.reach <= Reach.PSEUDONYM
        is_known = any(_are_of_one(_name(one.ref), name) for name in known.get(one.ref.table, ()))
        if is_public or (one.ref.table in tables and one.reach is Reach.PERSONAL and not is_known):
            several.append(Leak(tagged=one, is_public=is_public))
    return tuple(several)


def _carried(reach: Reach, code: int, *, is_part: bool) -> Reach | None:
    """How a tag comes over an edge, by the code of its kind; None where it does not. Of a mere part of the source there is more in it."""
    kind = kind_of(code)
    if not kind.is_direct:
        return Reach.INDIRECT
    if code < 0:  # masked
        return None if kind is Kind.AGGREGATION else max(reach, Reach.PSEUDONYM)
    return Reach.UNSURE if is_part and kind is not Kind.IDENTITY else reach


def _leaving(network: Network, ref: ColumnRef, reach: Reach) -> Iterator[tuple[int, Reach]]:
    """To which nodes a tag of a column comes from it, and how; one of a data set may be of any of its columns."""
    table = network.tables.get(ref.table)
    if table is None:
        return
    name, whole = _name(ref), []
    nodes = [table]
    for node in network.columns_of(table):
        other = network.labels[node].lower()
        if ref.column is None or _are_of_one(name, other):
            nodes.append(node)
        if ref.column is not None and (other == name or _is_within(other, name)):
            whole.append(node)
    _, edges, _ = network.leaving
    several = edges.edges_of(np.array(nodes, np.int32))
    for source, target, code in zip(several.sources.tolist(), several.targets.tolist(), several.kinds.tolist(), strict=True):
        if (comes := _carried(reach, code, is_part=source not in whole)) is not None:
            yield target, comes
    for target in network.maybe.next_of(np.array([table], np.int32)).tolist():
        yield target, Reach.UNSURE


def _followed(network: Network, starts: list[ColumnRef], category: str, cleared: Collection[ColumnRef]) -> list[Tagged]:
    """Breadth first, the surest ways first, so that each column is met by the shortest of its surest ways."""
    found: dict[tuple[str, str], Tagged] = {}
    barred = {(ref.table, _name(ref)) for ref in cleared}
    waiting: dict[Reach, deque[tuple[ColumnRef, tuple[ColumnRef, ...]]]] = {reach: deque() for reach in Reach}
    waiting[Reach.PERSONAL].extend((ref, (ref,)) for ref in starts)
    for reach in Reach:
        queue = waiting[reach]
        while queue:
            ref, path = queue.popleft()
            key = ref.table, _name(ref)
            if key in found or key in barred:
                continue
            found[key] = Tagged(ref=ref, category=category, reach=reach, path=path)
            if reach is Reach.INDIRECT:
                continue
            for node, comes in _leaving(network, ref, reach):
                target = network.ref(node)
                waiting[comes].append((target, (*path, target)))
    return list(found.values())


def _name(ref: ColumnRef) -> str:
    """The name of a column in small letters, as Spark takes names for one that differ in their case alone."""
    return (ref.column or "").lower()


def _is_within(part: str, whole: str) -> bool:
    """Whether a name leads into a column, or into a field that is told like one: `payload:$.to` into `payload`, `$.a.b` into `$.a`."""
    return part.startswith((f"{whole}:", f"{whole}.", f"{whole}["))


def _are_of_one(one: str, other: str) -> bool:
    """Whether two names are of the same column, or one leads into the other."""
    return one == other or _is_within(one, other) or _is_within(other, one)
