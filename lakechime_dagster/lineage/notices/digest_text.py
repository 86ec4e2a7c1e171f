"""A digest as the plain text that its owner gets."""

import datetime as dt
from collections.abc import Sequence

from lakechime_dagster.dce.text import printable, storable
from lakechime_dagster.lineage.notices.changes import Change
from lakechime_dagster.lineage.notices.digests import Digest, Hit, Reader, ReaderKind
from lakechime_dagster.lineage.notices.occasions import WITHDRAWN, is_reminder

MAX_LINES = 50  # of tables, and of readers
MAX_COLUMNS = 20  # of a table
MAX_TITLE = 200  # characters; more is cut by some services
YOURS = "Your tables that it reaches"
LAYER = "layer {}"


def title_of(change: Change, occasion: str) -> str:
    """One line; names of others may be in it, so that a character that cannot be seen is told by its code."""
    before = "Withdrawn: " if occasion == WITHDRAWN else "Reminder: " if is_reminder(occasion) else ""
    title = _plain(before + change.title)
    return title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1]}…"


def text_of(change: Change, digest: Digest, occasion: str, who: str) -> str:
    """The text for one owner; whoever sends it adds how to acknowledge."""
    parts = ["This change is withdrawn; nothing is to be done."] if occasion == WITHDRAWN else []
    parts += [change.what]
    if occasion != WITHDRAWN:
        parts += [f"What to do: {change.action}"] if change.action else []
        parts += [f"When: {change.on}"] if change.on else []
    parts += [f"What changes: {_some([_plain(str(ref)) for ref in change.refs], MAX_COLUMNS)}"]
    if digest.hits:
        whose = "Tables that it reaches and nobody owns, which you are told of as its sender" if digest.is_unowned else YOURS
        parts += [f"{whose}:\n" + _lines([_of_hit(hit) for hit in digest.hits])]
    for kind in (ReaderKind.DASHBOARD, ReaderKind.JOB):
        if several := [pair for pair in digest.readers if pair[0].kind is kind]:
            parts += [f"Your {kind}s that read what it reaches:\n" + _lines([_of_reader(*pair) for pair in several])]
    people = [pair for pair in digest.readers if pair[0].kind is ReaderKind.PERSON]
    if people:
        parts += ["What you have read of what it reaches:\n" + _lines([_of_reader(*pair) for pair in people])]
    parts += [f"Sent by {change.sender + ', ' if change.sender else ''}{who}."]
    return "\n\n".join("\n".join(storable(line) for line in part.split("\n")) for part in parts)


def _of_hit(hit: Hit) -> str:
    sure = "" if hit.is_sure else "; whether it is, is not sure, as something on the way is not known"
    return f"- {_plain(hit.table)} ({_layer(hit)}): {_columns(hit)}{sure}"


def _of_reader(reader: Reader, hit: Hit) -> str:
    read = "" if reader.read_ms is None else f", read last on {dt.datetime.fromtimestamp(reader.read_ms / 1000, dt.timezone.utc):%Y-%m-%d}"
    name = f"{_plain(reader.name)} {_plain(reader.link)}".strip() if reader.kind is not ReaderKind.PERSON else ""
    of = f"{_plain(hit.table)} ({_layer(hit)}): {_columns(hit)}"
    return f"- {name}{' reads ' if name else ''}{of}{read}"


def _layer(hit: Hit) -> str:
    return LAYER.format(hit.layer) if hit.layer else "it changes itself"


def _columns(hit: Hit) -> str:
    if hit.columns is None:
        return "columns not known" if hit.layer else "all of it"
    if not hit.columns:
        return "which rows it has"
    return ("column " if len(hit.columns) == 1 else "columns ") + _some([_plain(column) for column in hit.columns], MAX_COLUMNS)


def _lines(lines: Sequence[str]) -> str:
    more = [f"- and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return "\n".join([*lines[:MAX_LINES], *more])


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _plain(name: str) -> str:
    """A name in its line, whatever is in it."""
    return printable(name)
