"""`lakechime dev`: two days of the flights lake go through by themselves, a backfill survives a kill, one Ctrl-C ends all of it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from lakechime_dagster.resources.platform import Platform, open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.store.backfills import Backfills
from lakechime_dagster.store.overview import overview
from lakechime_dagster.triggers.orders import OrderState
from tests.support.dagster_dev import lakechime
from tests.support.processes import REPOSITORY, Service, await_found, environment, free_port, program

pytestmark = [pytest.mark.e2e, pytest.mark.spark]


def test_two_days_of_flights_go_through_a_backfill_goes_on_after_a_kill_and_one_ctrl_c_ends_all_of_it(
    tmp_path: Path, spark_jars: Path
) -> None:
    env = environment(tmp_path, LAKECHIME_SPARK_JARS=str(spark_jars))
    port = free_port()
    lakechime(env, "demo", "replay", "--days", "2", "--hours", "1")
    command = [*program("lakechime"), "dev", "--port", str(port), "--speed", "8"]
    service = Service("lakechime-dev", command, cwd=REPOSITORY, env=env, port=port, log=tmp_path / "lakechime-dev.log")
    service.start()
    try:
        await_found(lambda: "has written everything" in service.tail(100_000) or None, "the replay has ended", 180, is_there(service), 1)
        platform = open_platform(load_settings(home=tmp_path))  # looked at in this process, where a command would start one each time
        found = await_found(lambda: verified(env, platform), "every table is equal to what the raw files say", 360, is_there(service), 5)
        assert {table["finding"] for table in found["tables"]} == {"equal"}
        assert lakechime(env, "status")["events"]
        compute_again(service, env, platform)
        assert service.interrupt() == 0, service.tail()
        assert not service.left_over()
    finally:
        service.end()


def compute_again(service: Service, env: dict[str, str], platform: Platform) -> None:
    """A column of the weather is computed again by exactly its readers, whatever is killed meanwhile, and all is equal in the end."""
    before = {one.execution_id for one in platform.ledger.executions(limit=1_000)}
    done = lakechime(env, "backfill", "run", "--columns", "bronze.weather.wind_speed", "--reason", "the sensor was wrong")
    assert {order["table"] for order in done["orders"]} == {"silver.flights", "gold.daily_delays"}
    assert {"gold.route_hour", "gold.airline_scorecard"} <= set(done["spared"])

    def states() -> set[OrderState]:
        return set(Backfills(platform.ledger).backfill(done["backfill"]).states)

    await_found(lambda: OrderState.TAKEN in states() or None, "a lane is at work", 120, is_there(service))
    strike(env["LAKECHIME_HOME"])
    service.start()
    await_found(lambda: states() == {OrderState.DONE} or None, f"the backfill is done\n{service.tail()}", 300, is_there(service), 1)
    assert lakechime(env, "backfill", "status", done["backfill"])["is"] == "done"
    found = await_found(lambda: verified(env, platform), "every table is still equal", 120, is_there(service), 5)
    ran = [one.lane.flow for one in platform.ledger.executions(limit=1_000) if one.execution_id not in before]
    assert set(ran) == {"silver.flights", "gold.daily_delays"}
    assert {table["finding"] for table in found["tables"]} == {"equal"}


def strike(home: str) -> None:
    """Kill every process that works in a home, at once."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("LAKECHIME_HOME") == home:
                process.kill()


def verified(env: dict[str, str], platform: Platform) -> dict[str, Any] | None:
    """What `demo verify` says, once everything is equal."""
    if any(flow.open or flow.waiting for flow in overview(platform.ledger)):
        return None
    try:
        return lakechime(env, "demo", "verify")
    except AssertionError:
        return None


def is_there(service: Service):
    def look() -> None:
        assert service.is_running, service.tail()

    return look
