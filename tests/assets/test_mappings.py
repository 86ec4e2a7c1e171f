"""Dependencies say which partitions of an input a partition needs: those for which its trigger
waits, as Dagster evaluates them.
"""

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.assets.partitions import partitions_of
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lineage.manifest import Manifest
from lakechime_dagster.runtime.names import asset_key
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.schedule import Schedule, every, tick
from lakechime_dagster.triggers.subscription import Subscription, partition_key
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
)
from tests.support.declaring import grouped

pytestmark = pytest.mark.tier2

DAY, HOUR = {"day": "date"}, {"day": "date", "hour": "int"}
# by its own partitions a table's key is named, by the others' it waits
calls = SourceTable("bronze.calls", storage=Storage(partitioned_by=HOUR))
rates, weather = (
    SourceTable("bronze.rates", storage=Storage(partitioned_by=DAY)),
    SourceTable("bronze.weather", storage=Storage(partitioned_by=HOUR)),
)
regions = SourceTable("bronze.regions", storage=Storage(partitioned_by={"region": "string"}))
sources = (calls, rates, weather, regions)


def days(start: str = "2013-03-01", zone: str = "UTC") -> Schedule:
    return every(days=1, start=start, until="2013-03-14", zone=zone)


def hours(zone: str = "UTC") -> Schedule:
    return every(hours=1, start="2013-03-09", until="2013-03-12", zone=zone)


def day(offset: str = "", hour: Any = range(24)) -> PartitionCondition:
    """The partition of a day that a daily table's key stands for, whatever it is made of."""
    return calls.partitions(day=tick(offset), hour=hour)


def hour_of(source: SourceTable, offset: str = "") -> PartitionCondition:
    return source.partitions(day=tick(offset), hour=tick(offset, "%H"))


def reader(
    *conditions: PartitionCondition,
    on: Schedule,
    levels: dict[str, str],
    name: str = "gold.reader",
    **given: Any,
) -> LakeTable:
    """A table that reads whole what it waits for, unless `reads` says what it reads."""
    reads = {
        one.table.replace(".", "_"): source.snapshot()
        for one in conditions
        for source in sources
        if source.name == one.table
    }
    given = {
        "reads": reads,
        "refresh": "full",
        "partitioned_by": levels,
        "trigger": PartitionTrigger(conditions, on),
        **given,
    }
    return spark_table(name, **grouped(**given))(lambda **frames: None)


def mapping(
    table: LakeTable, source: SourceTable, manifest: Manifest | None = None
) -> dg.PartitionMapping:
    """How Dagster has it that a table depends on a source."""
    graph = build_definitions(
        Lake("shop", [*sources, table]), manifest=manifest
    ).resolve_asset_graph()
    return graph.get_partition_mapping(asset_key(table.name), asset_key(source.name))


def deps(table: LakeTable, *others: SourceTable | LakeTable) -> Iterable[dg.AssetDep]:
    """The dependencies of a table's asset as they are declared."""
    (spec,) = [
        spec
        for spec in build_definitions(
            Lake("shop", [*sources, *others, table])
        ).resolve_all_asset_specs()
        if spec.key == asset_key(table.name)
    ]
    return spec.deps


def needed(table: LakeTable, source: SourceTable) -> dict[str, set[str]]:
    """By partition of a table the partitions of a source for which its trigger waits."""
    assert isinstance(table.trigger, PartitionTrigger)
    subscription = Subscription(name=table.name, trigger=table.trigger, target_levels=table.levels)
    found: dict[str, set[str]] = defaultdict(set)
    for key in table.trigger.keys(dt.datetime(2014, 1, 1, tzinfo=dt.timezone.utc)):
        atoms = [json.loads(atom.canonical) for atom in key.atoms if atom.table == source.name]
        found[subscription.dagster_key(key) or ""] |= {
            partition_key(source.levels, tuple(one)) for one in atoms
        }
    return found


def shown(table: LakeTable, source: SourceTable, keys: Iterable[str]) -> dict[str, set[str]]:
    """By partition of a table the partitions of a source that Dagster has for it, and has it for,
    too.
    """
    lake, how = Lake("shop", [*sources, table]), mapping(table, source)
    above, below = partitions_of(lake, source), partitions_of(lake, table)
    assert above is not None
    assert below is not None
    how.validate_partition_mapping(above, below)
    found = {}
    for key in keys:
        result = how.get_upstream_mapped_partitions_result_for_partitions(
            below.subset_with_partition_keys([key]), below, above
        )
        assert not result.required_but_nonexistent_partition_keys, (
            "Dagster would refuse a backfill of it"
        )
        found[key] = set(result.partitions_subset.get_partition_keys())
        for one in sorted(found[key])[:: max(1, len(found[key]) - 1)]:  # the first and the last
            assert key in how.get_downstream_partitions_for_partitions(
                above.subset_with_partition_keys([one]), above, below
            )
    return found


