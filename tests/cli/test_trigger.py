"""`lakechime trigger`: explanations and interventions, on a module that declares two triggers."""

import sys
from types import ModuleType
from typing import Any

import pytest

from lakechime_dagster.errors import failures_kept
from lakechime_dagster.tables.events import event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.consumers import Execution
from tests.cli import subscriptions
from tests.support.cli import Answer, Cli

MODULE = ["--module", "tests.cli.subscriptions"]
WHY = ["--reason", "the disk was full", "--who", "ops"]


def change(lakechime: Cli, *versions: int) -> list[dict[str, Any]]:
    done = []
    for version in versions:
        answer = lakechime(
            "dce",
            "register",
            "--table",
            "bronze.orders",
            "--snapshot-id",
            str(version),
            "--tag",
            "complete=true",
            "--json",
        )
        done += answer.json["registered"]
    return done


def trigger(lakechime: Cli, verb: str, name: str, *arguments: str) -> Answer:
    return lakechime("trigger", verb, name, *arguments, *MODULE, "--json")


def claim(lakechime: Cli) -> Execution:
    """What the sensor does when it ticks."""
    subscription = subscriptions_by_name()[subscriptions.ORDERS]
    platform = lakechime.platform
    row = platform.evaluator.activate(subscription)
    (execution,) = platform.evaluator.fire(
        subscription, row, platform.evaluator.evaluate(subscription, row), lambda consumer: None
    )
    return execution


def test_an_explanation_of_an_event_group_whose_declaration_is_wrong_says_what_is_wrong(
    lakechime: Cli,
) -> None:
    module, stream = ModuleType("wrong_lake"), event_stream("game", source=JsonLines("in"))
    with failures_kept():
        module.__dict__["lake"] = Lake(
            "game", [stream, event_group("shop", stream, match="shop.*", owner="nobody")]
        )
    lakechime.monkeypatch.setitem(sys.modules, "wrong_lake", module)
    lakechime.monkeypatch.setenv("LAKECHIME_LAKE", "wrong_lake:lake")
    answer = lakechime("trigger", "show", "shop", "--json").json
    assert (answer["decision"], "shop, owner: 'nobody' is neither" in answer["reasons"][0]) == (
        "not_yet",
        True,
    )


def complete(lakechime: Cli) -> None:
    lakechime.platform.ledger.complete(claim(lakechime), None)


def position_of_consumer(lakechime: Cli) -> str:
    consumers = trigger(lakechime, "show", subscriptions.ORDERS).json["consumers"]
    return {one["key"]: one["checkpoint"]["position"] for one in consumers}[""]


def subscriptions_by_name() -> dict[str, Any]:
    from lakechime_dagster.runtime.resource import declared_subscriptions

    return declared_subscriptions()


def test_explain_says_fire_with_its_events(lakechime: Cli) -> None:
    events = change(lakechime, 1, 2)
    answer = trigger(lakechime, "show", subscriptions.ORDERS)
    assert answer.code == 0
    assert (answer.json["trigger"]["name"], answer.json["decision"]) == (
        subscriptions.ORDERS,
        "fire",
    )
    assert answer.json["events"] == events
    assert "2 events arrived (2 of bronze.orders)" in answer.json["reasons"][0]
    assert lakechime.platform.ledger.subscriptions() == []  # asking activates nothing


def test_explain_of_a_past_time_leaves_out_what_came_later(lakechime: Cli) -> None:
    first, second = change(lakechime, 1)[0], change(lakechime, 2)[0]
    before_all = trigger(
        lakechime, "show", subscriptions.ORDERS, "--at", str(first["event_ts"])
    ).json
    after_all = trigger(
        lakechime, "show", subscriptions.ORDERS, "--at", str(second["event_ts"] + 1)
    ).json
    complete(lakechime)
    completed = trigger(lakechime, "show", subscriptions.ORDERS).json
    past = trigger(
        lakechime, "show", subscriptions.ORDERS, "--at", str(second["event_ts"] + 1)
    ).json
    assert (before_all["decision"], before_all["events"]) == ("not_yet", [])
    assert (after_all["decision"], after_all["events"]) == ("fire", [first, second])
    assert completed["decision"] == "not_yet"
    assert past["events"] == [first, second]


