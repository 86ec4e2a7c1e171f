"""Drafts of notices, also by what finds out about a change by itself; a person sends them, or withdraws them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.notices.changes import Change, checked_day
from lakechime_dagster.lineage.notices.drafts import Again
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.notices.changes import Drafted, KeptChange, Notices
from lakechime_dagster.triggers.grid import from_milliseconds

if TYPE_CHECKING:
    from lakechime_dagster.resources.lineage.asked import AskedLineage


def draft(platform: Platform, change: Change, who: str) -> KeptChange:
    """Keep the draft of a person, that nobody is told of yet.

    Raises:
        InvalidValueError: its day is over.
    """
    checked_day(change, from_milliseconds(platform.store.now()))
    return Notices(platform.store.engine, platform.ledger.deployment).draft(change, who)


def amend(platform: Platform, change_id: int, given: Mapping[str, Any], who: str) -> KeptChange:
    """Say another thing in some fields of an open change; what was not given stays, also a day that is over by now.

    Raises:
        InvalidValueError: the day that is given is over.
        ChangeMovedError: it is done or withdrawn.
    """
    several = Notices(platform.store.engine, platform.ledger.deployment)
    known = several.get(change_id).change
    change = replace(known, **given)
    if (change.on, change.kind) != (known.on, known.kind):
        checked_day(change, from_milliseconds(platform.store.now()))
    return several.amend(change_id, change, who)


def draft_by_itself(platform: Platform, change: Change, who: str, source: str, again: Again = Again.NEVER) -> Drafted:
    """Keep a draft that no person wrote, unless its `source` has drafted it already; what a person made of it stays."""
    return Notices(platform.store.engine, platform.ledger.deployment).draft_of(source, change, who, again=again)


def sender_of(asked: "AskedLineage", refs: Iterable[ColumnRef]) -> str:
    """Whoever owns all of these, in whose name it is told unless somebody says otherwise; empty where there are several, or none."""
    owners = {one.owners for one in asked.facts({ref.table for ref in refs}).values()}
    several = owners.pop() if len(owners) == 1 else ()
    return several[0] if len(several) == 1 else ""