def check_exact(table: LakeTable, source: SourceTable) -> None:
    """A table's partitions depend on what its trigger waits for, as far as Dagster has such
    partitions, and on nothing else.
    """
    wanted, known = needed(table, source), partitions_of(Lake("shop", [*sources, table]), source)
    assert known is not None
    there = set(known.get_partition_keys())
    assert any(several & there for several in wanted.values())
    assert shown(table, source, wanted) == {key: several & there for key, several in wanted.items()}


@given(
    zone=st.sampled_from(["UTC", "America/New_York", "Asia/Kathmandu"]),
    moved=st.sampled_from(["", "-1d", "+1w", "-1mo", "-6h", "-1d -3h"]),
    newest=st.integers(-3, 3),
    several=st.integers(1, 8),
    at=st.integers(0, 23),
    source=st.sampled_from([rates, weather]),
)
def test_a_day_depends_on_the_days_that_its_trigger_waits_for(
    zone: str, moved: str, newest: int, several: int, at: int, source: SourceTable
) -> None:
    wanted = [tick(f"{moved} {newest - back:+d}d") for back in range(several)]
    condition = source.partitions(day=wanted, **({"hour": range(24)} if source is weather else {}))
    check_exact(
        reader(day(moved), condition, on=days(f"2013-03-01T{at:02}:00", zone), levels=DAY), source
    )


@given(
    own=st.integers(-30, 30),
    other=st.integers(-2, 2),
    zone=st.sampled_from(["UTC", "America/New_York"]),
)
def test_an_hour_depends_on_the_day_that_its_trigger_waits_for(
    own: int, other: int, zone: str
) -> None:
    condition = rates.partitions(day=tick(f"{own:+d}h {other:+d}d"))
    check_exact(reader(hour_of(calls, f"{own:+d}h"), condition, on=hours(zone), levels=HOUR), rates)


offsets = st.lists(
    st.sampled_from(["-1d", "+2d", "-1w", "-1mo", "-5h", "+1h", "-90m"]), max_size=2
).map(" ".join)


@given(
    zone=st.sampled_from(["UTC", "America/New_York"]),
    grid=st.sampled_from([{"days": 1}, {"hours": 5}, {"minutes": 90}]),
    own=st.tuples(offsets, offsets),
    other=st.lists(offsets, min_size=1, max_size=2),
    other_hour=st.one_of(offsets, st.just(range(3, 9))),
    levels=st.sampled_from([DAY, HOUR]),
    source=st.sampled_from([rates, weather]),
)
def test_no_partition_that_a_trigger_waits_for_is_left_out(
    zone: str,
    grid: dict[str, int],
    own: tuple[str, str],
    other: list[str],
    other_hour: Any,
    levels: dict[str, str],
    source: SourceTable,
) -> None:
    key = calls.partitions(
        day=tick(own[0]), hour=range(24) if levels is DAY else tick(own[1], "%H")
    )
    hour = (
        {"hour": tick(other_hour, "%H") if isinstance(other_hour, str) else other_hour}
        if source is weather
        else {}
    )
    condition = source.partitions(day=[*map(tick, other)], **hour)
    schedule = every(**grid, start="2013-03-07T06:00", until="2013-03-12", zone=zone)
    table = reader(key, condition, on=schedule, levels=levels)
    wanted, known = needed(table, source), partitions_of(Lake("shop", [*sources, table]), source)
    assert known is not None
    there, keys = set(known.get_partition_keys()), list(wanted)[::7]
    found = shown(table, source, keys)
    assert all(wanted[key] & there <= found[key] for key in keys)


def test_keys_of_hours_that_stand_for_one_day_depend_on_all_that_they_wait_for() -> None:
    table = reader(hour_of(weather, "-1h"), on=hours(), levels=DAY)
    wanted = needed(table, weather)
    # the first one is of the hour before the schedule begins
    assert {len(several) for several in wanted.values()} == {1, 24}
    found = shown(table, weather, wanted)
    assert all(several <= found[key] for key, several in wanted.items())
    assert max(map(len, found.values())) == 24


