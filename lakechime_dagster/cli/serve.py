"""`lakechime serve`: the HTTP server, and `lakechime token`: the tokens of programs that reach it."""

import socket
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from lakechime_dagster.api.access import Scope
from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    DryRun,
    Json,
    Reason,
    Who,
    answer,
    declared_or_none,
    lake_or_empty,
    note,
    open_platform,
    print_list,
    would,
)
from lakechime_dagster.errors import LakeChimeError, needs
from lakechime_dagster.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI


def serve(
    host: Annotated[
        str, typer.Option(help="The address to serve at; one that others reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to serve at.")] = 9465,
) -> None:
    """Serve /events (register, fetch, follow), /triggers (explain, pause, resume, seek, replay),
    /executions, /tables, the lineage page, POST /lineage for SQL documents and OpenLineage run
    events, and /metrics for Prometheus, until Ctrl-C.
    """
    with needs("`lakechime serve`", extra="api"):
        from lakechime_dagster.api.app import Served, build_app, is_loopback
        from lakechime_dagster.api.events import event_routes
        from lakechime_dagster.api.lineage_page import lineage_page
        from lakechime_dagster.api.operations import operation_routes
        from lakechime_dagster.api.tokens import Tokens
    from lakechime_dagster.dce.engine import check_version
    from lakechime_dagster.lineage.ingest import LineageIngest
    from lakechime_dagster.lineage.service import AskedLineage
    from lakechime_dagster.silver.metrics import measures
    from lakechime_dagster.silver.requests import event_types

    platform = open_platform()
    token = platform.settings.api_token
    tokens = Tokens(platform.store.engine)
    check_address(host, token, has_tokens=tokens.any_valid())
    types = event_types(platform)
    lake = lake_or_empty(platform.settings)
    subscriptions = declared_or_none()
    page = lineage_page(lambda: AskedLineage(platform, lake))
    served = Served(
        ingest=LineageIngest(platform, lake),
        measures=lambda: measures(types),
        token=token,
        tokens=tokens,
        is_public=not is_loopback(host),
        is_ready=lambda: check_version(platform.store.engine),
        rate=platform.settings.api_rate,
        routers=(
            page,
            event_routes(platform.store, platform.settings.cluster),
            operation_routes(platform, lake, lambda: subscriptions),
        ),
        hosts=_hosts(platform.settings),
    )
    app = build_app(served)
    with bound(host, port) as address:
        who = "with a token" if served.asks_for_token() else "from this machine alone"
        note(f"lakechime| lineage is shown and taken at http://{host}:{port}/lineage, {who}")
        build_server(app).run(sockets=[address])


MIN_TOKEN = 16  # characters, of which fewer could be guessed


def check_address(host: str, token: str, *, has_tokens: bool = False) -> None:
    """Refuse an address that others can reach without a token, or with one that can be guessed.

    Raises:
        LakeChimeError: naming the variable, never its value.
    """
    from lakechime_dagster.api.app import is_loopback

    if token and (
        len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise LakeChimeError(
            f"LAKECHIME_API_TOKEN is no token; write at least {MIN_TOKEN} ASCII characters without "
            f"blanks"
        )
    if not (token or has_tokens or is_loopback(host)):
        raise LakeChimeError(
            f"{host} can be reached from other machines; set LAKECHIME_API_TOKEN to a secret, "
            f"make a token (`lakechime token create`), or serve at 127.0.0.1"
        )


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at the address, so that whoever asks afterwards waits instead of being
    refused.

    Raises:
        LakeChimeError: the address cannot be used.
    """
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family)
    except OSError as error:
        remedy = "end what uses it, or choose another one with --host and --port"
        raise LakeChimeError(
            f"port {port} of {host} cannot be used ({error.strerror}); {remedy}"
        ) from None


def build_server(app: "FastAPI") -> "uvicorn.Server":
    """A server that logs no request: what is sent may be secret, or personal."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=5
        )
    )


def _hosts(settings: Settings) -> set[str]:
    """The names under which people reach the server, as far as settings say so."""
    name = urlsplit(settings.lineage_url).hostname
    return {name} if name else set()


app = typer.Typer(name="token", help="Tokens of programs that reach `lakechime serve`.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Names the token in lists and messages.")]


@app.command()
def create(
    name: Name,
    reason: Reason,
    scope: Annotated[
        list[Scope], typer.Option("--scope", help="What it lets a program do; repeat it.")
    ],
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="PATTERN",
            help="Register events of these tables only, such as `bronze.*`; repeat it.",
        ),
    ] = None,
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Make a token and print its secret, once. As soon as one exists, the server asks for it."""
    from lakechime_dagster.api.tokens import Tokens

    by = common.by(who, reason)
    secret = Tokens(open_platform().store.engine).create(name, set(scope), table or ["*"], by)
    answer(as_json, {"token": name, "secret": secret}, secret)


@app.command()
def show(as_json: Json = False) -> None:
    """List the tokens: scopes, tables, who made them and why."""
    from lakechime_dagster.api.tokens import Tokens

    tokens = Tokens(open_platform().store.engine).all()
    facts = "name scopes tables created_ts created_by reason revoked_ts revoked_by"
    print_list(as_json, "tokens", tokens, facts, empty="no token")


@app.command()
def revoke(
    name: Name, reason: Reason, who: Who = None, dry_run: DryRun = False, as_json: Json = False
) -> None:
    """Refuse a token from now on."""
    from lakechime_dagster.api.tokens import Tokens

    by = common.by(who, reason)
    Tokens(open_platform(dry_run=dry_run).store.engine).revoke(name, by, dry_run=dry_run)
    answer(as_json, {"token": name, "dry_run": dry_run}, f"{name} {would(dry_run)} revoked")
