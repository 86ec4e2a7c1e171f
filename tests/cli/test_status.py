"""`lakechime status`: one look."""

import importlib
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine.url import make_url

from lakechime_dagster.runtime import resource
from tests.cli import subscriptions
from tests.cli.test_execution import held
from tests.support.cli import Cli


def test_status_of_a_new_home(lakechime: Cli) -> None:
    answer = lakechime("status", "--json").json
    assert (
        answer["lake_name"],
        answer["events"],
        answer["newest_event_ts"],
        answer["triggers"],
    ) == ("flights", 0, None, [])
    assert answer["warm_driver"] == "not running: runs start their own"
    assert answer["store"] == f"sqlite:///{lakechime.home / 'dce.sqlite'}"


def test_status_counts_what_waits_is_open_and_is_blocked(lakechime: Cli) -> None:
    held(lakechime)
    answer = lakechime("status", "--json").json
    assert (answer["events"], answer["consumers_blocked"]) == (1, 1)
    assert answer["triggers"] == [
        {"name": subscriptions.ORDERS, "paused": False, "waiting": 1, "open": 1, "blocked": 1}
    ]
    assert subscriptions.ORDERS in lakechime("status").out


def test_a_lake_that_cannot_be_loaded_is_said_and_hides_nothing(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_LAKE", "no_such_package.lake:lake")
    answer = lakechime("status", "--json")
    assert answer.code == 0
    assert answer.json["lake_name"].startswith(
        "cannot be loaded: LAKECHIME_LAKE 'no_such_package.lake:lake': names no module"
    )
    listed = lakechime("trigger", "show", "--json")
    assert (listed.code, listed.json) == (0, {"triggers": []})
    assert listed.err.startswith("warning: ")


def test_the_lake_of_a_project_is_that_of_its_own_definitions(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path.cwd()
    monkeypatch.delenv("LAKECHIME_LAKE")
    monkeypatch.setattr(resource, "_LAKES", {})
    assert lakechime("status", "--json").json["lake"] == "none"
    assert (
        "no lake is declared here"
        in lakechime("cdc", "check", "a.b", "--json").json["error"]["message"]
    )
    monkeypatch.syspath_prepend(folder)
    (folder / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "own_project"\n')
    (folder / "own_project").mkdir()
    definitions = folder / "own_project" / "definitions.py"
    definitions.write_text(
        "from lakechime_dagster import Lake, SourceTable\n\nlake = Lake('own', "
        "[SourceTable('a.b')])\n"
    )
    assert lakechime("status", "--json").json["lake_name"] == "own"
    assert [one["name"] for one in lakechime("table", "show", "--json").json["tables"]] == ["a.b"]
    definitions.write_text("x = 1\n")
    monkeypatch.delitem(sys.modules, "own_project.definitions")
    importlib.invalidate_caches()
    assert "own_project.definitions has no lake" in lakechime("status", "--json").json["lake_name"]


@pytest.mark.services
def test_status_shows_no_password_of_the_store(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    url = make_url(postgres_url).update_query_dict(
        {"password": "s3cret", "application_name": "ops"}
    )
    monkeypatch.setenv("LAKECHIME_STORE_URL", url.render_as_string(hide_password=False))
    answer = lakechime("status", "--json")
    assert (answer.code, "s3cret" in answer.out + answer.err) == (0, False)
    assert answer.json["store"].endswith("?application_name=ops")