def test_explain_of_a_partition_trigger_shows_the_events_of_the_oldest_missing_or_firing_key(
    lakechime: Cli,
) -> None:
    missing = trigger(lakechime, "show", subscriptions.DAYS).json
    assert (missing["decision"], missing["events"]) == ("not_yet", [])
    assert "bronze.days" in missing["reasons"][0]
    lakechime(
        "dce",
        "register",
        "--table",
        "bronze.days",
        "--tag",
        "complete=true",
        "--partition",
        '["2013-01-01"]',
    )
    fires = trigger(lakechime, "show", subscriptions.DAYS).json
    assert (fires["decision"], [event["partition"] for event in fires["events"]]) == (
        "fire",
        [["2013-01-01"]],
    )


def test_show_distinguishes_declared_from_recorded_triggers(lakechime: Cli) -> None:
    change(lakechime, 1)
    claim(lakechime)
    listed = {
        one["name"]: one for one in lakechime("trigger", "show", *MODULE, "--json").json["triggers"]
    }
    assert (
        listed[subscriptions.ORDERS]["state"],
        listed[subscriptions.ORDERS]["open"],
        listed[subscriptions.ORDERS]["waiting"],
    ) == ("active", 1, 1)
    assert listed[subscriptions.DAYS]["state"] == "not active yet"
    shown = trigger(lakechime, "show", subscriptions.ORDERS).json
    assert shown["trigger"]["tables"] == ["bronze.orders"]
    assert [consumer["state"] for consumer in shown["consumers"]] == ["ACTIVE"]
    undeclared = lakechime("trigger", "show", "--json").json["triggers"]
    assert {one["name"]: one["state"] for one in undeclared}[
        subscriptions.ORDERS
    ] == "not declared here"


def test_a_replay_is_claimed_and_the_consumer_stays(lakechime: Cli) -> None:
    events = change(lakechime, 1, 2)
    complete(lakechime)
    bounds = ["--from", events[0]["position"], "--to", events[1]["position"]]
    would = trigger(lakechime, "replay", subscriptions.ORDERS, *bounds, *WHY, "--dry-run")
    assert (would.json["events"], would.json["execution"]["execution_id"]) == (1, "")
    done = trigger(lakechime, "replay", subscriptions.ORDERS, *bounds, *WHY)
    assert (done.json["execution"]["cause"], done.json["execution"]["number"]) == ("replay", 1)
    assert position_of_consumer(lakechime) == events[1]["position"]
    assert trigger(lakechime, "replay", subscriptions.DAYS, *bounds, *WHY).code == 1
    assert trigger(lakechime, "replay", subscriptions.ORDERS, "--from", "now", *WHY).code == 1


@pytest.mark.parametrize(
    "command", [["pause"], ["seek", "--to", "now"], ["seek", "--to", "beginning"]]
)
def test_a_dry_run_in_a_new_home_answers_as_the_command_and_activates_nothing(
    lakechime: Cli, command: list[str]
) -> None:
    (event,) = change(lakechime, 1)
    verb, *arguments = command
    would = trigger(lakechime, verb, subscriptions.ORDERS, *arguments, *WHY, "--dry-run")
    assert (would.code, would.json["dry_run"], lakechime.platform.ledger.subscriptions()) == (
        0,
        True,
        [],
    )
    done = trigger(lakechime, verb, subscriptions.ORDERS, *arguments, *WHY)
    assert done.json | {"dry_run": True} == would.json
    if arguments:
        assert would.json["consumers"][0]["before"] == {"position": "0-0", "sources": {}}
        assert would.json["consumers"][0]["after"]["position"] == (
            event["position"] if arguments[1] != "beginning" else "0-0"
        )


def test_a_key_or_a_consumer_that_is_not_there_is_refused_before_anything_is_made(
    lakechime: Cli,
) -> None:
    for name, code in ((subscriptions.ORDERS, 3), (subscriptions.DAYS, 3)):
        for dry_run in ([], ["--dry-run"]):
            assert (
                trigger(lakechime, "seek", name, "--to", "now", "--key", "foo", *WHY, *dry_run).code
                == code
            )
    assert trigger(lakechime, "seek", subscriptions.DAYS, "--to", "now", *WHY).code == 1
    assert lakechime.platform.ledger.subscriptions() == []


def test_a_reason_is_required_and_unknown_names_are_not_found(lakechime: Cli) -> None:
    for verb, more in (("pause", []), ("resume", []), ("seek", ["--to", "now"])):
        assert trigger(lakechime, verb, subscriptions.ORDERS, *more).code == 2
        assert trigger(lakechime, verb, "nobody", *more, *WHY).code == 3
    assert trigger(lakechime, "show", "nobody").code == 3
