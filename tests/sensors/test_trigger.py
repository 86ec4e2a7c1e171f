"""A trigger on a stock asset and on a stock job, through Dagster's own instance, sensors and
runs.
"""

import datetime as dt
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.dce.events import DataChangeEvent, EventQuery, SnapshotId
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError, LakeChimeError
from lakechime_dagster.runtime.names import EXECUTION_TAG, KEY_TAG, LACKS_TAG
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.resource import LakeChimeResource, declared_subscriptions
from lakechime_dagster.runtime.sources import replay
from lakechime_dagster.sensors.tick import DagsterRuns
from lakechime_dagster.sensors.trigger import deadline_sensor, lakechime_sensor
from lakechime_dagster.triggers.interventions import Interventions
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
    StartFrom,
)
from tests.support.tables import rows, write

SOURCE, TARGET = "bronze.orders", "silver.orders"


@dataclass
class Location:
    """A code location with one sensor, and an instance to run it in."""

    instance: dg.DagsterInstance
    definitions: dg.Definitions
    sensor: str
    job: str
    platform: Platform
    handed: list[list[str | None]] = field(default_factory=list)

    def tick(self, cursor: str | None = None) -> Any:
        with dg.build_sensor_context(
            instance=self.instance, definitions=self.definitions, cursor=cursor
        ) as context:
            return self.definitions.resolve_sensor_def(self.sensor).evaluate_tick(context)

    def launch(self, request: Any) -> dg.ExecuteInProcessResult:
        """Run a request as the daemon would."""
        return self.run(tags=dict(request.tags), partition_key=request.partition_key)

    def run(self, **options: Any) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_job_def(self.job)
        return job.execute_in_process(instance=self.instance, raise_on_error=False, **options)

    def change(self, *versions: int, **fields: Any) -> None:
        events = [
            DataChangeEvent(table=SOURCE, snapshot_id=SnapshotId(str(version)), **fields)
            for version in versions
        ]
        self.platform.store.register(events)


