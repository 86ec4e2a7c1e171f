"""`lakechime`: the command line of producers and of people on call.

Exit codes: 0 done, 1 error, 2 usage, 3 nothing found.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer
import typer.main
from pydantic import ValidationError

from lakechime_dagster.cli import (
    backfill,
    cdc,
    dce,
    demo,
    dev,
    execution,
    lineage,
    notification,
    personal,
    schema,
    serve,
    status,
    store,
    table,
    trigger,
)
from lakechime_dagster.cli.common import error_document, note, one_line, print_json
from lakechime_dagster.errors import LakeChimeError, NotFoundError, needs, shown
from lakechime_dagster.settings import load_dot_env, load_settings

ERROR, USAGE, NOTHING, INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    name="lakechime",
    help="Data change events of lake tables, the triggers on them, and the runs that they launch.",
    pretty_exceptions_enable=False,
)
for noun in (
    dce,
    trigger,
    execution,
    backfill,
    table,
    cdc,
    schema,
    lineage,
    notification,
    personal,
    store,
    serve,
):
    app.add_typer(noun.app)
app.command("dev")(dev.dev)
app.command("demo")(demo.demo)
app.command("status")(status.status)
app.command("serve")(serve.serve)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version("lakechime-dagster"))
        raise typer.Exit


@app.callback()
def root(
    with_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Register and list data change events, see why triggers fire, and act on what is stuck."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    load_dot_env()
    level = _log_level()
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    as_json = "--json" in arguments
    if isinstance(sys.stdout, TextIOWrapper):
        # a name that the terminal cannot show is no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with needs(
            " ".join(["`lakechime", *(word for word in arguments[:2] if not word.startswith("-"))])
            + "`"
        ):
            return _command()(arguments, prog_name="lakechime", standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except typer.Exit as ended:
        return ended.exit_code
    except typer.TyperException as error:
        return _usage(error, as_json)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - the reader has closed the pipe; the buffered rest is dropped
        return ERROR
    except LakeChimeError as error:
        _report(error, as_json)
        return NOTHING if isinstance(error, NotFoundError) else ERROR
    except Exception as error:
        if level == "DEBUG":
            raise
        what = (
            f"this should not have happened ({type(error).__name__}); LAKECHIME_LOG_LEVEL=DEBUG "
            f"shows where"
        )
        _report(LakeChimeError(what), as_json)
        return ERROR


@cache
def _command() -> Callable[..., int | None]:
    """All commands, constructed once a process: that takes longer than most of them run."""
    return typer.main.get_command(app)


def _log_level() -> str:
    """As the settings say; settings that cannot be read are reported by the commands that need
    them.
    """
    try:
        return load_settings().log_level
    except (LakeChimeError, OSError):
        return "WARNING"


def _usage(error: typer.TyperException, as_json: bool) -> int:
    """A wrong usage, as the parser words it, with the command to ask for help."""
    if isinstance(error.__cause__, ValidationError) and isinstance(error, typer.BadParameter):
        error.message = _problem(error.__cause__)
    message = one_line(getattr(error, "format_message", error.__str__)()).rstrip(".")
    context = getattr(error, "ctx", None)
    if as_json:
        print_json({"error": {"type": "UsageError", "message": message}})
    else:
        note(f"error: {message} (see `{context.command_path if context else 'lakechime'} --help`)")
    return USAGE


def _problem(cause: ValidationError) -> str:
    """What is wrong with an option's value, in words for a person."""
    first = cause.errors()[0]
    kinds = {"int_parsing": "is not a whole number", "float_parsing": "is not a number"}
    if first["type"] in kinds:
        return f"{shown(first['input'])} {kinds[first['type']]}"
    return first["msg"].removeprefix("Value error, ")


def _report(error: LakeChimeError, as_json: bool) -> None:
    if as_json:
        print_json(error_document(error))
    else:
        note(f"error: {one_line(str(error))}")


if __name__ == "__main__":
    sys.exit(main())
