"""What becomes of a table's columns when changes bring others.

Types are in Spark's words, and ordered as Delta widens them: one is wider than another if it holds exactly all its values
and Delta makes it of the other without writing the table's files again. So two types have one least wider type, or none,
and then the column is text: it makes no difference in which order schemas are seen, nor in how many steps, but to the order in
which columns are added, and to the letters' case of a column whose names differ in that alone, which is that of the first.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakechime_dagster.cdc.ddl import Array, Decimal, Map, Simple, Struct, Type, parsed
from lakechime_dagster.cdc.schemas.values import MAX_PRECISION
from lakechime_dagster.lake.drift import Drift
from lakechime_dagster.lake.names import folded
from lakechime_dagster.lake.own_columns import refused_characters, why_refused

TEXT = "string"  # of a column whose values no other type holds
_WIDER = {  # of each type all that are wider, the less wide ones first
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
# Digits of a decimal that is wider than a whole number: as many as Parquet's 32 or 64 bits may have, and Delta asks for
_DIGITS = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}


def widened(known: str, seen: str) -> str | None:
    """The least type that is as wide as both, `known` itself if that is; None if there is none, which is a conflict.

    A struct has the fields of both, those that are known first.
    """
    known_type = parsed(known)
    least = _least(known_type, parsed(seen))
    return None if least is None else known if least == known_type else str(least)


def is_widening_in_place(known: str, wanted: str) -> bool:
    """Whether Delta (4.0 and later) makes one type of the other without writing files again, its feature typeWidening on.

    That is: byte to short to int to long; byte, short and int to double and to decimals of ten digits before the point; long
    to those of twenty; float to double; date to timestamp_ntz; a decimal to one of no fewer digits before the point nor
    behind it; all these within arrays, maps and structs, which may get fields. The type itself is one.
    """
    return _least(parsed(known), parsed(wanted)) == parsed(wanted)


def why_not_taken(name: str, ddl: str) -> str | None:
    """Why a table cannot have a column of this name and type; None where it can."""
    if why := why_refused(name):
        return why
    found = next((why for field in _fields(parsed(ddl)) if (why := refused_characters(field))), None)
    return found and f"of a field in it: {found}"


def _fields(known: Type) -> Iterator[str]:
    """The names of all fields of structs in a type."""
    match known:
        case Struct(fields):
            yield from fields
            for inner in fields.values():
                yield from _fields(inner)
        case Array(items):
            yield from _fields(items)
        case Map(keys, values):
            yield from _fields(keys)
            yield from _fields(values)
        case _:
            return


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """What becomes of a table's columns.

    Attributes:
        columns: What the table has then, and the type of each; as before where something is refused.
        added: The columns to be added, in the order in which they are first seen.
        widened: The columns to be widened, and to what.
        left_out: The columns that the table does not take, and why.
        missing: The columns of the table that some of the schemas lack.
        conflicts: The columns that do not hold all values, and why; those that the table has stay as they are, others are not
            added.
        texts: The columns that hold text since no other type holds all their values, and why.
        refused: Why nothing may change; empty where the policy allows it.
    """

    columns: Mapping[str, str]
    added: Mapping[str, str] = field(default_factory=dict)
    widened: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    conflicts: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


def spellings(known: Iterable[str], schemas: Iterable[Iterable[str]]) -> dict[str, str]:
    """The names of columns in schemas that the table has in other letters' case, with its own: the one that comes first."""
    first: dict[str, str] = {}
    names = list(dict.fromkeys(name for columns in (known, *schemas) for name in columns))
    for name in names:
        first.setdefault(folded(name), name)
    return {name: spelled for name in names if (spelled := first[folded(name)]) != name}


def doubled(columns: Iterable[str]) -> tuple[str, ...]:
    """Names of columns of one row that Spark takes for one; none where they all differ."""
    names = list(columns)
    clash = next(iter(spellings((), [names]).items()), ())
    return tuple(reversed(clash))


def evolved(known: Mapping[str, str], seen: Iterable[Mapping[str, str]], policy: Drift, keys: Collection[str] = ()) -> Evolution:
    """What becomes of the columns that a table is known to have when rows of these schemas come.

    A value that fits its column in one of the schemas fits it afterwards too, but for columns in `conflicts` and `left_out`,
    and where something is refused. A table without columns is not there yet: it gets them by any policy. Values of types that
    no other type holds are text. Of the columns of the `keys` this is refused: other keys may have the same text.
    """
    found = _followed(known, list(seen))
    if policy is Drift.IGNORE and known:
        narrow = {name: f"the column is {known[name]}, and stays so; values are {wider}" for name, wider in found.widened.items()}
        conflicts, left_out = {**found.conflicts, **narrow}, dict.fromkeys(found.added, "on_drift=Drift.IGNORE adds no columns")
        return replace(found, columns=dict(known), added={}, widened={}, texts={}, left_out=left_out, conflicts=conflicts)
    refused = tuple(_refused(known, found, policy, keys))
    return replace(found, columns=dict(known), added={}, widened={}, texts={}, refused=refused) if refused else found


