"""`lakechime status`."""

from importlib.metadata import version
from typing import Any

from lakechime_dagster.cli.common import (
    Json,
    declared_lake,
    one_line,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    record,
    say,
    when,
)
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.settings import Settings, default_home, lake_name, own_definitions


def status(as_json: Json = False) -> None:
    """Show the store, the lake, the warm driver, and per trigger what waits, is open or is
    blocked.
    """
    from lakechime_dagster.dce.engine import newest_version
    from lakechime_dagster.triggers.progress import overview

    platform = open_platform()
    settings = platform.settings
    tables = platform.store.tables()
    subscriptions = overview(platform.ledger)
    newest = max(
        (table.last_event_ts for table in tables if table.last_event_ts is not None), default=None
    )
    document: dict[str, Any] = {
        "version": version("lakechime-dagster"),
        "deployment": settings.deployment,
        "home": str(settings.home),
        "home_found": default_home()[1]
        if settings.home == default_home()[0]
        else "by LAKECHIME_HOME",
        "lake": _lake_source(settings),
        "lake_name": _lake_name(settings),
        "store": settings.shown_store_url,
        "store_version": newest_version(),
        "tables": len(tables),
        "events": sum(table.events for table in tables),
        "newest_event_ts": newest,
        "consumers_blocked": sum(subscription.blocked for subscription in subscriptions),
        "warm_driver": _warm_driver(settings),
    }
    triggers = [
        record(one, "waiting open blocked", name=one.row.name, paused=one.row.paused_ts is not None)
        for one in subscriptions
    ]
    if as_json:
        print_json(document | {"triggers": triggers})
        return
    print_facts(document | {"newest_event_ts": when(newest) or "none"})
    say("")
    print_documents(
        triggers, "name paused waiting open blocked", empty="no trigger has been active yet"
    )


def _lake_source(settings: Settings) -> str:
    """Where the lake is declared: a module, or a name as `module:attribute`."""
    return own_definitions(settings) or lake_name(settings) or "none"


def _lake_name(settings: Settings) -> str:
    try:
        return declared_lake(settings).name
    except LakeChimeError as error:
        return f"cannot be loaded: {one_line(str(error))}"


def _warm_driver(settings: Settings) -> str:
    from lakechime_dagster.spark.jvm import WarmFile, is_alive

    if settings.spark.driver != "warm":
        return f"not used: LAKECHIME_SPARK_DRIVER={settings.spark.driver}"
    found = WarmFile.read(settings.home)
    if found is None or not is_alive(found.host_pid):
        return "not running: runs start their own"
    return (
        "ready"
        if found.is_warmed
        else "asleep until the next run"
        if found.is_asleep
        else "starting"
    )
