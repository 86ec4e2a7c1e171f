"""`POST /lineage` on a real server: what is taken, what is refused, and by whom."""

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from sqlalchemy import Engine

from lakechime_dagster.api.app import Served, build_app
from lakechime_dagster.api.tokens import Tokens
from lakechime_dagster.cli.serve import bound, build_server, check_address
from lakechime_dagster.dce.engine import VERSION_TABLE, check_version
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.ingest import LineageIngest
from lakechime_dagster.lineage.store import LineageStandings, SqlReads
from lakechime_dagster.silver.metrics import Measures
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable, Storage
from tests.lineage.ingest.factories import STORE, columns, dataset, make_document, make_event
from tests.support.world import World

TOKEN = "a-token-that-nobody-guesses"
EVENT = make_event(
    outputs=(
        dataset(STORE, "gold/days", columnLineage=columns(day=("raw/orders", "id", "IDENTITY"))),
    )
)
DAYS = Storage(format="HIVE", location="s3://lake/gold/days")
LAKE = Lake(
    "shop",
    [
        SourceTable("shop.orders"),
        SourceTable("shop.customers"),
        SourceTable("gold.days", storage=DAYS),
    ],
    aliases={"hive.*": "*"},
)
HOSTS = ("lake.example",)
ROUTER = APIRouter()


@ROUTER.get("/lineage")
def page() -> str:
    return "a page"


@dataclass(frozen=True)
class Answer:
    status: int
    document: Any


@dataclass(frozen=True)
class Client:
    port: int

    def send(
        self,
        body: bytes | Any,
        *,
        kind: str = "application/json",
        method: str = "POST",
        path: str = "/lineage",
        token: str = "",
        host: str = "",
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = (
            {"Content-Type": kind}
            | ({"Authorization": f"Bearer {token}"} if token else {})
            | ({"Host": host} if host else {})
        )
        try:
            connection.request(
                method,
                path,
                body if isinstance(body, bytes) else json.dumps(body).encode(),
                headers,
            )
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        is_json = (response.getheader("content-type") or "").startswith("application/json")
        return Answer(response.status, json.loads(text) if is_json else text.decode())


@contextmanager
def serving(
    engine: Engine,
    token: str = "",
    routers: tuple[APIRouter, ...] = (ROUTER,),
    tokens: Tokens | None = None,
    *,
    is_public: bool = False,
    rate: int = 0,
) -> Iterator[Client]:
    ingest = LineageIngest(World(engine).platform(Path("nowhere")), LAKE)
    empty = Measures(types=(), groups=(), consumers={}, ticked_ts=None, now=0, lags=())
    server = build_server(
        build_app(
            Served(
                ingest=ingest,
                measures=lambda: empty,
                token=token,
                tokens=tokens,
                is_public=is_public,
                routers=routers,
                hosts=HOSTS,
                is_ready=lambda: check_version(engine),
                rate=rate,
            )
        )
    )
    with bound("127.0.0.1", 0) as address:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [address]}, daemon=True)
        thread.start()
        try:
            yield Client(address.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def client(engine: Engine) -> Iterator[Client]:
    with serving(engine) as found:
        yield found


@pytest.mark.several_connections
def test_documents_and_events_are_taken_and_repeats_change_nothing(
    client: Client, engine: Engine
) -> None:
    body = [
        make_document(),
        make_document("SELECT name FROM shop.customers", dashboard="Sales"),
        EVENT,
    ]
    assert client.send(body).document == {
        "documents": 3,
        "repeated": 0,
        "records": 2,
        "reads": 1,
        "outside": ["s3://lake/raw/orders"],
    }
    assert client.send(body).document["records"] == 0
    assert client.send(EVENT).document["repeated"] == 1
    assert [one.producer.job for one in LineageStandings(engine).of_targets(["gold.days"])] == [
        "daily",
        "spark.daily",
    ]
    assert [one.consumer.name for one in SqlReads(engine).of_tables(["shop.customers"])] == [
        "Sales"
    ]


@pytest.mark.several_connections
@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "is no JSON"),
        (b"", 400, "is no JSON"),
        (b"\xff\xfe", 400, "is no JSON"),
        (b"[" * 5_000, 400, "is no JSON"),
        (b'"text"', 400, "is no JSON object"),
        ([make_document(), make_document(dialect="cobol")], 400, "document 2, dialect"),
        (
            [EVENT, {**EVENT, "schemaURL": "https://openlineage.io/spec/9-0-0/x"}],
            400,
            "send events of version",
        ),
        ([EVENT, make_document("SELECT jane FROM WHERE")], 400, "does not parse"),
        ([EVENT, make_document(task="a\0b")], 400, "task"),
        (b" " * 10_000_001, 413, "is longer than 10,000,000 bytes"),
    ],
)
def test_what_cannot_be_read_is_reported_and_nothing_of_the_body_is_recorded(
    sqlite_engine: Engine, body: Any, status: int, says: str
) -> None:
    with serving(sqlite_engine) as client:
        answer = client.send(body)
        assert answer.status == status
        assert says in answer.document["error"]["message"]
        assert "jane" not in str(answer.document)
    assert LineageStandings(sqlite_engine).all() == []
    assert SqlReads(sqlite_engine).ways() == []


