"""Whatever a program sends, by the OpenAPI document or against it, is answered as the document
says, and never with an error of the server's own.
"""

import itertools
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import from_schema
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished
from schemathesis.openapi import from_asgi
from sqlalchemy import Engine

from lakechime_dagster.api.app import Served, build_app
from lakechime_dagster.api.events import event_routes
from lakechime_dagster.api.lineage_page import lineage_page
from lakechime_dagster.api.operations import operation_routes
from lakechime_dagster.dce.engine import check_version as check_store
from lakechime_dagster.lineage.ingest import LineageIngest
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.runtime.platform import Platform
from tests.api.test_operations import LAKE, SILVER
from tests.support.world import World

HOST = "testserver"  # which the client in this process sends
ENDLESS = "/events/feed"
CONFIG = {
    "seed": 1,
    "checks": {
        # the document has no words for some rules, such as that of a position
        "positive_data_acceptance": {"enabled": False},
        # the framework names the methods of one of the routes of a path
        "allow_header_conformance": {"enabled": False},
    },
    "generation": {"deterministic": True, "max-examples": 5, "database": "none"},
    "phases": {"stateful": {"enabled": False}},
}


def app_of(platform: Platform) -> FastAPI:
    """A server of all routes."""
    return build_app(
        Served(
            ingest=LineageIngest(platform, LAKE),
            routers=(
                event_routes(platform.store, "east"),
                operation_routes(platform, LAKE, lambda: {SILVER.name: SILVER}),
                lineage_page(lambda: AskedLineage(platform, LAKE)),
            ),
            hosts=(HOST,),
            is_ready=lambda: check_store(platform.store.engine),
        )
    )


@pytest.mark.dialect
@pytest.mark.several_connections
def test_every_answer_is_as_documented(engine: Engine, tmp_path: Path) -> None:
    app, config = app_of(World(engine).platform(tmp_path)), SchemathesisConfig.from_dict(CONFIG)
    schema = from_asgi("/openapi.json", app, config=config).exclude(path=ENDLESS)
    cases, problems = 0, list[str]()
    for event in from_schema(schema).execute():
        if isinstance(event, NonFatalError | FatalError):
            problems.append(str(event))
        if isinstance(event, ScenarioFinished):
            cases += len(event.recorder.cases)
            for check in itertools.chain.from_iterable(event.recorder.checks.values()):
                if (found := check.failure_info) is not None:
                    problems.append(f"{found.failure.title}: {found.code_sample}")
    assert problems == []
    assert cases > 300


@pytest.mark.dialect
@pytest.mark.several_connections
def test_what_no_store_can_hold_is_refused_before_it_is_asked(
    engine: Engine, tmp_path: Path
) -> None:
    client = TestClient(app_of(World(engine).platform(tmp_path)), raise_server_exceptions=False)
    huge = "9" * 20
    for path in (
        "/events?table=a%00b",
        "/events?cluster=a%00b",
        f"/events?since={huge}",
        f"/triggers/{SILVER.name}?at={huge}",
        "/executions?after=a%00b",
        "/executions?trigger=a%00b",
        "/lineage/names?like=%00",
    ):
        assert (path, client.get(path).status_code) == (path, 400)
    assert client.get('/events?table=a&partition=["\\u0000"]').status_code == 400
    for path in ("/executions/a%00b", "/triggers/a%00b"):
        assert (path, client.get(path).status_code) == (path, 400)
    for field, value in (("table", None), ("table", "a\0b"), ("snapshot_ts", int(huge))):
        event = {"table": "a.b", field: value}
        assert client.post("/events", json=event).status_code == 400
    for body in ({"reason": "a\0b"}, {"reason": ""}, {"reason": "x" * 1001}):
        assert client.post(f"/triggers/{SILVER.name}/pause", json=body).status_code == 400
