"""`lakechime dev`: two days of the flights lake go through by themselves, a backfill survives a kill, one Ctrl-C ends all of it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

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
        found = await_found(lambda: verified(env), "every table is equal to what the raw files say", 360, is_there(service), 15)
        assert {table["finding"] for table in found["tables"]} == {"equal"}
        assert lakechime(env, "status")["events"]
        compute_again(service, env)
        assert service.interrupt() == 0, service.tail()
        assert not service.left_over()
    finally:
        service.end()


def compute_again(service: Service, env: dict[str, str]) -> None:
    """A column of the weather is computed again by exactly its readers, whatever is killed meanwhile, and all is equal in the end."""
    done = lakechime(env, "backfill", "run", "--columns", "bronze.weather.wind_speed", "--reason", "the sensor was wrong")
    assert {order["table"] for order in done["orders"]} == {"silver.flights", "gold.daily_delays"}
    assert {"gold.route_hour", "gold.airline_scorecard"} <= set(done["spared"])
    ask = ("backfill", "status", done["backfill"])
    await_found(lambda: "TAKEN" in lakechime(env, *ask)["states"] or None, "a lane is at work", 120, is_there(service), 1)
    strike(env["LAKECHIME_HOME"])
    service.start()
    await_found(lambda: lakechime(env, *ask)["is"] == "done" or None, f"the backfill is done\n{service.tail()}", 300, is_there(service), 5)
    assert set(lakechime(env, *ask)["states"]) == {"DONE"}
    found = await_found(lambda: verified(env), "every table is still equal", 120, is_there(service), 5)
    assert {table["finding"] for table in found["tables"]} == {"equal"}


def strike(home: str) -> None:
    """Kill every process that works in a home, at once."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("LAKECHIME_HOME") == home:
                process.kill()


def verified(env: dict[str, str]) -> dict[str, Any] | None:
    """What `demo verify` says, once everything is equal."""
    if any(flow["open"] or flow["waiting"] for flow in lakechime(env, "status")["triggers"]):
        return None
    try:
        return lakechime(env, "demo", "verify")
    except AssertionError:
        return None


def is_there(service: Service):
    def look() -> None:
        assert service.is_running, service.tail()

    return look
