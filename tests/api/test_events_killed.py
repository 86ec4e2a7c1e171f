"""A server that is killed while programs register: nothing is lost, and nothing is there twice."""

import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakechime_dagster.api.client import Client
from lakechime_dagster.dce.events import DataChangeEvent, EventQuery, SnapshotId
from lakechime_dagster.runtime.platform import open_platform
from tests.support.processes import await_found, free_port

pytestmark = pytest.mark.tier2
WRITERS, EACH, KILLS = 8, 25, 2


def test_a_server_that_is_killed_under_eight_writers_loses_and_doubles_nothing(home: Path) -> None:
    store = open_platform().store
    port = free_port()
    client = Client(f"http://127.0.0.1:{port}", attempts=60)

    def serve() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "lakechime_dagster.cli.main", "serve", "--port", str(port)]
        return subprocess.Popen(
            command, stderr=subprocess.DEVNULL, env=os.environ | {"LAKECHIME_HOME": str(home)}
        )

    def write(writer: int) -> None:
        for at in range(EACH):
            change = DataChangeEvent(table=f"bronze.t{writer}", snapshot_id=SnapshotId(str(at)))
            marker = DataChangeEvent(table=f"bronze.t{writer}", partition=(at,))
            client.register([change, marker])

    def registered() -> int:
        return len(store.fetch(EventQuery()))

    server = serve()
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            writers = [pool.submit(write, writer) for writer in range(WRITERS)]
            for kill in range(1, KILLS + 1):
                wanted = kill * WRITERS * EACH * 2 // (KILLS + 1)
                await_found(
                    lambda wanted=wanted: registered() >= wanted, "enough is registered", 120
                )
                server.send_signal(signal.SIGKILL)
                server.wait()
                server = serve()
            for writer in writers:
                writer.result()
    finally:
        server.kill()
        server.wait()
    events = [one.event for one in store.fetch(EventQuery())]
    assert Counter((one.table, one.snapshot_id, one.partition) for one in events) == Counter(
        (f"bronze.t{writer}", *each)
        for writer in range(WRITERS)
        for at in range(EACH)
        for each in ((str(at), None), (None, (at,)))
    )
