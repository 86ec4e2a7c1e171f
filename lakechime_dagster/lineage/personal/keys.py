"""Which columns of which tables a subject's keys reach, and by which functions of them: what is searched, and what cannot be."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lakechime_dagster.lake.names import folded
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.personal.tags import Reach, Tagged
from lakechime_dagster.lineage.personal.ways import Lost, Step, Ways

CASTS = {"string": "string", "binary": "binary", "long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""By a type's name in a schema the one of a cast to it."""


class Key(NamedTuple):
    """What a column has of a subject: its value of a category, after some functions."""

    category: str
    steps: tuple[Step, ...] = ()


class Place(NamedTuple):
    """A column, or a place in one: a field of a struct by its dotted name, a place in a JSON text as `payload:$.user.email`, where
    `$..email` is a field of that name at any depth.
    """

    name: str
    key: Key


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A table in which subjects are looked for; each row is theirs of which one of the places has what the key says.

    Where it `is_text`, rows are looked into as JSON texts, texts within texts too, and `texts` are columns that hold one: a row in
    which one cannot be read is told.
    """

    table: str
    places: tuple[Place, ...]
    is_text: bool = False
    texts: tuple[str, ...] = ()

    @property
    def categories(self) -> frozenset[str]:
        """Of which a subject needs one to be found."""
        return frozenset(place.key.category for place in self.places)


@dataclass(frozen=True, kw_only=True, order=True)
class OutOfReach:
    """A column with personal data, or with None as its column all of a table, in which nobody is found by keys, and why."""

    table: str
    column: str | None
    category: str
    why: str


@dataclass
class Reached:
    """The keys of columns by table and name, and what is lost on the way to them."""

    keys: dict[str, dict[str, set[Key]]] = field(default_factory=dict)
    lost: dict[tuple[str, str], set[Lost]] = field(default_factory=dict)

    def of_column(self, ref: ColumnRef) -> dict[str, set[Key]]:
        """The keys within a column, by what is behind its name; those of a column that is personal as a whole are its parts' too."""
        found: dict[str, set[Key]] = {}
        for name, keys in self.keys.get(ref.table, {}).items() if ref.column is not None else ():
            if is_within(name, str(ref.column)):
                found.setdefault(name[len(str(ref.column)) :], set()).update(keys)
            elif is_within(str(ref.column), name):
                found.setdefault("", set()).update(keys)
        return found

    def add(self, table: str, name: str, keys: Iterable[Key]) -> None:
        """A column has these keys too; its name may be spelled in letters of another case."""
        known = self.keys.setdefault(table, {})
        known.setdefault(next((one for one in known if folded(one) == folded(name)), name), set()).update(keys)

    def lose(self, table: str, name: str, lost: Iterable[Lost]) -> None:
        self.lost.setdefault((table, folded(name)), set()).update(lost)


def reached(tags: Mapping[ColumnRef, str], ways: Mapping[str, Mapping[str, Ways]], types: Mapping[ColumnRef, str]) -> Reached:
    """What the keys of subjects reach.

    Args:
        tags: Categories of columns that are personal by themselves: there a value is as the subject gives it.
        ways: By table, each behind those that it reads, the ways to each of its columns.
        types: The types of columns, by their names in a schema; a text where nothing is said.
    """
    made = Reached()
    for ref, category in tags.items():
        if ref.column is not None:
            made.add(ref.table, ref.column, [Key(category)])
    for table, columns in ways.items():
        for column, one in columns.items():
            _follow(made, table, column, one, types)
    return made


def _follow(made: Reached, table: str, column: str, ways: Ways, types: Mapping[ColumnRef, str]) -> None:
    for source, steps in ways.several:
        for suffix, keys in made.of_column(source).items():
            kind = CASTS.get(types.get(source, "string"))
            if not steps:
                made.add(table, column + suffix, keys)
            elif suffix or kind is None:
                made.lose(table, column, [Lost(source, f"functions of {'a part of it' if suffix else 'its type'} are not followed")])
            else:
                first = () if kind == "string" else (Step("Cast", after=(kind,)),)
                made.add(table, column, [Key(key.category, (*key.steps, *(() if key.steps else first), *steps)) for key in keys])
    if ways.lost:
        made.lose(table, column, ways.lost)


