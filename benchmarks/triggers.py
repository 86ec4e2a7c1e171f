"""How long it takes to decide 10,000 subscriptions at once: `python benchmarks/triggers.py [--json]
[--subscriptions 10000]`.

On a PostgreSQL of its own, durable as in production. A quarter of the subscriptions asks for a tag.
Tables are touched as in a real lake: a few are busy, most are not. A delta of 231 events is a
minute of ten million events in a month. A partition trigger has a key for each of 100,000 hours, of
which one is new.
"""

import argparse
import datetime as dt
import random
import statistics
import time

import sqlalchemy as sa
from sqlalchemy import Engine

from benchmarks._lines import Line, at_most, show
from lakechime_dagster.dce.engine import open_engine, reading, slices, upgrade, writing
from lakechime_dagster.dce.events import DataChangeEvent, SnapshotId
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.store import DCEStore, head_within
from lakechime_dagster.sensors.tick import MAX_REQUESTS
from lakechime_dagster.triggers.consumers import Checkpoint, ConsumerState
from lakechime_dagster.triggers.evaluation import Evaluator, Sweep
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.registry import standing_at
from lakechime_dagster.triggers.schedule import every, from_milliseconds, tick
from lakechime_dagster.triggers.schema import lc_consumer, lc_subscription
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionKey,
    PartitionTrigger,
    SnapshotTrigger,
)
from tests.support.postgres import find_binaries, started

TABLES = 20_000
HISTORY = 100_000  # events that were there before
DELTA = 231  # events of a minute
ROUNDS = 9
FEW_KEYS = 1_000
HOURS = PartitionLevels.of({"day": "date", "hour": "int"})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time to decide many subscriptions at once.")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    parser.add_argument(
        "--subscriptions", type=int, default=10_000, help="how many subscriptions are due"
    )
    parser.add_argument("--keys", type=int, default=100_000, help="of a partition trigger")
    options = parser.parse_args()
    with started(find_binaries(), durable=True) as url:
        engine = open_engine(url)
        upgrade(engine)
        lines = [*measured(engine, options.subscriptions), *of_keys(engine, options.keys)]
        engine.dispose()
    show(lines, as_json=options.json)


