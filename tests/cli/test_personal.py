"""`lakechime personal`: where personal data goes is listed, and what a person decides of a column
holds.
"""

import json
import sys

import pyarrow as pa
import pytest

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.tables.events import event_group
from lakechime_dagster.tables.options import personal
from tests.cli.game import GAME, Game, event
from tests.lineage.factories import make_record, make_statement, source
from tests.support.cli import Cli
from tests.support.tables import write

MEMBERS = make_statement(
    "silver.members",
    email="bronze.people.email",
    town="bronze.people.town",
    id=source("bronze.people.email", Kind.TRANSFORMATION, masking=True),
)
HOSTS = make_statement(
    "silver.hosts",
    host=source("silver.members.email", Kind.TRANSFORMATION),
    town="silver.members.town",
)
TOWNS = make_statement(
    "gold.towns",
    town="silver.members.town",
    last=source("silver.members.id", Kind.AGGREGATION),
    n=source("silver.members.email", Kind.AGGREGATION, masking=True),
)
GUESS = make_statement("lab.guess", inputs=("silver.members",), opaque={"risk": "rows of an RDD"})


@pytest.fixture
def people(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A lake of people, whose runs reported what they did."""
    monkeypatch.setenv("LAKECHIME_LAKE", "tests.cli.people_lake:lake")
    several = (MEMBERS, HOSTS, TOWNS, GUESS)
    SqlLineage(lakechime.platform.store.engine).record_all(
        [make_record(one, namespace="local", job=one.target) for one in several]
    )
    return lakechime


def listed(people: Cli, *arguments: str) -> list[tuple[str, str, str]]:
    reported = people("personal", "show", *arguments, "--json").json
    return [
        (f"{one['table']}.{one['column']}", one["category"], one["how"])
        for one in reported["columns"]
    ]


def test_what_is_declared_and_what_comes_of_it_is_listed_with_its_way(people: Cli) -> None:
    assert listed(people) == [
        ("bronze.people.email", "email", "personal"),
        ("gold.towns.last", "email", "pseudonym"),
        ("lab.guess.risk", "email", "unsure"),
        ("silver.hosts.host", "host", "personal"),
        ("silver.hosts.host", "email", "derived"),
        ("silver.members.email", "email", "personal"),
        ("silver.members.id", "email", "pseudonym"),
    ]
    (host,) = [
        one
        for one in people("personal", "show", "silver.hosts", "--json").json["columns"]
        if one["category"] == "email"
    ]
    assert host["path"] == ["bronze.people.email", "silver.members.email", "silver.hosts.host"]
    out = people("personal", "show").out
    assert "bronze.people.email → silver.members.email" in out
    assert "its declaration" in out


def test_untagged_values_and_pseudonyms_in_a_public_table_are_problems_with_a_remedy(
    people: Cli,
) -> None:
    problems = people("personal", "show", "--json").json["problems"]
    assert [(one["column"], one["public"]) for one in problems] == [
        ("gold.towns.last", True),
        ("silver.members.email", False),
    ]
    assert problems[1]["remedy"].startswith(
        'declare asset=Asset(columns={"email": personal("email")}) of silver.members'
    )
    assert "2 problems" in people("personal", "show").out


def test_a_decision_holds_whatever_leads_to_the_column_and_can_be_changed(people: Cli) -> None:
    decided = people(
        "personal", "decide", "silver.members", "EMAIL", "email", "--who", "ana", "--json"
    ).json
    assert decided == {
        "column": "silver.members.email",
        "category": "email",
        "who": "ana",
        "reason": "it is email",
    }
    assert [one["column"] for one in people("personal", "show", "--json").json["problems"]] == [
        "gold.towns.last"
    ]
    assert "a decision of ana" in people("personal", "show", "silver.members").out
    people("personal", "decide", "silver.members", "email", "not", "--reason", "test addresses")
    assert listed(people, "silver.members") == [("silver.members.id", "email", "pseudonym")]
    assert [
        host for host, category, _ in listed(people, "silver.hosts") if category == "email"
    ] == []
    assert "not personal: silver.members.email" in people("personal", "show").out


def test_unknown_names_and_categories_are_refused_with_the_nearest(people: Cli) -> None:
    assert "did you mean bronze.people?" in people("personal", "show", "bronze.peple").err
    refused = people("personal", "decide", "bronze.people", "Email", "not")
    assert (
        refused.code,
        'declared personal("email")' in refused.err,
        "change the declaration" in refused.err,
    ) == (1, True, True)
    assert "is no category" in people("personal", "decide", "silver.members", "town", "E-Mail!").err
    assert (
        "write the table and the column apart"
        in people("personal", "decide", "silver.members.town", "town", "city").err
    )


def test_paths_of_a_group_are_personal_in_the_tables_of_its_types(lakechime: Cli) -> None:
    game = Game.declared(
        lakechime,
        event_group("shop", GAME, match="shop_*", columns={"/user/email": personal("email")}),
    )
    game.come(event("shop_buy", user={"email": "ana@example.com", "town": "Ulm"}))
    game.execute()
    assert listed(lakechime) == [
        ("game.events.$.user.email", "email", "personal"),
        ("game.events.payload:$.user.email", "email", "personal"),
        ("shop.shop_buy.user.email", "email", "personal"),
    ]


@pytest.fixture
def letters(people: Cli) -> Cli:
    """A table of the lake with rows in which is more than anybody declared."""
    location = people.home / "warehouse" / "bronze" / "visits"
    location.mkdir(parents=True)
    payloads = [json.dumps({"to": f"person{n}@example.com", "n": n}) for n in range(20)]
    write(location, pa.table({"page": ["/"] * 20, "phone": ["x"] * 20, "payload": payloads}))
    return people


def test_a_scan_proposes_with_counts_and_shares_and_shows_no_value(letters: Cli) -> None:
    reported = letters("personal", "show", "bronze.visits", "--scan", "--json")
    assert reported.json == {
        "table": "bronze.visits",
        "rows": 20,
        "left_out": 0,
        "proposals": [
            {"column": "phone", "category": "phone", "by_name": True, "values": 20, "valid": 0},
            {
                "column": "payload:$.to",
                "category": "email",
                "by_name": False,
                "values": 20,
                "valid": 20,
            },
        ],
    }
    shown = letters("personal", "show", "bronze.visits", "--scan")
    assert "20 of 20 (100%)" in shown.out
    assert "example.com" not in reported.out + shown.out + shown.err
    assert (
        letters("personal", "show", "bronze.visits", "--scan", "--sample", "7", "--json").json[
            "rows"
        ]
        == 7
    )


def test_what_is_decided_is_not_proposed_again_and_is_known(letters: Cli) -> None:
    letters("personal", "decide", "bronze.visits", "payload:$.to", "email")
    letters("personal", "decide", "bronze.visits", "phone", "not")
    assert letters("personal", "show", "bronze.visits", "--scan", "--json").json["proposals"] == []
    assert (
        "no further column looks personal"
        in letters("personal", "show", "bronze.visits", "--scan").out
    )
    assert listed(letters, "bronze.visits") == [("bronze.visits.payload:$.to", "email", "personal")]


def test_a_scan_of_what_is_not_there_says_so(letters: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        "bronze.people does not exist yet"
        in letters("personal", "show", "bronze.people", "--scan").err
    )
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    assert (
        "pip install 'lakechime-dagster[personal]'"
        in letters("personal", "show", "bronze.visits", "--scan").err
    )
