"""From what is hit to orders: which keys need a window, what each waits for, and what it is not
worth to run.
"""

import datetime as dt
from collections.abc import Sequence

from lakechime_dagster.assets.subscriptions import subscription_of
from lakechime_dagster.lineage.backfill import (
    ConsumerFact,
    RequestPlan,
    SubscriptionFacts,
    Window,
    plan_requests,
    rerun,
)
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.consumers import BackfillRequest, RequestState
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
)

DAY = {"day": "date"}
DAILY = every(days=1, start="2024-05-02", until="2024-05-31")
NOW = dt.datetime(2024, 5, 10, 12, tzinfo=dt.timezone.utc)
raw, calendar = (
    SourceTable("bronze.raw", storage=Storage(partitioned_by=DAY)),
    SourceTable("bronze.calendar", storage=Storage(partitioned_by=DAY)),
)


def keyed(name: str, read: str, *conditions: PartitionCondition) -> LakeTable:
    trigger = PartitionTrigger(conditions, DAILY)
    return sql_table(
        name,
        sql=f"SELECT day FROM {read}",
        keys=["day"],
        refresh="partitions",
        trigger=trigger,
        storage=Storage(partitioned_by=DAY),
    )


clean = sql_table(
    "silver.clean",
    sql="SELECT day FROM bronze.raw",
    keys=["day"],
    trigger=SnapshotTrigger(),
    storage=Storage(partitioned_by=DAY),
)
daily = keyed("gold.daily", "silver.clean", clean.partitions(day=tick("-1d")))
next_day = keyed(
    "gold.next_day",
    "bronze.raw",
    calendar.partitions(day=tick("-1d")),
    raw.partitions(day=tick("-2d")),
)
report = keyed("gold.report", "gold.next_day", next_day.partitions(day=tick("-1d")))
days_back = keyed(
    "gold.days_back", "bronze.raw", raw.partitions(day=[tick(f"-{back}d") for back in range(1, 4)])
)
of_days_back = keyed("gold.of_days_back", "gold.days_back", days_back.partitions(day=tick("-1d")))
copied = sql_table(
    "gold.copied", sql="SELECT day FROM gold.next_day", keys=["day"], trigger=SnapshotTrigger()
)
LAKE = Lake(
    "shop", [raw, calendar, clean, daily, next_day, report, days_back, of_days_back, copied]
)


def planned(
    since: str | None = None,
    until: str | None = None,
    *,
    fired_until: str = "2024-05-08",
    changed: Sequence[str] = ("bronze.raw",),
) -> RequestPlan:
    """What follows from a change of tables on some days, when the keys up to a day have fired."""

    def facts(table: str) -> SubscriptionFacts:
        subscription = subscription_of(LAKE.table(table))  # type: ignore[arg-type]
        if not isinstance(subscription.trigger, PartitionTrigger):
            return SubscriptionFacts(
                subscription=subscription, consumers={"": ConsumerFact(has_run=True)}
            )
        keys, ahead = (
            subscription.trigger.keys(NOW),
            subscription.trigger.keys(NOW + dt.timedelta(days=2)),
        )
        fired = {
            key.text: ConsumerFact(has_run=True)
            for key in keys
            if key.point.date() <= dt.date.fromisoformat(fired_until)
        }
        return SubscriptionFacts(
            subscription=subscription, consumers=fired, keys=keys, upcoming=ahead[len(keys) :]
        )

    found = rerun(LAKE.graph(), (), [ColumnRef(table) for table in changed])
    return plan_requests(LAKE, found, facts, Window(since=since, until=until, column="day"))


def days(plan: RequestPlan, table: str) -> list[str]:
    return [plan.partitions[order.number] for order in plan.requests if order.subscription == table]


def of(orders: Sequence[BackfillRequest], table: str) -> list[BackfillRequest]:
    return [order for order in orders if order.subscription == table]


def test_a_key_whose_partitions_are_not_there_waits_for_what_is_ordered_of_them() -> None:
    plan = planned()
    (ordered,) = of(plan.requests, "silver.clean")
    later = of(plan.later, "gold.daily")
    assert [order.key for order in later] == [
        "day=2024-05-08",
        "day=2024-05-09",
        "day=2024-05-10",
        "day=2024-05-11",
    ]
    assert {(order.waits_for, order.state) for order in later} == {
        ((ordered.number,), RequestState.LATER)
    }
    # those that come in the next days are none of its keys yet
    assert "2 of its keys" in plan.pending["gold.daily"]
    assert len({order.number for order in (*plan.requests, *plan.later)}) == len(
        plan.requests
    ) + len(plan.later)


def test_a_table_that_is_named_waits_for_its_input_that_is_named_too() -> None:
    plan = planned(changed=["silver.clean", "gold.daily"])
    (ordered,) = of(plan.requests, "silver.clean")
    daily = of(plan.requests, "gold.daily")
    assert daily
    assert {order.waits_for for order in daily} == {(ordered.number,)}


def test_a_key_of_which_no_input_is_ordered_waits_for_none() -> None:
    assert of(planned().later, "gold.next_day") == []


def test_nobody_waits_for_the_order_of_a_key_that_may_never_fire() -> None:
    plan = planned()
    later = {order.number for order in plan.later}
    assert not any(later & {*order.waits_for} for order in (*plan.requests, *plan.later))


def test_readers_run_for_the_days_that_their_input_recreates_though_it_reads_others() -> None:
    plan = planned("2024-05-02", "2024-05-03")
    assert days(plan, "gold.next_day") == days(plan, "gold.report") == ["2024-05-03"]


def test_readers_of_keys_that_stand_for_no_partition_run_for_all_days() -> None:
    plan = planned("2024-05-02", "2024-05-03")
    assert len(days(plan, "gold.days_back")) == 3
    assert days(plan, "gold.of_days_back") == days(planned(), "gold.of_days_back")


def test_what_reads_a_table_of_which_no_partition_is_hit_is_spared_with_the_reason() -> None:
    plan = planned("2024-05-20", "2024-05-21")
    assert plan.unaffected["gold.copied"] == "no partition of gold.next_day is affected"
    assert of(plan.requests, "gold.copied") == []
