"""Capture is one transaction: events and "captured up to" are there together, or neither is."""

import pytest

from lakechime_dagster.dce.contract import DCEStore, EventQuery, Seen
from lakechime_dagster.dce.events import DataChangeEvent, SnapshotId, TableUid
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import InvalidValueError
from tests.factories import make_event

pytestmark = pytest.mark.dialect

ORDERS = "bronze.orders"


def seen(version: int) -> Seen:
    return Seen(ORDERS, TableUid("u"), SnapshotId(str(version)))


def captured(store: DCEStore) -> tuple[str | None, list[str | None]]:
    """Up to where the table was captured, and the snapshots of its events."""
    record = store.table(ORDERS)
    return record.seen if record else None, [one.event.snapshot_id for one in store.fetch(EventQuery(table=ORDERS))]


def of_day(day: str, version: int) -> DataChangeEvent:
    return make_event(partition=[day], snapshot_id=str(version), table_uid="u")


def test_events_and_what_was_seen_come_together(store: DCEStore) -> None:
    store.register([of_day("2024-05-01", 1)], [seen(1)])
    assert captured(store) == ("1", ["1"])


def test_a_capture_that_fails_leaves_neither_event_nor_what_was_seen(store: DCEStore) -> None:
    store.declare(ORDERS, PartitionLevels.of({"day": "date"}))
    store.register([of_day("2024-05-01", 1)], [seen(1)])
    with pytest.raises(InvalidValueError, match="day"):
        store.register([of_day("2024-05-02", 2), of_day("never", 2)], [seen(2)])
    assert captured(store) == ("1", ["1"])
    store.register([of_day("2024-05-02", 2)], [seen(2)])
    assert captured(store) == ("2", ["1", "2"])
