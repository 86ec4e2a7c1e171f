"""`lakechime demo`: the flights lake: replay 2013 into it, and check it by another engine."""

import os
import signal
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli.common import DryRun, Json, count, open_platform, print_json, say
from lakechime_dagster.errors import LakeChimeError, NotFoundError
from lakechime_dagster.settings import Settings

if TYPE_CHECKING:
    from lakechime_dagster.demo.replay import Progress
    from lakechime_dagster.demo.reservations import ReservationsDatabase
    from lakechime_dagster.demo.verify import TableCheck

app = typer.Typer(name="demo", help="The flights lake: replay, verify.")

DEMO_LAKE = "lakechime_dagster.demo.flights:lake"
DATABASE_URL = "LAKECHIME_DEMO_DATABASE"  # where reservations are written, as `lakechime dev` tells the replay
STATE_FILE = "demo-replay.json"  # in the home folder: how far the replay got
Speed = Annotated[float | None, typer.Option(min=0.001, help="Hours of 2013 per second; as fast as it goes unless given.")]


@app.command()
def replay(
    speed: Speed = None,
    days: Annotated[int | None, typer.Option(min=1, max=365, help="How many days of 2013 the whole replay has.")] = None,
    hours: Annotated[int | None, typer.Option(min=1, help="Replay so many hours now, then end.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed has its late and wrong hours elsewhere.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write the bronze tables hour by hour, with late, restated and poisoned data, from where the last replay stopped."""
    from lakechime_dagster.demo.flights import FOLDER
    from lakechime_dagster.demo.replay import Replayer, ReplayState

    platform = open_platform(dry_run=dry_run)
    state_file = platform.settings.home / STATE_FILE
    begun = ReplayState.load(state_file) or ReplayState(seed=2013, days=365)
    warehouse = _local_warehouse(platform.settings)
    replayer = Replayer(
        warehouse,
        platform.store,
        state_file,
        seed=begun.seed if seed is None else seed,
        days=begun.days if days is None else days,
        cluster=platform.settings.cluster,
        reservations=_reservations(os.environ.get(DATABASE_URL, "")),
        airport=platform.settings.home / FOLDER,
    )
    before = replayer.state.ticks
    if dry_run:
        left = replayer.plan.ticks - before
        _tell_replay(before, before, replayer.plan.ticks, min(left, hours or left), as_json)
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    done = replayer.run(hours_per_second=speed, hours=hours, progress=(lambda _: None) if as_json else _say_progress, stop=stop)
    _tell_replay(before, done.ticks, replayer.plan.ticks, None, as_json)


@app.command()
def verify(as_json: Json = False) -> None:
    """Compute every table from the raw files in DuckDB and compare, cell by cell; exit code 1 when one differs.

    Where the replay writes on meanwhile, tables may have more hours than are expected, and the answer says so.
    """
    from lakechime_dagster.demo.flights import kafka_address
    from lakechime_dagster.demo.replay import ReplayState
    from lakechime_dagster.demo.reservations import folded
    from lakechime_dagster.demo.verify import Finding, warehouse_location
    from lakechime_dagster.demo.verify import verify as verified

    settings = open_platform().settings
    state = ReplayState.load(settings.home / STATE_FILE)
    if state is None:
        raise NotFoundError(f"nothing was replayed into {settings.home} yet; `lakechime demo replay` begins")
    followed = folded(state.plan, state.ticks) if kafka_address(os.environ) else None
    checks = verified(warehouse_location(_local_warehouse(settings)), state.plan.written(state.ticks), followed)
    later = ReplayState.load(settings.home / STATE_FILE)
    meanwhile = later.ticks - state.ticks if later is not None else 0
    equal = all(check.finding is Finding.EQUAL for check in checks)
    if as_json:
        print_json({"equal": equal, "ticks": state.ticks, "meanwhile": meanwhile, "tables": [_document(check) for check in checks]})
    else:
        for check in checks:
            say(str(check))
        ahead = f"; {count(meanwhile, 'more hour')} written meanwhile, so that tables may be ahead: ask again when the replay rests"
        say(
            f"after {count(state.ticks, 'hour')} of 2013: {'all' if equal else 'not all'} tables are equal"
            f"{ahead if meanwhile and not equal else ''}"
        )
    if not equal:
        raise typer.Exit(1)


def _reservations(url: str) -> "ReservationsDatabase | None":
    """The database of that URL; none is written to without one."""
    if not url:
        return None
    from lakechime_dagster.demo.reservations import ReservationsDatabase

    return ReservationsDatabase(url)


def _local_warehouse(settings: Settings) -> str:
    if "://" in settings.warehouse and not settings.warehouse.startswith("file://"):
        raise LakeChimeError("the flights lake is written to a local folder; unset LAKECHIME_WAREHOUSE or name a folder")
    return settings.warehouse.removeprefix("file://")


def _say_progress(progress: "Progress") -> None:
    """What is unusual always, and every sixth hour how far it is."""
    for told in progress.notes:
        say(f"{progress.hour}  {told}")
    if progress.ticks % 6 == 0 or progress.is_done:
        say(f"{progress.hour}  {progress.ticks:,} of {progress.of:,} hours written")


def _tell_replay(before: int, after: int, of: int, would: int | None, as_json: bool) -> None:
    if as_json:
        print_json({"ticks": after, "of": of, "replayed": after - before, "dry_run": would is not None})
    elif would is not None:
        say(f"{count(would, 'hour')} would be replayed; {before:,} of {of:,} are done")
    else:
        say(f"{count(after - before, 'hour')} replayed; {after:,} of {of:,} are done")


def _document(check: "TableCheck") -> dict[str, Any]:
    return {
        "table": check.table,
        "finding": check.finding.value,
        "expected_rows": check.expected_rows,
        "actual_rows": check.actual_rows,
        "reason": check.reason,
        "difference": str(check.difference) if check.difference else None,
    }
