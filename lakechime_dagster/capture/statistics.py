"""What the footer of a Parquet file tells a Delta table of its rows, so that readers can leave the file out.

As Delta's protocol has it ("Per-file Statistics"): the number of rows, and of the first columns how many are null and bounds of
their values. Bounds may be wider than the values, never narrower: what cannot be told so is not told. But for NaN, which footers
pass over and JSON does not have: a file whose fractions may be NaN is not for here.
"""

import math
import re
from collections.abc import Collection
from datetime import date, datetime
from typing import Any

import pyarrow.parquet as pq

from lakechime_dagster.compat import UTC

INDEXED = 32  # columns, leaves of structs counted one by one, as Delta has it where a table says nothing
MAX_TEXT = 32  # characters of a bound
LAST = chr(0x10FFFF)  # behind which no other character comes


LISTED = "delta.dataSkippingStatsColumns"
_NAME = re.compile(r"((?:`(?:[^`]|``)*`|[^,.`]+)(?:\.(?:`(?:[^`]|``)*`|[^,.`]+))*)(?:,|$)")
_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def listed_in(property_value: str) -> frozenset[str]:
    """The columns that a table says are told of, in small letters; dots lead into structs."""
    return frozenset(
        ".".join((quoted or plain).replace("``", "`").strip().lower() for quoted, plain in _PART.findall(name))
        for name in _NAME.findall(property_value)
    )


def statistics_of(footer: pq.FileMetaData, listed: Collection[str] | None = None) -> dict[str, Any]:
    """The statistics of a file as the `stats` of its `add` holds them: `numRecords`, `nullCount`, `minValues`, `maxValues`.

    Lists and maps, whose leaves repeat, have none. Booleans and decimals have no bounds: the first would tell next to nothing,
    the second do not come through JSON whole in every engine. Where the table lists columns, it is told of these alone.
    """
    nulls, least, greatest = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for at in range(footer.num_columns if listed is not None else min(INDEXED, footer.num_columns)):
        leaf = footer.schema.column(at)
        if leaf.max_repetition_level or (listed is not None and not _is_listed(leaf.path, listed)):
            continue
        groups = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
        if any(one is None or not one.has_null_count for one in groups):
            continue
        path = leaf.path.split(".")
        _put(nulls, path, sum(one.null_count for one in groups))
        bounds = [(one.min, one.max) for one in groups if one.has_min_max]
        if bounds and len(bounds) == sum(1 for one in groups if one.num_values):
            _put(least, path, _lower(min(low for low, _ in bounds)))
            _put(greatest, path, _upper(max(high for _, high in bounds)))
    return {"numRecords": footer.num_rows, "nullCount": nulls, "minValues": least, "maxValues": greatest}


def _is_listed(path: str, listed: Collection[str]) -> bool:
    parts = path.lower().split(".")
    return any(".".join(parts[:length]) in listed for length in range(1, len(parts) + 1))


def _put(into: dict[str, Any], path: list[str], value: Any) -> None:
    """A value under the names of the structs around it; None is not put."""
    if value is not None:
        for name in path[:-1]:
            into = into.setdefault(name, {})
        into[path[-1]] = value


def _lower(value: Any) -> Any:
    return value[:MAX_TEXT] if isinstance(value, str) else _told(value)


def _upper(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= MAX_TEXT:
        return _told(value)
    return None if value[MAX_TEXT] == LAST else value[:MAX_TEXT] + LAST


def _told(value: Any) -> Any:
    """A bound as JSON has it; None where it has none. Times are told whole: those cut to milliseconds would be too low above."""
    match value:
        case bool():
            return None
        case float():
            return value if math.isfinite(value) else None
        case int() | str():
            return value
        case datetime():
            text = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return text.isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
        case date():
            return value.isoformat()
        case _:
            return None
