"""What triggers see of a table whose name comes to stand for one of another format."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from lakechime_dagster.dce.events import (
    EventQuery,
    OvertakenError,
    PartitionEvents,
    Seen,
    SnapshotId,
    TableFormat,
    TableSwitchedError,
    TableUid,
)
from lakechime_dagster.dce.migration import (
    COPY_TAG,
    Migration,
    begun,
    changed_since,
    finished,
    name_beside,
    noted,
    switched,
)
from lakechime_dagster.dce.partitions import UNPARTITIONED
from lakechime_dagster.dce.queries import side_of, switched_since
from lakechime_dagster.dce.snapshots import SnapshotRange
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.triggers.consumers import Execution
from lakechime_dagster.triggers.evidence import partition_events
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
)
from tests.support.world import World, a_subscription, one

NAME = "bronze.orders"
HIVE, ICEBERG = TableFormat.HIVE, TableFormat.ICEBERG
READER = a_subscription("silver", NAME, reads=(NAME,))
UIDS = {HIVE: TableUid("h"), ICEBERG: TableUid("i")}


@dataclass
class Table:
    """A table with two sides, of which events are registered as capture does."""

    world: World
    snapshots: int = 0
    names: dict[TableFormat, str] = field(default_factory=lambda: {HIVE: NAME, ICEBERG: NAME})

    def change(self, side: TableFormat, *partitions: str) -> None:
        """A commit on a side."""
        self.snapshots += 1
        for partition in partitions:
            self.world.change(
                self.names[side],
                table_format=side,
                table_uid=UIDS[side],
                partition=[partition],
                snapshot_id=None if side is HIVE else str(self.snapshots),
            )
        seen = Seen(self.names[side], UIDS[side], SnapshotId(f"{self.snapshots}"))
        self.world.store.register([], [seen])

    def migrate(self) -> Migration:
        """Begin, and copy all."""
        migration = begun(self.world.engine, ("", NAME), HIVE, ICEBERG)
        self.names[ICEBERG] = name_beside(NAME, ICEBERG)
        return self.copied(migration, ["first"])

    def copied(self, migration: Migration, partitions: Iterable[str]) -> Migration:
        """Copy partitions to the side beside."""
        self.change(migration.other, *partitions)
        changed = changed_since(self.world.engine, migration)
        through = {side: one.through for side, one in changed.items()}
        uids = {side: one.uid for side, one in changed.items()}
        return noted(
            self.world.engine, migration, copied=through, uids=uids, number=migration.number + 1
        )

    def switch(self, migration: Migration) -> Migration:
        after = switched(self.world.engine, migration)
        self.names = {side: after.name_of(side) for side in UIDS}
        return after

    def read(self, subscription: Subscription = READER) -> tuple[SnapshotRange, PartitionEvents]:
        """What an execution reads that begins now, and what is said of it by partitions."""
        execution = one(self.world.fire(subscription))
        self.world.ledger.complete(execution, None)
        return execution.ranges()[NAME], self._partitions(execution)

    def _partitions(self, execution: Execution) -> PartitionEvents:
        range_ = execution.ranges()[NAME]
        start = switched_since(self.world.engine, ("", NAME), range_)
        assert start is not None
        return partition_events(
            self.world.engine, ("", NAME), range_.table_uid, start, execution.end.position
        )


@pytest.fixture
def table(world: World) -> Table:
    return Table(world)


def test_what_changes_beside_a_table_is_recorded_and_triggers_nothing(
    world: World, table: Table
) -> None:
    table.change(HIVE, "a")
    world.ledger.complete(one(world.fire(READER)), None)
    table.migrate()
    world.change(NAME, table_format=ICEBERG, snapshot_id="7", partition=["b"])  # pushed
    assert not world.decide(READER).fires
    marker = world.change(NAME, tags={"complete": "true"}, partition=["a"])
    assert marker.event.table == NAME, "a marker is of no side"
    beside = world.store.fetch(EventQuery(table=name_beside(NAME, ICEBERG)))
    assert [one.event.partition for one in beside] == [("first",), ("b",)]


def test_what_a_consumer_has_not_read_at_a_switch_it_reads_from_the_new_table(
    world: World, table: Table
) -> None:
    table.change(HIVE, "a")
    migration = table.migrate()
    world.ledger.complete(one(world.fire(READER)), None)
    table.change(HIVE, "b")
    table.switch(table.copied(migration, ["b"]))
    range_, events = table.read()
    assert (range_.start_uid, range_.table_uid, range_.end) == ("h", "i", "4")
    assert set(events.changed) == {'["b"]'}
    table.change(ICEBERG, "c")
    execution = one(world.fire(READER))
    assert (execution.ranges()[NAME].start, execution.ranges()[NAME].end) == ("4", "5")
    assert switched_since(world.engine, ("", NAME), execution.ranges()[NAME]) is None


def test_a_consumer_that_has_read_all_reads_only_what_is_new(world: World, table: Table) -> None:
    table.change(HIVE, "a")
    world.ledger.complete(one(world.fire(READER)), None)
    table.switch(table.migrate())
    assert not world.decide(READER).fires, "a switch changes nothing"
    table.change(ICEBERG, "b")
    table.change(HIVE, "c")  # a late writer of the old table
    range_, events = table.read()
    assert range_.end == "3"
    assert set(events.changed) == {'["b"]'}
    assert not world.decide(READER).fires


def test_a_consumer_goes_on_over_a_switch_and_back(world: World, table: Table) -> None:
    table.change(HIVE, "a")
    world.ledger.complete(one(world.fire(READER)), None)
    table.change(HIVE, "b")
    migration = table.switch(table.copied(table.migrate(), ["b"]))
    table.change(ICEBERG, "c")
    late = a_subscription("late", NAME, reads=(NAME,))
    world.ledger.complete(one(world.fire(late)), None)
    migration = table.switch(table.copied(migration, ["c"]))
    table.change(HIVE, "d")
    range_, events = table.read()
    assert (range_.start_uid, range_.table_uid) == ("h", "h")
    assert set(events.changed) == {'["b"]', '["c"]', '["d"]'}
    assert set(events.before) == {'["a"]'}
    assert set(table.read(late)[1].changed) == {'["d"]'}
    assert side_of(world.engine, ("", NAME)) is HIVE
    assert side_of(world.engine, ("", NAME), UIDS[ICEBERG]) is ICEBERG
    with pytest.raises(LakeChimeError, match="another command has gone on"):
        finished(world.engine, replace(migration, number=99))
    finished(world.engine, migration)


def test_who_reads_a_table_first_after_a_switch_reads_the_new_one(
    world: World, table: Table
) -> None:
    table.change(HIVE, "a")
    table.switch(table.migrate())
    range_ = one(world.fire(READER)).ranges()[NAME]
    assert (range_.start, range_.table_uid, range_.end) == (None, "i", "2")


def test_a_partition_fires_once_on_whichever_side_it_came(world: World, table: Table) -> None:
    days = ["2024-05-01", "2024-05-02", "2024-05-03"]
    trigger = PartitionTrigger(
        [PartitionCondition.of(NAME, {"day": tick()})],
        every(days=1, start=days[0], until="2024-05-04"),
    )
    subscription = a_subscription("daily", trigger=trigger)
    fired: list[str] = []

    def tick_once() -> None:
        for execution in world.fire(subscription):
            fired.append(execution.consumer.key)
            world.ledger.complete(execution, None)

    table.change(HIVE, days[0])
    migration = table.migrate()
    tick_once()
    table.change(HIVE, days[1])
    table.switch(table.copied(migration, [days[1]]))
    table.change(ICEBERG, days[2])
    for _ in range(2):
        tick_once()
    assert sorted(fired) == sorted(set(fired))
    assert len(fired) == 3


def test_a_switch_is_refused_while_a_side_has_changes_that_the_other_has_not(
    world: World, table: Table
) -> None:
    table.change(HIVE, "a")
    migration = begun(world.engine, ("", NAME), HIVE, ICEBERG)
    assert begun(world.engine, ("", NAME), HIVE, ICEBERG) == migration
    with pytest.raises(LakeChimeError, match="its migration to iceberg is open"):
        begun(world.engine, ("", NAME), HIVE, TableFormat.DELTA)
    with pytest.raises(OvertakenError, match="copy again"):
        switched(world.engine, migration)
    migration = table.migrate()
    table.change(ICEBERG, "b")
    assert changed_since(world.engine, migration)[ICEBERG].keys == {'["b"]'}
    with pytest.raises(OvertakenError, match="copy again"):
        switched(world.engine, migration)


def test_a_reader_of_few_commits_takes_all_that_is_before_a_switch(
    world: World, table: Table
) -> None:
    trigger = SnapshotTrigger((NAME,), max_commits=1)
    reader = a_subscription("silver", NAME, reads=(NAME,), trigger=trigger)
    table.change(HIVE, "a")
    world.ledger.complete(one(world.fire(reader)), None)
    migration = table.migrate()
    for partition in ("b", "c", "d"):
        table.change(HIVE, partition)
    table.switch(table.copied(migration, ["b", "c", "d"]))
    assert set(table.read(reader)[1].changed) == {'["b"]', '["c"]', '["d"]'}


def test_who_starts_before_a_switch_reads_what_changed_since(world: World, table: Table) -> None:
    table.change(HIVE, "a")
    migration = table.migrate()
    position = world.store.head()
    table.change(HIVE, "b")
    table.switch(table.copied(migration, ["b"]))
    table.change(ICEBERG, "c")
    trigger = SnapshotTrigger((NAME,), start_from=str(position))
    range_, events = table.read(a_subscription("new", NAME, reads=(NAME,), trigger=trigger))
    assert (range_.start_uid, range_.table_uid) == ("h", "i")
    assert set(events.changed) == {'["b"]', '["c"]'}


def test_an_amendment_of_what_was_read_hides_nothing_at_a_switch(
    world: World, table: Table
) -> None:
    table.change(HIVE, "a")
    migration = table.switch(table.migrate())
    table.change(ICEBERG, "b")
    read = {"table_format": ICEBERG, "table_uid": "i", "snapshot_id": str(table.snapshots)}
    world.ledger.complete(one(world.fire(READER)), None)
    table.change(ICEBERG, "c")
    world.change(NAME, partition=["b"], tags={"complete": "true"}, **read)
    table.switch(table.copied(migration, ["b", "c"]))
    assert '["c"]' in table.read()[1].changed


def test_a_late_push_of_the_old_side_is_recorded_beside_also_when_the_migration_ended(
    world: World, table: Table
) -> None:
    table.change(HIVE, "a")
    migration = table.migrate()
    early = {"table_format": ICEBERG, "table_uid": "i", "snapshot_id": "700", "partition": ["k"]}
    world.change(NAME, **early)
    migration = table.copied(migration, [])
    finished(world.engine, table.switch(migration))
    world.ledger.complete(one(world.fire(READER)), None)
    world.change(NAME, table_format=HIVE, partition=["x"])
    assert world.change(NAME, **early).event.table == name_beside(NAME, ICEBERG)
    assert not world.decide(READER).fires


def test_what_a_copy_wrote_is_known_by_its_tag_and_all_else_is_a_change(
    world: World, table: Table
) -> None:
    table.change(HIVE, "a")
    migration = noted(world.engine, table.migrate(), copying={HIVE: frozenset(['["b"]'])})
    event = {"table_format": ICEBERG, "table_uid": "i", "table": name_beside(NAME, ICEBERG)}
    world.change(**event, snapshot_id="71", partition=["b"], tags={COPY_TAG: migration.copy})
    world.change(**event, snapshot_id="72", partition=["c"])
    world.change(**event, snapshot_id="73", partition=["d"], tags={COPY_TAG: "1/1"})
    changed = changed_since(world.engine, migration)[ICEBERG]
    assert (changed.keys, changed.copied) == ({'["c"]', '["d"]'}, {'["b"]'})


def test_a_table_that_was_replaced_is_copied_whole(world: World, table: Table) -> None:
    table.change(HIVE, "a")
    migration = table.migrate()
    world.store.register([], [Seen(NAME, TableUid("h2"), SnapshotId("9"))])
    assert changed_since(world.engine, migration)[HIVE].keys == {UNPARTITIONED}
    with pytest.raises(OvertakenError, match="copy again"):
        switched(world.engine, migration)


def test_a_capture_that_began_before_a_switch_is_refused(world: World, table: Table) -> None:
    table.change(HIVE, "a")
    late = Seen(NAME, UIDS[HIVE], SnapshotId("9"), table_format=HIVE)
    table.switch(table.migrate())
    with pytest.raises(TableSwitchedError, match="its name stands for iceberg since"):
        world.store.register([], [late])
