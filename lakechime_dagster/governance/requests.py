"""Access requests: the subjects who ask, and where their values are searched."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.governance.tags import Reach, Tagged
from lakechime_dagster.tables.cdc import STATE, ChangeTable
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import folded
from lakechime_dagster.tables.options import column_of
from lakechime_dagster.tables.tables import LakeTable

MAX_SUBJECTS = 100_000
MAX_LINE = 65_536  # bytes
MAX_SHOWN = 10  # wrong lines in a message
QUARANTINE = "__quarantine"
ANYWHERE = "$.."  # leads to a field of JSON at any depth


class SubjectsRefusedError(LakeChimeError):
    """Lines are no subjects; they are named by their numbers, as what they hold is personal."""


@dataclass(frozen=True)
class Subject:
    """One subject: the number of its line, from 1 on, and its values by category, in the order of these."""

    line: int
    values: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def categories(self) -> frozenset[str]:
        return frozenset(category for category, _ in self.values)


class Place(NamedTuple):
    """A column, or a path into one: a field of a struct by its dotted name, a path in a JSON text as `payload:$.user.email`, where
    `$..email` is a field of that name at any depth.
    """

    name: str
    category: str


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A table in which subjects are looked for; a row is theirs if one of the places has a value of theirs.

    Where it `is_text`, rows are searched as JSON texts, texts within texts too, and `texts` are columns that hold one: rows in which
    one cannot be parsed are counted.
    """

    table: str
    places: tuple[Place, ...]
    is_text: bool = False
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, order=True)
class OutOfReach:
    """A column with personal data, or with None as its column a whole table, in which a subject is not found, and why."""

    table: str
    column: str | None
    category: str
    why: str


def read_subjects(lines: Iterable[bytes], categories: Collection[str]) -> tuple[Subject, ...]:
    """The subjects of all lines but empty ones, or none at all.

    Raises:
        SubjectsRefusedError: naming the lines that are none, and why.
    """
    found, wrong = list[Subject](), list[str]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(Subject(number, _values(line, categories)))
        except _LineError as problem:
            wrong.append(f"line {number} {problem}")
    if wrong:
        more = f"; and {len(wrong) - MAX_SHOWN:,} lines more" if len(wrong) > MAX_SHOWN else ""
        raise SubjectsRefusedError(f"nobody was looked for: {'; '.join(wrong[:MAX_SHOWN])}{more}")
    if not found:
        example = '{"email": …}'
        raise SubjectsRefusedError(f"no subject was given on standard input: write a line of JSON for each, such as {example}")
    if len(found) > MAX_SUBJECTS:
        raise SubjectsRefusedError(f"{len(found):,} subjects are more than {MAX_SUBJECTS:,}: ask for them by parts")
    return tuple(found)


def searched_tables(lake: Lake, tagged: Iterable[Tagged], types: Mapping[str, Collection[str]], rescued: str) -> tuple[Searched, ...]:
    """The tables to search: those of the lake with tagged columns, and those beside them with the same rows.

    Args:
        lake: The lake; `tagged` columns of other tables are left out.
        tagged: What personal data comes to.
        types: The categories of the tables of events' types.
        rescued: Their column for values without a column.
    """
    places: dict[str, list[Place]] = {}
    for one in tagged:
        if one.ref.column is not None and not one.ref.column.startswith("$") and one.reach is Reach.PERSONAL:
            places.setdefault(one.ref.table, []).append(Place(one.ref.column, one.category))
    messages = {table.bronze.name for table in lake.tables if isinstance(table, ChangeTable)}
    streams = {group.stream.table.name for group in lake.groups}
    found: list[Searched] = []
    for table in lake.tables:
        own = tuple(places.get(table.name, ()))
        if not own or table.name in messages or table.name in types:
            continue
        texts = {place.name.partition(":")[0] for place in own if ":" in place.name} | ({"payload"} if table.name in streams else set())
        found.append(Searched(table=table.name, places=own, is_text=bool(texts), texts=tuple(sorted(texts))))
        if isinstance(table, LakeTable):
            found.append(_refused_rows(table.name, own))
        elif isinstance(table, ChangeTable):
            found += _beside(table, own)
    for name, categories in types.items():
        own = (*places.get(name, ()), *(Place(rescued, category) for category in sorted(categories)))
        found.append(Searched(table=name, places=own, is_text=True, texts=(rescued,)))
    return tuple(sorted(found, key=lambda one: one.table))


