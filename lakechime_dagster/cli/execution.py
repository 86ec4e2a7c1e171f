"""`lakechime execution`: what was claimed, by which runs, and what to do when one is stuck."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    DryRun,
    Json,
    Reason,
    Who,
    open_platform,
    print_facts,
    print_json,
    print_table,
    say,
    when,
)
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.triggers.consumers import Execution

app = typer.Typer(name="execution", help="Executions: list, show, retry, skip.")

Id = Annotated[str, typer.Argument(metavar="EXECUTION", help="Its id, as `lakechime execution list` shows it.")]


class State(StrEnum):
    """The states of an execution, as a person types them."""

    OPEN = "open"
    SETTLED = "settled"
    SKIPPED = "skipped"


@app.command("list")
def list_(
    subscription: Annotated[str | None, typer.Option("--trigger", help="Of this trigger only.")] = None,
    state: Annotated[State | None, typer.Option("--state", case_sensitive=False, help="In this state only.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many, newest first.")] = 50,
    as_json: Json = False,
) -> None:
    """List executions, newest claim first."""
    from lakechime_dagster.triggers.consumers import ExecutionState

    wanted = ExecutionState(state.value.upper()) if state else None
    ledger = open_platform().ledger
    if subscription is not None and ledger.subscription(subscription) is None:
        raise NotFoundError(f"nothing was ever claimed for a trigger {subscription!r}; `lakechime trigger list` shows the triggers")
    executions = ledger.executions(subscription=subscription, state=wanted, limit=limit)
    if as_json:
        print_json({"executions": [_document(execution) for execution in executions]})
        return
    rows = [
        [
            one.execution_id,
            one.consumer.subscription,
            one.consumer.key,
            one.step,
            one.state,
            one.attempt,
            one.cause,
            when(one.claimed_ts),
            one.reason,
        ]
        for one in executions
    ]
    print_table(["execution", "trigger", "key", "step", "state", "attempt", "cause", "claimed", "because"], rows, empty="no execution")


@app.command()
def show(execution_id: Id, as_json: Json = False) -> None:
    """Show an execution: what it reads, its attempts and their errors."""
    platform = open_platform()
    execution = _found(platform, execution_id)
    attempts = platform.ledger.attempts(execution_id)
    if as_json:
        print_json({"execution": _document(execution), "attempts": [vars(attempt) for attempt in attempts]})
        return
    facts = _document(execution)
    ranges = facts.pop("ranges")
    for name in ("claimed_ts", "settled_ts", "lease_until", "next_attempt_ts"):
        facts[name] = when(facts[name])
    facts |= {"start": execution.start.position, "end": execution.end.position}
    print_facts({name: value for name, value in facts.items() if value not in (None, "")})
    say("")
    rows = [[one["table"], one["start"] or "(nothing)", one["end"]] for one in ranges]
    print_table(["reads", "after commit", "up to commit"], rows, empty="it reads no new commit")
    say("")
    tried = [[one.number, one.run_id, when(one.begun_ts), when(one.ended_ts), one.outcome, one.error] for one in attempts]
    print_table(["attempt", "run", "begun", "ended", "outcome", "error"], tried, empty="no attempt")


@app.command()
def retry(execution_id: Id, reason: Reason, who: Who = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Try an open execution again at once, also one whose consumer is held."""
    from lakechime_dagster.triggers.interventions import Interventions

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    execution = _open(platform, execution_id)
    following = execution if dry_run else Interventions(platform.ledger).retry(execution, by)
    attempt = execution.attempt + 1 if dry_run else following.attempt
    if as_json:
        print_json({"execution": _document(following), "attempt": attempt, "dry_run": dry_run})
    else:
        row = platform.ledger.subscription(execution.consumer.subscription)
        until = "" if row is None or row.paused_ts is None else f" once `lakechime trigger resume {row.name} --reason …` ends its pause"
        say(f"attempt {attempt} at {_named(execution)} {'would be' if dry_run else 'is'} due; its sensor launches the run{until}")


@app.command()
def skip(execution_id: Id, reason: Reason, who: Who = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Give up an open execution: its consumer goes on after its range, which nobody processes then."""
    from lakechime_dagster.triggers.interventions import Interventions

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    execution = _open(platform, execution_id)
    if not dry_run:
        Interventions(platform.ledger).skip(execution, by)
    now = execution if dry_run else _found(platform, execution_id)
    if as_json:
        print_json({"execution": _document(now), "dry_run": dry_run})
    else:
        say(f"{_named(execution)} {'would be' if dry_run else 'is'} skipped; its consumer goes on after {execution.end.position}")


def _found(platform: "Platform", execution_id: str) -> "Execution":
    execution = platform.ledger.execution(execution_id)
    if execution is None:
        raise NotFoundError(f"there is no execution {execution_id!r}; `lakechime execution list` shows those that are there")
    return execution


def _open(platform: "Platform", execution_id: str) -> "Execution":
    """An execution that can still be acted on."""
    execution = _found(platform, execution_id)
    if execution.settled_ts is not None:
        raise ConsumerConflictError(f"execution {execution_id} is {execution.state.value.lower()} already; nothing was changed")
    return execution


def _named(execution: "Execution") -> str:
    return f"step {execution.step} of {execution.consumer.subscription} {execution.consumer.key}".strip()


def _document(execution: "Execution") -> dict[str, Any]:
    return {
        "execution_id": execution.execution_id,
        "trigger": execution.consumer.subscription,
        "key": execution.consumer.key,
        "step": execution.step,
        "state": execution.state.value,
        "cause": execution.cause.value,
        "attempt": execution.attempt,
        "run_id": execution.run_id,
        "partition_key": execution.partition_key,
        "start": execution.start.to_json(),
        "end": execution.end.to_json(),
        "ranges": [{"table": one.table, "start": one.start, "end": one.end} for one in execution.ranges().values()],
        "claimed_ts": execution.claimed_ts,
        "settled_ts": execution.settled_ts,
        "lease_until": execution.lease_until,
        "next_attempt_ts": execution.next_attempt_ts,
        "version": execution.version,
        "reason": execution.reason,
    }
