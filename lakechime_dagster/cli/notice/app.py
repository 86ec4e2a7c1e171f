"""`lakechime notice`: changes that are planned, whom they concern, and telling these people."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.notice import draft as notice_draft
from lakechime_dagster.cli.notice import send as notice_send
from lakechime_dagster.cli.notice.names import ChangeNumber, document, message_document
from lakechime_dagster.cli.options import DryRun, Json, Reason, Who
from lakechime_dagster.cli.output import count, print_facts, print_json, print_table, say, shown_fact, when
from lakechime_dagster.errors import LakeChimeError

if TYPE_CHECKING:
    from lakechime_dagster.store.notices.changes import KeptChange

app = typer.Typer(name="notice", help="Planned changes: draft one, see whom it concerns, tell them, and see who has seen it.")
app.command("draft")(notice_draft.draft)
app.command("send")(notice_send.send)

MAX_STILL = 10  # of those that still read, in a message


@app.command("list")
def list_(
    all_: Annotated[bool, typer.Option("--all", help="Also those that are done or withdrawn.")] = False,
    as_json: Json = False,
) -> None:
    """List the changes that are planned or announced, the newest first."""
    from lakechime_dagster.lineage.notices.changes import ChangeState
    from lakechime_dagster.resources.notices.sending import notices

    states = list(ChangeState) if all_ else [state for state in ChangeState if state.is_open]
    changes = notices(open_platform()).changes(*states)
    if as_json:
        print_json({"changes": [document(one) for one in changes]})
        return
    rows = [(one.change_id, one.version, one.state, one.change.title, one.who, when(one.announced_ts)) for one in changes]
    print_table(["change", "version", "state", "what", "drafted by", "announced"], rows, empty="no change is planned")


@app.command()
def show(change: ChangeNumber, as_json: Json = False) -> None:
    """Show a change: what it says, what was done with it, what was sent to whom, and who has seen it."""
    from lakechime_dagster.resources.notices.sending import notices, outbox

    platform = open_platform()
    one = notices(platform).get(change)
    steps, seen = notices(platform).steps(change), notices(platform).acknowledged(change, one.version)
    messages = outbox(platform).of(change)
    if as_json:
        told: dict[str, Any] = {
            "steps": [{name: getattr(step, name) for name in ("action", "version", "who", "reason", "ts")} for step in steps],
            "messages": [message_document(message) for message in messages],
            "acknowledged": [{name: getattr(ack, name) for name in ("owner", "who", "note", "acked_ts")} for ack in seen],
        }
        print_json(document(one) | told)
        return
    print_facts({name: shown_fact(name, value) for name, value in document(one).items()})
    say("")
    print_table(
        ["when", "who", "did", "version", "why"],
        [(when(step.ts), step.who, step.action, step.version, step.reason) for step in steps],
        empty="",
    )
    say("")
    rows = [
        (each.version, each.message.occasion, each.message.owner, each.message.channel, each.state, when(each.tried_ts), each.problem)
        for each in messages
    ]  # fmt: skip
    print_table(["version", "told", "owner", "channel", "state", "tried", "problem"], rows, empty="nobody was told yet")
    say("")
    print_table(
        ["owner", "seen by", "when", "note"],
        [(ack.owner, ack.who, when(ack.acked_ts), ack.note) for ack in seen],
        empty="nobody has said yet to have seen it",
    )


@app.command()
def ack(
    change: ChangeNumber,
    owner: Annotated[str, typer.Option("--owner", help="Who was told, such as team:ops.")],
    note: Annotated[str, typer.Option("--note", help="A word to whoever sent it.")] = "",
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Say for an owner that a change was seen."""
    from lakechime_dagster.resources.notices.sending import notices

    by = parse.by(who, "seen")
    with parse.reading_fields({"who": "--who", "note": "--note"}):
        seen = notices(open_platform()).acknowledge(change, owner, by.who, note)
    if as_json:
        print_json({"change": change, "version": seen.version, "owner": seen.owner, "who": seen.who, "acked_ts": seen.acked_ts})
    else:
        say(f"{seen.owner} has seen version {seen.version} of change {change}, says {seen.who}")


@app.command()
def withdraw(change: ChangeNumber, reason: Reason, who: Who = None, as_json: Json = False) -> None:
    """Take a change back. Whoever was told of it is told so by `lakechime notice send`."""
    from lakechime_dagster.resources.notices import sending as notices

    one, told = notices.withdraw(open_platform(), change, parse.by(who, reason))
    waits = "that says so waits" if told == 1 else "that say so wait"
    tell = (
        f"; {count(told, 'message')} {waits}: `lakechime notice send {change} --yes` sends {'it' if told == 1 else 'them'}" if told else ""
    )
    _ended(one, as_json, f"change {change} is withdrawn{tell}", {"messages": told})


@app.command()
def done(
    change: ChangeNumber,
    reason: Reason,
    anyway: Annotated[bool, typer.Option("--anyway", help="Though somebody still reads what it is of.")] = False,
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Say that an announced change has come; refused while somebody reads what is deprecated, or is gone."""
    from lakechime_dagster.lineage.notices.digests import still_reading
    from lakechime_dagster.resources.notices.hits import columns_now, hits_of
    from lakechime_dagster.resources.notices.sending import notices

    platform = open_platform(dry_run=dry_run)
    by = parse.by(who, reason)
    one = notices(platform).get(change)
    lake = declared_lake(platform.settings)
    if not anyway and (ended := one.change.ended(lambda table: columns_now(platform, lake, table))):
        hits = hits_of(platform, lake, ended)
        if still := still_reading(hits, platform.store.now()):
            raise StillReadError(change, still)
    if not dry_run:
        one = notices(platform).done(change, by)
    _ended(one, as_json, f"change {change} {'would be' if dry_run else 'is'} done", {"dry_run": dry_run})


class StillReadError(LakeChimeError):
    """A change is not done while somebody reads what it is of."""

    def __init__(self, change: int, still: list[str]) -> None:
        self.change = change
        self.readers = len(still)
        more = f" and {len(still) - MAX_STILL} more" if len(still) > MAX_STILL else ""
        super().__init__(
            f"change {change} is not done: {', '.join(still[:MAX_STILL])}{more} may still read what it is of; wait until they do not, "
            "or say --anyway"
        )


def _ended(one: "KeptChange", as_json: bool, sentence: str, more: dict[str, Any]) -> None:
    if as_json:
        print_json(document(one) | more)
    else:
        say(sentence)
