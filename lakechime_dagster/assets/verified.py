"""The check of a group that looks, at times of its own, whether each event of its types is in their tables once."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.lakechime_resource import LakeChimeResource
from lakechime_dagster.resources.names import EACH_EVENT_ONCE
from lakechime_dagster.schema.conservation import Fault, Verified

MAX_SHOWN = 50  # types of a table that people read
MAX_TOLD = 5  # that an alarm names


def verify_check(group: EventGroup) -> dg.AssetChecksDefinition:
    """The check of a group that says when it is made; it starts Spark and reads the whole of the stream's table."""
    description = "Each event is in the table of its type once, with all that it says, or a contract discarded it."

    @dg.asset_check(asset=asset_key(group.name), name=EACH_EVENT_ONCE, description=description)
    def check(context: dg.AssetCheckExecutionContext, lakechime: LakeChimeResource) -> dg.AssetCheckResult:
        from lakechime_dagster.resources.streams.on_spark import verified

        platform = lakechime.platform()
        return conserved(verified(platform, group, context.log.info, seed=platform.store.now()))

    return check


def conserved(found: Sequence[Verified], key: dg.AssetKey | None = None, name: str | None = None) -> dg.AssetCheckResult:
    """What was found as a check: an error where an event is lost or a row is wrong, a warning where a type could not be looked at."""
    wrong, unread = [one for one in found if not one.is_whole], [one for one in found if one.unread]
    told = [f"{one.table}: {_faults(one)}" for one in wrong] + [f"{one.table} could not be looked at: {one.unread}" for one in unread]
    more = [f"and {len(told) - MAX_TOLD} more"] if len(told) > MAX_TOLD else []
    severity = dg.AssetCheckSeverity.ERROR if wrong else dg.AssetCheckSeverity.WARN
    metadata: dict[str, Any] = {
        "types": len(found), "events": sum(one.events for one in found), "rows": sum(one.rows for one in found),
        "events discarded": sum(one.discarded for one in found), "rows older than the stream": sum(one.gone for one in found),
        "rows looked into": sum(one.sampled for one in found), "types with faults": len(wrong), "types not looked at": len(unread),
        "faults": dg.MetadataValue.md(_table(wrong)),
    }  # fmt: skip
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=not told,
        severity=severity,
        metadata=metadata,
        description="; ".join([*told[:MAX_TOLD], *more]) or None,
    )


def _faults(one: Verified) -> str:
    return ", ".join(f"{count} {fault.value}" for fault, count in one.faults.items())


def _table(wrong: Sequence[Verified]) -> str:
    """The faults, each with some `_src` and pointers; no value, which may be personal data."""
    rows = [(one.table, fault.value, count, _examples(one, fault)) for one in wrong[:MAX_SHOWN] for fault, count in one.faults.items()]
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(["| table | fault | rows | such as |", "|---|---|---|---|", *lines]) if lines else "none"


def _examples(one: Verified, fault: Fault) -> str:
    return ", ".join(dict.fromkeys(f"{each.source} {each.pointer}".strip() for each in one.examples if each.fault is fault))
