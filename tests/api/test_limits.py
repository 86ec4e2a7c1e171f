"""How much a program may send through HTTP: so many requests a second of each token, so long a
body.
"""

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from lakechime_dagster.api import client as client_module
from lakechime_dagster.api.access import Scope
from lakechime_dagster.api.app import BURST, Limit
from lakechime_dagster.api.client import Client, ServerUnreachableError
from lakechime_dagster.api.events import event_routes
from lakechime_dagster.api.tokens import Tokens
from lakechime_dagster.dce.events import EventQuery
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.triggers.registry import By
from tests.api.test_app import serving

ANNA = By(who="anna", reason="of a test")


def admitted(limit: Limit, name: str, now: float) -> int:
    """How many requests are admitted at that moment."""
    count = 0
    while count < 100 and limit.wait(name, now) == 0:
        count += 1
    return count


def often(ask: Callable[[], object]) -> None:
    """Ask more often than is admitted."""
    for _ in range(100 * BURST):
        ask()


def test_after_a_pause_the_requests_of_some_seconds_are_admitted_and_then_an_even_pace() -> None:
    limit = Limit(4)
    assert admitted(limit, "shop", 1_000) == 4 * BURST + 1
    assert limit.wait("shop", 1_000) == 0.25
    assert limit.wait("shop", 1_000.25) == 0
    assert admitted(limit, "other", 1_000.25) == 4 * BURST + 1
    assert admitted(limit, "shop", 1_001.25) == 4
    assert admitted(limit, "shop", 2_000) == 4 * BURST + 1


@pytest.mark.several_connections
def test_a_token_that_sends_too_much_waits_and_hinders_no_other(sqlite_engine: Engine) -> None:
    tokens = Tokens(sqlite_engine)
    busy, calm = (tokens.create(one, {Scope.READ}, ["*"], ANNA) for one in ("busy", "calm"))
    routes = event_routes(DCEStore(sqlite_engine), "")

    with serving(sqlite_engine, routers=(routes,), tokens=tokens, rate=1) as client:

        def status(token: str) -> int:
            return client.send(b"", method="GET", path="/events", token=token).status

        request = urllib.request.Request(
            f"http://127.0.0.1:{client.port}/events", headers={"Authorization": f"Bearer {busy}"}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            often(lambda: urllib.request.urlopen(request).close())
        assert (refused.value.code, refused.value.headers["Retry-After"]) == (429, "1")
        assert [status(one) for one in (calm, "unknown")] == [200, 401]
        tokens.revoke("busy", ANNA)
        tokens.revoke("calm", ANNA)
        assert {status("") for _ in range(2 * BURST)} == {200}  # this machine, without a token


@pytest.mark.parametrize(
    ("answer", "asked"),
    [("429 Too Many", "7"), ("503 Busy", "7"), ("503 Busy", "Sun, 06 Nov 1994 08:49:37 GMT")],
)
def test_the_client_waits_as_long_as_the_server_asks(
    monkeypatch: pytest.MonkeyPatch, answer: str, asked: str
) -> None:
    pauses = list[float]()
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(client_module, "MAX_WAIT", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for status, body in ((answer, "{}"), ("200 OK", '{"events": [], "next": null}')):
                connection, _ = server.accept()
                with connection:
                    connection.recv(10_000)
                    head = f"HTTP/1.1 {status}\r\nRetry-After: {asked}\r\n\r\n"
                    connection.sendall(f"{head}{body}".encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert list(Client(url).fetch(EventQuery())) == []
        thread.join(10)
    least = 7 if asked == "7" else 0
    assert [least <= one <= least + 1 for one in pauses] == [True]


@pytest.mark.several_connections
def test_the_client_says_that_it_sent_too_much_when_it_gives_up(sqlite_engine: Engine) -> None:
    tokens = Tokens(sqlite_engine)
    secret = tokens.create("shop", {Scope.READ}, ["*"], ANNA)
    routes = event_routes(DCEStore(sqlite_engine), "")
    with serving(sqlite_engine, routers=(routes,), tokens=tokens, rate=1) as served:
        client = Client(f"http://127.0.0.1:{served.port}", token=secret, attempts=1)
        with pytest.raises(ServerUnreachableError, match="token shop sends more than 1 requests"):
            often(lambda: list(client.fetch(EventQuery())))