@pytest.mark.parametrize(
    "specs",
    [
        {"day": "2013-03-05"},
        {"day": tick("-1mo")},
        {"day": tick(format="%Y-%m-01")},
        {"day": tick("-6h")},
    ],
    ids=[
        "a day that stays",
        "the day of another month",
        "the first of the month",
        "a day before the clocks changed",
    ],
)
def test_what_is_not_as_far_from_every_key_is_all_of_the_input(specs: dict[str, Any]) -> None:
    table = reader(
        day(),
        rates.partitions(**specs),
        on=days("2013-03-01T06:00", "America/New_York"),
        levels=DAY,
    )
    assert isinstance(mapping(table, rates), dg.AllPartitionMapping)


def test_changes_that_are_not_waited_for_are_those_of_the_partition_itself() -> None:
    reads = {"calls": calls.changes(), "weather": weather.changes()}
    table = reader(
        day(), on=days(), levels=DAY, reads=reads, refresh="partitions", keys=["day", "id"]
    )
    assert shown(table, weather, ["2013-03-10"]) == {
        "2013-03-10": {f"2013-03-10-{hour:02}" for hour in range(24)}
    }


def test_a_table_that_is_run_as_a_whole_depends_on_all_partitions() -> None:
    reads = {"calls": calls.changes(), "regions": regions.snapshot(on_change="ignore")}
    whole = spark_table("silver.whole", reads=reads, trigger=SnapshotTrigger())(
        lambda **frames: None
    )
    reported = {
        dep.asset_key.path[-1]: dep.partition_mapping
        for dep in deps(whole, reader(day(), on=days(), levels=DAY))
    }
    # as the last has none in Dagster
    assert reported == {"calls": dg.AllPartitionMapping(), "regions": None}


def test_partitions_of_the_same_names_depend_on_their_like_and_others_on_all() -> None:
    levels, month, last_month = {"month": "string"}, tick(format="%Y-%m"), tick("-1mo", "%Y-%m")
    bronze = SourceTable("bronze.months", storage=Storage(partitioned_by=levels))
    silver = reader(
        bronze.partitions(month=month),
        on=days(),
        levels=levels,
        name="silver.months",
        reads={"calls": calls.snapshot()},
    )

    def reported(*conditions: PartitionCondition) -> dg.PartitionMapping | None:
        (dep,) = deps(
            reader(*conditions, on=days(), levels=levels, reads={"months": silver.snapshot()}),
            bronze,
            silver,
        )
        return dep.partition_mapping

    assert reported(silver.partitions(month=month)) == dg.IdentityPartitionMapping()
    # the key is of that month, too
    assert reported(silver.partitions(month=last_month)) == dg.IdentityPartitionMapping()
    assert (
        reported(bronze.partitions(month=month), silver.partitions(month=last_month))
        == dg.AllPartitionMapping()
    )
    assert (
        reported(silver.partitions(month=[month, last_month]), bronze.partitions(month=month))
        == dg.AllPartitionMapping()
    )


def test_a_partition_runs_in_dagster_whose_trigger_waits_for_days_that_dagster_does_not_have() -> (
    None
):
    week = rates.partitions(day=[tick(f"-{back}d") for back in range(1, 8)])
    table = reader(day(), week, on=days(), levels=DAY)
    definitions = build_definitions(Lake("shop", [*sources, table]))
    dg.Definitions.validate_loadable(definitions)
    specs = {spec.key: spec for spec in definitions.resolve_all_asset_specs()}
    asset = dg.asset(name="reader", key_prefix="gold", **_shape(specs[asset_key(table.name)]))(
        lambda: None
    )
    given = [specs[asset_key(source.name)] for source in (calls, rates)]
    assert dg.materialize([asset, *given], selection=[asset], partition_key="2013-03-01").success


def _shape(spec: dg.AssetSpec) -> dict[str, Any]:
    return {"deps": spec.deps, "partitions_def": spec.partitions_def}


def test_a_day_that_is_not_over_is_not_refused_for_hours_to_come() -> None:
    now = dt.datetime(2024, 5, 2, 12, 59, tzinfo=dt.timezone.utc)
    table = reader(hour_of(calls, "-1h"), on=every(hours=1, start="2024-05-01T06:00"), levels=DAY)
    lake, how = Lake("shop", [*sources, table]), mapping(table, calls)
    above, below = partitions_of(lake, calls), partitions_of(lake, table)
    assert above is not None
    assert below is not None
    with dg.partition_loading_context(effective_dt=now):
        today = below.subset_with_partition_keys(["2024-05-02"])
        result = how.get_upstream_mapped_partitions_result_for_partitions(today, below, above, now)
        assert set(result.partitions_subset.get_partition_keys()) == {
            f"2024-05-02-{hour:02}" for hour in range(24)
        }
        assert not result.required_but_nonexistent_partition_keys
