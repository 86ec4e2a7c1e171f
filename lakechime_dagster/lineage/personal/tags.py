"""Where personal data goes: tags of columns followed along the lineage of columns, with how sure that is and by which way.

DIRECT sources carry a tag on. A hash or a mask makes a pseudonym of it, and a count ends it. What only decides (INDIRECT), and what
could not be told, is kept apart, so that nobody takes "perhaps" for "yes", or "not known" for "no".
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lakechime_dagster.lake.names import folded
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.lineage.personal.names import are_of_one, lower
from lakechime_dagster.lineage.personal.reach import Reach
from lakechime_dagster.lineage.personal.walk import Walk


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
    is_level: bool = False

    @property
    def remedy(self) -> str:
        """What a person may do; of a partition level to declare it is none, as that is refused."""
        name, category = self.tagged.ref, self.tagged.category
        if self.is_level and self.is_public:
            return f"{name} is a partition level of a table declared public: leave the column out, and partition by another one"
        if self.is_level:
            return f"{name} is a partition level, whose values stand in names of folders, in keys and in logs: {level_remedy(name)}"
        if self.is_public:
            return f"{name} is of a table declared public: leave the column out, or public=True"
        return f'declare columns={{"{name.column}": personal("{category}")}} of {name.table}, or decide that it is not personal'


def followed(
    network: Network, tags: Mapping[ColumnRef, str], cleared: Collection[ColumnRef] = (), within: Collection[str] | None = None
) -> tuple[Tagged, ...]:
    """All that tags come to, each column once a category by the surest way, in the order of names.

    Args:
        network: How columns came from columns.
        tags: Categories of columns that are personal; behind a name `:$.path` leads into a JSON text, `.field` into a struct.
        cleared: Columns of which a person has decided that they are not personal: no tag comes to them or passes.
        within: The data sets of which it is told; all unless given.
    """
    found: list[Tagged] = []
    for category in sorted(set(tags.values())):
        starts = sorted(ref for ref, one in tags.items() if one == category)
        walk = Walk(network, starts, {*cleared} - {*starts})
        told = (ref for ref in starts if within is None or ref.table in within)
        found += [Tagged(ref=ref, category=category, reach=Reach.PERSONAL, path=(ref,)) for ref in told]
        found += [
            Tagged(ref=network.ref(node), category=category, reach=Reach(int(walk.reach[node])), path=walk.path(node))
            for node in walk.found(within)
        ]
    return tuple(sorted(found, key=lambda one: (one.ref, one.reach, one.category)))


def level_remedy(level: ColumnRef) -> str:
    """What a person may do of a partition level that holds personal values."""
    word = f"`lakechime personal decide {level.table} {level.column} not --reason …`"
    return f"partition by a hash or a mask of it, or by another column; where it is nothing personal, {word}"


def on_levels(found: Iterable[Tagged], levels: Mapping[str, Collection[str]]) -> tuple[Tagged, ...]:
    """Those of the columns that are partition levels and have the values; a pseudonym may be one. `levels` are by table."""
    return tuple(one for one in found if one.reach is Reach.PERSONAL and _is_level(one, levels))


def leaks(
    found: Iterable[Tagged], tags: Collection[ColumnRef], public: Collection[str], levels: Mapping[str, Collection[str]]
) -> tuple[Leak, ...]:
    """What is surely wrong: values in columns of the lake's tables that are not tagged, and anything personal in public ones.

    A pseudonym needs no tag of its own, and has no place in a public table. A partition level with values is wrong, tagged or not.
    `levels` are those of the lake's tables, by table.
    """
    known: dict[str, list[str]] = {}
    for ref in tags:
        known.setdefault(ref.table, []).append(lower(ref))
    several = []
    for one in found:
        is_public = one.ref.table in public and one.reach <= Reach.PSEUDONYM
        is_known = any(are_of_one(lower(one.ref), name) for name in known.get(one.ref.table, ()))
        is_level = one.reach is Reach.PERSONAL and _is_level(one, levels)
        if is_public or is_level or (one.ref.table in levels and one.reach is Reach.PERSONAL and not is_known):
            several.append(Leak(tagged=one, is_public=is_public, is_level=is_level))
    return tuple(several)


def _is_level(one: Tagged, levels: Mapping[str, Collection[str]]) -> bool:
    return lower(one.ref) in {folded(level) for level in levels.get(one.ref.table, ())}
