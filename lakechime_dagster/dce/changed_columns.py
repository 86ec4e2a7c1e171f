"""The columns that a commit changed, told by a writer that compared old rows with new ones and found updates only."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lakechime_dagster.dce.partition import canonical_json

CHANGED_TAG = "lakechime/changed"  # of an event: a JSON array of names
FACT = "changed"  # of a commit's stamp


def changed_fact(columns: Iterable[str], since: int) -> dict[str, Any]:
    """What a commit says of itself: nothing but these columns of rows that were there changed since a version."""
    return {FACT: {"columns": sorted(columns), "since": since}}


def changed_tag(facts: Mapping[str, Any], version: int) -> Mapping[str, str]:
    """The tag of the events of a commit with these facts; none if another commit was made since the version it was compared with."""
    told = facts.get(FACT)
    if not isinstance(told, Mapping) or told.get("since") != version - 1 or not isinstance(told.get("columns"), list):
        return {}
    return {CHANGED_TAG: canonical_json(told["columns"])}


def changed_columns(tag: str | None) -> frozenset[str] | None:
    """The columns that an event tells to be all that changed, in lower case, as Spark finds them in any; None where it tells nothing."""
    try:
        names = json.loads(tag) if tag is not None else None
    except ValueError:
        return None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        return None
    return frozenset(name.casefold() for name in names)