@dataclass
class Body:
    """What the asset or op does; tests change it."""

    fails: bool = False
    commits: bool = False
    handed: list[list[str | None]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    file: str | None = None

    def __call__(self, running: Any) -> None:
        self.handed.append([event.event.snapshot_id for event in running.events])
        self.env = running.env()
        self.file = (
            Path(self.env["LAKECHIME_DCES_FILE"]).read_text()
            if "LAKECHIME_DCES_FILE" in self.env
            else None
        )
        if self.commits:
            options = running.write_options(TARGET)
            location = running.platform.location(TARGET)
            Path(location).mkdir(parents=True, exist_ok=True)
            transaction = (options["txnAppId"], int(options["txnVersion"]))
            write(
                location,
                rows((None, None, 1, "a")),
                transaction=transaction,
                user_metadata=options["userMetadata"],
            )
        if self.fails:
            raise RuntimeError("boom")


@pytest.fixture
def body() -> Body:
    return Body()


@contextmanager
def opened(
    tmp_path: Path, sensor: dg.SensorDefinition, job: str, **definitions: Any
) -> Iterator[Location]:
    defs = dg.Definitions(
        sensors=[sensor], resources={"lakechime": LakeChimeResource()}, **definitions
    )
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Location(instance, defs, sensor.name, job, open_platform())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> None:
    for name in [name for name in os.environ if name.startswith("LAKECHIME_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKECHIME_HOME", str(tmp_path))
    (tmp_path / "dce.sqlite").write_bytes(upgraded_sqlite.read_bytes())


@pytest.fixture
def asset(tmp_path: Path, body: Body) -> Iterator[Location]:
    """A stock asset behind a sensor."""

    @dg.asset
    def features(context: dg.AssetExecutionContext, lakechime: LakeChimeResource) -> None:
        with lakechime.execution(context) as running:
            body(running)

    sensor = lakechime_sensor("features", SnapshotTrigger([SOURCE]), target=features)
    job = dg.define_asset_job("features_job", [features])
    with opened(tmp_path, sensor, "features_job", assets=[features], jobs=[job]) as location:
        yield location


@pytest.fixture
def writer(tmp_path: Path, body: Body) -> Iterator[Location]:
    """A stock job behind a sensor, that writes a Delta table."""

    @dg.op
    def load(context: dg.OpExecutionContext, lakechime: LakeChimeResource) -> None:
        with lakechime.execution(context) as running:
            body(running)

    @dg.job
    def nightly() -> None:
        load()

    body.commits = True
    sensor = lakechime_sensor("nightly", SnapshotTrigger([SOURCE]), job=nightly, writes=TARGET)
    with opened(tmp_path, sensor, "nightly", jobs=[nightly]) as location:
        yield location


def only(requests: Any) -> Any:
    (request,) = requests
    return request


def message(result: dg.ExecuteInProcessResult) -> str:
    """Why a run failed, with all causes."""
    (failure,) = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    return str(failure.event_specific_data.error)  # type: ignore[union-attr]


def test_an_asset_is_launched_with_exactly_the_events_of_its_execution(
    asset: Location, body: Body
) -> None:
    assert asset.tick().skip_message == "nothing new in bronze.orders"
    asset.change(1, 2)
    assert asset.launch(only(asset.tick().run_requests)).success
    asset.change(3)
    asset.tick()
    assert asset.launch(only(asset.tick().run_requests)).success
    assert body.handed == [["1", "2"], ["3"]]


def test_a_tick_that_has_nothing_to_ask_of_dagster_does_not_open_its_instance(
    asset: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        dg.SensorEvaluationContext, "instance", property(lambda context: pytest.fail("was opened"))
    )
    assert asset.tick().skip_message == "nothing new in bronze.orders"


def test_a_reexecution_of_a_completed_execution_ends_with_the_command_that_replays(
    asset: Location, body: Body
) -> None:
    asset.change(1)
    request = only(asset.tick().run_requests)
    assert asset.launch(request).success
    asset.tick()
    again = asset.launch(request)
    assert not again.success
    assert (
        "execution 1 of features is completed; `lakechime trigger seek features` replays"
        in message(again)
    )
    assert body.handed == [["1"]]


def test_a_replay_hands_a_run_the_events_of_its_range_beside_the_live_consumer(
    asset: Location, body: Body
) -> None:
    ledger, by = asset.platform.ledger, By(who="ada", reason="a new model")
    asset.change(1, 2)
    assert asset.launch(only(asset.tick().run_requests)).success
    asset.change(3)
    subscription = declared_subscriptions()["features"]
    row = asset.platform.evaluator.activate(subscription)
    first, second, _ = asset.platform.store.fetch(EventQuery(table=SOURCE))
    points = StartFrom(str(first.position)), StartFrom(str(second.position))
    imagined, events = replay(asset.platform, subscription, *points, by, dry_run=True)
    assert (imagined.execution_id, events, len(ledger.open_executions(row))) == ("", 1, 1)
    execution, _ = replay(asset.platform, subscription, *points, by)
    fails = asset.tick().run_requests
    assert [one.tags[EXECUTION_TAG] == execution.execution_id for one in fails] == [True, False]
    body.fails = True
    assert not asset.launch(fails[0]).success
    body.fails = False
    assert asset.launch(fails[1]).success
    asset.change(4)  # which is beyond the end of the replay, also of its next attempt
    assert asset.launch(only(asset.tick().run_requests)).success
    Interventions(ledger).retry(execution, by)
    assert asset.launch(only(asset.tick().run_requests)).success
    asset.tick()
    assert body.handed == [["1", "2"], ["2"], ["3"], ["4"], ["2"]]
    assert list(ledger.consumers(row)) == [""]
    done = ledger.executions(subscription="features")
    assert sorted((one.cause.value, one.number) for one in done) == [
        ("replay", 1),
        *(("trigger", number) for number in (1, 2, 3)),
    ]


@pytest.mark.parametrize("kind", ["writer", "partitioned", "empty"])
def test_a_replay_that_could_do_harm_or_nothing_is_refused(
    asset: Location, body: Body, kind: str
) -> None:
    asset.change(1)
    subscription = declared_subscriptions()["features"]
    refused = {
        "writer": (replace(subscription, target=TARGET), "writes silver.orders"),
        "partitioned": (replace(subscription, trigger=lately(SOURCE)), "is a partition trigger"),
        "empty": (subscription, r"has no event from now \(0-1\) to now \(0-1\)"),
    }
    now = StartFrom("now" if kind == "empty" else "beginning")
    wrong, why = refused[kind]
    with pytest.raises(LakeChimeError, match=why):
        replay(asset.platform, wrong, now, StartFrom("now"), By(who="ada", reason="why"))
    assert asset.platform.ledger.executions() == []


def test_a_manual_run_claims_what_waits(asset: Location, body: Body) -> None:
    asset.change(1)
    assert asset.run().success
    assert body.handed == [["1"]]
    assert asset.platform.ledger.executions(subscription="features")[0].cause == "manual"
    asset.tick()
    assert asset.tick().run_requests == []


def test_a_manual_run_adopts_the_execution_whose_run_was_not_launched_yet(
    asset: Location, body: Body
) -> None:
    asset.change(1)
    waiting = only(asset.tick().run_requests)
    assert asset.run().success
    assert not asset.launch(waiting).success
    assert body.handed == [["1"]]


def test_the_commit_completes_a_job_that_writes_a_table_and_its_event_is_registered(
    writer: Location, body: Body
) -> None:
    writer.change(1)
    assert writer.launch(only(writer.tick().run_requests)).success
    (execution,) = writer.platform.ledger.executions(subscription="nightly")
    assert (execution.state, execution.version) == ("COMPLETED", "0")
    record = writer.platform.store.table(TARGET)
    assert record is not None
    assert record.events == 1


def test_a_reexecution_after_a_commit_that_nobody_completed_completes_and_ends(
    writer: Location, body: Body
) -> None:
    body.fails = True
    writer.change(1)
    request = only(writer.tick().run_requests)
    assert not writer.launch(request).success
    again = writer.launch(request)
    assert (
        "execution 1 of nightly was committed by an earlier attempt; it is completed now"
        in message(again)
    )
    assert body.handed == [["1"]]


def test_only_the_declared_table_may_be_written_in_an_execution(
    asset: Location, body: Body
) -> None:
    body.commits = True
    asset.change(1)
    assert "subscription features writes no table, not silver.orders" in message(
        asset.launch(only(asset.tick().run_requests))
    )


def test_many_events_are_handed_to_child_processes_in_a_file_that_goes_with_the_execution(
    asset: Location, body: Body
) -> None:
    asset.change(*range(400))
    asset.launch(only(asset.tick().run_requests))
    assert "LAKECHIME_DCES" not in body.env
    assert body.file is not None
    assert len(json.loads(body.file)) == 400
    assert not Path(body.env["LAKECHIME_DCES_FILE"]).exists()


def test_a_partitioned_asset_runs_the_partition_of_its_key(tmp_path: Path) -> None:
    seen: list[str] = []

    @dg.asset(partitions_def=dg.DailyPartitionsDefinition("2013-01-02", end_date="2013-01-05"))
    def daily(context: dg.AssetExecutionContext, lakechime: LakeChimeResource) -> None:
        with lakechime.execution(context):
            seen.append(context.partition_key)

    condition = PartitionCondition.of(
        SOURCE, {"day": tick("-1d")}, PartitionLevels.of({"day": "date"})
    )
    trigger = PartitionTrigger(condition, every(days=1, start="2013-01-02", until="2013-01-04"))
    sensor = lakechime_sensor("daily", trigger, target=daily)
    job = dg.define_asset_job("daily_job", [daily])
    with opened(tmp_path, sensor, "daily_job", assets=[daily], jobs=[job]) as location:
        location.change(1, partition=["2013-01-01"])
        assert (
            "1 keys are no partitions of the asset in Dagster, such as 2013-01-01"
            in location.tick().skip_message
        )
        location.change(2, partition=["2013-01-02"])
        request = only(location.tick().run_requests)
        assert request.partition_key == "2013-01-02"
        assert location.launch(request).success
    assert seen == ["2013-01-02"]


DAILY = PartitionTrigger(
    PartitionCondition.of(SOURCE, {"day": tick("-1d")}, PartitionLevels.of({"day": "date"})),
    every(days=1, start="2013-01-02", until="2013-01-02"),
)
DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-05")


@dg.asset(partitions_def=DAYS)
def by_day(context: dg.AssetExecutionContext, lakechime: LakeChimeResource) -> None:
    with lakechime.execution(context):
        context.log.info(context.partition_key)


@pytest.mark.parametrize(
    "launched", [{"target": by_day.key}, {"job": "by_day_job"}], ids=["asset", "job"]
)
def test_what_is_given_by_name_runs_the_partition_of_its_key(
    tmp_path: Path, launched: dict[str, Any]
) -> None:
    sensor = lakechime_sensor("by_day", DAILY, partitioned=True, **launched)
    with opened(
        tmp_path,
        sensor,
        "by_day_job",
        assets=[by_day],
        jobs=[dg.define_asset_job("by_day_job", [by_day])],
    ) as location:
        location.change(1, partition=["2013-01-01"])
        request = only(location.tick().run_requests)
        assert request.partition_key == "2013-01-01"
        assert request.asset_selection == ([by_day.key] if "target" in launched else None)
        assert location.launch(request).success


@dg.asset
def whole() -> None: ...


@pytest.mark.parametrize(
    "launched",
    [{"target": by_day.key}, {"job": "whole_job", "partitioned": True}],
    ids=["asset", "job"],
)
def test_what_is_given_by_name_must_say_whether_it_is_partitioned(
    tmp_path: Path, launched: dict[str, Any]
) -> None:
    sensor = lakechime_sensor("by_day", DAILY, **launched)
    with opened(
        tmp_path,
        sensor,
        "whole_job",
        assets=[by_day, whole],
        jobs=[dg.define_asset_job("whole_job", [whole])],
    ) as location:
        location.change(1, partition=["2013-01-01"])
        ticked = location.tick()
        assert ticked.run_requests == []
        assert "by_day, partitioned: " in ticked.skip_message
        assert location.platform.ledger.executions() == []


@dg.job
def loop() -> None: ...


def lately(table: str) -> PartitionTrigger:
    """A trigger by partitions that fires again for what comes late."""
    return PartitionTrigger(
        PartitionCondition.of(table, {"day": tick("-1d")}),
        every(days=1, start="2013-01-02"),
        late="refire",
    )


def test_a_trigger_that_its_own_commits_would_fire_for_ever_is_refused() -> None:
    lakechime_sensor(
        "of days that wake later ones", lately("ring.later"), job=loop, writes="ring.later"
    )
    with pytest.raises(
        DeclarationError,
        match=(
            "loop, trigger, writes: would fire for ever: loop ← loop, each by the commits of the "
            "next"
        ),
    ):
        lakechime_sensor("loop", SnapshotTrigger(["ring.x"]), job=loop, writes="ring.x")
    lakechime_sensor("ring a", SnapshotTrigger(["ring.x"]), job=loop, writes="ring.y")
    lakechime_sensor("ring b", lately("ring.y"), job=loop, writes="ring.z")
    with pytest.raises(
        DeclarationError,
        match="ring c, trigger, writes: would fire for ever: ring c ← ring b ← ring a ← ring c",
    ):
        lakechime_sensor("ring c", SnapshotTrigger(["ring.z"]), job=loop, writes="ring.x")


def test_a_dead_run_is_ended_in_dagster(asset: Location) -> None:
    job = asset.definitions.resolve_job_def("features_job")
    run = asset.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    runs = DagsterRuns(lambda: asset.instance)
    runs.report_lost(run.run_id, "gave no sign of life")
    ended = asset.instance.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE
    runs.report_lost(run.run_id, "again")


@pytest.mark.parametrize(
    "trigger", [SnapshotTrigger([SOURCE]), DAILY], ids=["snapshots", "partitions"]
)
def test_a_trigger_waits_for_the_tables_of_its_deployments_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trigger: PartitionTrigger | SnapshotTrigger
) -> None:
    monkeypatch.setenv("LAKECHIME_CLUSTER", "eu")

    @dg.job
    def nightly() -> None:
        pass

    sensor = lakechime_sensor("nightly", trigger, job=nightly)
    with opened(tmp_path, sensor, "nightly", jobs=[nightly]) as location:
        location.change(1, partition=("2013-01-01",))
        assert location.tick().run_requests == []
        location.change(1, partition=("2013-01-01",), cluster="eu")
        assert len(location.tick().run_requests) == 1


def test_the_run_of_an_attempt_is_found_by_its_tags_until_it_begins(asset: Location) -> None:
    asset.change(1)
    request = only(asset.tick().run_requests)
    execution = asset.platform.ledger.execution(request.tags[EXECUTION_TAG])
    assert execution is not None
    assert DagsterRuns(lambda: asset.instance).of_attempt(execution) is None
    job = asset.definitions.resolve_job_def("features_job")
    run = asset.instance.create_run_for_job(
        job, tags=dict(request.tags), status=dg.DagsterRunStatus.STARTED
    )
    found = DagsterRuns(lambda: asset.instance).of_attempt(execution)
    assert found is not None
    assert (found.run_id, found.status) == (run.run_id, dg.DagsterRunStatus.STARTED)
    asset.platform.ledger.begin(execution.execution_id, "elsewhere")
    begun = asset.platform.ledger.execution(execution.execution_id)
    assert begun is not None
    assert DagsterRuns(lambda: asset.instance).of_attempt(begun) == found


def test_a_job_is_launched_once_for_each_key_that_passed_its_deadline(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []

    @dg.op
    def note(context: dg.OpExecutionContext) -> None:
        seen.append(dict(context.run.tags))

    @dg.job
    def notify() -> None:
        note()

    trigger = PartitionTrigger(
        PartitionCondition.of(SOURCE, {"day": tick("-1d")}),
        every(days=1, start="2013-01-02", until="2013-01-04"),
        deadline=dt.timedelta(),
    )
    daily = lakechime_sensor("daily", trigger, job=notify)
    sensor = deadline_sensor("daily", notify)
    with opened(tmp_path, sensor, "notify", jobs=[notify]) as location:
        assert location.tick().run_requests == []
        row = location.platform.evaluator.activate(declared_subscriptions()["daily"])
        while location.platform.store.now() <= row.activated_ts:
            pass
        location.change(1, partition=("2013-01-02",))
        found = location.tick()
        for request in found.run_requests:
            assert location.launch(request).success
        again = location.tick(found.cursor)
    assert daily.name == "daily"
    assert [tags[KEY_TAG] for tags in seen] == ["day=2013-01-01", "day=2013-01-03"]
    assert SOURCE in seen[0][LACKS_TAG]
    assert again.run_requests == []
    assert json.loads(again.cursor) == ["day=2013-01-01", "day=2013-01-03"]
