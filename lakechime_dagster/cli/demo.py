"""`lakechime demo`: replay 2013 into the flights lake, and verify it by another engine."""

import os
import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli.common import DryRun, Json, answer, count, open_platform, record, say
from lakechime_dagster.errors import LakeChimeError, NotFoundError
from lakechime_dagster.settings import Settings

if TYPE_CHECKING:
    from lakechime_dagster.demo.replay import Progress, ReplayState
    from lakechime_dagster.demo.reservations import ReservationsDatabase
    from lakechime_dagster.formats.hive import HiveLog
    from lakechime_dagster.runtime.platform import Platform

DEMO_LAKE = "lakechime_dagster.demo.flights:lake"
# where reservations are written, set by `lakechime dev` for the replay
DATABASE_URL = "LAKECHIME_DEMO_DATABASE"
STATE_FILE = "demo-replay.json"  # in the home folder: how far the replay got


def demo(
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Replay nothing; compare every table with what DuckDB computes."
        ),
    ] = False,
    speed: Annotated[
        float | None,
        typer.Option(min=0.001, help="Hours of 2013 per second; as fast as possible unless given."),
    ] = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=365, help="How many days of 2013 the whole replay has.")
    ] = None,
    hours: Annotated[
        int | None, typer.Option(min=1, help="Replay so many hours now, then end.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Another seed moves the late and wrong hours.")
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Replay 2013 into the flights lake, hour by hour, with late, restated and wrong data, from
    where the last replay stopped.

    With `--verify` every table is computed from the raw files by DuckDB and compared, cell by cell;
    the exit code is 1 when one differs.
    """
    from lakechime_dagster.demo.flights import FOLDER
    from lakechime_dagster.demo.replay import Replayer, ReplayState

    platform = open_platform(dry_run=dry_run or verify)
    state_file = platform.settings.home / STATE_FILE
    known = ReplayState.load(state_file)
    if verify:
        _verify(platform, known, as_json)
        return
    state = known or ReplayState(seed=2013, days=365)
    replayer = Replayer(
        _local_warehouse(platform.settings),
        platform.store,
        state_file,
        seed=state.seed if seed is None else seed,
        days=state.days if days is None else days,
        cluster=platform.settings.cluster,
        reservations=_reservations(os.environ.get(DATABASE_URL, "")),
        airport=platform.settings.home / FOLDER,
        fleet=_fleet(platform),
    )
    before, of = replayer.state.ticks, replayer.plan.ticks
    if dry_run:
        would = min(of - before, hours or of - before)
        sentence = f"{count(would, 'hour')} would be replayed; {before:,} of {of:,} are done"
        answer(as_json, {"ticks": before, "of": of, "replayed": 0, "dry_run": True}, sentence)
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    done = replayer.run(
        hours_per_second=speed,
        hours=hours,
        progress=(lambda _: None) if as_json else _say_progress,
        stop=stop,
    ).ticks
    sentence = f"{count(done - before, 'hour')} replayed; {done:,} of {of:,} are done"
    answer(
        as_json, {"ticks": done, "of": of, "replayed": done - before, "dry_run": False}, sentence
    )


def _verify(platform: "Platform", state: "ReplayState | None", as_json: bool) -> None:
    """Compare all tables; an unequal one may still wait for a run, or be ahead while a replay
    runs.
    """
    from lakechime_dagster.demo.flights import kafka_address
    from lakechime_dagster.demo.replay import ReplayState
    from lakechime_dagster.demo.reservations import tables_after
    from lakechime_dagster.demo.verify import Finding, verify, warehouse_location
    from lakechime_dagster.triggers.progress import overview

    home = platform.settings.home
    if state is None:
        raise NotFoundError(f"nothing was replayed into {home} yet; `lakechime demo` starts")
    database = tables_after(state.plan, state.ticks) if kafka_address(os.environ) else None
    unfinished = [one.row.name for one in overview(platform.ledger) if one.waiting or one.open]
    checks = verify(
        warehouse_location(_local_warehouse(platform.settings)),
        state.plan.written(state.ticks),
        database,
        catalog=platform.settings.iceberg_catalog,
        fleet=_fleet(platform),
    )
    later = ReplayState.load(home / STATE_FILE)
    meanwhile = later.ticks - state.ticks if later is not None else 0
    equal = all(check.finding is Finding.EQUAL for check in checks)
    lines = [
        *map(str, checks),
        (
            f"after {count(state.ticks, 'hour')} of 2013: {'all' if equal else 'not all'} tables are "
            f"equal"
        ),
    ]
    if not equal and (unfinished or meanwhile):
        lines.append(
            "runs or hours are outstanding; verify again when `lakechime status` shows that "
            "nothing waits"
        )
    facts = {"ticks": state.ticks, "meanwhile": meanwhile, "unfinished": unfinished}
    tables = [
        record(
            one,
            "table finding expected_rows actual_rows",
            difference=one.difference and str(one.difference),
        )
        for one in checks
    ]
    answer(as_json, {"equal": equal, **facts, "tables": tables}, *lines)
    if not equal:
        raise typer.Exit(1)


def _reservations(url: str) -> "ReservationsDatabase | None":
    """The database of that URL; none is written to without one."""
    if not url:
        return None
    from lakechime_dagster.demo.reservations import ReservationsDatabase

    return ReservationsDatabase(url)


def _fleet(platform: "Platform") -> "HiveLog | None":
    """The log of the Hive table; None without a metastore."""
    from lakechime_dagster.demo.flights import fleet

    return platform.hive_log(fleet.name, fleet.levels) if platform.settings.metastore else None


def _local_warehouse(settings: Settings) -> str:
    if "://" in settings.warehouse and not settings.warehouse.startswith("file://"):
        raise LakeChimeError(
            "the flights lake is written to a local folder; unset LAKECHIME_WAREHOUSE or name a "
            "folder"
        )
    return settings.warehouse.removeprefix("file://")


def _say_progress(progress: "Progress") -> None:
    """Every special hour, and every sixth hour the progress."""
    for special in progress.notes:
        say(f"{progress.hour}  {special}")
    if progress.ticks % 6 == 0 or progress.is_done:
        say(f"{progress.hour}  {progress.ticks:,} of {progress.of:,} hours written")
