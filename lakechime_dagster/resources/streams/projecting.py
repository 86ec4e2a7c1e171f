"""The tables that show what is known of a stream's types: a row for each layout, and one for each variation that is kept.

The store is the truth, and these are made of it: appended to after steps that learnt something, and made anew by command. No value
of an event is in them.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.lake.events import EventGroup, EventStream
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.types.projection import EventProjection
from lakechime_dagster.triggers.grid import from_milliseconds

Row = Mapping[str, Any]
LAYOUTS = {
    "group": "string", "type": "string", "table": "string", "version": "int", "made_at": "timestamp", "made_by": "string",
    "decision": "string", "gained": "array<string>", "columns": "string",
}  # fmt: skip
VARIATIONS = {
    "group": "string", "type": "string", "typed_hash": "string", "names_hash": "string", "shape": "string", "first_src": "string",
    "first_version": "bigint", "first_at": "timestamp",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Projected:
    """How many rows were told of layouts and of variations."""

    layouts: int
    variations: int


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """A table: its columns, and its rows from those of the store with later numbers."""

    name: str
    columns: Mapping[str, str]
    rows_after: Callable[[int], Iterable[Row]]
    row_of: Callable[[Row], Row]


def project(platform: Platform, stream: EventStream, groups: Iterable[EventGroup], *, anew: bool = False) -> Projected:
    """Tell what the groups of a stream have learnt since the last time, or all of it in place of what is there.

    Each row comes in once, whoever dies between: a table's own log says up to which number it holds them.

    Raises:
        LaneConflictError: somebody else was at it at the same time; the next one tells what is left.
        TableUnreadableError: a table cannot be read or written.
    """
    names = tuple(sorted(group.name for group in groups if group.stream.name == stream.name))
    known = EventProjection(platform.store.engine, platform.ledger.deployment, names)
    number = known.number()
    layouts = _Shown(name=stream.schemas.name, columns=LAYOUTS, rows_after=known.layouts, row_of=_layout)
    variations = _Shown(name=stream.variations.name, columns=VARIATIONS, rows_after=known.variations, row_of=_variation)
    told = [_told(platform, one, number, anew=anew) for one in (layouts, variations)]
    return Projected(layouts=told[0], variations=told[1])


def _told(platform: Platform, table: _Shown, number: int, *, anew: bool) -> int:
    """How many rows a table gains, whose commit is registered."""
    from lakechime_dagster.capture.projecting import tell, told_up_to

    log, app_id = platform.log(table.name), f"{platform.ledger.deployment}/{table.name}"
    done = 0 if anew else told_up_to(log, app_id)
    rows = [table.row_of(row) for row in table.rows_after(done)] if done < number else []
    if rows or (anew and log.exists()):
        version = tell(log, table.columns, rows, app_id, number, anew=anew)
        platform.store.register(log.events_of_commit(version))
    return len(rows)


def _layout(row: Row) -> Row:
    table = f"{row['home'] or row['group']}.{row['table_name']}"
    return {
        "group": row["group"], "type": row["type"], "table": table, "version": row["version"],
        "made_at": from_milliseconds(row["made_ts"]), "made_by": row["actor"], "decision": row["decision"], "gained": row["gained"],
        "columns": json.dumps(row["columns"]),
    }  # fmt: skip


def _variation(row: Row) -> Row:
    return {
        "group": row["group"], "type": row["type"], "typed_hash": row["typed_hash"], "names_hash": row["names_hash"],
        "shape": row["shape"], "first_src": row["source"], "first_version": row["position"], "first_at": from_milliseconds(row["first_ts"]),
    }  # fmt: skip
