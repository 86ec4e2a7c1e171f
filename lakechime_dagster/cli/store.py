"""`lakechime store`: its version, and the end of old events."""

from typing import Annotated

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    DryRun,
    Json,
    answer,
    count,
    open_platform,
    print_documents,
    print_json,
    record,
    say,
    when,
    would,
    would_be,
)
from lakechime_dagster.settings import load_settings

app = typer.Typer(name="store", help="The DCE store: upgrade it, expire old events.")


@app.command()
def upgrade(dry_run: DryRun = False, as_json: Json = False) -> None:
    """Create the store's tables, or bring them to this version; many processes may do so at once. A
    dry run shows the versions.
    """
    from lakechime_dagster.dce.engine import current_version, newest_version, open_engine
    from lakechime_dagster.dce.engine import upgrade as upgraded

    settings = load_settings()
    engine = open_engine(settings.store_url)
    before = current_version(engine)
    after = newest_version() if dry_run else upgraded(engine)
    document = {
        "store": settings.shown_store_url,
        "before": before,
        "after": after,
        "dry_run": dry_run,
    }
    moved = f"{would(dry_run)} at version {after}; it was {before or 'empty'}"
    answer(
        as_json,
        document,
        f"{settings.shown_store_url} {f'has version {after} already' if before == after else moved}",
    )


@app.command()
def expire(
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="TIME|AGE",
            help="Events registered before a time, or older than 30d, 12h.",
        ),
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Compact old events to what triggers and repeats need of them; what a consumer still needs
    stays.

    A trigger that is no longer declared needs its events until `lakechime trigger forget`.
    """
    from lakechime_dagster.triggers.progress import expire as expired
    from lakechime_dagster.triggers.progress import needed_after, needs

    platform = open_platform(dry_run=dry_run)
    before_ms = common.past_milliseconds("--before", before, platform.store.now())
    report = expired(platform.store.engine, before_ms, needed=needed_after, dry_run=dry_run)
    by = {table: need.subscription for table, need in needs(platform.store.engine).items()}
    tables = [
        record(
            one,
            "table cluster compacted needed",
            needed_by=by.get(one.table) if one.needed else None,
        )
        for one in report.tables
    ]
    if as_json:
        print_json(
            record(report, "compacted held_back", before=before_ms, dry_run=dry_run, tables=tables)
        )
        return
    compacted = (
        f"{count(report.compacted, 'event')} registered before {when(before_ms)} "
        f"{would_be(dry_run, 'compacted')}"
    )
    say(f"{compacted}; {report.held_back:,} still needed")
    print_documents(tables, "table compacted needed needed_by")
