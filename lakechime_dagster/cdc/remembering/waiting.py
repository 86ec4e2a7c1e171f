"""Rows that live and are not in the table, since nobody has told one of their columns yet."""

from collections.abc import Iterable

from lakechime_dagster.cdc.change import Key
from lakechime_dagster.cdc.meaning.merging import merged
from lakechime_dagster.cdc.meaning.wire import key_of
from lakechime_dagster.cdc.order import Order
from lakechime_dagster.cdc.remembering.state import Role, StateRow, change_of, known_of


def waiting_keys(rows: Iterable[StateRow]) -> list[Key]:
    """The keys whose row waits, by all that is remembered of them, of the keys that they continue, and of truncations."""
    by_key: dict[Key, list[StateRow]] = {}
    truncated: dict[str, frozenset[Order]] = {}
    for row in rows:
        if row.role == Role.TRUNCATION:
            truncated[row.source] = truncated.get(row.source, frozenset()) | {change_of(row).order}
        elif row.role in (Role.BASE, Role.CHANGE) and row.key is not None:
            by_key.setdefault(key_of(row.key), []).append(row)
    known = {key: found for key, of_key in by_key.items() if (found := known_of(of_key)) is not None}
    return [step.key for step in merged(known, (), truncated, {}).keys if step.waits]
