"""The canonical text of values, the same for both databases."""

import struct
from datetime import datetime, time, timezone


def canonical(text: str | None, kind: str, is_zoned: bool) -> str | None:
    """The database's text of a value of this type in the form that captures have it."""
    if text is None or "infinity" in text:
        return text
    match kind.split("(")[0]:
        case "float" | "float4":
            return _shortest_float(float(text))
        case "double" | "float8":
            return repr(float(text)).replace("nan", "NaN").replace("inf", "Infinity")
        case "bool":
            return {"t": "true", "f": "false"}[text]
        case "bytea":
            return text.removeprefix("\\x")
        case "timetz":
            return (
                datetime.combine(datetime(2000, 1, 1), time.fromisoformat(text))
                .astimezone(timezone.utc)
                .timetz()
                .isoformat()
            )
        case "time" | "datetime" | "timestamp" | "timestamptz":
            return _with_full_fraction(text.replace("+00", "")) + ("+00:00" if is_zoned else "")
        case _:
            return text


def _with_full_fraction(text: str) -> str:
    """Six digits of a second, or none if it is a whole one."""
    whole, _, fraction = text.partition(".")
    era = " BC" if text.endswith(" BC") else ""
    digits = fraction.removesuffix(" BC").rstrip("0")
    return f"{whole.removesuffix(' BC')}.{digits:0<6}{era}" if digits else whole


def _shortest_float(value: float) -> str:
    """The shortest number that is the same as this one in 32 bits."""
    if value != value or value in (float("inf"), float("-inf")):
        return repr(value).replace("nan", "NaN").replace("inf", "Infinity")
    wanted = struct.pack("f", value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return repr(
        float(
            next((text for text in texts if struct.pack("f", float(text)) == wanted), repr(value))
        )
    )


def decoded(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
