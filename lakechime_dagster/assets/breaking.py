"""Telling the owner of a group of changes that break something: a check that fails while they are recent, with who brought them."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.schema.learning import Broke
from lakechime_dagster.store.types.repository import KeptBreak

NOTHING_BREAKS = "nothing_breaks"
ABOUT = "No field went on in a sibling, and no values were kept out of all columns by a contract or a cap, lately."
RECENT_MS = 120_000  # so long the check fails at least, as alarms look from time to time
MAX_NAMED = 5  # in a sentence
MAX_SHOWN = 200

_HOW = {
    Broke.SIBLING: "goes to a sibling",
    Broke.FROZEN: "is kept out by the contract",
    Broke.CAP: "is kept out, as the table has as many columns as it may",
    Broke.RELAYOUT: "has other columns, as its table was made anew",
}


def breaking_check(group: EventGroup, several: Sequence[KeptBreak]) -> dg.AssetCheckResult:
    """What the check says of these changes; without one it passes."""
    metadata: dict[str, Any] = {"changes": len(several)}
    if several:
        metadata["breaking"] = dg.MetadataValue.json([_facts(one) for one in several[:MAX_SHOWN]])
        metadata |= {"owner": group.owner} if group.owner else {}
    return dg.AssetCheckResult(
        asset_key=asset_key(group.name), check_name=NOTHING_BREAKS, passed=not several, severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata,
        description=_sentence(group, several) if several else None,
    )  # fmt: skip


def _facts(one: KeptBreak) -> dict[str, Any]:
    change = one.breaking
    return {"type": one.type, "path": change.path, "kind": change.kind, "how": change.how.value, "producer": change.producer,
            "layout": one.layout_version}  # fmt: skip


def _sentence(group: EventGroup, several: Sequence[KeptBreak]) -> str:
    told = [
        (f"{one.breaking.kind} at {one.breaking.path} of {one.type}" if one.breaking.path else one.type)
        + (f", sent by {one.breaking.producer}," if one.breaking.producer else "") + f" {_HOW[one.breaking.how]}"
        for one in several[:MAX_NAMED]
    ]  # fmt: skip
    told += [f"and {len(several) - MAX_NAMED} more"] if len(several) > MAX_NAMED else []
    return "; ".join([*told, *([f"{group.name} is owned by {group.owner}"] if group.owner else [])])
