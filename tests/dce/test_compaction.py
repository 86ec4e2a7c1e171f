"""Retention compacts what nobody needs any more."""

import pytest
from sqlalchemy import Engine, update

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import EventQuery, Position
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.schema import dce_event
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.triggers.progress import expire
from tests.factories import make_event

FAR = 4_000_000_000_000  # a time after every event of a test
ORDERS = "bronze.orders"

pytestmark = pytest.mark.filterwarnings("error::sqlalchemy.exc.SAWarning")


@pytest.fixture
def store(engine: Engine) -> DCEStore:
    return DCEStore(engine)


def test_events_of_the_time_itself_and_later_stay(store: DCEStore) -> None:
    first, second = store.register(
        [make_event(snapshot_id="1"), make_event(snapshot_id="2")]
    ).registered
    _set_time(store.engine, first.position, 1_000)
    _set_time(store.engine, second.position, 2_000)

    assert expire(store.engine, 2_000, needed={}).compacted == 1
    assert [one.event.snapshot_id for one in store.fetch(EventQuery())] == ["2"]


def test_a_repeat_of_a_compacted_event_stays_a_duplicate(store: DCEStore) -> None:
    events = [
        make_event(partition=["a"], snapshot_id="1", tags={"run": "7"}),
        make_event(event_key="k"),
    ]
    originals = store.register(events).registered
    expire(store.engine, FAR, needed={})

    for event, original in zip(events, originals, strict=True):
        result = store.register([event])
        assert result.registered == ()
        assert [one.position for one in result.duplicates] == [original.position]
    assert store.register(events).registered == ()
    assert store.register([events[0].tagged(make_event().tags)]).registered == ()


def test_a_tag_that_comes_later_amends_the_compacted_event_once(store: DCEStore) -> None:
    (original,) = store.register(
        [make_event(partition=["a"], snapshot_id="1", tags={"run": "7"})]
    ).registered
    expire(store.engine, FAR, needed={})
    late = make_event(partition=["a"], snapshot_id="1", tags={"complete": "true"})

    (amendment,) = store.register([late, late]).registered
    assert (amendment.amends, amendment.changes_data) == (original.position, False)
    assert dict(amendment.event.tags) == {"run": "7", "complete": "true"}
    assert store.fetch(EventQuery()) == [amendment]
    assert store.register([late]).duplicates == (amendment,)

    expire(store.engine, FAR, needed={})
    assert [one.position for one in store.register([late]).duplicates] == [amendment.position]
    (last,) = store.register(
        [make_event(partition=["a"], snapshot_id="1", tags={"more": "1"})]
    ).registered
    assert dict(last.event.tags) == {"run": "7", "complete": "true", "more": "1"}


@pytest.mark.dialect
def test_an_amendment_of_a_compacted_event_keeps_what_the_producer_sent(store: DCEStore) -> None:
    store.declare(ORDERS, PartitionLevels.of({"hour": "int"}))
    sent = make_event(partition=["05"], snapshot_id="2", prev_snapshot_id="1")
    store.register([sent])
    expire(store.engine, FAR, needed={})

    late = make_event(partition=[5], snapshot_id="2", tags={"complete": "true"})
    (amendment,) = store.register([late]).registered

    assert amendment.event == sent.tagged(late.tags)
    assert store.fetch(EventQuery()) == [amendment]


def test_what_a_live_consumer_needs_stays_per_table(store: DCEStore) -> None:
    at = [
        one.position
        for one in store.register(
            [make_event(snapshot_id=str(number)) for number in range(4)]
        ).registered
    ]
    store.register([make_event("bronze.other", snapshot_id="1")])

    report = expire(store.engine, FAR, needed={ORDERS: at[1]})

    assert [one.event.snapshot_id for one in store.fetch(EventQuery())] == ["2", "3"]
    assert (report.compacted, report.held_back) == (3, 2)


def _set_time(engine: Engine, position: Position, event_ts: int) -> None:
    with writing(engine) as connection:
        connection.execute(
            update(dce_event).where(dce_event.c.seq == position.seq).values(event_ts=event_ts)
        )
