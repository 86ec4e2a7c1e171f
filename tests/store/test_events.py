"""The store in a database: what it says without doing."""

from sqlalchemy import Engine

from lakechime_dagster.dce.contract import EventQuery, Seen
from lakechime_dagster.dce.events import SnapshotId, TableUid
from lakechime_dagster.dce.store import SqlDCEStore
from tests.factories import make_event

ORDERS = "bronze.orders"


def test_what_would_be_registered_is_told_and_nothing_is_kept(engine: Engine) -> None:
    store = SqlDCEStore(engine)
    kept = store.register([make_event(ORDERS, snapshot_id="1")]).registered
    before = store.tables()
    repeat, new = make_event(ORDERS, snapshot_id="1"), make_event("bronze.new", snapshot_id="1")
    would = store.would_register([repeat, new], [Seen(ORDERS, TableUid("u2"), SnapshotId("9"))])
    assert [one.event for one in would.registered] == [new]
    assert [one.position for one in would.duplicates] == [one.position for one in kept]
    assert (store.tables(), store.fetch(EventQuery())) == (before, list(kept))
    assert store.register([new]).registered[0].event == new
