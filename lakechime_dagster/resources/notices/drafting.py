"""Drafts of notices, also by what finds out about a change by itself; a person sends them, or withdraws them."""

from lakechime_dagster.lineage.notices.changes import Change
from lakechime_dagster.lineage.notices.drafts import Again
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.notices.changes import Drafted, KeptChange, Notices


def draft(platform: Platform, change: Change, who: str) -> KeptChange:
    """Keep the draft of a person, that nobody is told of yet."""
    return Notices(platform.store.engine, platform.ledger.deployment).draft(change, who)


def draft_by_itself(platform: Platform, change: Change, who: str, source: str, again: Again = Again.NEVER) -> Drafted:
    """Keep a draft that no person wrote, unless its `source` has drafted it already; what a person made of it stays."""
    return Notices(platform.store.engine, platform.ledger.deployment).draft_of(source, change, who, again=again)
