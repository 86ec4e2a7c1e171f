"""What the DCE store promises: registration, identity, amendments, levels, queries (laws 1, 3,
4).
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from lakechime_dagster.dce.engine import open_engine
from lakechime_dagster.dce.events import (
    DataChangeEvent,
    EventQuery,
    OvertakenError,
    Position,
    RegisteredEvent,
    Seen,
    SnapshotId,
    TableUid,
)
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import InvalidValueError, StoreUnreachableError
from tests.factories import make_event

HOUR = PartitionLevels.of({"flight_date": "date", "hour": "int"})


def all_of(store: DCEStore, **query: object) -> list[RegisteredEvent]:
    return store.fetch(EventQuery(**query))  # type: ignore[arg-type]


def snapshots(events: list[RegisteredEvent] | tuple[RegisteredEvent, ...]) -> list[str | None]:
    return [registered.event.snapshot_id for registered in events]


@pytest.mark.dialect
def test_an_event_comes_back_as_it_was_registered(store: DCEStore) -> None:
    event = make_event(
        "bronze.flights",
        partition=["2013-01-01", 5, {"a": [1.0, None]}, True],
        snapshot_id="7",
        prev_snapshot_id="6",
        snapshot_ts=1_700_000_000_000,
        table_format="ICEBERG",
        operation_type="DELETE",
        tags={"complete": "true", "x": ""},
        cluster="east",
        table_uid="u-1",
        event_key="k",
        added_bytes=5 * 2**40,
    )

    registered = store.register([event]).registered

    assert [one.event for one in registered] == [event]
    assert all_of(store) == list(registered)


@pytest.mark.dialect
def test_the_size_of_a_change_is_kept_however_it_was_registered(store: DCEStore) -> None:
    sizes = (None, 0, 7)
    batch = [make_event(snapshot_id=str(at), added_bytes=size) for at, size in enumerate(sizes)]
    store.register(batch)
    for at, size in enumerate(sizes, len(sizes)):
        store.register([make_event(snapshot_id=str(at), added_bytes=size)])
    (amendment,) = store.register([make_event(snapshot_id="2", tags={"a": "1"})]).registered

    assert amendment.event.added_bytes == 7
    assert [one.event.added_bytes for one in all_of(store)] == [*sizes, *sizes, 7]


@pytest.mark.dialect
@pytest.mark.parametrize(
    "name",
    [
        "a'b\"c;DROP TABLE dce_event",
        "tabelle/ä\\%_",
        "日本.🛩",
        "x" * 512,
        "%(name)s",
        ":name",
        "{}",
    ],
)
def test_hostile_names_and_tags_are_kept_as_they_are(store: DCEStore, name: str) -> None:
    tag = name[:128]
    event = make_event(
        name, partition=[name[:200]], snapshot_id="1", tags={tag: name}, event_key=name
    )

    store.register([event])
    store.register([make_event("other", snapshot_id="1", tags={tag: "no"})])

    assert [
        one.event for one in all_of(store, table=name, partition=(name[:200],), tags={tag: name})
    ] == [event]
    assert [one.event for one in all_of(store, tags={tag: name})] == [event]


@pytest.mark.dialect
def test_an_event_key_reports_repeats_whatever_else_they_say(store: DCEStore) -> None:
    first = store.register([make_event(event_key="k", partition=["a"])]).registered

    result = store.register(
        [make_event(event_key="k", partition=["b"]), make_event("other", event_key="k")]
    )

    assert result.duplicates == first
    assert [one.event.table for one in result.registered] == ["other"]


@pytest.mark.dialect
def test_a_repeat_with_more_tags_amends_at_a_new_position(store: DCEStore) -> None:
    (first,) = store.register(
        [make_event(snapshot_id="1", prev_snapshot_id="0", tags={"a": "1"})]
    ).registered

    (amendment,) = store.register(
        [make_event(snapshot_id="1", tags={"b": "2"}, operation_type="DELETE")]
    ).registered

    assert amendment.position > first.position
    assert amendment.amends == first.position
    assert amendment.event == first.event.tagged(amendment.event.tags)
    assert dict(amendment.event.tags) == {"a": "1", "b": "2"}
    assert not amendment.changes_data
    assert all_of(store) == [first, amendment]


@pytest.mark.dialect
def test_a_repeat_that_says_nothing_new_is_a_duplicate_of_the_newest_amendment(
    store: DCEStore,
) -> None:
    store.register([make_event(snapshot_id="1", tags={"a": "1"})])
    (amendment,) = store.register([make_event(snapshot_id="1", tags={"b": "2"})]).registered

    for tags in ({"a": "1"}, {"b": "2"}, {}, {"a": "1", "b": "2"}):
        assert store.register([make_event(snapshot_id="1", tags=tags)]).duplicates == (amendment,)


@pytest.mark.dialect
def test_an_event_without_uid_takes_the_current_one_of_its_table(store: DCEStore) -> None:
    store.register([], [Seen("bronze.orders", TableUid("u-1"), "0")])  # type: ignore[arg-type]

    (registered,) = store.register([make_event(snapshot_id="1")]).registered

    assert registered.event.table_uid == "u-1"
    assert store.register([make_event(snapshot_id="1", table_uid="u-1")]).duplicates == (
        registered,
    )


@pytest.mark.dialect
def test_an_event_pushed_before_the_uid_was_known_is_not_registered_again(store: DCEStore) -> None:
    (pushed,) = store.register([make_event(snapshot_id="1")]).registered

    result = store.register([make_event(snapshot_id="1", table_uid="u-1")])

    assert result.registered == ()
    assert [one.position for one in result.duplicates] == [pushed.position]
    assert [one.event.table_uid for one in all_of(store)] == ["u-1"]


@pytest.mark.dialect
def test_events_of_a_recreated_table_are_new(store: DCEStore) -> None:
    store.register(
        [make_event(snapshot_id="0", table_uid="old")],
        [Seen("bronze.orders", TableUid("old"), "0")],  # pyright: ignore[reportArgumentType]
    )

    result = store.register(
        [make_event(snapshot_id="0", table_uid="new")],
        [Seen("bronze.orders", TableUid("new"), "0")],  # pyright: ignore[reportArgumentType]
    )
    push = store.register([make_event(snapshot_id="0")])

    assert len(result.registered) == 1
    assert push.duplicates == result.registered


@pytest.mark.dialect
def test_an_event_that_names_the_tables_own_id_means_its_current_generation(
    store: DCEStore,
) -> None:
    store.register(
        [make_event(snapshot_id="1", table_uid="u")],
        [Seen("bronze.orders", TableUid("u"), "1")],  # pyright: ignore[reportArgumentType]
    )
    store.register([], [Seen("bronze.orders", TableUid("u~1"), "0")])  # type: ignore[arg-type]

    (pushed,) = store.register([make_event(snapshot_id="1", table_uid="u")]).registered
    assert (pushed.event.table_uid, pushed.amends) == ("u~1", None)
    assert store.register([make_event(snapshot_id="1", table_uid="u~1")]).duplicates == (pushed,)
    assert store.register(
        [make_event(snapshot_id="1", table_uid="u"), make_event(snapshot_id="1")]
    ).duplicates == (pushed, pushed)


@pytest.mark.dialect
def test_a_listing_changes_with_the_events_that_it_shows_or_not_at_all(store: DCEStore) -> None:
    uid = TableUid("u")

    def mark(seen: str, **listing: str | None) -> Seen:
        return Seen(ORDERS, uid, SnapshotId(seen), began_at=before, listing=listing)

    before: tuple[TableUid | None, SnapshotId | None] = (None, None)
    store.register([], [mark("1", a="1:x", b="1:y")])
    assert store.listing(ORDERS) == {"a": "1:x", "b": "1:y"}
    with pytest.raises(OvertakenError):
        store.register([], [mark("2", a=None)])
    before = (uid, SnapshotId("1"))
    store.would_register([], [mark("2", a=None)])
    store.register([], [mark("2", a=None, b="2:z", c="1:x")])
    assert store.listing(ORDERS) == {"b": "2:z", "c": "1:x"}
    assert store.listing("bronze.other") == store.listing(ORDERS, "east") == {}


@pytest.mark.dialect
def test_a_first_look_that_the_first_push_has_overtaken_registers_nothing(store: DCEStore) -> None:
    store.register([make_event(snapshot_id="0", table_uid="u")])
    mark = Seen("bronze.orders", TableUid("u"), SnapshotId("0"), began_at=(None, None))

    with pytest.raises(
        OvertakenError,
        match=r"bronze\.orders: an event of it was registered since .*; capture again",
    ):
        store.register(
            [make_event(snapshot_id="0", table_uid="u", tags={"baseline": "true"})], [mark]
        )

    record = store.table("bronze.orders")
    assert record is not None
    assert (record.seen, record.events) == (None, 1)


@pytest.mark.dialect
def test_declared_levels_compare_partitions_by_type(store: DCEStore) -> None:
    store.declare("bronze.flights", HOUR)
    (first,) = store.register(
        [make_event("bronze.flights", partition=["2013-01-01", "05"], snapshot_id="1")]
    ).registered

    again = store.register(
        [make_event("bronze.flights", partition=["2013-01-01", 5], snapshot_id="1")]
    )

    assert again.duplicates == (first,)
    assert first.event.partition == ("2013-01-01", "05")
    assert first.canonical == '["2013-01-01",5]'
    for hour in (5, "5", "05", 5.0):
        assert all_of(store, table="bronze.flights", partition=("2013-01-01", hour)) == [first]


@pytest.mark.dialect
def test_undeclared_partitions_are_compared_as_they_were_sent(store: DCEStore) -> None:
    events = [make_event(partition=[hour], snapshot_id="1") for hour in (5, "5", "05", None)]

    assert len(store.register(events).registered) == 4
    assert [
        one.event.partition for one in all_of(store, table="bronze.orders", partition=("5",))
    ] == [("5",)]


@pytest.mark.dialect
def test_levels_declared_later_compare_earlier_events_too(store: DCEStore) -> None:
    (kept,) = store.register([make_event(partition=["05"], snapshot_id="1")]).registered
    store.register([make_event(partition=["not a number"], snapshot_id="1")])

    store.declare("bronze.orders", PartitionLevels.of({"hour": "int"}))

    assert [one.event for one in all_of(store, table="bronze.orders", partition=(5,))] == [
        kept.event
    ]
    assert [
        one.position
        for one in store.register([make_event(partition=[5], snapshot_id="1")]).duplicates
    ] == [kept.position]
    assert len(all_of(store)) == 2


@pytest.mark.dialect
def test_of_two_events_that_become_one_by_declared_levels_the_later_amends_the_first(
    store: DCEStore,
) -> None:
    hours = ["05", 5, "5"]
    positions = [
        one.position
        for one in store.register(
            [make_event(partition=[hour], snapshot_id="1") for hour in hours]
        ).registered
    ]

    store.declare("bronze.orders", PartitionLevels.of({"hour": "int"}))
    assert [one.amends for one in all_of(store)] == [None, positions[0], positions[0]]

    store.declare("bronze.orders", PartitionLevels.of({"hour": "string"}))
    assert [one.amends for one in all_of(store)] == [None, None, positions[1]]
    assert [one.canonical for one in all_of(store)] == ['["05"]', '["5"]', '["5"]']


@pytest.mark.dialect
def test_only_the_first_version_that_carries_the_tags_is_new(store: DCEStore) -> None:
    for tags in ({}, {"a": "1"}, {"b": "1"}, {"c": "1"}):
        store.register([make_event(snapshot_id="1", tags=tags)])
    (mark,) = store.register([make_event(tags={"a": "1"})]).registered
    versions = all_of(store)

    assert all_of(store, tags={"a": "1"}, only_new=True) == [versions[1], mark]
    assert all_of(store, tags={"a": "1", "b": "1"}, only_new=True) == [versions[2]]
    assert all_of(store, tags={"c": "1"}, only_new=True) == [versions[3]]
    assert all_of(store, tags={"a": "2"}, only_new=True) == []


@pytest.mark.dialect
def test_positions_bound_a_fetch_after_exclusive_through_inclusive(store: DCEStore) -> None:
    at = [
        one.position
        for one in store.register(
            [make_event(snapshot_id=str(number)) for number in range(5)]
        ).registered
    ]

    assert snapshots(all_of(store, after=at[1])) == ["2", "3", "4"]
    assert snapshots(all_of(store, through=at[1])) == ["0", "1"]
    assert snapshots(all_of(store, after=at[0], through=at[3], limit=2)) == ["1", "2"]


@pytest.mark.dialect
def test_times_bound_a_fetch_since_inclusive_until_exclusive(store: DCEStore) -> None:
    (registered,) = store.register([make_event(snapshot_id="1")]).registered
    moment = registered.event_ts

    assert len(all_of(store, since=moment)) == 1
    assert all_of(store, since=moment + 1) == []
    assert len(all_of(store, until=moment + 1)) == 1
    assert all_of(store, until=moment) == []
    assert abs(store.now() - moment) < 60_000


@pytest.mark.dialect
def test_the_feed_pages_through_all_tables_once(store: DCEStore) -> None:
    store.register(
        [make_event(f"bronze.t{number % 3}", snapshot_id=str(number)) for number in range(10)]
    )
    checkpoint, read = Position.ORIGIN, []

    for _ in range(5):
        page = store.feed(checkpoint, limit=3)
        read += page.events
        checkpoint = page.through

    assert snapshots(read) == [str(number) for number in range(10)]
    assert store.feed(checkpoint).events == ()
    assert store.feed(checkpoint).through >= checkpoint


@pytest.mark.dialect
def test_nothing_appears_at_or_below_the_head(store: DCEStore) -> None:
    store.register([make_event(snapshot_id="1")])
    head = store.head()

    (later,) = store.register([make_event(snapshot_id="2")]).registered

    assert later.position > head
    assert snapshots(store.feed(head).events) == ["2"]
    assert snapshots(all_of(store, through=head)) == ["1"]


@pytest.mark.dialect
def test_single_and_bulk_registration_agree(store: DCEStore) -> None:
    events = [
        make_event(partition=[number], snapshot_id=str(number), tags={"n": str(number)})
        for number in range(20)
    ]

    for one_event in events:
        store.register([one_event])
    again = store.register(events)

    assert again.registered == ()
    assert [one.event for one in again.duplicates] == events
    for one_event in events:
        assert [one.event for one in store.register([one_event]).duplicates] == [one_event]


ORDERS = "bronze.orders"


def seen(version: int) -> Seen:
    return Seen(ORDERS, TableUid("u"), SnapshotId(str(version)))


def captured(store: DCEStore) -> tuple[str | None, list[str | None]]:
    """Up to where the table was captured, and the snapshots of its events."""
    record = store.table(ORDERS)
    return record.seen if record else None, [
        one.event.snapshot_id for one in store.fetch(EventQuery(table=ORDERS))
    ]


def of_day(day: str, version: int) -> DataChangeEvent:
    return make_event(partition=[day], snapshot_id=str(version), table_uid="u")


@pytest.mark.dialect
def test_events_and_what_was_seen_come_together(store: DCEStore) -> None:
    store.register([of_day("2024-05-01", 1)], [seen(1)])
    assert captured(store) == ("1", ["1"])


@pytest.mark.dialect
def test_a_capture_that_fails_leaves_neither_event_nor_what_was_seen(store: DCEStore) -> None:
    store.declare(ORDERS, PartitionLevels.of({"day": "date"}))
    store.register([of_day("2024-05-01", 1)], [seen(1)])
    with pytest.raises(InvalidValueError, match="day"):
        store.register([of_day("2024-05-02", 2), of_day("never", 2)], [seen(2)])
    assert captured(store) == ("1", ["1"])
    store.register([of_day("2024-05-02", 2)], [seen(2)])
    assert captured(store) == ("2", ["1", "2"])


def test_what_would_be_registered_is_reported_and_nothing_is_kept(engine: Engine) -> None:
    store = DCEStore(engine)
    kept = store.register([make_event(ORDERS, snapshot_id="1")]).registered
    before = store.tables()
    repeat, new = make_event(ORDERS, snapshot_id="1"), make_event("bronze.new", snapshot_id="1")
    would = store.would_register([repeat, new], [Seen(ORDERS, TableUid("u2"), SnapshotId("9"))])
    assert [one.event for one in would.registered] == [new]
    assert [one.position for one in would.duplicates] == [one.position for one in kept]
    assert (store.tables(), store.fetch(EventQuery())) == (before, list(kept))
    assert store.register([new]).registered[0].event == new


@pytest.fixture
def full_engine(tmp_path: Path, upgraded_sqlite: Path) -> Engine:
    """A store whose database may not grow by one page more: SQLite then says what it says of a full
    disk.
    """
    path = tmp_path / "dce.sqlite"
    path.write_bytes(upgraded_sqlite.read_bytes())
    engine = open_engine(f"sqlite:///{path}")
    event.listen(
        engine,
        "connect",
        lambda connection, record: connection.execute("PRAGMA max_page_count = 1"),
    )
    return engine


def test_a_full_disk_is_reported_in_one_sentence_and_keeps_what_is_there(
    full_engine: Engine,
) -> None:
    store = DCEStore(full_engine)
    with pytest.raises(StoreUnreachableError) as refused:
        store.register(
            [make_event(snapshot_id=str(number), tags={"x": "y" * 4_000}) for number in range(400)]
        )
    assert str(refused.value).endswith("has no space left on its disk; free some and try again.")
    assert not [
        internal
        for internal in ("sqlite3", "Traceback", "sqlalchemy", "\n")
        if internal in str(refused.value)
    ]
    assert store.fetch(EventQuery()) == []
    full_engine.dispose()


WRITERS = 6


@pytest.mark.dialect
@pytest.mark.several_connections
def test_the_same_events_from_many_writers_are_registered_once(engine: Engine) -> None:
    events = [make_event(snapshot_id=str(number)) for number in range(15)]

    def register(writer: int) -> int:
        store = DCEStore(engine)
        store.table("bronze.orders")
        new = sum(len(store.register([event]).registered) for event in events)
        return new + len(store.register(events if writer % 2 else events[::-1]).registered)

    with ThreadPoolExecutor(WRITERS) as writers:
        registered = sum(writers.map(register, range(WRITERS)))

    assert registered == len(events)
    assert sorted(
        int(one.event.snapshot_id or -1) for one in DCEStore(engine).fetch(EventQuery())
    ) == list(range(15))


@pytest.mark.dialect
@pytest.mark.several_connections
def test_concurrent_amendments_are_all_merged(engine: Engine) -> None:
    DCEStore(engine).register([make_event(snapshot_id="1")])

    with ThreadPoolExecutor(WRITERS) as writers:
        list(
            writers.map(
                lambda name: DCEStore(engine).register(
                    [make_event(snapshot_id="1", tags={name: "1"})]
                ),
                "abcdef",
            )
        )

    first, *amendments = DCEStore(engine).fetch(EventQuery())
    assert dict(amendments[-1].event.tags) == dict.fromkeys("abcdef", "1")
    assert {one.amends for one in amendments} == {first.position}


@pytest.mark.dialect
@pytest.mark.several_connections
def test_levels_declared_while_others_register_hold_for_every_event(engine: Engine) -> None:
    store = DCEStore(engine)
    store.register([make_event(partition=["00"], snapshot_id="0")])

    def register(writer: int) -> None:
        mine = DCEStore(engine)
        for number in range(10):
            mine.register([make_event(partition=[f"0{number}"], snapshot_id=str(writer))])

    with ThreadPoolExecutor(WRITERS) as writers:
        running = [writers.submit(register, writer) for writer in range(1, WRITERS)]
        DCEStore(engine).declare("bronze.orders", PartitionLevels.of({"hour": "int"}))
        for one in running:
            one.result()

    canonicals = [one.canonical for one in store.fetch(EventQuery())]
    assert len(canonicals) == 1 + 10 * (WRITERS - 1)
    assert all(not canonical.startswith('["') for canonical in canonicals)