def _followed(known: Mapping[str, str], schemas: Collection[Mapping[str, str]]) -> Evolution:
    """What becomes of the columns if all that can be followed is."""
    met, spelled = {name: [ddl] for name, ddl in known.items()}, spellings(known, schemas)
    for schema in schemas:
        for name, ddl in schema.items():
            met.setdefault(spelled.get(name, name), []).append(ddl)
    has = [{spelled.get(name, name) for name in schema} for schema in schemas]
    least: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name, ddls in met.items():
        wide_enough = _least_of(ddls)
        if wide_enough is None:
            texts[name] = f"its values are {' and '.join(sorted(set(ddls)))}, which no type but text holds"
        least[name] = wide_enough or TEXT
    return Evolution(
        columns={**known, **least},
        added={name: ddl for name, ddl in least.items() if name not in known},
        widened={name: ddl for name, ddl in least.items() if ddl != known.get(name, ddl)},
        missing=frozenset(name for name in known if any(name not in columns for columns in has)),
        texts=texts,
    )


def _refused(known: Mapping[str, str], found: Evolution, policy: Drift, keys: Collection[str]) -> Iterator[str]:
    """What of an evolution the policy does not allow, and what to do about it."""
    for name, why in found.texts.items():
        if name in keys:
            yield f"column {name} of the key: {why}; declare another table for the messages from the change of its type on"
    if policy in (Drift.EXCEPTION, Drift.EVOLVE):
        for name, why in {**found.conflicts, **found.texts}.items():
            yield f"column {name}: {why}; declare its type, leave it out, or let its values be text with on_drift=Drift.LENIENT"
    if policy is Drift.EXCEPTION and known:
        drift = {name: f"is new, of type {ddl}" for name, ddl in found.added.items()}
        drift |= {name: f"is {known[name]} and its values are {ddl}" for name, ddl in found.widened.items()}
        drift |= dict.fromkeys(sorted(found.missing), "is missing in rows that came")
        for name, what in drift.items():
            if name in found.texts:
                continue  # it is refused above
            yield f"column {name} {what}: on_drift=Drift.EXCEPTION lets no column change; declare Drift.LENIENT to follow"


def _least_of(ddls: Sequence[str]) -> str | None:
    least = ddls[0]
    for ddl in ddls:  # the first one too, which may be no type that a table can have
        wider = widened(least, ddl)
        if wider is None:
            return None
        least = wider
    return least


def _least(known: Type, seen: Type) -> Type | None:
    """The least type that is as wide as both."""
    match known, seen:
        case Array(), Array():
            items = _least(known.items, seen.items)
            return None if items is None else Array(items)
        case Map(), Map():
            keys, values = _least(known.keys, seen.keys), _least(known.values, seen.values)
            return None if keys is None or values is None else Map(keys, values)
        case Struct(), Struct():
            return _least_struct(known, seen)
        case Simple(), Simple():
            wide_enough = (seen.word, *_WIDER.get(seen.word, ()))
            return next((Simple(word) for word in (known.word, *_WIDER.get(known.word, ())) if word in wide_enough), None)
        case ((Simple() | Decimal()), (Simple() | Decimal())):
            return _least_decimal(_as_decimal(known), _as_decimal(seen))
        case _:
            return None


def _least_decimal(known: Decimal | None, seen: Decimal | None) -> Decimal | None:
    if known is None or seen is None:
        return None
    least = Decimal(max(known.whole, seen.whole), max(known.scale, seen.scale))
    return least if least.whole + least.scale <= MAX_PRECISION else None


def _as_decimal(known: Simple | Decimal) -> Decimal | None:
    if isinstance(known, Decimal):
        return known
    return Decimal(_DIGITS[known.word], 0) if known.word in _DIGITS else None


def _least_struct(known: Struct, seen: Struct) -> Struct | None:
    fields = {**known.fields, **seen.fields}
    if doubled(fields):
        return None
    for name in known.fields.keys() & seen.fields.keys():
        wider = _least(known.fields[name], seen.fields[name])
        if wider is None:
            return None
        fields[name] = wider
    return Struct(fields)
