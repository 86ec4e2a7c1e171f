"""Tokens through HTTP: each scope lets a program do its own, of the tables that it names."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy import Engine

from lakechime_dagster.api.access import Scope
from lakechime_dagster.api.events import event_routes
from lakechime_dagster.api.tokens import Tokens
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import InvalidValueError, NotFoundError
from lakechime_dagster.triggers.registry import By
from tests.api.test_app import TOKEN, Client, serving
from tests.support.cli import Cli

pytestmark = pytest.mark.several_connections
ANNA = By(who="anna", reason="of a test")
CHANGE = {"table": "bronze.orders", "snapshot_id": "1"}


@dataclass(frozen=True)
class Guarded:
    """A server that knows tokens, and their store."""

    client: Client
    tokens: Tokens

    def status(self, method: str, path: str, token: str, body: object = b"") -> int:
        return self.client.send(body, method=method, path=path, token=token).status


@pytest.fixture
def guarded(sqlite_engine: Engine) -> Iterator[Guarded]:
    tokens = Tokens(sqlite_engine)
    routes = event_routes(DCEStore(sqlite_engine), "")
    with serving(sqlite_engine, routers=(routes,), tokens=tokens) as client:
        yield Guarded(client, tokens)


def test_as_soon_as_a_token_exists_it_is_asked_for(guarded: Guarded) -> None:
    assert guarded.status("GET", "/events", "") == 200
    secret = guarded.tokens.create("shop", {Scope.READ}, ["*"], ANNA)
    assert [guarded.status("GET", "/events", one) for one in ("", secret[:-1], secret)] == [
        401,
        401,
        200,
    ]
    assert guarded.status("GET", "/health", "") == 200
    guarded.tokens.revoke("shop", ANNA)
    assert guarded.tokens.access(secret) is None
    assert guarded.status("GET", "/events", "") == 200


def test_who_is_reached_by_others_asks_for_a_token_also_when_the_last_one_is_revoked(
    sqlite_engine: Engine,
) -> None:
    tokens = Tokens(sqlite_engine)
    routes = event_routes(DCEStore(sqlite_engine), "")
    secret = tokens.create("shop", {Scope.READ}, ["*"], ANNA)
    with serving(sqlite_engine, routers=(routes,), tokens=tokens, is_public=True) as client:
        tokens.revoke("shop", ANNA)
        for token in ("", secret):
            asked = client.send(b"", method="GET", path="/events", token=token, host="localhost")
            assert asked.status == 401


@pytest.mark.parametrize(
    ("scope", "read", "register"),
    [(Scope.READ, 200, 403), (Scope.REGISTER, 403, 200), (Scope.OPERATE, 403, 403)],
)
def test_a_scope_lets_a_program_do_its_own_and_nothing_else(
    guarded: Guarded, scope: Scope, read: int, register: int
) -> None:
    secret = guarded.tokens.create("shop", {scope}, ["*"], ANNA)
    assert guarded.status("GET", "/events", secret) == read
    assert guarded.status("POST", "/events", secret, CHANGE) == register


def test_events_of_other_tables_are_refused_and_none_of_the_request_is_registered(
    guarded: Guarded, sqlite_engine: Engine
) -> None:
    secret = guarded.tokens.create("shop", {Scope.REGISTER}, ["shop.*", "bronze.orders"], ANNA)
    other = CHANGE | {"table": "bronze.customers"}
    answer = guarded.client.send([CHANGE, other], path="/events", token=secret)
    assert (answer.status, answer.document["error"]["message"]) == (
        403,
        "token shop may register events of shop.*, bronze.orders, not of bronze.customers",
    )
    assert DCEStore(sqlite_engine).tables() == []
    assert guarded.status("POST", "/events", secret, CHANGE) == 200


def test_the_token_of_the_settings_may_do_everything(sqlite_engine: Engine) -> None:
    tokens = Tokens(sqlite_engine)
    tokens.create("shop", {Scope.READ}, ["*"], ANNA)
    routes = event_routes(DCEStore(sqlite_engine), "")
    with serving(sqlite_engine, TOKEN, routers=(routes,), tokens=tokens) as client:
        assert client.send(CHANGE, path="/events", token=TOKEN).status == 200
        assert client.send(b"", method="GET", path="/events", token=TOKEN).status == 200


def test_the_store_keeps_no_secret_and_a_name_is_used_once(sqlite_engine: Engine) -> None:
    tokens = Tokens(sqlite_engine)
    secret = tokens.create("shop", {Scope.READ, Scope.REGISTER}, ["bronze.*"], ANNA)
    (listed,) = tokens.all()
    assert (listed["scopes"], listed["tables"]) == (["read", "register"], ["bronze.*"])
    assert secret not in repr(listed)
    with sqlite_engine.connect() as connection:
        kept = connection.exec_driver_sql("SELECT * FROM lc_api_token").one()
    assert secret not in str(tuple(kept))
    tokens.revoke("shop", ANNA)
    with pytest.raises(InvalidValueError, match="name 'shop': is taken"):
        tokens.create("shop", {Scope.READ}, ["*"], ANNA)
    with pytest.raises(NotFoundError, match="no token 'web'"):
        tokens.revoke("web", ANNA)


def test_tokens_are_made_listed_and_revoked_by_command(lakechime: Cli) -> None:
    wrong = lakechime("token", "create", "shop", "--scope", "write", "--reason", "x")
    assert wrong.code == 2
    made = lakechime(
        "token", "create", "shop", "--scope", "read", "-t", "bronze.*", "--reason", "x", "--json"
    ).json
    assert len(made["secret"]) >= 43
    listed = lakechime("token", "show", "--json")
    assert made["secret"] not in listed.out
    assert listed.json["tokens"][0]["scopes"] == ["read"]
    assert lakechime("token", "revoke", "shop", "--reason", "x", "--dry-run").code == 0
    assert lakechime("token", "show", "--json").json["tokens"][0]["revoked_ts"] is None
    assert lakechime("token", "revoke", "shop", "--reason", "x").code == 0
    assert lakechime("token", "show", "--json").json["tokens"][0]["revoked_ts"] is not None
