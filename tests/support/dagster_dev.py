"""A running `dagster dev` for end-to-end tests, and its GraphQL."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg

from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.triggers.progress import overview
from tests.support.processes import REPOSITORY, Service, await_found, environment, free_port

LAKE = "tests.e2e.lake:lake"
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus locationOrLoadError {
  __typename ... on PythonError { message }
  ... on RepositoryLocation { repositories { name sensors { name description sensorState { status } } } } } } } } }"""
RUNS = """query Runs($filter: RunsFilter) { runsOrError(filter: $filter) { ... on Runs {
  results { runId status tags { key value } } } } }"""
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")


@dataclass(frozen=True)
class DagsterDev:
    """Dagster's UI and daemon over a home of their own."""

    home: Path
    service: Service

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        """What Dagster keeps, as this process sees it."""
        return dg.DagsterInstance.from_config(str(self.home / "dagster"))

    @cached_property
    def platform(self) -> Platform:
        """The home's store and ledger, looked at in this process, where a command would start one
        each time.
        """
        return open_platform(load_settings(home=self.home))

    def is_at_rest(self) -> bool:
        """Whether no trigger waits, works or is held, and no run is at work."""
        waits = any(
            subscription.open or subscription.waiting or subscription.blocked
            for subscription in overview(self.platform.ledger)
        )
        return not waits and all(run.is_finished for run in self.instance.get_runs())

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"{self.url}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        return found["data"]

    def locations(self) -> dict[str, dict[str, Any]]:
        """The code locations that are loaded, by name; one that cannot be loaded ends the test."""
        entries = self.graphql(LOCATIONS)["workspaceOrError"]["locationEntries"]
        loaded = [entry for entry in entries if entry["loadStatus"] == "LOADED"]
        for entry in loaded:
            assert entry["locationOrLoadError"]["__typename"] == "RepositoryLocation", entry[
                "locationOrLoadError"
            ]
        return {entry["name"]: entry["locationOrLoadError"] for entry in loaded}

    def sensors(self, location: str) -> dict[str, dict[str, Any]]:
        repositories = self.locations()[location]["repositories"]
        return {
            sensor["name"]: sensor
            for repository in repositories
            for sensor in repository["sensors"]
        }

    def runs(self, consumer: str) -> list[dict[str, Any]]:
        """The runs of a consumer, newest first, their tags as a mapping."""
        wanted = {"tags": [{"key": "lakechime/consumer", "value": consumer}]}
        runs = self.graphql(RUNS, filter=wanted)["runsOrError"]["results"]
        return [run | {"tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in runs]

    def await_run(self, consumer: str, count: int = 1) -> dict[str, Any]:
        """The newest run of a consumer, once so many have finished."""

        def finished() -> dict[str, Any] | None:
            runs = [run for run in self.runs(consumer) if run["status"] in FINISHED]
            return runs[0] if len(runs) >= count else None

        return await_found(
            finished,
            f"{count} finished run of {consumer}\n{self.service.tail()}",
            300,
            self._is_there,
            pause=0.5,
        )

    def lakechime(self, *arguments: str, expect: int | None = 0) -> dict[str, Any]:
        """The JSON that a command prints."""
        return lakechime(self.service.env, *arguments, expect=expect)

    def _is_there(self) -> None:
        assert self.service.is_running, self.service.tail()


@contextmanager
def dagster_dev(
    name: str, command: list[str], home: Path, locations: set[str], cwd: Path, **wishes: str
) -> Iterator[DagsterDev]:
    """A UI and a daemon by this command, with these code locations loaded; nothing of it is left
    afterwards.
    """
    port = free_port()
    (home / "dagster").mkdir(parents=True, exist_ok=True)
    (home / "dagster" / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
    service = Service(
        name,
        [*command, "--port", str(port)],
        cwd=cwd,
        log=home / f"{name}.log",
        env=environment(home, **wishes),
        port=port,
    )
    service.start()
    running = DagsterDev(home, service)
    try:
        await_found(
            lambda: service.is_ready, f"{name} listens\n{service.tail()}", 300, running._is_there
        )
        await_found(
            lambda: locations <= set(running.locations()),
            f"{locations} are loaded",
            300,
            running._is_there,
        )
        yield running
    finally:
        service.end()


def lakechime(env: Mapping[str, str], *arguments: str, expect: int | None = 0) -> dict[str, Any]:
    """What a `lakechime` command prints as JSON; with whatever exit code if None is expected."""
    command = [sys.executable, "-m", "lakechime_dagster.cli.main", *arguments, "--json"]
    done = subprocess.run(
        command,
        env=dict(env),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert expect in (None, done.returncode), (
        f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
    )
    return json.loads(done.stdout)
