"""`lakechime dev`: two days of the flights lake go through by themselves, a backfill survives a
kill, one Ctrl-C ends all of it.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.triggers.backfills import Backfills
from lakechime_dagster.triggers.consumers import RequestState
from lakechime_dagster.triggers.progress import overview
from tests.support.dagster_dev import lakechime
from tests.support.processes import (
    REPOSITORY,
    Service,
    await_found,
    environment,
    free_port,
    program,
)

pytestmark = [pytest.mark.tier3, pytest.mark.e2e, pytest.mark.spark]


def test_two_days_of_flights_go_through_a_backfill_goes_on_after_a_kill_and_one_ctrl_c_ends_all_of_it(
    tmp_path: Path, spark_jars: Path
) -> None:
    env = environment(tmp_path, LAKECHIME_SPARK_JARS=str(spark_jars))
    port = free_port()
    lakechime(env, "demo", "--days", "2", "--hours", "1")
    command = [*program("lakechime"), "dev", "--port", str(port), "--speed", "8"]
    service = Service(
        "lakechime-dev",
        command,
        cwd=REPOSITORY,
        env=env,
        port=port,
        log=tmp_path / "lakechime-dev.log",
    )
    service.start()
    try:
        await_found(
            lambda: "has written everything" in service.tail(100_000) or None,
            "the replay has ended",
            360,
            is_there(service),
            1,
        )
        # looked at in this process, where a command would start one each time
        platform = open_platform(load_settings(home=tmp_path))
        found = await_found(
            lambda: verified(env, platform),
            "every table is equal to what the raw files say",
            900,
            is_there(service),
            5,
        )
        assert {table["finding"] for table in found["tables"]} == {"equal"}
        assert lakechime(env, "status")["events"]
        mend(service, env, platform)
        assert service.interrupt() == 0, service.tail()
        assert not service.left_over()
    finally:
        service.end()


def mend(service: Service, env: dict[str, str], platform: Platform) -> None:
    """What is wrong in a column is made right by a backfill of exactly those that read what it
    comes from, whatever is killed meanwhile.
    """
    wrong = DeltaTable(platform.location("silver.flights")).update(
        updates={"wind_speed": "wind_speed + 100"}, predicate="hour = 9"
    )
    assert wrong["num_updated_rows"]
    assert "silver.flights" in unequal(lakechime(env, "demo", "--verify", expect=None))
    done = lakechime(
        env, "backfill", "run", "--columns", "bronze.weather.wind_speed", "--reason", "it is wrong"
    )
    backfill, readers = done["backfill"], {"silver.flights", "gold.daily_delays"}
    assert {order["table"] for order in done["requests"]} == readers
    assert {"gold.route_hour", "gold.airline_scorecard"} <= set(done["unaffected"])
    await_found(
        lambda: RequestState.TAKEN in Backfills(platform.ledger).backfill(backfill).states or None,
        "a consumer is at work",
        120,
        is_there(service),
    )
    strike(env["LAKECHIME_HOME"])
    service.start()
    await_found(
        lambda: (
            set(Backfills(platform.ledger).backfill(backfill).states) == {RequestState.DONE} or None
        ),
        "the backfill is done",
        600,
        is_there(service),
        1,
    )
    assert lakechime(env, "backfill", "show", backfill)["is"] == "done"
    assert {
        one.consumer.subscription
        for one in platform.ledger.executions(limit=1_000)
        if one.backfill == backfill
    } == readers
    await_found(
        lambda: verified(env, platform), "every table is equal again", 600, is_there(service), 5
    )


def unequal(found: dict[str, Any]) -> set[str]:
    return {table["table"] for table in found["tables"] if table["finding"] != "equal"}


def strike(home: str) -> None:
    """Kill every process that works in a home, at once."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("LAKECHIME_HOME") == home:
                process.kill()


def verified(env: dict[str, str], platform: Platform) -> dict[str, Any] | None:
    """What `demo --verify` says, once everything is equal."""
    if any(subscription.open or subscription.waiting for subscription in overview(platform.ledger)):
        return None
    try:
        return lakechime(env, "demo", "--verify")
    except AssertionError:
        return None


def is_there(service: Service):
    def look() -> None:
        assert service.is_running, service.tail()

    return look
