"""Messages of a table of orders, each at a position of its database's log."""

from lakechime_dagster.cdc.record import Record
from tests.cdc.factories import BINLOG, envelope_schema, make_payload, make_record


def order(number: int, *, at: int, name: str = "Ann", amount: int = 5, ts_ms: int = 0) -> Record:
    """An order as it was at a position."""
    row = {"id": number, "name": name, "amount": amount}
    payload = make_payload("u", source=at_position(at, ts_ms), after=row)
    return make_record(payload, schema=envelope_schema(), key={"id": number}, offset=at)


def deletion(number: int, *, at: int, ts_ms: int = 0) -> Record:
    payload = make_payload(
        "d", source=at_position(at, ts_ms), before={"id": number, "name": None, "amount": None}
    )
    return make_record(payload, schema=envelope_schema(), key={"id": number}, offset=at)


def truncation(*, at: int, ts_ms: int = 0) -> Record:
    return make_record(
        make_payload("t", source=at_position(at, ts_ms)),
        schema=envelope_schema(),
        key=None,
        offset=at,
    )


def levelled(number: int, *, at: int, level: int | None) -> Record:
    """An order after a column was added with the default 7."""
    level_field = {"field": "level", "type": "int32", "optional": True, "default": 7}
    schema = envelope_schema(
        ("id", "int32", False), ("name", "string", True), ("amount", "int64", True), level_field
    )
    payload = make_payload(
        "u",
        source=at_position(at),
        after={"id": number, "name": "Bob", "amount": 5, "level": level},
    )
    return make_record(payload, schema=schema, key={"id": number}, offset=at)


def snapshot_row(number: int, *, at: int, mark: str, ts_ms: int = 0) -> Record:
    """An order as a snapshot read it; the mark says which of the snapshot's rows it is."""
    payload = make_payload(
        "r",
        source={**at_position(at, ts_ms), "snapshot": mark},
        after={"id": number, "name": "Ann", "amount": 5},
    )
    return make_record(payload, schema=envelope_schema(), key={"id": number}, offset=at)


def at_position(at: int, ts_ms: int = 0) -> dict[str, object]:
    return {**BINLOG, "pos": at, "ts_ms": ts_ms}
