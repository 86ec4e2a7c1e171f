"""Runs a command until the Dagster UI that it serves has loaded its code location, then ends it as
Ctrl-C does.

Usage: serves.py PORT COMMAND…   Standard library only: it is run by any Python 3.11.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

START_SECONDS, END_SECONDS = 420, 60
ANSWER_SECONDS = (
    120  # a question that is given up is worked at all the same, and the next one comes on top
)
QUERY = (
    "{ assetNodes { id } repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }"
)


def main() -> int:
    """0 when the UI showed assets and one Ctrl-C ended all of it."""
    port, command = int(sys.argv[1]), sys.argv[2:]
    served = subprocess.Popen(command, start_new_session=True)
    try:
        assets = shown_assets(port, served)
        print(
            f"serves: the UI shows {assets} assets" if assets else "serves: the UI showed nothing",
            flush=True,
        )
        os.killpg(served.pid, signal.SIGINT)
        code = served.wait(END_SECONDS)
    finally:
        kill(served.pid)
    left = answer(port) is not None
    print(
        f"serves: ended by one Ctrl-C with exit code "
        f"{code}{', but the UI still answers' if left else ''}",
        flush=True,
    )
    return 0 if assets and not left else 1


def shown_assets(port: int, served: "subprocess.Popen[bytes]") -> int:
    """How many assets the UI shows once its code location is loaded; 0 when the command ended or
    took too long.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and served.poll() is None:
        data = answer(port)
        if data is not None and data["assetNodes"]:
            return len(data["assetNodes"])
        time.sleep(0.5)
    return 0


def answer(port: int) -> dict[str, list[object]] | None:
    """What the UI's GraphQL says; None while nothing answers."""
    body = json.dumps({"query": QUERY}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
            return json.load(response).get("data")
    except (OSError, ValueError):
        return None


def kill(group: int) -> None:
    """End what is left of a process group."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
