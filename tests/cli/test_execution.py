"""`lakechime execution`: what was claimed, and what to do when it is stuck."""

from lakechime_dagster.triggers.consumers import Execution
from tests.cli import subscriptions
from tests.cli.test_trigger import change, claim
from tests.support.cli import Cli

WHY = ["--reason", "the row was wrong", "--who", "ops"]


def held(lakechime: Cli) -> Execution:
    """An execution whose five attempts failed."""
    change(lakechime, 1)
    execution = claim(lakechime)
    ledger = lakechime.platform.ledger
    while (following := ledger.lose(execution, "division by zero", immediately=True)) is not None:
        execution = following
    return execution


def test_list_shows_the_newest_first_and_filters(lakechime: Cli) -> None:
    change(lakechime, 1)
    first = claim(lakechime)
    lakechime.platform.ledger.complete(first, None)
    change(lakechime, 2)
    second = claim(lakechime)
    ids = {first.execution_id, second.execution_id}
    listed = lakechime("execution", "show", "--json").json["executions"]
    assert {one["execution_id"] for one in listed} == ids
    opened = lakechime(
        "execution", "show", "--state", "open", "--trigger", subscriptions.ORDERS, "--json"
    ).json["executions"]
    assert [(one["execution_id"], one["number"], one["state"]) for one in opened] == [
        (second.execution_id, 2, "OPEN")
    ]
    assert lakechime("execution", "show", "--trigger", "nobody", "--json").code == 3
    assert len(lakechime("execution", "show", "--limit", "1", "--json").json["executions"]) == 1
    assert first.execution_id in lakechime("execution", "show").out


def test_show_reports_ranges_and_attempts(lakechime: Cli) -> None:
    execution = held(lakechime)
    answer = lakechime("execution", "show", execution.execution_id, "--json")
    assert answer.json["execution"]["ranges"] == [
        {"table": "bronze.orders", "start": None, "end": "1"}
    ]
    assert [(one["number"], one["outcome"], one["error"]) for one in answer.json["attempts"]] == [
        (number, "lost", "division by zero") for number in range(1, 6)
    ]
    assert "division by zero" in lakechime("execution", "show", execution.execution_id).out


def test_retry_gives_a_blocked_execution_another_attempt(lakechime: Cli) -> None:
    execution = held(lakechime)
    would = lakechime("execution", "retry", execution.execution_id, *WHY, "--dry-run", "--json")
    assert (would.json["attempt"], would.json["execution"]["attempt"]) == (6, 5)
    done = lakechime("execution", "retry", execution.execution_id, *WHY, "--json")
    assert (done.code, done.json["execution"]["attempt"]) == (0, 6)
    shown = lakechime(
        "trigger", "show", subscriptions.ORDERS, "--module", "tests.cli.subscriptions", "--json"
    ).json
    assert [consumer["state"] for consumer in shown["consumers"]] == ["ACTIVE"]
    assert [(one["action"], one["reason"]) for one in shown["interventions"]] == [
        ("retry", "the row was wrong")
    ]


def test_skip_gives_an_execution_up(lakechime: Cli) -> None:
    execution = held(lakechime)
    would = lakechime("execution", "skip", execution.execution_id, *WHY, "--dry-run", "--json")
    assert would.json["execution"]["state"] == "OPEN"
    done = lakechime("execution", "skip", execution.execution_id, *WHY, "--json")
    assert done.json["execution"]["state"] == "SKIPPED"
    assert done.json["execution"]["reason"] == "skipped by ops: the row was wrong"
    again = lakechime("execution", "skip", execution.execution_id, *WHY, "--json")
    assert (again.code, again.json["error"]["type"]) == (1, "ConsumerConflictError")
