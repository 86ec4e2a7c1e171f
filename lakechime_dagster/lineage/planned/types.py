"""Types of columns, in the JSON of Spark: whether one may stand in for another, and how a person writes one."""

import re
from collections.abc import Iterator, Mapping

WIDER = frozenset({("byte", "short"), ("byte", "integer"), ("byte", "long"), ("short", "integer"), ("short", "long"), ("integer", "long"),
                   ("float", "double"), ("integer", "double"), ("short", "double"), ("byte", "double")})  # fmt: skip
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def fits(before: object, after: object) -> bool:
    """Whether who reads values of one type can read those of another: each value is there as it was, and no field is gone.

    A wider number fits, and a decimal that has no fewer digits before the point and none fewer behind it; so does a struct with more
    fields, in any order, at any depth. Whether something within may be null does not count. Nothing else fits.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _fits_within(before, after)
    if not (isinstance(before, str) and isinstance(after, str)):
        return before == after
    return before == after or (before, after) in WIDER or _is_wider_decimal(before, after)


def misfit(before: object, after: object | None) -> tuple[tuple[str, ...], object, object | None]:
    """Where two types do not fit: the fields that lead to the innermost ones that do not, as it was and as it is, None if it is gone."""
    if isinstance(before, Mapping) and isinstance(after, Mapping) and before.get("type") == after.get("type"):
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
    """A column and the fields of structs within it, those of the elements of an array too, as paths with dots."""
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
            return fits(before["keyType"], after["keyType"]) and fits(before["valueType"], after["valueType"])
    return before == after


def _fields(struct: Mapping[str, object]) -> dict[str, object]:
    fields = struct["fields"]
    return {one["name"]: one["type"] for one in fields} if isinstance(fields, list) else {}


def _is_wider_decimal(before: str, after: str) -> bool:
    was, now = DECIMAL.fullmatch(before), DECIMAL.fullmatch(after)
    if was is None or now is None:
        return False
    (precision, scale), (later_precision, later_scale) = map(int, was.groups()), map(int, now.groups())
    return later_scale >= scale and later_precision - later_scale >= precision - scale
