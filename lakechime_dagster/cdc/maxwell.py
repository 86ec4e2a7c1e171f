"""Maxwell's envelope: a message for each row."""

from typing import Any

from lakechime_dagster.cdc.change import Change, Operation, Position, binlog_position
from lakechime_dagster.cdc.record import Changes, Control, Reading, Record, Tombstone, as_text, coordinate, message_of, order_of, shown
from lakechime_dagster.cdc.row_messages import Part, RowReader

READ = "bootstrap-insert"
OPERATIONS = {"insert": Operation.CREATE, "update": Operation.UPDATE, "delete": Operation.DELETE, READ: Operation.READ}
_OF_SCHEMAS = ("table-", "database-")  # create, alter, drop
_OF_BOOTSTRAPS = ("bootstrap-start", "bootstrap-complete")


class MaxwellReader(RowReader):
    """Reads the messages of Maxwell of one table's topics."""

    def _read(self, record: Record, is_exact: bool) -> Reading:
        payload = message_of(record, "Maxwell", is_exact)
        if payload is None:
            return Tombstone(None, coordinate(record))
        kind = str(payload.get("type"))
        control = control_of(kind)
        if control is not None:
            return control
        if kind not in OPERATIONS:
            known = ", ".join(OPERATIONS)
            raise ValueError(f"type: a message of Maxwell about a row has one of {known}, not {shown(payload.get('type'))}")
        database, table = (as_text(part, payload.get(part)) for part in ("database", "table"))
        if other := self._only.other(database, table):
            return other
        told = Change(
            source=f"{database}.{table}",
            operation=OPERATIONS[kind],
            order=order_of(record, OPERATIONS[kind], _position(payload.get("position"))),
            event_ms=1000 * payload["ts"] if type(payload.get("ts")) is int else None,  # seconds, but for DDL
            snapshot=kind if kind == READ else None,
        )
        data, old = self._spelled(payload.get("data")), self._spelled(payload.get("old"))
        rows = self._schemas.rows(told.source, told.order.position, tuple(data) if isinstance(data, dict) else ())
        return Changes(rows.changes(told, Part("data", data), Part("old", old)), rows.ddl)


def control_of(kind: str) -> Control | None:
    """What a message of a type that tells of no row is; None if it tells of one."""
    if kind in _OF_BOOTSTRAPS:
        return Control.SNAPSHOT
    return Control.SCHEMA_CHANGE if kind.startswith(_OF_SCHEMAS) else None


def _position(found: Any) -> Position:
    """Of the row's event in the binlog; the rows of one event are in the order of their topic. Empty where it is not told."""
    if found is None:
        return ()
    place = binlog_position(str(found))
    if not place:
        raise ValueError(f"position: it is a binlog file and a byte in it, such as mysql-bin.000003:120, not {shown(found)}")
    return place
