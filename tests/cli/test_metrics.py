"""`lakechime metrics` serves what the store of its home tells, and says what is wrong with an address."""

import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.processes import Service, await_found, environment, free_port


@pytest.mark.tier2
def test_a_process_of_its_own_serves_metrics_until_it_is_interrupted(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "lakechime_dagster.cli.main", "metrics", "--port", str(port)]
    service = Service("metrics", command, cwd=tmp_path, env=environment(tmp_path / "home"), port=port)
    service.start()
    try:
        await_found(lambda: service.is_ready, "metrics are served", 60)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert 'lakechime_consumers{state="blocked"} 0.0' in answer.read().decode().splitlines()
        assert service.interrupt() == 130
    finally:
        service.end()


def test_an_address_that_cannot_be_used_is_told(lakechime: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = lakechime("metrics", "--port", str(port))
    assert (answer.code, answer.out) == (1, "")
    assert f"error: port {port} of 127.0.0.1 cannot be used (Address already in use); end what uses it" in answer.err
    answer = lakechime("metrics", "--host", "nowhere.invalid")
    assert (answer.code, answer.err.startswith("error: port 9464 of nowhere.invalid cannot be used")) == (1, True)
