"""Laws of the model, each as a check that the real thing passes and a broken twin of it fails.

A twin breaks exactly what its law says; a check that lets it pass would prove nothing. The twins of
laws 2, 7, 11 and 13 stand with the tests of commit order, of the consumer under every interleaving,
of narrowing and of commits.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine, event
from sqlalchemy.engine.url import make_url
from sqlalchemy.exc import SQLAlchemyError

from lakechime_dagster.assets.tables import complete
from lakechime_dagster.dce.engine import open_engine, reading, shown_url
from lakechime_dagster.dce.events import (
    DataChangeEvent,
    EventQuery,
    Registration,
    Seen,
    SnapshotId,
    TableUid,
)
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.snapshots import SnapshotRange
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import (
    ConsumerConflictError,
    InvalidValueError,
    LakeChimeError,
    without_password,
)
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import run_tags
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.spark.job import Counts, Outcome, TableResult
from lakechime_dagster.spark.ranges import first_version
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.triggers.consumers import Execution
from lakechime_dagster.triggers.ledger import Claim, Ledger
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionKey,
    PartitionTrigger,
    SnapshotTrigger,
)
from tests.factories import make_event
from tests.support.world import World, a_subscription, checkpoint

ORDERS = "bronze.orders"
DAY = PartitionLevels.of({"day": "date"})


@dataclass(frozen=True)
class Law:
    """What must hold of a subject, the real subject, and one that breaks the law."""

    check: Callable[[Engine, Any], None]
    real: Any
    twin: Any


# 1: registration is atomic and idempotent


class WithoutIdentity(DCEStore):
    """Every event is one that it has never seen."""

    def register(self, events: Any, seen: Any = ()) -> Registration:
        return super().register([replace(one, event_key=uuid.uuid4().hex) for one in events], seen)


class OneByOne(DCEStore):
    """Each event of a call is a transaction of its own."""

    def register(self, events: Any, seen: Any = ()) -> Registration:
        done = [super(OneByOne, self).register([one], seen) for one in events]
        return Registration(registered=tuple(one for each in done for one in each.registered))


def idempotent(engine: Engine, make: Callable[[Engine], DCEStore]) -> None:
    for _ in range(2):
        make(engine).register([make_event(snapshot_id="1")])
    assert len(make(engine).fetch(EventQuery())) == 1


def atomic(engine: Engine, make: Callable[[Engine], DCEStore]) -> None:
    store = make(engine)
    store.declare(ORDERS, DAY)
    with pytest.raises(InvalidValueError):
        store.register(
            [
                make_event(partition=["2013-01-01"], snapshot_id="1"),
                make_event(partition=["never"], snapshot_id="1"),
            ]
        )
    assert store.fetch(EventQuery()) == []


# 3: typed levels


class Untyped(DCEStore):
    """Compares levels as they were sent."""

    def declare(self, table: str, levels: PartitionLevels, cluster: str = "") -> None:
        super().declare(table, PartitionLevels.of({}), cluster)


def typed(engine: Engine, make: Callable[[Engine], DCEStore]) -> None:
    store = make(engine)
    store.declare(ORDERS, PartitionLevels.of({"hour": "int"}))
    for hour in (5, "5", "05"):
        store.register([make_event(partition=[hour], snapshot_id="1")])
    assert [one.event.partition for one in store.fetch(EventQuery())] == [(5,)]


# 4: values from outside are validated at construction


def validated(engine: Engine, make: Callable[..., Any]) -> None:
    for wrong in (
        {"table": ""},
        {"table": "a\x00b"},
        {"table": "a", "partition": ["\ud800"]},
        {"table": "a", "prev_snapshot_id": "1"},
    ):
        with pytest.raises(InvalidValueError):
            make(**wrong)


# 5: a claim takes the next execution of the consumer as it was seen; 6: one run at a time; 8: leases


class ClaimsAnyway(Ledger):
    """Claims for the consumer as it is by now, not as the decision saw it."""

    def claim(self, subscription: Any, consumer: Any, claim: Claim) -> Execution:
        return super().claim(subscription, self.consumers(subscription)[consumer.key], claim)


class LetsAnyoneIn(Ledger):
    """A run that comes takes the attempt from the one that is at it."""

    def begin(
        self, execution_id: str, run_id: str, dagster_backfill: str | None = None
    ) -> Execution:
        World(self.engine, self.deployment).end_leases()
        return super().begin(execution_id, run_id, dagster_backfill)


class RenewsForAll(Ledger):
    """Renews whatever attempt asks."""

    def renew(self, execution_id: str, attempt: int, run_id: str) -> bool:
        current = self.execution(execution_id)
        return current is not None and super().renew(
            execution_id, current.attempt, current.run_id or ""
        )


def claimed_once(engine: Engine, make: Callable[..., Ledger]) -> None:
    ledger = make(engine, "test")
    row = ledger.ensure_subscription(a_subscription())
    seen = ledger.ensure_consumer(row, "")
    ledger.complete(ledger.claim(row, seen, Claim(end=checkpoint(1))), None)
    with pytest.raises(ConsumerConflictError):
        ledger.claim(row, seen, Claim(end=checkpoint(1)))


def begun_by_one(engine: Engine, make: Callable[..., Ledger]) -> None:
    ledger = make(engine, "test")
    execution = World(engine).claim(ledger.ensure_subscription(a_subscription()))
    ledger.begin(execution.execution_id, "run-1")
    with pytest.raises(ConsumerConflictError):
        ledger.begin(execution.execution_id, "run-2")


def leased_to_the_newest(engine: Engine, make: Callable[..., Ledger]) -> None:
    ledger = make(engine, "test")
    execution = World(engine).claim(ledger.ensure_subscription(a_subscription()))
    first = ledger.begin(execution.execution_id, "run-1")
    World(engine).end_leases()
    ledger.begin(execution.execution_id, "run-2")
    assert not ledger.renew(execution.execution_id, first.attempt, "run-1")


# 9: pending keys are computed, not remembered by ticks


class OfTheLastTick(PartitionTrigger):
    """Knows the key of the newest grid point alone."""

    def keys(self, now: dt.datetime, at_rest: Set[str] = frozenset()) -> list[PartitionKey]:
        return super().keys(now, at_rest)[-1:]


def every_key_fires_once(engine: Engine, make: type[PartitionTrigger]) -> None:
    world = World(engine)
    grid = every(days=1, start="2013-01-02", until="2013-01-04")
    subscription = Subscription(
        name="daily", trigger=make(PartitionCondition.of(ORDERS, {"day": tick("-1d")}, DAY), grid)
    )
    fired: list[str] = []
    for version, day in enumerate(("2013-01-03", "2013-01-01", "2013-01-02")):
        world.change(version=version, partition=[day])
        fired += [firing.key for firing in world.tick_of_the_sensor(subscription).firings]
    assert sorted(fired) == ["day=2013-01-01", "day=2013-01-02", "day=2013-01-03"]


# 10: tags decide when; what came between is read too


def of_the_newest_match(world: World, subscription: Subscription) -> list[SnapshotRange]:
    return [
        found for execution in world.fire(subscription) for found in execution.ranges().values()
    ]


def of_each_match(world: World, subscription: Subscription) -> list[SnapshotRange]:
    (whole,) = of_the_newest_match(world, subscription)
    matching = world.store.fetch(EventQuery(table=ORDERS, tags=subscription.trigger.tags))
    return [
        replace(whole, start=one.event.prev_snapshot_id, end=one.event.snapshot_id)
        for one in matching
        if one.event.snapshot_id
    ]


def commits_between_are_read(
    engine: Engine, ranges: Callable[[World, Subscription], list[SnapshotRange]]
) -> None:
    world = World(engine)
    subscription = a_subscription(trigger=SnapshotTrigger(ORDERS, tags={"complete": "true"}))
    for version in range(4):
        world.change(version=version, tags={"complete": "true"} if version % 2 else {})
    assert [(one.start, one.end) for one in ranges(world, subscription)] == [(None, "3")]


# 12: a run gets references, never lists


def with_a_list(execution: Execution) -> dict[str, str]:
    return run_tags(execution) | {
        "lakechime/snapshots": ",".join(map(str, range(int(execution.ranges()[ORDERS].end))))
    }


def tags_do_not_grow(engine: Engine, tags: Callable[[Execution], dict[str, str]]) -> None:
    world = World(engine)
    row = world.ledger.ensure_subscription(a_subscription())
    world.ledger.complete(world.claim(row, 1), None)
    consumer = world.ledger.consumers(row)[""]
    sizes = []
    for newest in (1, 10_000):
        execution = world.ledger.claim(
            row, consumer, Claim(end=checkpoint(newest + 1, bronze__orders=newest))
        )
        sizes.append(sum(map(len, tags(execution).values())))
        world.ledger.complete(execution, None)
        consumer = world.ledger.consumers(row)[""]
    assert sizes[0] == sizes[1]


# 14: a range's start is exclusive


def starts_after_what_was_read(engine: Engine, first: Callable[[SnapshotRange], int]) -> None:
    one = SnapshotRange(
        table=ORDERS,
        table_uid=TableUid("u"),
        start=SnapshotId("2"),
        end=SnapshotId("5"),
        start_uid=TableUid("u"),
    )
    assert first(one) == 3


# 15: "captured up to" is stored in the same transaction as the events


Capture = Callable[[DCEStore, list[DataChangeEvent], Seen, Callable[[], None]], None]


def in_one(
    store: DCEStore,
    events: list[DataChangeEvent],
    seen: Seen,
    dies_at_its_last_commit: Callable[[], None],
) -> None:
    dies_at_its_last_commit()
    store.register(events, [seen])


def in_two(
    store: DCEStore,
    events: list[DataChangeEvent],
    seen: Seen,
    dies_at_its_last_commit: Callable[[], None],
) -> None:
    store.register([], [seen])
    dies_at_its_last_commit()
    store.register(events)


def captured_after_a_crash(engine: Engine, capture: Capture) -> None:
    """A process dies while it captures, and a later one captures what "captured up to" leaves."""
    store, changes = (
        DCEStore(engine),
        [make_event(partition=[hour], snapshot_id="1", table_uid="u") for hour in range(2)],
    )
    before, after = (Seen(ORDERS, TableUid("u"), SnapshotId(version)) for version in "01")
    store.register([], [before])

    def die(connection: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture(store, changes, after, lambda: event.listen(engine, "commit", die))
    event.remove(engine, "commit", die)
    later = DCEStore(engine)
    record = later.table(ORDERS)
    assert record is not None
    if record.seen == before.snapshot_id:
        later.register(changes, [after])
    assert len(later.fetch(EventQuery())) == len(changes)


# 16: an empty day is complete too

ONE_DAY = every(days=1, start="2013-01-02", until="2013-01-02")
daily = sql_table(
    "gold.daily",
    sql="SELECT day, count(*) AS n FROM bronze.orders GROUP BY day",
    refresh="partitions",
    trigger=PartitionTrigger(PartitionCondition.of(ORDERS, {"day": tick("-1d")}, DAY), ONE_DAY),
    storage=Storage(partitioned_by={"day": "date"}),
)


def complete_silently(running: RunningExecution, table: Any, result: TableResult) -> None:
    running.platform.complete_without_commit(running.execution, [], "nothing to do")


def an_empty_day_is_complete(
    engine: Engine, complete_empty: Callable[[RunningExecution, Any, TableResult], None]
) -> None:
    world = World(engine)
    platform = Platform(load_settings(), world.store, world.ledger, world.evaluator)
    subscription = Subscription(
        name="gold.daily",
        trigger=daily.trigger,  # pyright: ignore[reportArgumentType]
        target="gold.daily",
        target_levels=DAY,
    )
    world.change(version=0, partition=["2013-01-01"])
    (execution,) = world.fire(subscription)
    complete_empty(
        RunningExecution(platform, subscription, execution),
        daily,
        TableResult(outcome=Outcome.NOTHING),
    )
    downstream = PartitionTrigger(
        PartitionCondition.of("gold.daily", {"day": tick("-1d")}, DAY),
        every(days=1, start="2013-01-02"),
    )
    assert world.decide(Subscription(name="weekly", trigger=downstream)).fires


# 17: rows add up


def not_more_than_returned(counts: Counts) -> bool:
    return (
        counts.returned
        >= counts.changed + counts.unchanged + counts.deduplicated + counts.quarantined
    )


def a_lost_row_is_seen(engine: Engine, is_balanced: Callable[[Counts], bool]) -> None:
    assert is_balanced(
        Counts(
            returned=6, inserted=1, updated=1, deleted=1, unchanged=1, deduplicated=1, quarantined=1
        )
    )
    parts = ("inserted", "updated", "deleted", "unchanged", "deduplicated", "quarantined")
    for lost in parts:
        assert not is_balanced(Counts(returned=6, **{name: 1 for name in parts if name != lost}))


# 18: no driver internals; 19: no secret


def plain_engine(url: str) -> Engine:
    return sa.create_engine(
        make_url(url).set(drivername="postgresql+psycopg"), connect_args={"connect_timeout": 5}
    )


def an_unreachable_store_is_a_sentence(engine: Engine, make: Callable[[str], Engine]) -> None:
    elsewhere_ = make("postgresql://ada@127.0.0.1:1/dce")
    with pytest.raises((LakeChimeError, SQLAlchemyError)) as refused, reading(elsewhere_):
        pass
    assert not [
        internal for internal in ("psycopg", "sqlalche", "\n") if internal in str(refused.value)
    ]


SECRETS = (
    "postgresql://ada:s3cret@db/dce?sslpassword=s3cret",
    "postgresql://ada@db/dce?password=s3cret",
    "postgresql+psycopg://ada:p@s3cret@db/dce",
    "postgresql://ada@lake:p/s3cret?s3cret@db/dce?application_name=x&passfile=s3cret",
)


def shows_no_password(engine: Engine, show: Callable[[str], str]) -> None:
    assert [url for url in SECRETS if "s3cret" in show(url)] == []
    for url in ("sqlite:////var/a:b@c.sqlite", "postgresql://ada@db:5432/dce?application_name=x"):
        assert show(url) == url


def shown_of_engine(url: str) -> str:
    return shown_url(make_url(url))


def as_sqlalchemy_shows(url: str) -> str:
    return make_url(url).render_as_string(hide_password=True)


# 20: a deployment is in the key of every consumer


def of_its_own(engine: Engine, deployment: str) -> Ledger:
    return Ledger(engine, deployment)


def of_all(engine: Engine, deployment: str) -> Ledger:
    return Ledger(engine, "test")


def deployments_are_apart(engine: Engine, make: Callable[[Engine, str], Ledger]) -> None:
    claims = []
    for deployment in ("test", "staging"):
        ledger = make(engine, deployment)
        row = ledger.ensure_subscription(a_subscription())
        try:
            claims.append(
                ledger.claim(row, ledger.ensure_consumer(row, ""), Claim(end=checkpoint(1)))
            )
        except ConsumerConflictError:
            continue
    assert len({str(claim.consumer) for claim in claims}) == 2


LAWS = {
    "1 idempotent": Law(idempotent, DCEStore, WithoutIdentity),
    "1 atomic": Law(atomic, DCEStore, OneByOne),
    "3 typed levels": Law(typed, DCEStore, Untyped),
    "4 validated": Law(validated, DataChangeEvent, SimpleNamespace),
    "5 claims": Law(claimed_once, Ledger, ClaimsAnyway),
    "6 begins": Law(begun_by_one, Ledger, LetsAnyoneIn),
    "8 leases": Law(leased_to_the_newest, Ledger, RenewsForAll),
    "9 keys": Law(every_key_fires_once, PartitionTrigger, OfTheLastTick),
    "10 tags decide when": Law(commits_between_are_read, of_the_newest_match, of_each_match),
    "12 references": Law(tags_do_not_grow, run_tags, with_a_list),
    "14 exclusive start": Law(
        starts_after_what_was_read, first_version, lambda one: int(one.start)
    ),
    "15 capture": Law(captured_after_a_crash, in_one, in_two),
    "16 marks": Law(an_empty_day_is_complete, complete, complete_silently),
    "17 rows add up": Law(
        a_lost_row_is_seen, lambda counts: counts.is_balanced, not_more_than_returned
    ),
    "18 no internals": Law(an_unreachable_store_is_a_sentence, open_engine, plain_engine),
    "19 no secret": Law(shows_no_password, without_password, as_sqlalchemy_shows),
    "19 no secret of an engine": Law(shows_no_password, shown_of_engine, as_sqlalchemy_shows),
    "20 deployments": Law(deployments_are_apart, of_its_own, of_all),
}


@pytest.mark.parametrize("law", LAWS)
def test_the_real_thing_keeps_the_law(sqlite_engine: Engine, law: str) -> None:
    LAWS[law].check(sqlite_engine, LAWS[law].real)


@pytest.mark.parametrize("law", LAWS)
def test_a_broken_twin_is_caught(sqlite_engine: Engine, law: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        LAWS[law].check(sqlite_engine, LAWS[law].twin)