def searched(found: Reached, tables: Collection[str]) -> tuple[Searched, ...]:
    """The tables to look in, of those that are there: for each subject where, and by what; one plain answer for all of them."""
    several = []
    for table in sorted({*found.keys} & {*tables}):
        names = {name: keys for name, keys in found.keys[table].items() if not name.startswith("$")}
        places = tuple(sorted({Place(name, key) for name, keys in names.items() for key in keys}))
        if places:
            several.append(Searched(table=table, places=places, is_text=bool(texts := texts_of(places)), texts=texts))
    return tuple(several)


def texts_of(places: Iterable[Place]) -> tuple[str, ...]:
    """The columns of which places lead into their texts."""
    return tuple(sorted({place.name.partition(":")[0] for place in places if ":" in place.name}))


def out_of_reach(
    found: Reached, tagged: Iterable[Tagged], given: Collection[str], searching: Iterable[Searched], unread: Mapping[str, str]
) -> tuple[OutOfReach, ...]:  # fmt: skip
    """Where personal data is, or may be, in which a subject with keys of these categories is not found.

    A column in a table that is searched for a key that is given needs none of its own, but where some of it is lost.

    Args:
        found: What keys reach.
        tagged: What personal data comes to.
        given: The categories of which the subject gives a value.
        searching: The tables that are looked in.
        unread: Tables that cannot be looked in, with the reason.
    """
    looked = {one.table for one in searching if one.categories & set(given) and one.table not in unread}
    there = [one for one in tagged if one.reach is not Reach.INDIRECT and not (one.ref.column or "").startswith("$")]
    personal = {(one.category, one.ref.table, _folded(one.ref.column)) for one in tagged if one.reach is not Reach.INDIRECT}
    told = set[OutOfReach]()
    for one in there:
        keys = set[Key]().union(*found.of_column(one.ref).values())
        of_category = {key for key in keys if key.category == one.category}
        if one.ref.table in unread:
            why = unread[one.ref.table]
        elif lost := _lost(found, one, personal, is_told=not of_category):
            why = lost
        elif one.ref.table in looked and (of_category or one.category not in given):
            continue
        elif keys:
            why = f"no value of {' or '.join(sorted({key.category for key in keys}))} is given"
        else:
            why = "the way of the value to it is not known"
        told.add(OutOfReach(table=one.ref.table, column=one.ref.column, category=one.category, why=why))
    return tuple(sorted(told, key=lambda one: (one.table, one.column or "", one.category, one.why)))


def _lost(found: Reached, one: Tagged, personal: Collection[tuple[str, str, str]], *, is_told: bool) -> str:
    """What of a category is lost on the way to a column, what comes of nobody knows what only if it `is_told`; empty where nothing is."""
    several = found.lost.get((one.ref.table, _folded(one.ref.column)), ())
    said = {why for source, why in several if source is None} if is_told else set[str]()
    for source, why in several:
        if source is not None and any(
            (category, table) == (one.category, source.table) and _are_of_one(name, _folded(source.column))
            for category, table, name in personal
        ):
            said.add(f"{source}: {why}")
    return "; ".join(sorted(said))


def _are_of_one(one: str, other: str) -> bool:
    return is_within(one, other) or is_within(other, one)


def is_within(part: str, whole: str) -> bool:
    """Whether a name is that of a column or leads into it."""
    a, b = folded(part), folded(whole)
    return a == b or a.startswith((f"{b}:", f"{b}.", f"{b}["))


def _folded(name: str | None) -> str:
    return folded(name or "")
