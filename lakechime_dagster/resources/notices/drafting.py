"""Drafts of notices, also by what finds out about a change by itself; a person sends them, or withdraws them."""

from lakechime_dagster.lineage.notices.changes import Change
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.notices.changes import KeptChange, Notices


def draft(platform: Platform, change: Change, who: str, *, source: str | None = None) -> KeptChange:
    """Keep a draft that nobody is told of yet.

    From the same `source` it is the same change, in its next version if it says another thing.
    """
    return Notices(platform.store.engine, platform.ledger.deployment).draft(change, who, source=source)
