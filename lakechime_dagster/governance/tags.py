"""Personal data: which columns are declared or decided to hold it, and how it reaches others."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from lakechime_dagster.lineage.columns import PAYLOAD, ROOT, ColumnRef, pointer
from lakechime_dagster.tables.cdc import CDCTable
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import folded
from lakechime_dagster.tables.options import column_of
from lakechime_dagster.tables.tables import LakeTable

KEY, VALUE = "key", "value"  # columns of a table of messages


class Reach(IntEnum):
    """How a tag has reached a column, the surest first.

    Attributes:
        PERSONAL: It holds the values as they are.
        DERIVED: It holds something that is made of the values.
        PSEUDONYM: It holds a hash or a mask, by which a person is recognized.
        UNSURE: It may hold them, as lineage on the way is unknown.
        INDIRECT: The values decide on it and are not in it; such a tag is not propagated further.
    """

    PERSONAL = 0
    DERIVED = 1
    PSEUDONYM = 2
    UNSURE = 3
    INDIRECT = 4

    @property
    def word(self) -> str:
        """As people read it."""
        return ("personal", "derived", "pseudonym", "unsure", "indirect")[self]

    @property
    def has_values(self) -> bool:
        """Whether the values, or something made of them, are surely there, and not only
        pseudonyms.
        """
        return self <= Reach.DERIVED


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a person decided of a column; without a category it holds nothing personal, whatever
    leads to it.
    """

    ref: ColumnRef
    category: str | None
    who: str
    reason: str
    decided_ms: int


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """A column, or with None as its column all of a data set, that a category of personal data has
    reached.

    `path` leads from the column that was declared, or decided, to be personal to this one, by the
    shortest way; both are in it.
    """

    ref: ColumnRef
    category: str
    reach: Reach
    path: tuple[ColumnRef, ...]

    @property
    def is_source(self) -> bool:
        """Whether it was declared or decided, not propagated."""
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
            return (
                f"{name} is a partition level of a table declared public: leave the column out, "
                f"and partition by another one"
            )
        if self.is_level:
            return (
                f"{name} is a partition level, whose values stand in names of folders, in keys and "
                f"in logs: {level_remedy(name)}"
            )
        if self.is_public:
            return f"{name} is of a table declared public: leave the column out, or public=True"
        return (
            f'declare asset=Asset(columns={{"{name.column}": personal("{category}")}}) of '
            f"{name.table}, or decide that it is not personal"
        )


def level_remedy(level: ColumnRef) -> str:
    """What a person may do of a partition level that holds personal values."""
    word = f"`lakechime personal decide {level.table} {level.column} not --reason …`"
    return (
        f"partition by a hash or a mask of it, or by another column; where it is nothing personal, "
        f"{word}"
    )


def on_levels(found: Iterable[Tagged], levels: Mapping[str, Collection[str]]) -> tuple[Tagged, ...]:
    """Those of the columns that are partition levels and have the values; a pseudonym may be one.
    `levels` are by table.
    """
    return tuple(one for one in found if one.reach.has_values and _is_level(one, levels))


def leaks(
    found: Iterable[Tagged],
    tags: Collection[ColumnRef],
    public: Collection[str],
    levels: Mapping[str, Collection[str]],
) -> tuple[Leak, ...]:
    """What is surely wrong: values in columns of the lake's tables that are not tagged, and
    anything personal in public ones.

    A pseudonym needs no tag of its own, and is not allowed in a public table. A partition level
    with values is wrong, tagged or not. `levels` are those of the lake's tables, by table.
    """
    known: dict[str, list[str]] = {}
    for ref in tags:
        known.setdefault(ref.table, []).append(lower(ref))
    several = []
    for one in found:
        is_public = one.ref.table in public and one.reach <= Reach.PSEUDONYM
        is_known = any(are_of_one(lower(one.ref), name) for name in known.get(one.ref.table, ()))
        is_level = one.reach.has_values and _is_level(one, levels)
        if (
            is_public
            or is_level
            or (one.ref.table in levels and one.reach.has_values and not is_known)
        ):
            several.append(Leak(tagged=one, is_public=is_public, is_level=is_level))
    return tuple(several)


def lower(ref: ColumnRef) -> str:
    """The name of a column without its letters' case, as Spark takes names for one that differ in
    it alone.
    """
    return folded(ref.column or "")


def is_within(part: str, whole: str) -> bool:
    """Whether a name leads into a column, or into a field that is named like one: `payload:$.to`
    into `payload`, `$.a.b` into `$.a`.
    """
    return part.startswith((f"{whole}:", f"{whole}.", f"{whole}["))


def are_of_one(one: str, other: str) -> bool:
    """Whether two names are of the same column, or one leads into the other."""
    return one == other or is_within(one, other) or is_within(other, one)


def _is_level(one: Tagged, levels: Mapping[str, Collection[str]]) -> bool:
    return lower(one.ref) in {folded(level) for level in levels.get(one.ref.table, ())}


def declared_tags(lake: Lake) -> dict[ColumnRef, str]:
    """Categories by column. What a table that follows a database declares is personal in its
    messages too, and so with streams.
    """
    tags = {
        ColumnRef(table.name, name): tag.category
        for table in lake.tables
        for name, tag in table.personal.items()
    }
    for table in lake.tables:
        if isinstance(table, CDCTable):
            tags |= {
                ColumnRef(table.bronze.name, name): category
                for name, category in _of_messages(table)
            }
    for group in lake.groups:
        tags |= {
            ColumnRef(group.stream.table.name, name): category
            for name, category in _of_stream(group)
        }
    return tags


def public_tables(lake: Lake) -> frozenset[str]:
    """The tables that are declared to be for everybody."""
    return frozenset(table.name for table in lake.tables if table.public)


def within_reach(lake: Lake) -> frozenset[str]:
    """The computed tables that read what is declared personal, or read what does, by their
    declarations; those that declare it too.
    """
    of_groups = tuple(f"{group.name}." for group in lake.groups if group.personal)
    tagged = {ref.table for ref in declared_tags(lake)}
    reached: set[str] = set()
    for table in lake.tables:  # inputs first
        is_of_group = table.name.startswith(of_groups)
        inputs = () if not isinstance(table, LakeTable) else table.inputs
        if is_of_group or table.name in tagged or not reached.isdisjoint(inputs):
            reached.add(table.name)
    return frozenset(table.name for table in lake.computed if table.name in reached)


def _of_messages(table: CDCTable) -> Iterator[tuple[str, str]]:
    """Fields as lineage names them, and the texts in which they stand at a path that the envelope
    decides on.
    """
    there = {folded(here): name for name, here in table.names.items()}
    keys = {folded(key) for key in table.keys}
    for name, tag in table.personal.items():
        column = column_of(name)
        field = there.get(folded(column), column)
        yield pointer(field) + name.removeprefix(column), tag.category
        for text in (VALUE, KEY) if folded(column) in keys else (VALUE,):
            yield f"{text}:{ROOT}..{field}", tag.category


def _of_stream(group: EventGroup) -> Iterator[tuple[str, str]]:
    for path, tag in group.personal.items():
        name = pointer(*path.strip("/").split("/"))
        yield name, tag.category
        yield f"{PAYLOAD}:{name}", tag.category