def many_bytes() -> Iterator[bytes]:
    return (b" " * 1_000_000 for _ in range(30))


@pytest.mark.parametrize("length", [{"Content-Length": "30000000"}, {}], ids=["a length", "chunks"])
def test_a_body_that_is_refused_is_answered_when_its_client_has_sent_all(
    sqlite_engine: Engine, length: dict[str, str]
) -> None:
    with serving(sqlite_engine, token="secret") as client:
        statuses = []
        for headers in (
            {"Authorization": "Bearer secret", "Content-Type": "application/json"},
            {"Authorization": "Bearer secret"},
            {},
        ):
            request = urllib.request.Request(
                f"http://127.0.0.1:{client.port}/lineage",
                many_bytes(),
                headers | length,
                method="POST",
            )
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=60)
            statuses.append(refused.value.code)
    assert statuses == [413, 415, 401]


@pytest.mark.several_connections
def test_only_json_is_taken_so_that_no_page_of_elsewhere_can_send_it(sqlite_engine: Engine) -> None:
    with serving(sqlite_engine) as client:
        assert client.send(make_document(), kind="text/plain").status == 415
        assert client.send(make_document(), kind="application/json; charset=utf-8").status == 200


@pytest.mark.several_connections
@pytest.mark.parametrize(
    ("host", "token", "status"),
    [
        ("localhost:9465", "", 200),
        ("[::1]", "", 200),
        ("lake.example", "", 200),
        ("evil.example", "", 403),
        ("evil.example", TOKEN, 200),
    ],
)
def test_a_site_that_leads_a_name_of_its_own_here_is_not_answered(
    sqlite_engine: Engine, host: str, token: str, status: int
) -> None:
    with serving(sqlite_engine, token) as client:
        for body, method in ((make_document(), "POST"), (b"", "GET")):
            assert client.send(body, method=method, token=token, host=host).status == status


@pytest.mark.several_connections
def test_with_a_token_nothing_but_the_metrics_answers_without_it(sqlite_engine: Engine) -> None:
    with serving(sqlite_engine, TOKEN) as client:
        for wrong in ("", "wrong", TOKEN[:-1], f"{TOKEN}x"):
            answer = client.send(make_document(), token=wrong)
            assert (answer.status, TOKEN in str(answer.document)) == (401, False)
            assert client.send(b"", method="GET", token=wrong).status == 401
        assert client.send(make_document(), token=TOKEN).status == 200
        assert client.send(b"", method="GET", token=TOKEN).document == "a page"
        assert "lakechime_consumers" in client.send(b"", method="GET", path="/metrics/").document


@pytest.mark.several_connections
def test_a_server_is_ready_while_its_store_has_this_version(sqlite_engine: Engine) -> None:
    with serving(sqlite_engine, TOKEN) as client:
        assert client.send(b"", method="GET", path="/ready").status == 200
        with sqlite_engine.begin() as connection:
            connection.exec_driver_sql(f"DELETE FROM {VERSION_TABLE}")
        answer = client.send(b"", method="GET", path="/ready")
        assert (answer.status, answer.document["error"]["type"]) == (503, "StoreVersionError")
        assert client.send(b"", method="GET", path="/health").status == 200


@pytest.mark.parametrize(
    ("host", "token", "says"),
    [
        ("0.0.0.0", "", "set LAKECHIME_API_TOKEN"),
        ("::", "", "set LAKECHIME_API_TOKEN"),
        ("lake.example.org", "", "set LAKECHIME_API_TOKEN"),
        ("127.0.0.1", "short", "at least 16"),
        ("0.0.0.0", "with blanks in it, 16", "at least 16"),
    ],
)
def test_an_address_that_others_reach_needs_a_token_that_nobody_guesses(
    host: str, token: str, says: str
) -> None:
    with pytest.raises(LakeChimeError) as refused:
        check_address(host, token)
    assert says in str(refused.value)
    assert not token or token not in str(refused.value)
