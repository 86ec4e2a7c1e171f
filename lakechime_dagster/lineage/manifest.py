"""`lineage.json`: the columns of a lake's code before any run."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnLineage, Statement
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import code_digest

if TYPE_CHECKING:
    from pydantic import TypeAdapter

VERSION = 2
REMEDY = (
    "bring it back from version control, or write it again by `lakechime lineage plan --out FILE` "
    "where the code is that it is of"
)
FILE = "lineage.json"
UNTIL_IT_RUNS = "not known until it runs"  # how a reason begins that no other code would mend


@dataclass(frozen=True, kw_only=True)
class PlannedColumn(ColumnLineage):
    """A column of a table: its type as Spark writes it in JSON, and of a computed one what it comes
    from.

    `digest` is equal as long as its expression says the same.
    """

    type: Any = field(hash=False)
    nullable: bool = True
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class PlannedTable(Statement):
    """A table as its code makes it, as a run would record it, or, where `code` is None, as it is
    found.

    `rows` is a digest of what decides which rows there are, `laid_out` says keys, partitions and
    refresh mode. `unknown` says why something is not known until it runs; where nothing is,
    `columns` are those that it had when it was known, or none.
    """

    columns: tuple[PlannedColumn, ...] = ()
    rows: str = ""
    code: str | None = None
    laid_out: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner: str = ""

    @cached_property
    def by_name(self) -> Mapping[str, PlannedColumn]:
        return {one.column: one for one in self.columns}

    @property
    def is_computed(self) -> bool:
        return self.code is not None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The tables of a lake by name, and findings that a person has accepted with a reason, by their
    key.
    """

    lake: str
    tables: Mapping[str, PlannedTable]
    accepted: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text of the file, the same for the same manifest; each column is a line of its own,
        and what is empty is left out, so that differences read well.
        """
        value = _adapter().dump_python(self, mode="json", exclude_defaults=True)
        return _text({"version": VERSION, **value}, "\n", 4) + "\n"


def _text(value: Any, line: str, depth: int) -> str:
    """JSON with a line for each item of the outer levels."""
    if not (depth and value and isinstance(value, dict | list)):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    within = f"{line} "
    if isinstance(value, list):
        items, (opens, closes) = [_text(one, within, depth - 1) for one in value], "[]"
    else:
        items, (opens, closes) = (
            [
                f"{_text(name, '', 0)}: {_text(one, within, depth - 1)}"
                for name, one in sorted(value.items())
            ],
            "{}",
        )
    return f"{opens}{within}{f',{within}'.join(items)}{line}{closes}"


@cache
def _adapter() -> "TypeAdapter[Manifest]":
    from pydantic import TypeAdapter  # for who reads or writes the file

    return TypeAdapter(Manifest)


def manifest_in(folder: Path) -> Manifest | None:
    """The manifest that a project keeps in its folder, if it keeps one.

    Raises:
        InvalidValueError: as `read_manifest`.
    """
    path = folder / FILE
    return read_manifest(path) if path.exists() else None


def read_manifest(path: Path) -> Manifest:
    """The manifest of a file.

    Raises:
        InvalidValueError: naming the file and what of it is not as this version writes it.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidValueError(
            "manifest", str(path), f"cannot be read: {error}; {REMEDY}"
        ) from None
    if not isinstance(value, dict) or value.get("version") != VERSION:
        said = value.get("version") if isinstance(value, dict) else None
        has = "has no version" if said is None else f"has version {said!r}"
        raise InvalidValueError("manifest", str(path), f"{has}, this one reads {VERSION}; {REMEDY}")
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InvalidValueError("manifest", str(path), f"is not whole: {why}; {REMEDY}") from None


def planned_of(lake: Lake, manifest: Manifest) -> dict[str, Statement]:
    """What is planned of the computed tables of a lake whose code is still the one that was
    planned, by name.
    """
    planned = manifest.tables
    return {
        table.name: planned[table.name]
        for table in lake.computed
        if table.name in planned and planned[table.name].code == code_digest(table)
    }


WIDER = frozenset(
    {
        ("byte", "short"),
        ("byte", "integer"),
        ("byte", "long"),
        ("short", "integer"),
        ("short", "long"),
        ("integer", "long"),
        ("float", "double"),
        ("integer", "double"),
        ("short", "double"),
        ("byte", "double"),
    }
)
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def fits(before: object, after: object) -> bool:
    """Whether who reads values of one type can read those of another: each value is there as it
    was, and no field is gone.

    A wider number fits, and a decimal that has no fewer digits before the point and none fewer
    behind it; so does a struct with more fields, in any order, at any depth. Whether something
    within may be null does not count. Nothing else fits.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _fits_within(before, after)
    if not (isinstance(before, str) and isinstance(after, str)):
        return before == after
    return before == after or (before, after) in WIDER or _is_wider_decimal(before, after)


def misfit(before: object, after: object | None) -> tuple[tuple[str, ...], object, object | None]:
    """Where two types do not fit: the fields that lead to the innermost ones that do not, as it was
    and as it is, None if it is gone.
    """
    if (
        isinstance(before, Mapping)
        and isinstance(after, Mapping)
        and before.get("type") == after.get("type")
    ):
        match before.get("type"):
            case "struct":
                is_now = _fields(after)
                for name, kind in _fields(before).items():
                    if name not in is_now or not fits(kind, is_now[name]):
                        path, inner_before, inner_after = misfit(kind, is_now.get(name))
                        return (name, *path), inner_before, inner_after
            case "array":
                return misfit(before["elementType"], after["elementType"])
    return (), before, after


def paths_of(name: str, kind: object) -> Iterator[str]:
    """A column and the fields of structs within it, those of the elements of an array too, as paths
    with dots.
    """
    yield name
    while isinstance(kind, Mapping) and kind.get("type") == "array":
        kind = kind["elementType"]
    if isinstance(kind, Mapping) and kind.get("type") == "struct":
        for field, within in _fields(kind).items():
            yield from paths_of(f"{name}.{field}", within)


def said(kind: object) -> str:
    """A type as a person writes it."""
    if isinstance(kind, Mapping):
        match kind.get("type"):
            case "struct":
                return f"struct<{', '.join(one['name'] + ': ' + said(one['type']) for one in kind['fields'])}>"
            case "array":
                return f"array<{said(kind['elementType'])}>"
            case "map":
                return f"map<{said(kind['keyType'])}, {said(kind['valueType'])}>"
    return {"long": "bigint", "integer": "int"}.get(str(kind), str(kind))


def _fits_within(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    if before.get("type") != after.get("type"):
        return False
    match before.get("type"):
        case "struct":
            was, now = _fields(before), _fields(after)
            return all(name in now and fits(kind, now[name]) for name, kind in was.items())
        case "array":
            return fits(before["elementType"], after["elementType"])
        case "map":
            return fits(before["keyType"], after["keyType"]) and fits(
                before["valueType"], after["valueType"]
            )
    return before == after


def _fields(struct: Mapping[str, object]) -> dict[str, object]:
    fields = struct["fields"]
    return {one["name"]: one["type"] for one in fields} if isinstance(fields, list) else {}


def _is_wider_decimal(before: str, after: str) -> bool:
    was, now = DECIMAL.fullmatch(before), DECIMAL.fullmatch(after)
    if was is None or now is None:
        return False
    (precision, scale), (later_precision, later_scale) = (
        map(int, was.groups()),
        map(int, now.groups()),
    )
    return later_scale >= scale and later_precision - later_scale >= precision - scale
