"""`lakechime trigger resume` on a flow whose topics in a real Kafka lost messages."""

import sys
from types import ModuleType

import pytest

from lakechime_dagster.runtime.resource import declare_flow
from lakechime_dagster.sensors.tick import run_tick
from lakechime_dagster.triggers.subscription import Flow
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.sensors.test_tick import ToldRuns
from tests.support.cli import Cli
from tests.support.topics import ENVIRONMENT, Topics

NAME = "shop.orders__changes"
WHY = ["--reason", "a new snapshot is on its way", "--who", "ops", "--module", "declares_topics"]


@pytest.fixture
def flow(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Flow:
    """A flow that a code location declares, and the login that its feed asks the environment for."""
    flow = declare_flow(Flow(name=NAME, trigger=SnapshotTrigger(), feed=topics.feed(), is_ordered_by_position=True))
    module = ModuleType("declares_topics")
    module.__dict__["flow"] = flow
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return flow


def ticked(lakechime: Cli, flow: Flow) -> str:
    """A tick of the sensor, with a run that ends at once."""
    tick = run_tick(lakechime.platform, flow, ToldRuns())
    for execution in tick.launches:
        lakechime.platform.ledger.settle(execution, None)
    return "; ".join(tick.sentences)


@pytest.mark.services
def test_a_lane_whose_topic_was_cut_goes_on_with_what_is_there_when_a_person_resumes(lakechime: Cli, topics: Topics, flow: Flow) -> None:
    topics.create("orders")
    topics.send("orders", "a")
    assert "came from offset 0 to 1" in ticked(lakechime, flow)
    topics.send("orders", "b", "c", "d")
    topics.cut("orders", 3)
    assert "was truncated: it was read up to offset 1, and begins at 3 now" in ticked(lakechime, flow)
    assert "is HELD" in ticked(lakechime, flow)
    (moved,) = lakechime("trigger", "resume", NAME, *WHY, "--dry-run", "--json").json["lanes"]
    assert list(moved["after"]["feed"]["topics"].values()) == [[topics.named("orders"), {"0": 3}]]
    assert lakechime("trigger", "resume", NAME, *WHY).code == 0
    assert "came from offset 3 to 4" in ticked(lakechime, flow)


@pytest.mark.services
def test_a_lane_that_is_held_may_leave_out_what_is_there_too(lakechime: Cli, topics: Topics, flow: Flow) -> None:
    topics.create("orders")
    topics.send("orders", "a")
    ticked(lakechime, flow)
    topics.delete("orders")
    topics.create("orders")
    topics.send("orders", "b")
    assert "was made anew" in ticked(lakechime, flow)
    assert lakechime("trigger", "resume", NAME, "--from", "latest", *WHY).code == 0
    assert "nothing new in" in ticked(lakechime, flow)
    topics.send("orders", "c")
    assert "came from offset 1 to 2" in ticked(lakechime, flow)
