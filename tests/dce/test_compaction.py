"""Retention folds what nobody needs any more, and partition triggers still see it."""

import pytest
from sqlalchemy import Engine, update

from lakechime_dagster.dce import compaction
from lakechime_dagster.dce.contract import EventQuery
from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import Position, TableUid
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.schema import dce_event
from lakechime_dagster.dce.store import SqlDCEStore
from lakechime_dagster.triggers.retention import expire
from tests.factories import make_event

FAR = 4_000_000_000_000  # a time after every event of a test
ORDERS = "bronze.orders"

pytestmark = pytest.mark.filterwarnings("error::sqlalchemy.exc.SAWarning")


@pytest.fixture
def store(engine: Engine) -> SqlDCEStore:
    return SqlDCEStore(engine)


def test_what_expires_is_folded_into_availability_and_removed(store: SqlDCEStore) -> None:
    data, mark = store.register(
        [
            make_event(partition=["a"], snapshot_id="1", table_uid="u", tags={"run": "7"}),
            make_event(partition=["a"], table_uid="u", tags={"complete": "true", "run": "7"}),
        ]
    ).registered
    store.register([make_event(partition=["b"], snapshot_id="1", table_uid="u")])

    report = expire(store.engine, FAR, needed={}, tag_keys=["complete"])

    assert report.folded == 3
    assert store.fetch(EventQuery()) == []
    (kept,) = store.availability(ORDERS, partition=("a",))
    assert (kept.canonical, kept.table_uid, kept.events) == ('["a"]', TableUid("u"), 2)
    assert (kept.newest, kept.newest_data) == (mark.position, data.position)
    assert dict(kept.tag_positions) == {(("complete", "true"),): mark.position}
    assert (kept.first_ts, kept.last_ts) == (data.event_ts, mark.event_ts)
    assert len(store.availability(ORDERS)) == 2


def test_it_says_which_tags_are_not_kept(store: SqlDCEStore) -> None:
    store.register(
        [make_event(snapshot_id=str(n), tags=tags) for n, tags in enumerate([{"run": "7", "ready": "yes"}, {"complete": "true"}])]
    )
    reports = [expire(store.engine, FAR, needed={}, tag_keys=["complete"], dry_run=dry_run) for dry_run in (True, False)]
    assert [[table.lost_tags for table in report.tables] for report in reports] == [[("ready", "run")], [("ready", "run")]]
    store.register([make_event(snapshot_id="9", tags={"run": "8"})])
    assert expire(store.engine, FAR, needed={}, tag_keys=None).tables[0].lost_tags == ()


def test_events_of_the_time_itself_and_later_stay(store: SqlDCEStore) -> None:
    first, second = store.register([make_event(snapshot_id="1"), make_event(snapshot_id="2")]).registered
    _set_time(store.engine, first.position, 1_000)
    _set_time(store.engine, second.position, 2_000)

    assert expire(store.engine, 2_000, needed={}).folded == 1
    assert [one.event.snapshot_id for one in store.fetch(EventQuery())] == ["2"]


def test_a_later_fold_adds_to_an_earlier_one(store: SqlDCEStore) -> None:
    (first,) = store.register([make_event(partition=["a"], snapshot_id="1", tags={"complete": "no"})]).registered
    expire(store.engine, FAR, needed={}, tag_keys=["complete"])
    (second,) = store.register([make_event(partition=["a"], snapshot_id="2", tags={"complete": "true"})]).registered
    expire(store.engine, FAR, needed={}, tag_keys=["complete"])

    (kept,) = store.availability(ORDERS)
    assert (kept.events, kept.newest, kept.first_ts) == (2, second.position, first.event_ts)
    assert dict(kept.tag_positions) == {(("complete", "no"),): first.position, (("complete", "true"),): second.position}


def test_a_repeat_of_a_folded_event_stays_a_duplicate(store: SqlDCEStore) -> None:
    events = [make_event(partition=["a"], snapshot_id="1", tags={"run": "7"}), make_event(event_key="k")]
    originals = store.register(events).registered
    expire(store.engine, FAR, needed={})

    for event, original in zip(events, originals, strict=True):
        result = store.register([event])
        assert result.registered == ()
        assert [one.position for one in result.duplicates] == [original.position]
    assert store.register(events).registered == ()
    assert store.register([events[0].tagged(make_event().tags)]).registered == ()


def test_a_tag_that_comes_after_folding_amends_the_folded_event_once(store: SqlDCEStore) -> None:
    (original,) = store.register([make_event(partition=["a"], snapshot_id="1", tags={"run": "7"})]).registered
    expire(store.engine, FAR, needed={})
    late = make_event(partition=["a"], snapshot_id="1", tags={"complete": "true"})

    (amendment,) = store.register([late, late]).registered
    assert (amendment.amends, amendment.changes_data) == (original.position, False)
    assert dict(amendment.event.tags) == {"run": "7", "complete": "true"}
    assert store.fetch(EventQuery()) == [amendment]
    assert store.register([late]).duplicates == (amendment,)

    expire(store.engine, FAR, needed={})
    assert [one.position for one in store.register([late]).duplicates] == [original.position]
    (last,) = store.register([make_event(partition=["a"], snapshot_id="1", tags={"more": "1"})]).registered
    assert dict(last.event.tags) == {"run": "7", "complete": "true", "more": "1"}


