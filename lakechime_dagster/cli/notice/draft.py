"""`lakechime notice draft`: what is to be told of a planned change; nobody is told yet."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.notice.names import ref_named
from lakechime_dagster.cli.options import Json, Who
from lakechime_dagster.cli.output import print_json, say
from lakechime_dagster.compat import date_of_iso

if TYPE_CHECKING:
    from lakechime_dagster.lineage.columns import ColumnRef
    from lakechime_dagster.lineage.notices.changes import Change
    from lakechime_dagster.resources.lineage.asked import AskedLineage

KINDS = "deprecation, retention, schema change, incident, backfill"
FIELDS = {"what": "--what", "on": "--on", "action": "--action", "sender": "--from", "refs": "OF", "table": "OF", "column": "OF"}


Of = Annotated[list[str] | None, typer.Argument(metavar="[OF]...", help="Tables, as schema.table, or columns, schema.table.column.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help=f"One of: {KINDS}.")]
What = Annotated[str | None, typer.Option("--what", help="What happens, in a sentence or two.")]
Action = Annotated[str | None, typer.Option("--action", help="What readers are to do.")]
On = Annotated[str | None, typer.Option("--on", metavar="DATE", help="When it comes, such as 2026-12-31, or came.")]
From = Annotated[str | None, typer.Option("--from", metavar="OWNER", help="In whose name; whoever owns the tables unless given.")]
Amended = Annotated[int | None, typer.Option("--change", metavar="CHANGE", min=1, help="Amend this one: the rest stays as it was.")]


def draft(
    of: Of = None, kind: Kind = None, what: What = None, action: Action = None, on: On = None, sender: From = None, change: Amended = None,
    who: Who = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Draft a notice of a change, or draft the next version of one. `lakechime notice send` shows whom it concerns."""
    from lakechime_dagster.resources.lineage.asked import AskedLineage
    from lakechime_dagster.resources.notices import drafting
    from lakechime_dagster.resources.notices.documents import change_document

    platform = open_platform()
    asked = AskedLineage(platform, declared_lake(platform.settings))
    by = parse.by(who, "draft")
    given = _given(of, kind, what, action, on, sender, asked)
    with parse.reading_fields(FIELDS):
        kept = drafting.draft(platform, _new(given, asked), by.who) if change is None else drafting.amend(platform, change, given, by.who)
    if as_json:
        print_json(change_document(kept))
    else:
        say(f"change {kept.change_id}, version {kept.version}, is {kept.state}: {kept.change.title}")
        say(f"`lakechime notice send {kept.change_id}` shows whom it concerns, with --yes it tells them")


def _given(
    of: list[str] | None, kind: str | None, what: str | None, action: str | None, on: str | None, sender: str | None, asked: "AskedLineage"
) -> dict[str, Any]:  # fmt: skip
    from lakechime_dagster.lineage.notices.changes import ChangeKind

    given: dict[str, Any] = {"what": what, "action": action, "sender": sender}
    known = {*asked.network.tables, *(table.name for table in asked.lake.tables)} if of else set()
    given["refs"] = tuple(_ref(name, known, asked) for name in of) if of else None
    if kind is not None:
        if kind.replace("_", " ") not in list(ChangeKind):
            raise parse.wrong("--kind", f"{kind!r} is none of {KINDS}")
        given["kind"] = ChangeKind(kind.replace("_", " "))
    if on is not None:
        try:
            given["on"] = date_of_iso(on)
        except ValueError:
            raise parse.wrong("--on", f"{on!r} is not a date; write such as 2026-12-31") from None
    return {name: value for name, value in given.items() if value is not None}


def _ref(name: str, known: set[str], asked: "AskedLineage") -> "ColumnRef":
    """What a person names; of a table whose columns are known a column is one of these, or a field of one."""
    ref = ref_named(name, known)
    columns = asked.columns(ref.table) if ref.column is not None else set()
    if ref.column is not None and columns and ref.column.partition(".")[0] not in columns:
        return asked.ref(name)
    return ref


def _new(given: dict[str, Any], asked: "AskedLineage") -> "Change":
    from lakechime_dagster.lineage.notices.changes import Change
    from lakechime_dagster.resources.notices.drafting import sender_of

    for name, option in (("kind", "--kind"), ("what", "--what"), ("refs", "OF")):
        if name not in given:
            raise parse.wrong(option, "is missing; say what is to be told")
    values: dict[str, Any] = {"sender": sender_of(asked, given["refs"])} | given
    return Change(**values)
