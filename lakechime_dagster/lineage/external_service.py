"""What the code location of external assets shows, and reloading it in the webserver."""

import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

import orjson

from lakechime_dagster.dce.engine import open_engine
from lakechime_dagster.dce.store import SqlDCEStore
from lakechime_dagster.dce.upgrade import check
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.external import IN_USE_MS, MOST, Outside
from lakechime_dagster.lineage.store import outside_of
from lakechime_dagster.settings import Settings
from lakechime_dagster.tables.lake import Lake

LOCATION = "outside"
SECONDS = 60  # that a reload may take
MUTATION = """mutation Reload($location: String!) { reloadRepositoryLocation(repositoryLocationName: $location) { __typename
  ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } }
  ... on RepositoryLocationNotFound { message } ... on ReloadNotSupported { message } ... on UnauthorizedError { message }
  ... on PythonError { message } } }"""


class NotReloadedError(LakeChimeError):
    """The webserver has not read the location anew."""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What is outside, as the store told it at a moment of its own clock."""

    outside: Outside
    now_ms: int

    @property
    def digest(self) -> str:
        return self.outside.digest(self.now_ms)

    @property
    def sentence(self) -> str:
        """What is shown, and how much is not."""
        consumers, tables, more = len(self.outside.consumers), len(self.outside.tables), self.outside.more
        said = f"{consumers:,} that read the lake and {tables:,} data sets that it does not declare are shown"
        return said + (f", those that were used last; {more:,} more are not" if more else "")


def look_outside(settings: Settings, lake: Lake, most: int = MOST) -> Looked:
    """What is outside now. The store is neither made nor upgraded by it.

    Raises:
        LakeChimeError: there is no store, none that this version can read, or it cannot be reached.
    """
    engine = open_engine(settings.store_url)
    try:
        check(engine)
        now = SqlDCEStore(engine).now()
        names = {table.name for table in lake.tables} | {group.name for group in lake.groups}
        return Looked(outside=outside_of(engine, names, settings.deployment, now - IN_USE_MS, most), now_ms=now)
    finally:
        engine.dispose()


def reload_outside(webserver_url: str, seconds: float = SECONDS) -> None:
    """Have the webserver read the location anew.

    Raises:
        NotReloadedError: saying why it has not.
    """
    body = orjson.dumps({"query": MUTATION, "variables": {"location": LOCATION}})
    request = urllib.request.Request(f"{webserver_url.rstrip('/')}/graphql", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            problem = _problem_of(orjson.loads(answer.read()))
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NotReloadedError(f"Dagster's webserver at {webserver_url} does not answer: {reason}; set LAKECHIME_WEBSERVER_URL") from None
    if problem:
        raise NotReloadedError(f"Dagster's webserver has not read the code location {LOCATION} anew: {problem}")


def _problem_of(answer: Any) -> str:
    """Why a reload has failed, by the answer; empty if it has not."""
    try:
        told = answer["data"]["reloadRepositoryLocation"]
        if told["__typename"] == "RepositoryLocationNotFound":
            return "it is not in its workspace; docs/lineage.md says what to add"
        if told["__typename"] != "WorkspaceLocationEntry":
            return str(told.get("message") or told["__typename"])
        entry = told["locationOrLoadError"] or {}
        return _first_line(entry["message"]) if entry.get("__typename") == "PythonError" else ""
    except (KeyError, TypeError):
        return f"it answered {str(answer)[:200]}"


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")
