"""`lakechime notice`: changes that are planned, whom they concern, and telling these people."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.notice import draft as notice_draft
from lakechime_dagster.cli.notice import send as notice_send
from lakechime_dagster.cli.notice.names import ChangeNumber
from lakechime_dagster.cli.options import DryRun, Json, Reason, Who
from lakechime_dagster.cli.output import count, print_facts, print_json, print_table, say, shown_fact, when
from lakechime_dagster.errors import LakeChimeError

if TYPE_CHECKING:
    from lakechime_dagster.store.notices.changes import KeptChange

app = typer.Typer(name="notice", help="Planned changes: draft one, see whom it concerns, tell them, and see who has seen it.")
app.command("draft")(notice_draft.draft)
app.command("send")(notice_send.send)

PARTS = ("steps", "messages", "acknowledged", "unseen")  # of what is shown of a change, beside its facts
MESSAGE = ("version", "occasion", "owner", "channel", "state", "tried_ts", "problem")
MAX_STILL = 10  # of those that still read, in a message


@app.command("list")
def list_(
    all_: Annotated[bool, typer.Option("--all", help="Also those that are done or withdrawn.")] = False,
    as_json: Json = False,
) -> None:
    """List the changes that are planned or announced, the newest first."""
    from lakechime_dagster.resources.notices.documents import list_document

    changes = list_document(open_platform(), ended=all_)
    if as_json:
        print_json({"changes": changes})
        return
    names = ("change", "version", "state", "title", "who")
    rows = [(*(one[name] for name in names), when(one["announced_ts"]), one["told"], one["seen"]) for one in changes]
    print_table(["change", "version", "state", "what", "drafted by", "announced", "told", "seen"], rows, empty="no change is planned")


@app.command()
def show(change: ChangeNumber, as_json: Json = False) -> None:
    """Show a change: what it says, what was done with it, what was sent to whom, and who has seen it."""
    from lakechime_dagster.resources.notices.documents import story_document

    story = story_document(open_platform(), change)
    if as_json:
        print_json(story)
        return
    print_facts({name: shown_fact(name, value) for name, value in story.items() if name not in PARTS})
    for name, columns, fields, empty in (
        ("steps", ("when", "who", "did", "version", "why"), ("ts", "who", "action", "version", "reason"), ""),
        ("messages", ("version", "told", "owner", "channel", "state", "tried", "problem"), MESSAGE, "nobody was told yet"),
        ("acknowledged", ("owner", "seen by", "when", "note"), ("owner", "who", "acked_ts", "note"), "nobody has said yet to have seen it"),
    ):
        say("")
        rows = [[when(one[field]) if field.endswith("ts") else one[field] for field in fields] for one in story[name]]
        print_table(columns, rows, empty=empty)
    if story["unseen"]:
        say(f"\nnot yet: {', '.join(story['unseen'])}")


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
    from lakechime_dagster.resources.lineage.asked import AskedLineage
    from lakechime_dagster.resources.notices.hits import columns_now, hits_of
    from lakechime_dagster.resources.notices.sending import notices

    platform = open_platform(dry_run=dry_run)
    by = parse.by(who, reason)
    one = notices(platform).get(change)
    lake = declared_lake(platform.settings)
    if not anyway and (ended := one.change.ended(lambda table: columns_now(platform, lake, table))):
        hits = hits_of(AskedLineage(platform, lake), ended)
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
    from lakechime_dagster.resources.notices.documents import change_document

    if as_json:
        print_json(change_document(one) | more)
    else:
        say(sentence)