def out_of_reach(tagged: Iterable[Tagged], given: Collection[str], unread: Mapping[str, str]) -> tuple[OutOfReach, ...]:
    """Where personal data is, or may be, in which a subject who gives values of these categories is not found.

    A column of a category without a given value needs none where the rows of its table are found by another column.

    Args:
        tagged: What personal data comes to.
        given: The categories of which the subject gives a value.
        unread: Tables that cannot be searched, with the reason.
    """
    there = [one for one in tagged if one.reach is not Reach.INDIRECT and not (one.ref.column or "").startswith("$")]
    covered = {one.ref.table for one in there if one.reach is Reach.PERSONAL and one.ref.column and one.category in given}
    found = set[OutOfReach]()
    for one in there:
        if one.ref.table in unread:
            why = unread[one.ref.table]
        elif one.category not in given:
            why = "" if one.ref.table in covered else f"no value of {one.category} is given"
        elif one.reach is Reach.UNSURE or one.ref.column is None:
            why = "it is unknown which columns hold values"
        elif one.reach is Reach.PSEUDONYM:
            why = "hashes and masks are not looked for"
        elif one.reach is Reach.DERIVED:
            why = "values that a function has changed are not looked for"
        elif _is_of_part(one):
            why = "it may hold a whole struct or JSON text, which is compared as one value"
        else:
            why = ""
        if why:
            found.add(OutOfReach(table=one.ref.table, column=one.ref.column, category=one.category, why=why))
    return tuple(sorted(found, key=lambda one: (one.table, one.column or "", one.category)))


def _is_of_part(one: Tagged) -> bool:
    """Whether a tag of a part of a column has come to a whole one, such as of a copy."""
    origin, name = one.path[0].column or "", one.ref.column or ""
    return not one.is_source and column_of(name) == name and not origin.startswith("$") and column_of(origin) != origin


def _refused_rows(table: str, places: Iterable[Place]) -> Searched:
    """Rows of a computed table that it refused, as JSON texts."""
    within = tuple(place._replace(name=f"row:$.{place.name.replace(':$', '')}") for place in places)
    return Searched(table=table + QUARANTINE, places=within, is_text=True, texts=("row",))


def _beside(table: ChangeTable, places: Iterable[Place]) -> Iterator[Searched]:
    """The messages of a CDC table, its state and what it refused; a field may stand anywhere in them."""
    source_names = {folded(here): name for name, here in table.names.items()}
    keys = {folded(one) for one in table.keys}
    messages, state, refused = list[Place](), list[Place](), list[Place]()
    for place in places:
        column = column_of(place.name)
        for name in sorted({column, source_names.get(folded(column), column)}):
            anywhere = f"{ANYWHERE}{name}"
            messages += [place._replace(name=f"value:{anywhere}"), place._replace(name=f"key:{anywhere}")]
            state.append(place._replace(name=f"columns:{anywhere}"))
            refused.append(place._replace(name=f"row:{anywhere}"))
        if folded(column) in keys:
            messages.append(place._replace(name="row_key"))
            state += [place._replace(name="key"), place._replace(name="continues")]
            refused.append(place._replace(name="row:$.key"))
    yield Searched(table=table.bronze.name, places=tuple(messages), is_text=True, texts=("value",))
    yield Searched(table=table.name + STATE, places=tuple(state), is_text=True, texts=("columns",))
    yield Searched(table=table.name + QUARANTINE, places=tuple(refused), is_text=True, texts=("row",))


class _LineError(Exception):
    """Why a line is no subject."""


def _values(line: bytes, categories: Collection[str]) -> tuple[tuple[str, str], ...]:
    known = f"the lake has {', '.join(sorted(categories)) or 'none'}"
    if len(line) > MAX_LINE:
        raise _LineError(f"has more than {MAX_LINE:,} bytes")
    try:
        value = json.loads(line.decode(), object_pairs_hook=_Pairs)
    except UnicodeDecodeError:
        raise _LineError("is no UTF-8") from None
    except (ValueError, RecursionError):
        raise _LineError("is no JSON") from None
    if not isinstance(value, _Pairs) or not value:
        raise _LineError('is no JSON object of values by category, such as {"email": …}')
    if len({name for name, _ in value}) < len(value):
        raise _LineError("has a category twice: write a line for each value")
    if any(name not in categories for name, _ in value):
        raise _LineError(f"has a category of which no column is declared or decided to be; {known}")
    return tuple(sorted((name, _text(one)) for name, one in value))


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object, those of one name too."""


def _text(value: Any) -> str:
    """A value as columns of text have it."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _LineError("has a value that is neither a text nor a whole number")
    text = str(value)
    if not text.strip():
        raise _LineError("has an empty value")
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        raise _LineError("has a value with a character that no table holds")
    return text
