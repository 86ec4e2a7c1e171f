"""Triggers, executions and tables through HTTP: shown, and triggers paused, resumed and replayed by
a program that may operate.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakechime_dagster.api.access import Scope
from lakechime_dagster.api.operations import operation_routes
from lakechime_dagster.api.tokens import Tokens
from lakechime_dagster.dce.events import DataChangeEvent, SnapshotId
from lakechime_dagster.lineage.ingest import MAX_BYTES
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.interventions import Interventions
from lakechime_dagster.triggers.registry import By
from tests.api.test_app import Answer, Client, serving
from tests.support.world import a_subscription, nothing_committed

pytestmark = pytest.mark.several_connections
SILVER = a_subscription("silver.orders", "bronze.orders")
LAKE = Lake("shop", [SourceTable("bronze.orders"), SourceTable("bronze.pushed")])


@pytest.fixture
def platform(home: Path) -> Platform:
    return open_platform()


@pytest.fixture
def client(platform: Platform) -> Iterator[Client]:
    routes = operation_routes(platform, LAKE, lambda: {SILVER.name: SILVER})
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


def change(version: int, table: str = "bronze.orders") -> DataChangeEvent:
    return DataChangeEvent(table=table, snapshot_id=SnapshotId(str(version)))


def test_executions_are_listed_page_by_page_and_shown(platform: Platform, client: Client) -> None:
    row, ids = platform.evaluator.activate(SILVER), []
    for version in (1, 2, 3):
        platform.store.register([change(version)])
        decision = platform.evaluator.evaluate(SILVER, row)
        (claimed,) = platform.evaluator.fire(SILVER, row, decision, nothing_committed)
        ids.append(claimed.execution_id)
        if version < 3:
            platform.ledger.complete(claimed, None)

    def get(path: str) -> Answer:
        return client.send(b"", method="GET", path=path)

    pages, path = [], "/executions?limit=2"
    while path and len(pages) < 3:
        page = get(path).document
        pages.append([one["execution_id"] for one in page["executions"]])
        path = f"/executions?limit=2&after={page['next']}" if page["next"] else ""
    assert [len(page) for page in pages] == [2, 1]
    assert sorted(one for page in pages for one in page) == sorted(ids)
    (opened,) = get("/executions?trigger=silver.orders&state=OPEN").document["executions"]
    assert (opened["execution_id"], opened["number"]) == (ids[2], 3)
    assert get("/executions?trigger=silver.other").document["executions"] == []
    shown = get(f"/executions/{ids[2]}").document
    assert (shown["execution"], [one["number"] for one in shown["attempts"]]) == (opened, [1])
    assert [get(one).status for one in ("/executions/none", "/executions?after=none")] == [404, 404]
    assert get("/executions?state=DONE").status == 400


def test_a_trigger_reads_again_from_where_an_operator_says(
    platform: Platform, client: Client
) -> None:
    row = platform.evaluator.activate(SILVER)
    (registered,) = platform.store.register([change(1)]).registered
    decision = platform.evaluator.evaluate(SILVER, row)
    (claimed,) = platform.evaluator.fire(SILVER, row, decision, nothing_committed)

    def seek(name: str = "silver.orders", **body: str) -> Answer:
        sent = {"reason": "wrong rates", "start_from": "beginning"} | body
        return client.send(sent, path=f"/triggers/{name}/seek")

    assert seek().status == 409  # an execution is open
    platform.ledger.complete(claimed, None)
    assert not platform.evaluator.evaluate(SILVER, row).fires
    (moved,) = seek().document["consumers"]
    assert (moved["key"], moved["before"]["position"]) == ("", str(registered.position))
    assert platform.evaluator.evaluate(SILVER, row).fires
    assert seek(start_from="now").status == 200
    assert not platform.evaluator.evaluate(SILVER, row).fires
    assert seek(start_from="soon").document["error"]["field"] == "start_from"
    assert [seek("silver.none").status, seek(key="2026").status] == [404, 404]
    history = Interventions(platform.ledger).history(row)
    assert [(one.action, one.reason) for one in history] == [("seek", "wrong rates")] * 2


def test_a_range_is_replayed_while_the_consumer_stays(platform: Platform, client: Client) -> None:
    row = platform.evaluator.activate(SILVER)
    first, _ = platform.store.register([change(1), change(2)]).registered
    path = "/triggers/silver.orders/replay"
    body = {"reason": "a new model", "start_from": "beginning", "up_to": str(first.position)}
    found = client.send(body, path=path).document
    assert (found["events"], found["execution"]["end"]["position"]) == (1, str(first.position))
    assert found["execution"]["key"].startswith("replay-")
    assert platform.evaluator.evaluate(SILVER, row).fires
    assert client.send(body | {"start_from": "now"}, path=path).status == 409


def test_a_body_that_is_too_long_is_refused_whatever_the_route(client: Client) -> None:
    long = b" " * (MAX_BYTES + 1)
    for path in ("/triggers/silver.orders/pause", "/triggers/silver.orders/seek", "/lineage"):
        assert client.send(long, path=path).status == 413
