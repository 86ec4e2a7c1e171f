"""`lakechime serve` takes lineage in a process of its own, and says what is wrong with an
address.
"""

import json
import sys
import urllib.request
from pathlib import Path

import pytest

from lakechime_dagster.cli.demo import DEMO_LAKE
from tests.lineage.ingest.factories import make_document
from tests.support.cli import Cli
from tests.support.processes import Service, await_found, environment, free_port


@pytest.mark.tier2
def test_a_process_of_its_own_takes_lineage_until_it_is_interrupted(tmp_path: Path) -> None:
    port, token = free_port(), "a-token-that-nobody-guesses"
    command = [sys.executable, "-m", "lakechime_dagster.cli.main", "serve", "--port", str(port)]
    service = Service(
        "serve",
        command,
        cwd=tmp_path,
        env=environment(tmp_path / "home", LAKECHIME_API_TOKEN=token, LAKECHIME_LAKE=DEMO_LAKE),
        port=port,
    )
    service.start()
    try:
        await_found(lambda: service.is_ready, "lineage is taken", 60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/lineage", json.dumps(make_document()).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["records"] == 1
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/", timeout=60) as answer:
            assert 'lakechime_consumers{state="blocked"} 0.0' in answer.read().decode().splitlines()
        service.interrupt()
        assert token not in service.log.read_text()
    finally:
        service.end()


def test_an_address_that_others_reach_is_refused_without_a_token(lakechime: Cli) -> None:
    answer = lakechime("serve", "--host", "0.0.0.0")
    assert (answer.code, answer.out) == (1, "")
    assert "set LAKECHIME_API_TOKEN to a secret" in answer.err
