"""Which commits were matched before: by table, uid, tags and position, on each database."""

from lakechime_dagster.dce.contract import EventQuery
from lakechime_dagster.dce.events import SnapshotId, TableUid
from lakechime_dagster.dce.store import matched_before
from lakechime_dagster.triggers.retention import expire
from tests.support.world import World

WEB = {"by": "web"}
ORDERS = ("", "bronze.orders")


def test_snapshots_are_found_by_table_uid_tags_and_position(world: World) -> None:
    world.change(version=1, tags=WEB | {"day": "1"}, table_uid="A")
    world.change(version=2, tags=WEB, table_uid="B")
    world.change(version=3, tags={"by": "shop"}, table_uid="A")
    world.change("bronze.returns", version=4, tags=WEB, table_uid="A")
    through = world.change(version=5, table_uid="A").position
    world.change(version=5, tags=WEB, table_uid="A")
    asked = [SnapshotId(str(version)) for version in range(7)]
    assert matched_before(world.engine, ORDERS, TableUid("A"), WEB, asked, through) == {"1"}
    assert matched_before(world.engine, ORDERS, TableUid("A"), WEB, asked, world.store.head()) == {"1", "5"}


def test_a_commit_stays_matched_when_its_events_are_folded(world: World) -> None:
    world.change(version=1, tags=WEB)
    world.change(version=2)
    world.change(version=3, tags=WEB)
    world.change(version=3, tags={"by": "shop"})
    expire(world.engine, world.store.now() + 1_000, needed={})
    assert world.store.fetch(EventQuery()) == []
    asked = [SnapshotId("1"), SnapshotId("2"), SnapshotId("3")]
    assert matched_before(world.engine, ORDERS, None, WEB, asked, world.store.head()) == {"1", "3"}