def measured(engine: Engine, count: int) -> list[Line]:
    """The idle tick, the tick after a minute of events, and the first one of a process."""
    chance = random.Random(7)
    store = DCEStore(engine)
    versions = dict.fromkeys(range(TABLES), 0)
    for _ in range(HISTORY // 5_000):
        store.register(changes(chance, versions, 5_000))
    subscriptions = [declared(chance, number) for number in range(count)]
    keep(engine, subscriptions)
    sweep = Sweep(Evaluator(engine, Ledger(engine, "bench")), subscriptions)
    with writing(engine) as connection:
        connection.execute(sa.text("ANALYZE"))
    first, _ = timed(sweep)
    idle = [timed(sweep)[0] for _ in range(5 * ROUNDS)]
    bounded, whole, fired = [], [], 0
    for _ in range(ROUNDS):
        for spent, most in ((bounded, MAX_REQUESTS), (whole, None)):
            store.register(changes(chance, versions, DELTA))
            milliseconds, fired = timed(sweep, most)
            spent.append(milliseconds)
            consume(engine)
            timed(sweep)
    return [
        at_most(
            f"{count} subscriptions, a tick after a minute of events ({DELTA}): up to "
            f"{MAX_REQUESTS} launches",
            statistics.median(bounded),
            "ms",
            50,
        ),
        at_most(
            f"{count} subscriptions, a minute of events, all {fired} that fire decided at once",
            statistics.median(whole),
            "ms",
        ),
        at_most(f"{count} subscriptions, idle", statistics.median(idle), "ms", 10),
        at_most(f"{count} subscriptions, the first look of a process", first, "ms"),
    ]


def of_keys(engine: Engine, many: int) -> list[Line]:
    """A partition trigger of whose keys all have fired but the newest, against one of few keys."""
    store, evaluator = DCEStore(engine), Evaluator(engine, Ledger(engine, "bench"))
    took, first = dict[int, float](), 0.0
    for count in (FEW_KEYS, many):
        name, now = f"lake.k{count}", from_milliseconds(store.now())
        start = (now - dt.timedelta(hours=count)).strftime("%Y-%m-%dT%H:00")
        condition = PartitionCondition.of(name, {"day": tick(), "hour": tick()}, HOURS)
        keys = PartitionTrigger(condition, every(hours=1, start=start)).keys(now)
        trigger = PartitionTrigger(condition, every(hours=1, start=start))  # which knows no key yet
        subscription = Subscription(name=name, trigger=trigger)
        row = evaluator.activate(subscription)
        store.declare(name, HOURS)
        for chunk in slices(keys, 5_000):
            store.register([of_key(name, key) for key in chunk])
        with writing(engine) as connection:
            checkpoint = Checkpoint(position=head_within(connection))
            fired = [consumer(row.subscription_id, key.text, checkpoint) for key in keys[:-1]]
            connection.execute(sa.insert(lc_consumer), fired)
            connection.execute(sa.text("ANALYZE"))
        spent = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            assert len(evaluator.evaluate(subscription, row).firings) == 1
            spent.append((time.perf_counter() - began) * 1000)
        took[count], first = statistics.median(spent), spent[0]
    return [
        at_most(f"a partition trigger of {many:,} keys, one is new", took[many], "ms"),
        at_most(f"the same against {FEW_KEYS:,} keys", took[many] / took[FEW_KEYS], "x"),
        at_most("the same, first evaluation of a process", first, "ms"),
    ]


def of_key(table: str, key: PartitionKey) -> DataChangeEvent:
    values = dict(key.values)
    partition = (str(values["day"]), str(values["hour"]))
    return DataChangeEvent(table=table, partition=partition, snapshot_id=SnapshotId("1"))


def declared(chance: random.Random, number: int) -> Subscription:
    tags = {"complete": "true"} if number % 4 == 0 else {}
    return Subscription(
        name=f"subscription-{number}",
        trigger=SnapshotTrigger(f"lake.t{busy_table(chance)}", tags=tags),
    )


def busy_table(chance: random.Random) -> int:
    """A table by Zipf's law: the busiest has every tenth event."""
    return min(TABLES - 1, int(TABLES ** chance.random()) - 1)


def changes(chance: random.Random, versions: dict[int, int], count: int) -> list[DataChangeEvent]:
    events = []
    for _ in range(count):
        table = busy_table(chance)
        versions[table] += 1
        tags = {"complete": "true"} if chance.random() < 0.25 else {}
        events.append(
            DataChangeEvent(
                table=f"lake.t{table}",
                snapshot_id=str(versions[table]),  # pyright: ignore[reportArgumentType]
                prev_snapshot_id=str(versions[table] - 1),  # pyright: ignore[reportArgumentType]
                tags=tags,  # pyright: ignore[reportArgumentType]
            )
        )
    return events


def keep(engine: Engine, subscriptions: list[Subscription]) -> None:
    """Subscriptions and their consumers as a ledger keeps them that has consumed everything so
    far.
    """
    with writing(engine) as connection:
        position = head_within(connection)
        checkpoint = Checkpoint(position=position)
        rows = [
            {
                "deployment": "bench",
                "name": subscription.name,
                "description": str(subscription.trigger),
                "tables": list(subscription.pinned),
                "asset_keys": [],
                "cluster": subscription.cluster,
                "tag_keys": sorted(subscription.trigger.tags),
                "is_partitioned": subscription.is_partitioned,
                "activated_ts": 0,
                "start": checkpoint,
            }
            for subscription in subscriptions
        ]
        connection.execute(sa.insert(lc_subscription), rows)
        ids = connection.execute(sa.select(lc_subscription.c.subscription_id)).scalars()
        connection.execute(sa.insert(lc_consumer), [consumer(one, "", checkpoint) for one in ids])


def consumer(subscription_id: int, key: str, checkpoint: Checkpoint) -> dict[str, object]:
    return {
        "subscription_id": subscription_id,
        "key": key,
        "state": ConsumerState.ACTIVE,
        "completed": 1,
        "fired": True,
        "created_ts": 0,
        **standing_at(checkpoint),
    }


def consume(engine: Engine) -> None:
    """What the runs of the fired subscriptions do, all at once."""
    with reading(engine) as connection:
        position = head_within(connection)
    with writing(engine) as connection:
        connection.execute(
            sa.update(lc_consumer).values(**standing_at(Checkpoint(position=position)))
        )


def timed(sweep: Sweep, most: int | None = None) -> tuple[float, int]:
    """Milliseconds of one sweep, and how many subscriptions fire."""
    start = time.perf_counter()
    decisions = sweep.decisions(most)
    spent = (time.perf_counter() - start) * 1000
    return spent, sum(decision.fires for decision in decisions.values())


if __name__ == "__main__":
    main()
