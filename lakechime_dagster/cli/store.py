"""`lakechime store`: its version, and the end of old events."""

from typing import Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    DryRun,
    Json,
    count,
    open_platform,
    print_json,
    print_table,
    say,
    when,
)
from lakechime_dagster.settings import load_settings

app = typer.Typer(name="store", help="The DCE store: upgrade it, expire old events.")


@app.command()
def upgrade(dry_run: DryRun = False, as_json: Json = False) -> None:
    """Create the store's tables, or bring them to this version; many processes may do so at once. A dry run shows the versions."""
    from lakechime_dagster.dce.engine import open_engine
    from lakechime_dagster.dce.upgrade import current_version, newest_version
    from lakechime_dagster.dce.upgrade import upgrade as upgraded

    settings = load_settings()
    engine = open_engine(settings.store_url)
    before = current_version(engine)
    after = newest_version() if dry_run else upgraded(engine)
    if as_json:
        print_json({"store": settings.shown_store_url, "before": before, "after": after, "dry_run": dry_run})
    elif before == after:
        say(f"{settings.shown_store_url} has version {after} already")
    else:
        say(f"{settings.shown_store_url} {'would be' if dry_run else 'is'} at version {after}; it was {before or 'empty'}")


@app.command()
def expire(
    before: Annotated[str, typer.Option("--before", metavar="TIME|AGE", help="Events registered before a time, or older than 30d, 12h.")],
    force: Annotated[bool, typer.Option("--force", help="Also events that a consumer still needs; it is STALE then.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Compact old events to what triggers and repeats need of them; what a consumer still needs stays.

    A trigger that is no longer declared needs its events until `lakechime trigger forget`.
    """
    from lakechime_dagster.triggers.retention import expire as expired
    from lakechime_dagster.triggers.retention import mark_stale, needed_after, needs

    platform = open_platform(dry_run=dry_run)
    before_ms = common.past_milliseconds("--before", before, platform.store.now())
    report = expired(platform.store.engine, before_ms, needed=needed_after, dry_run=dry_run, force=force, when_forced=mark_stale)
    by = {table: need.subscription for table, need in needs(platform.store.engine).items()}
    tables: list[dict[str, Any]] = [
        {
            "table": one.table,
            "cluster": one.cluster,
            "compacted": one.compacted,
            "needed": one.needed,
            "forced": one.forced,
            "needed_by": by.get(one.table) if one.needed else None,
        }
        for one in report.tables
    ]
    if as_json:
        counts = {"compacted": report.compacted, "held_back": report.held_back}
        print_json({"before": before_ms, "dry_run": dry_run, **counts, "tables": tables})
        return
    would = "would be compacted" if dry_run else "compacted"
    say(f"{count(report.compacted, 'event')} registered before {when(before_ms)} {would}; {report.held_back:,} still needed")
    if tables:
        rows = [[one["table"], one["compacted"], one["needed"], one["needed_by"], "yes" if one["forced"] else ""] for one in tables]
        print_table(["table", "compacted", "needed", "by", "forced"], rows, empty="")
