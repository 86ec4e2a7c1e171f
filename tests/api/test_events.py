"""Events through HTTP, by the client that programs use: registered once, fetched and followed in
commit order, and refused with field and remedy.
"""

import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pytest
from sqlalchemy import Engine

from lakechime_dagster.api.client import Client, ServerUnreachableError
from lakechime_dagster.api.events import event_routes
from lakechime_dagster.dce.events import (
    DataChangeEvent,
    EventQuery,
    Position,
    RegisteredEvent,
    SnapshotId,
    Tags,
    to_json,
)
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import InvalidValueError, LakeChimeError
from tests.api.test_app import TOKEN, serving

pytestmark = pytest.mark.several_connections
ORDERS = "bronze.orders"


def change(snapshot: int, table: str = ORDERS, **fields: Any) -> DataChangeEvent:
    return DataChangeEvent(table=table, snapshot_id=SnapshotId(str(snapshot)), **fields)


def snapshots(events: Iterator[RegisteredEvent] | list[RegisteredEvent]) -> list[str | None]:
    return [one.event.snapshot_id for one in events]


@pytest.fixture
def url(sqlite_engine: Engine) -> Iterator[str]:
    with serving(sqlite_engine, routers=(event_routes(DCEStore(sqlite_engine), "east"),)) as served:
        yield f"http://127.0.0.1:{served.port}"


@pytest.fixture
def client(url: str) -> Client:
    return Client(url)


def test_events_are_registered_once_and_a_repeat_is_a_duplicate(
    client: Client, sqlite_engine: Engine
) -> None:
    events = [change(1, partition=("2026-01-31", 5), tags={"source": "shop"}), change(2)]
    sent = client.register(events)
    assert [one.event for one in sent.registered] == [
        change(1, partition=("2026-01-31", 5), tags={"source": "shop"}, cluster="east"),
        change(2, cluster="east"),
    ]
    again = client.register(events)
    assert (again.registered, again.duplicates) == ((), sent.registered)
    stored = DCEStore(sqlite_engine).fetch(EventQuery(table=ORDERS))
    assert [(one.position, one.event_ts) for one in stored] == [
        (one.position, one.event_ts) for one in sent.registered
    ]


