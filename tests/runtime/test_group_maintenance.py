"""What is planned for the tables of a group and for its stream's: by the types that the store
knows, and where each of them stands.
"""

from pathlib import Path

import pytest

from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.formats.delta import table_files
from lakechime_dagster.runtime.maintenance import readers
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.silver.maintenance import look, types_behind
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.silver.results import TypeResult
from lakechime_dagster.silver.schema import TypeCheckpoint
from lakechime_dagster.tables.events import event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.maintenance import LOG, Kind, Maintenance, Reader, plan
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, Committed, ConsumerId
from lakechime_dagster.triggers.schedule import DAY_MS
from tests.runtime.test_maintenance import add_rows, complete
from tests.support.event_types import complete as complete_types
from tests.support.event_types import learn
from tests.support.older import make_older
from tests.support.tables import rows, write

STREAM = event_stream("game", source=JsonLines("in"))
SHOP = event_group(
    "shop", STREAM, storage=Storage(maintenance=Maintenance(min_files=2, budget=100_000))
)
LAKE = Lake("ev", [STREAM, SHOP])
EVENTS = STREAM.table.name


@pytest.fixture
def platform(home: Path) -> Platform:
    platform = open_platform()
    for _ in range(4):
        add_rows(platform, EVENTS)
    complete(platform, "shop", 3, STREAM.table)
    return platform


def stands(platform: Platform, name: str, version: int) -> None:
    """A type becomes known that has been read up to a version of the stream's table."""
    learn(
        event_types(platform),
        name=name,
        begin=TypeCheckpoint(uid=str(platform.log(EVENTS).uid), version=version),
    )


def commits(platform: Platform, name: str, executions: int = 3) -> None:
    """So many executions write a type's table."""
    consumer, uid = (
        ConsumerId(platform.ledger.deployment, "shop", name),
        str(platform.log(EVENTS).uid),
    )
    written = [
        CommitMetadata(consumer=consumer, number=number, attempt=1, end=Checkpoint())
        for number in range(1, executions + 1)
    ]
    for commit_metadata in written:
        location = platform.location(f"shop.{name}")
        write(
            Path(location),
            rows((None, 1, 1, "x")),
            user_metadata=commit_metadata.to_text(),
            transaction=(commit_metadata.txn_app_id, commit_metadata.number),
        )
    held = Committed(version=SnapshotId(str(executions - 1)), commit_metadata=written[-1])
    result = TypeResult(
        type=name,
        table=f"shop.{name}",
        start=-1,
        end=3,
        rows=executions,
        written=executions,
        commits=(held,),
    )
    complete_types(event_types(platform), f"e-{name}", result, uid=uid)


def read_by(platform: Platform) -> dict[str, Reader]:
    return {
        one.name: one
        for one in readers(platform, LAKE, STREAM.table, platform.log(EVENTS), types_behind)
    }


def test_types_that_are_behind_their_group_are_readers_of_the_streams_table(
    platform: Platform,
) -> None:
    for name, version in (("buy", 3), ("failed", 1), ("frozen", 1), ("new", -1)):
        stands(platform, name, version)
    time = platform.log(EVENTS).commits(1, 2)[0].timestamp
    behind = Reader(name="2 types of shop, such as failed,", since=time, unread=time)
    assert read_by(platform) == {"shop": Reader(name="shop"), behind.name: behind}


def test_while_a_type_is_behind_for_longer_than_is_kept_its_streams_table_is_left_alone(
    platform: Platform,
) -> None:
    stands(platform, "failed", 1)
    at, policy = list(read_by(platform).values()), Maintenance(min_files=2)
    files = table_files(platform.log(EVENTS))
    assert [action.kind for action in plan(files, at, policy, platform.store.now()).actions] == [
        Kind.COMPACT
    ]
    late = plan(files, at, policy, platform.store.now() + 8 * DAY_MS)
    assert [one.action.kind for one in late.refused] == [Kind.COMPACT]
    assert late.refused[0].why.startswith(
        "1 types of shop, such as failed, has not read the rows since"
    )


def test_the_tables_of_all_types_that_were_written_are_planned_without_a_list_of_them(
    platform: Platform,
) -> None:
    for name in ("buy", "sell", "waiting"):
        stands(platform, name, 3)
    for name in ("buy", "sell"):
        commits(platform, name)
    looked = look(platform, LAKE, SHOP)
    assert {one.plan.table: [action.kind for action in one.plan.actions] for one in looked} == {
        "shop.buy": [Kind.COMPACT],
        "shop.sell": [Kind.COMPACT],
    }
    assert [one.plan.table for one in look(platform, LAKE, SHOP, ["shop.sell"])] == ["shop.sell"]


def test_of_a_table_that_was_last_written_long_ago_the_log_is_kept_before_anything_is_done(
    platform: Platform,
) -> None:
    stands(platform, "buy", 3)
    commits(platform, "buy")
    make_older(Path(platform.location("shop.buy")), days=20)
    (looked,) = look(platform, LAKE, SHOP)
    assert [action.kind for action in looked.plan.actions] == [Kind.PROPERTIES, Kind.COMPACT]
    assert looked.plan.actions[0].properties == {LOG: "interval 51 days"}
