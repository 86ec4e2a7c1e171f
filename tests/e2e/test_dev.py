"""`lakechime dev`: two days of the flights lake go through by themselves, and one Ctrl-C ends all of it."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.dagster_dev import lakechime
from tests.support.processes import REPOSITORY, Service, await_found, environment, free_port, program

pytestmark = [pytest.mark.e2e, pytest.mark.spark]


def test_two_days_of_flights_go_through_by_themselves_and_one_ctrl_c_ends_all_of_it(tmp_path: Path, spark_jars: Path) -> None:
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
        assert service.interrupt() == 0, service.tail()
        assert not service.left_over()
    finally:
        service.end()


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
