"""`lakechime token`: tokens of programs that reach `lakechime serve`."""

from typing import Annotated

import typer

from lakechime_dagster.api.access import Scope
from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    DryRun,
    Json,
    Reason,
    Who,
    answer,
    open_platform,
    print_list,
    record,
    would,
)

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
    documents = [record(one, facts) for one in tokens]
    print_list(as_json, "tokens", documents, facts, empty="no token")


@app.command()
def revoke(
    name: Name, reason: Reason, who: Who = None, dry_run: DryRun = False, as_json: Json = False
) -> None:
    """Refuse a token from now on."""
    from lakechime_dagster.api.tokens import Tokens

    by = common.by(who, reason)
    Tokens(open_platform(dry_run=dry_run).store.engine).revoke(name, by, dry_run=dry_run)
    answer(as_json, {"token": name, "dry_run": dry_run}, f"{name} {would(dry_run)} revoked")
