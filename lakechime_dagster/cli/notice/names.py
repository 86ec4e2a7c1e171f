"""Changes by their numbers, and how commands show them."""

import difflib
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.lineage.columns import ColumnRef

if TYPE_CHECKING:
    from lakechime_dagster.store.notices.changes import KeptChange
    from lakechime_dagster.store.notices.outbox import KeptMessage

ChangeNumber = Annotated[
    int, typer.Argument(metavar="CHANGE", min=1, max=2**31 - 1, help="Its number, as `lakechime notice list` tells it.")
]


def document(one: "KeptChange") -> dict[str, Any]:
    """A change as JSON, and as facts for people."""
    change = one.change
    return {
        "change": one.change_id, "version": one.version, "state": one.state.value, "kind": change.kind.value, "what": change.what,
        "action": change.action, "on": None if change.on is None else change.on.isoformat(), "of": [str(ref) for ref in change.refs],
        "sender": change.sender, "who": one.who, "source": one.source, "made_ts": one.made_ts, "announced_ts": one.announced_ts,
    }  # fmt: skip


def message_document(one: "KeptMessage") -> dict[str, Any]:
    """A message as JSON, without its text."""
    return {
        "change": one.change_id, "version": one.version, "occasion": one.message.occasion, "owner": one.message.owner,
        "channel": one.message.channel, "state": one.state.value, "attempt": one.attempt, "tried_ts": one.tried_ts, "due_ts": one.due_ts,
        "problem": one.problem,
    }  # fmt: skip


def ref_named(name: str, tables: Collection[str]) -> ColumnRef:
    """The table of this name, or the column of a table, as schema.table.column; `tables` are all that are known.

    Raises:
        NotFoundError: naming the table that is nearest.
    """
    if name in tables:
        return ColumnRef(name)
    of = max((table for table in tables if name.startswith(f"{table}.")), key=len, default=None)
    if of is not None and len(name) > len(of) + 1:
        return ColumnRef(of, name[len(of) + 1 :])
    near = difflib.get_close_matches(name, tables, n=1)
    remedy = f"did you mean {near[0]}?" if near else "name a table as schema.table, or a column as schema.table.column"
    raise NotFoundError(f"no table {shown(name)} is known; {remedy}")
