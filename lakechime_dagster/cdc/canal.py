"""Canal's envelope: flat messages with several rows of one statement each."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakechime_dagster.cdc.change import Change, Operation
from lakechime_dagster.cdc.record import Changes, Control, Reading, Record, Tombstone, as_text, coordinate, message_of, order_of, shown
from lakechime_dagster.cdc.row_messages import Part, RowReader, Rows

OPERATIONS = {"INSERT": Operation.CREATE, "UPDATE": Operation.UPDATE, "DELETE": Operation.DELETE, "TRUNCATE": Operation.TRUNCATE}
_NAME = r"(`[^`]+`|[\w$]+)"
_TRUNCATION = re.compile(rf"\s*(?:/\*.*?\*/\s*)*TRUNCATE\s+(?:TABLE\s+)?(?:{_NAME}\s*\.\s*)?{_NAME}\s*;?\s*", re.IGNORECASE | re.DOTALL)


class CanalReader(RowReader):
    """Reads the messages of Canal of one table's topics."""

    def _read(self, record: Record, is_exact: bool) -> Reading:
        payload = message_of(record, "Canal", is_exact)
        if payload is None:
            return Tombstone(None, coordinate(record))
        operation = Operation.TRUNCATE if is_truncation(payload) else OPERATIONS.get(str(payload.get("type")))
        if payload.get("isDdl") is True and operation is not Operation.TRUNCATE:
            return Control.SCHEMA_CHANGE
        if operation is None:
            known = ", ".join(OPERATIONS)
            raise ValueError(f"type: a message of Canal that is no DDL has one of {known}, not {shown(payload.get('type'))}")
        database, table = (as_text(part, payload.get(part)) for part in ("database", "table"))
        if other := self._only.other(database, table):
            return other
        told = Change(
            source=f"{database}.{table}",
            operation=operation,
            order=order_of(record, operation, ()),
            event_ms=payload["es"] if type(payload.get("es")) is int else None,
        )
        if operation is Operation.TRUNCATE:
            return Changes((told,), self._schemas.rows(told.source, (), ()).ddl)
        data = payload.get("data")
        if not isinstance(data, list) or not data:
            raise ValueError(f"data: a message of Canal that is no DDL has rows there, not {shown(data)}")
        data = list(map(self._spelled, data))
        old = payload.get("old")
        old = list(map(self._spelled, old)) if isinstance(old, list) else old
        names = dict.fromkeys(name for row in data if isinstance(row, dict) for name in row)
        rows = self._schemas.rows(told.source, (), tuple(names))
        return Changes(tuple(_changes(rows, told, data, old)), rows.ddl)


def _changes(rows: Rows, told: Change, data: Sequence[Any], old: Any) -> Iterator[Change]:
    if old is not None and (not isinstance(old, list) or len(old) != len(data)):
        raise ValueError(f"old: it is null, or has a row for each of the {len(data)} of data, not {shown(old)}")
    for index, row in enumerate(data):
        of_row = replace(told, order=told.order._replace(item=2 * index))  # and the next one, where its key changed
        before = Part(f"old[{index}]", None if old is None else old[index])
        yield from rows.changes(of_row, Part(f"data[{index}]", row), before)


def is_truncation(payload: Mapping[str, Any]) -> bool:
    """Whether a message tells a statement that truncates its table, of whatever type it says that it is."""
    found = _TRUNCATION.fullmatch(str(payload.get("sql"))) if payload.get("isDdl") is True else None
    if found is None:
        return False
    database, table = ((name or "").strip("`") for name in found.groups())
    return table == payload.get("table") and database in ("", payload.get("database"))