def test_what_a_live_consumer_needs_stays_per_table(store: SqlDCEStore) -> None:
    at = [one.position for one in store.register([make_event(snapshot_id=str(number)) for number in range(4)]).registered]
    store.register([make_event("bronze.other", snapshot_id="1")])

    report = expire(store.engine, FAR, needed={ORDERS: at[1]})

    assert [one.event.snapshot_id for one in store.fetch(EventQuery())] == ["2", "3"]
    assert (report.folded, report.held_back, report.forced) == (3, 2, ())


def test_an_event_is_folded_only_with_all_its_amendments(store: SqlDCEStore) -> None:
    (first,) = store.register([make_event(snapshot_id="1")]).registered
    (amendment,) = store.register([make_event(snapshot_id="1", tags={"complete": "true"})]).registered
    (other,) = store.register([make_event(snapshot_id="2")]).registered
    _set_time(store.engine, first.position, 1_000)
    _set_time(store.engine, amendment.position, 3_000)
    _set_time(store.engine, other.position, 1_000)

    assert expire(store.engine, 2_000, needed={ORDERS: first.position}).folded == 0
    assert expire(store.engine, 2_000, needed={}).folded == 1
    assert [one.position for one in store.fetch(EventQuery())] == [first.position, amendment.position]
    assert expire(store.engine, 4_000, needed={ORDERS: first.position}).folded == 0
    assert expire(store.engine, 4_000, needed={}, dry_run=True).folded == 2
    assert expire(store.engine, 4_000, needed={}).folded == 2


def test_force_removes_what_is_needed_and_says_so_in_the_same_transaction(store: SqlDCEStore) -> None:
    at = [one.position for one in store.register([make_event(snapshot_id=str(number)) for number in range(4)]).registered]
    told = []

    report = expire(store.engine, FAR, needed=lambda *_: at[1], force=True, when_forced=lambda _, table: told.append(table))

    assert store.fetch(EventQuery()) == []
    assert [(table.table, table.needed, table.through) for table in report.forced] == [(ORDERS, 2, at[3])]
    assert tuple(told) == report.forced


def test_an_error_while_marking_stale_consumers_keeps_the_events(store: SqlDCEStore) -> None:
    (event,) = store.register([make_event(snapshot_id="1")]).registered

    def refuse(*_: object) -> None:
        raise RuntimeError("the ledger is not there")

    with pytest.raises(RuntimeError, match="ledger"):
        expire(store.engine, FAR, needed={ORDERS: Position.ORIGIN}, force=True, when_forced=refuse)

    assert store.fetch(EventQuery()) == [event]
    assert store.availability(ORDERS) == []


def test_a_folded_drop_withdraws_what_was_there_before_it(store: SqlDCEStore) -> None:
    store.register([make_event(partition=[name], snapshot_id="1", tags={"complete": "true"}) for name in "ab"])
    expire(store.engine, FAR, needed={}, tag_keys=["complete"])
    store.register([make_event(partition=[name], snapshot_id="2", operation_type="DELETE") for name in "ab"])
    (back,) = store.register([make_event(partition=["b"], snapshot_id="3", tags={"complete": "again"})]).registered

    expire(store.engine, FAR, needed={}, tag_keys=["complete"])

    (kept,) = store.availability(ORDERS)
    assert kept.canonical == '["b"]'
    assert dict(kept.tag_positions) == {(("complete", "again"),): back.position}


def test_folded_partitions_are_compared_by_levels_declared_later(store: SqlDCEStore) -> None:
    at = [one.position for one in store.register([make_event(partition=[hour], snapshot_id="1") for hour in ("05", 5, "6")]).registered]
    expire(store.engine, FAR, needed={})

    store.declare(ORDERS, PartitionLevels.of({"hour": "int"}))

    assert [(kept.canonical, kept.newest, kept.events) for kept in store.availability(ORDERS)] == [("[5]", at[1], 2), ("[6]", at[2], 1)]
    assert len(store.availability(ORDERS, partition=("05",))) == 1


def test_folding_pages_through_many_events(store: SqlDCEStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "PAGE", 50)
    store.register([make_event(partition=[number % 7], snapshot_id=str(number)) for number in range(120)])

    assert expire(store.engine, FAR, needed={}).folded == 120
    assert sum(kept.events for kept in store.availability(ORDERS)) == 120


def _set_time(engine: Engine, position: Position, event_ts: int) -> None:
    with writing(engine) as connection:
        connection.execute(update(dce_event).where(dce_event.c.seq == position.seq).values(event_ts=event_ts))
