"""The Dagster instance of ticks: opened once a process, and the one that the tick's deployment means."""

from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.sensors.tick import instance_of


def home(folder: Path) -> dg.DagsterInstance:
    folder.mkdir()
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return dg.DagsterInstance.from_config(str(folder))


def tick(instance: dg.DagsterInstance) -> dg.SensorEvaluationContext:
    """What a sensor is given in the process of a code location: a reference, of which a context makes an instance of its own."""
    return dg.SensorEvaluationContext(
        instance_ref=instance.get_ref(), last_tick_completion_time=None, last_run_key=None, cursor=None, log_key=None, repository_name=None
    )


def test_ticks_of_a_process_share_an_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = home(tmp_path / "one")
    opened = instance_of(tick(instance))()
    instance.add_dynamic_partitions("types", ["a"])
    monkeypatch.setattr(dg.DagsterInstance, "from_ref", None)  # what a second opening would call
    assert instance_of(tick(instance))() is opened
    assert opened.get_dynamic_partitions("types") == ["a"]


@pytest.mark.tier2
def test_ticks_of_two_deployments_do_not(tmp_path: Path) -> None:
    one, other = home(tmp_path / "one"), home(tmp_path / "other")
    one.add_dynamic_partitions("types", ["a"])
    assert instance_of(tick(one))().get_dynamic_partitions("types") == ["a"]
    assert instance_of(tick(other))().get_dynamic_partitions("types") == []
