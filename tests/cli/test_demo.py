"""`lakechime demo`: replay and verify, on real data."""

import pytest

from tests.support.cli import Cli


@pytest.mark.tier2
def test_a_replay_goes_on_where_it_stopped_and_verify_finds_the_computed_tables_missing(
    lakechime: Cli,
) -> None:
    nothing = lakechime("demo", "--verify", "--json")
    assert (nothing.code, nothing.json["error"]["type"]) == (3, "NotFoundError")
    would = lakechime("demo", "--days", "2", "--hours", "6", "--dry-run", "--json")
    assert (would.json["replayed"], would.json["dry_run"], would.json["of"]) == (
        0,
        True,
        2 * 24 + 34,
    )
    first = lakechime("demo", "--days", "2", "--hours", "6", "--json").json
    assert first == {"ticks": 6, "of": 82, "replayed": 6, "dry_run": False}
    assert lakechime("demo", "--hours", "2").out.endswith("2 hours replayed; 8 of 82 are done\n")
    other = lakechime("demo", "--seed", "7", "--json")
    assert (other.code, other.json["error"]["field"]) == (1, "replay")
    found = lakechime("demo", "--verify", "--json")
    tables = {one["table"]: one["finding"] for one in found.json["tables"]}
    assert (found.code, found.json["equal"]) == (1, False)
    assert (tables["bronze.flights"], tables["bronze.weather"], tables["silver.flights"]) == (
        "equal",
        "equal",
        "missing",
    )
    marks = lakechime(
        "dce", "list", "--table", "bronze.weather", "--tag", "complete=true", "--json"
    ).json["events"]
    assert [mark["partition"][1] for mark in marks] == list(range(8))
