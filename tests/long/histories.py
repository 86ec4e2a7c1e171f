"""The histories that the messages of a table mean, reported by the oracle, and those that the table
holds.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from lakechime_dagster.cdc.change import Change, Key, order_of, order_text
from lakechime_dagster.cdc.debezium import DebeziumReader
from lakechime_dagster.cdc.record import Changes, record_of
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.names import END_SEQ, START_SEQ
from tests.cdc.oracle import Version, histories_of
from tests.long.databases import TRACKED
from tests.support.deployed_table import DeployedTable

COLUMNS = ("id", *TRACKED)
# of each key the values of its columns, from which order, and up to which
Versions = dict[Key, list[tuple[Any, ...]]]


def meant(table: DeployedTable) -> Versions:
    """What the messages mean, whatever came in which execution."""
    found = histories_of(_once(_changes(table)), COLUMNS, TRACKED)
    return {
        key: [_reported(one) for one in versions] for key, versions in found.items() if versions
    }


def held(table: DeployedTable) -> Versions:
    """What the table holds."""
    found: dict[Key, list[tuple[Any, ...]]] = defaultdict(list)
    for row in table.rows((*COLUMNS, START_SEQ, END_SEQ)):
        found[(row[0],)].append(row)
    return {
        key: sorted(versions, key=lambda one: order_of(one[-2])) for key, versions in found.items()
    }


def _reported(version: Version) -> tuple[Any, ...]:
    end = version.end_seq and order_text(version.end_seq)
    return (*(version.columns[name] for name in COLUMNS), order_text(version.start_seq), end)


def _changes(table: DeployedTable) -> Iterable[Change]:
    reader = DebeziumReader(Debezium(), ("id",))
    for message in table.messages():
        read = reader.read(record_of(message))
        if isinstance(read, Changes):
            yield from read.changes


def _once(changes: Iterable[Change]) -> list[Change]:
    """Each change as it was reported first: what a connector reports again after it was killed has
    the same checkpoint in the log.
    """
    first: dict[tuple[Any, ...], Change] = {}
    for change in sorted(
        changes, key=lambda one: (one.order.topic, one.order.partition, one.order.offset)
    ):
        first.setdefault(
            (change.source, change.order.position, change.order.rank, change.key), change
        )
    return list(first.values())
