"""Which types are cold: so few events of theirs came that they are worth no commit yet."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.schema.repository import KnownType

MAX_PLACES = 16  # at which cold types are left: the next step reads as many segments, each file once


@dataclass(frozen=True, kw_only=True)
class Came:
    """What a step found of a type: it as the store knows it by now, the events behind its place, and that place.

    Attributes:
        is_news: Readers wait for it whatever its number: a column that its table has not, or a replay that somebody asked for.
    """

    known: KnownType
    rows: int
    start: int
    is_news: bool = False


def cold_types(came: Collection[Came], group: EventGroup, now_ms: int) -> dict[str, int]:
    """The types that stay where they are, and when each is written at the latest.

    A type without a table is not cold, so that each new one is seen at once; neither is one that failed, so that it is known to
    be well. Of more places than `MAX_PLACES` the oldest are left.
    """
    if not group.cold_rows:
        return {}
    age_ms = round(group.max_cold_age.total_seconds() * 1000)
    due = {one.known.type: (one.known.due_ts or now_ms + age_ms) for one in came if _is_cold(one, group)}
    due = {name: min(due_ts, now_ms + age_ms) for name, due_ts in due.items() if due_ts > now_ms}
    return _at_few_places(due, {one.known.type: one.start for one in came})


def _is_cold(one: Came, group: EventGroup) -> bool:
    known = one.known
    return bool(known.place.commits) and not known.failures and not one.is_news and 0 < one.rows < group.cold_rows


def _at_few_places(due: Mapping[str, int], starts: Mapping[str, int]) -> dict[str, int]:
    newest = sorted({starts[name] for name in due})[-MAX_PLACES:]
    return {name: due_ts for name, due_ts in due.items() if starts[name] in newest}
