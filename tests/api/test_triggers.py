"""Triggers through HTTP: listed, explained, paused and resumed by a program that may operate."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakechime_dagster.api.access import Scope
from lakechime_dagster.api.tokens import Tokens
from lakechime_dagster.api.triggers import trigger_routes
from lakechime_dagster.dce.events import DataChangeEvent, SnapshotId
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.triggers.interventions import By, Interventions
from tests.api.test_app import Client, serving
from tests.support.world import a_subscription

pytestmark = pytest.mark.several_connections
SILVER = a_subscription("silver.orders", "bronze.orders")


@pytest.fixture
def platform(home: Path) -> Platform:
    return open_platform()


@pytest.fixture
def client(platform: Platform) -> Iterator[Client]:
    routes = trigger_routes(platform, lambda: {SILVER.name: SILVER})
    tokens = Tokens(platform.store.engine)
    with serving(platform.store.engine, routers=(routes,), tokens=tokens) as found:
        yield found


def test_a_trigger_is_explained_with_its_events(platform: Platform, client: Client) -> None:
    (listed,) = client.send(b"", method="GET", path="/triggers").document["triggers"]
    assert (listed["name"], listed["state"]) == ("silver.orders", "not active yet")
    platform.evaluator.activate(SILVER)
    platform.store.register([DataChangeEvent(table="bronze.orders", snapshot_id=SnapshotId("1"))])
    found = client.send(b"", method="GET", path="/triggers/silver.orders").document
    assert (found["decision"], [one["snapshot_id"] for one in found["events"]]) == ("fire", ["1"])
    assert (found["trigger"]["state"], found["trigger"]["waiting"]) == ("active", 1)
    missing = client.send(b"", method="GET", path="/triggers/silver.none")
    assert missing.status == 404


def test_who_may_operate_pauses_and_resumes_and_is_named_with_the_reason(
    platform: Platform, client: Client
) -> None:
    by = By(who="anna", reason="of a test")
    tokens = Tokens(platform.store.engine)
    reader = tokens.create("viewer", {Scope.READ, Scope.REGISTER}, ["*"], by)
    operator = tokens.create("night shift", {Scope.OPERATE}, ["*"], by)

    def post(what: str, token: str, body: object) -> int:
        return client.send(body, path=f"/triggers/silver.orders/{what}", token=token).status

    why = {"reason": "the source is down"}
    assert [post("pause", one, why) for one in (reader, operator)] == [403, 200]
    row = platform.ledger.subscription("silver.orders")
    assert row is not None
    assert row.paused_reason == "the source is down"
    assert [post("resume", operator, one) for one in ({}, why)] == [400, 200]
    history = Interventions(platform.ledger).history(row)
    assert [(one.action, one.who, one.reason) for one in history] == [
        ("resume", "night shift", "the source is down"),
        ("pause", "night shift", "the source is down"),
    ]
