"""`lakechime trigger resume` on a subscription whose topics in a real Kafka lost messages."""

import sys
from types import ModuleType

import pytest

from lakechime_dagster.runtime.resource import declare_subscription
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.sensors.test_tick import ReportedRuns
from tests.support.cli import Cli
from tests.support.topics import ENVIRONMENT, Topics
from tests.support.world import ticked

NAME = "shop.orders__changes"
WHY = ["--reason", "a new snapshot is on its way", "--who", "ops", "--module", "declares_topics"]


@pytest.fixture
def subscription(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Subscription:
    """A subscription that a code location declares, and the login that its source asks the
    environment for.
    """
    subscription = declare_subscription(
        Subscription(
            name=NAME,
            trigger=SnapshotTrigger(),
            source=topics.source(),
            is_ordered_by_position=True,
        )
    )
    module = ModuleType("declares_topics")
    module.__dict__["subscription"] = subscription
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return subscription


def one_tick(lakechime: Cli, subscription: Subscription) -> str:
    """A tick of the sensor, with a run that ends at once."""
    tick = ticked(lakechime.platform, subscription, ReportedRuns())
    for execution in tick.launches:
        lakechime.platform.ledger.complete(execution, None)
    return "; ".join(tick.sentences)


@pytest.mark.services
def test_a_consumer_whose_topic_was_cut_goes_on_with_what_is_there_when_a_person_resumes(
    lakechime: Cli, topics: Topics, subscription: Subscription
) -> None:
    topics.create("orders")
    topics.send("orders", "a")
    assert "new offsets 0 to 1" in one_tick(lakechime, subscription)
    topics.send("orders", "b", "c", "d")
    topics.cut("orders", 3)
    assert "was truncated: it was read up to offset 1, and begins at 3 now" in one_tick(
        lakechime, subscription
    )
    assert "is BLOCKED" in one_tick(lakechime, subscription)
    (moved,) = lakechime("trigger", "resume", NAME, *WHY, "--dry-run", "--json").json["consumers"]
    assert list(moved["after"]["offsets"]["topics"].values()) == [
        [topics.named("orders"), {"0": 3}]
    ]
    assert lakechime("trigger", "resume", NAME, *WHY).code == 0
    assert "new offsets 3 to 4" in one_tick(lakechime, subscription)


@pytest.mark.services
def test_a_consumer_that_is_blocked_may_leave_out_what_is_there_too(
    lakechime: Cli, topics: Topics, subscription: Subscription
) -> None:
    topics.create("orders")
    topics.send("orders", "a")
    one_tick(lakechime, subscription)
    topics.delete("orders")
    topics.create("orders")
    topics.send("orders", "b")
    assert "was created again" in one_tick(lakechime, subscription)
    assert lakechime("trigger", "seek", NAME, "--to", "now", *WHY).code == 0
    assert lakechime("trigger", "resume", NAME, *WHY).code == 0
    assert "nothing new in" in one_tick(lakechime, subscription)
    topics.send("orders", "c")
    assert "new offsets 1 to 2" in one_tick(lakechime, subscription)