def test_a_marker_whose_answer_was_lost_is_there_once(
    client: Client, sqlite_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer never arrives, though the server did what was asked."""
    opened, lost = urllib.request.urlopen, []

    def losing(*arguments: Any, **more: Any) -> Any:
        answer = opened(*arguments, **more)
        if not lost:
            lost.append(answer)
            raise TimeoutError("lost")
        return answer

    monkeypatch.setattr(urllib.request, "urlopen", losing)
    marker = DataChangeEvent(
        table=ORDERS, partition=("2026-01-31",), tags=Tags({"complete": "true"})
    )
    assert len(client.register([marker]).duplicates) == 1
    assert len(DCEStore(sqlite_engine).fetch(EventQuery(table=ORDERS))) == 1


def test_all_events_of_a_query_are_fetched_page_by_page(client: Client) -> None:
    client.register([change(at, tags={"even": str(at % 2 == 0)}) for at in range(2_500)])
    client.register([change(1, "bronze.other")])
    assert snapshots(client.fetch(EventQuery(table=ORDERS))) == [str(at) for at in range(2_500)]
    even = EventQuery(table=ORDERS, tags={"even": "True"}, limit=1_100)
    assert snapshots(client.fetch(even)) == [str(at) for at in range(0, 2_200, 2)]
    (other,) = client.fetch(EventQuery(table="bronze.other"))
    assert list(client.fetch(EventQuery(after=other.position))) == []


def test_events_are_followed_from_a_position_and_from_now(client: Client) -> None:
    client.register([change(1), change(2)])
    first = next(client.fetch(EventQuery(limit=1)))
    with closing(client.follow(first.position)) as followed:
        assert snapshots(list(islice(followed, 1))) == ["2"]
        client.register([change(3), change(1, "bronze.other")])
        assert snapshots(list(islice(followed, 2))) == ["3", "1"]
    with closing(client.follow(table="bronze.other")) as followed:
        found = list[RegisteredEvent]()
        thread = threading.Thread(target=lambda: found.append(next(followed)))
        thread.start()
        at = 1
        while thread.is_alive():  # once it follows, the next event of its table arrives
            at += 1
            client.register([change(at), change(at, "bronze.other")])
            thread.join(0.2)
    assert [one.event.table for one in found] == ["bronze.other"]


def test_a_stream_that_is_opened_again_goes_on_after_its_last_event(
    url: str, client: Client
) -> None:
    client.register([change(at) for at in (1, 2, 3)])
    second = list(client.fetch(EventQuery()))[1].position
    request = urllib.request.Request(
        f"{url}/events/feed?after={Position.ORIGIN}", headers={"Last-Event-ID": str(second)}
    )
    with urllib.request.urlopen(request, timeout=30) as stream:
        lines = [stream.readline().decode().strip() for _ in range(4)]
    assert lines[:2] == [f"id: {second}", ""]
    assert json.loads(lines[3].removeprefix("data: "))["snapshot_id"] == "3"


def test_an_event_whose_line_was_cut_off_is_asked_for_again() -> None:
    """The first answer ends within the second event, after its id."""
    first, second = (
        f"id: 0-{at}\ndata: "
        + json.dumps(to_json(change(at)) | {"position": f"0-{at}", "event_ts": at, "amends": None})
        + "\n\n"
        for at in (1, 2)
    )
    asked = list[str]()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for text in (first + second[:20], second):
                connection, _ = server.accept()
                with connection:
                    asked.append(connection.recv(10_000).decode())
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + text.encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = Client(f"http://127.0.0.1:{server.getsockname()[1]}", attempts=1)
        with closing(client.follow(Position.ORIGIN)) as followed:
            assert snapshots(list(islice(followed, 2))) == ["1", "2"]
        thread.join(10)
    assert "Last-Event-Id: 0-1" in asked[1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "document 'of 1 bytes': is no JSON"),
        (b"7", "event 1, event 7: is not a JSON object"),
        (b'[{"table": "a.b"}, {"tabel": "a.b"}]', "event 2, event field 'tabel': is unknown"),
        (b'{"table": "a.b", "tags": 5}', "event 1, tags 5: is not a map"),
        (
            b'[{"table": "a.b", "snapshot_id": "x"}]',
            "event 1, snapshot_id 'x': is not a Delta version",
        ),
    ],
)
def test_what_is_no_event_is_refused_with_its_number_and_nothing_is_registered(
    client: Client, sqlite_engine: Engine, body: bytes, message: str
) -> None:
    with pytest.raises(LakeChimeError) as refused:
        client._asked("/events", body)
    assert str(refused.value).startswith(message)
    assert DCEStore(sqlite_engine).fetch(EventQuery()) == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("limit=0", "limit '0': is refused"),
        ("after=5", "after '5': is not a position"),
        ("tag=a", "tag 'a': is no pair"),
        ("partition=5&table=a.b", "partition '5': is no JSON array"),
    ],
)
def test_a_wrong_parameter_is_named(client: Client, asked: str, message: str) -> None:
    with pytest.raises(LakeChimeError) as refused:
        client._asked(f"/events?{asked}")
    assert str(refused.value).startswith(message)


def test_what_the_server_does_not_ask_is_refused_by_the_client(client: Client) -> None:
    with pytest.raises(InvalidValueError, match="only_new True: is not asked by HTTP"):
        next(client.fetch(EventQuery(only_new=True)))
    with pytest.raises(InvalidValueError, match="is not asked by HTTP; give a text to equal"):
        next(client.fetch(EventQuery(tags={"rows": {">=": 1}})))


def test_without_the_token_nothing_is_given_and_without_a_server_the_client_says_so(
    sqlite_engine: Engine,
) -> None:
    routes = event_routes(DCEStore(sqlite_engine), "")
    with serving(sqlite_engine, TOKEN, routers=(routes,)) as served:
        url = f"http://127.0.0.1:{served.port}"
        assert Client(url, TOKEN).register([change(1)]).registered
        with pytest.raises(LakeChimeError, match="send a token"):
            next(Client(url, "wrong" * 5).fetch(EventQuery()))
    with pytest.raises(ServerUnreachableError, match="does not answer"):
        Client(url, attempts=1).register([change(2)])
