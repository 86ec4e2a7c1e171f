"""What real databases, Debezium and Kafka said means just the rows that the databases held at the
end.
"""

import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import Change, Key
from lakechime_dagster.cdc.debezium import OLD_KEY, DebeziumReader
from lakechime_dagster.cdc.merge import BEFORE_ALL, Kept, Row
from lakechime_dagster.cdc.record import Changes, Control, Tombstone, Unreadable
from lakechime_dagster.cdc.schema import SchemaHistory
from lakechime_dagster.cdc.state import (
    Defaults,
    Schema,
    SourceEpochs,
    StateRow,
    assigned,
    completed_in,
)
from lakechime_dagster.tables.databases import VALUE_SETTINGS, Debezium
from tests.cdc.captures import captures, is_the_same
from tests.cdc.merge.lake import Lake, kept_of, rows_in

CAPTURES = {capture.name: capture for capture in captures()}
SAME = {
    "schemaless": "basics",
    "schemaless_drift": "scale_change",
    "schemaless_types": "types",
    "schemaless_types_text": "types_text",
}
ALL = [
    (capture.name, topic)
    for capture in CAPTURES.values()
    for topic, keys in capture.keys.items()
    if keys and topic in capture.rows
]
TABLES = [one for one in ALL if "schemaless" not in one[0]]
ROW = "row"  # there is one too many, or too few
# by capture and table, the columns that the messages alone do not report as the database has them
UNREPORTED = {
    # what ALTER TABLE did to rows that were not touched afterwards
    "mariadb-scale_change.untouched": {ROW},
    "postgres-scale_change.untouched": {ROW},
    "mariadb-control.later": {ROW},
    "postgres-control.later": {ROW},
    "mariadb-transactions.visits": {ROW},
    "postgres-transactions.visits": {ROW},
    # NULL that became a default in the converter
    "mariadb-defaults_replaced.stock": {"level", "name", "price"},
    "postgres-defaults_replaced.stock": {"level", "name", "price"},
    # texts of the database that differ from those of the same numbers
    "mariadb-edges.edges": {"dz", "z"},
    "postgres-edges.edges": {"n"},
    # values that the connector, by its settings, does not send as they are
    "mariadb-types.numbers": {"f"},
    "mariadb-types.zero_dates": {"d", "dt", "d_required", "dt_required"},
    "mariadb-types_text.moments": {"t", "t3", "t6"},
    "mariadb-types_text.numbers": {"bu", "f"},
    "mariadb-types_text.wide_keys": {ROW},
    "mariadb-schemaless_types_text.numbers": {
        "f"
    },  # whose unsigned numbers are known by the columns' types
    "mariadb-schemaless_types_text.wide_keys": set(),
    "mariadb-types_text.zero_dates": {"d", "dt", "d_required", "dt_required"},
    "postgres-types.moments": {ROW, "iv"},
    "postgres-types.not_numbers": {"d", "n"},
    "postgres-types.numbers": {"bv", "n"},
    "postgres-types_text.moments": {ROW, "iv"},
    "postgres-types_text.not_numbers": {"d", "n"},
    "postgres-types_text.numbers": {"bv"},
}
JUNK = [None, True, 0, -1, 1.5, 10**30, "", "x", [], [1], {}, {"a": 1}, "NaN"]
UNREADABLE = {  # a moment before the year 1, which a snapshot reads two days early
    "postgres-types.moments": [
        "ts: -62135769600000000 is no timestamp_ntz: date value out of range"
    ],
    "postgres-types_text.moments": [
        "ts: '0000-12-30T00:00:00Z' is no timestamp_ntz: year 0 is out of range"
    ],
}


def label(name: str, topic: str) -> str:
    return f"{name}.{topic.rpartition('.')[2]}"


def changes_of(name: str, topic: str) -> tuple[list[Change], Defaults, list[str]]:
    """What the messages of a topic report, with the truncations that complete snapshots mean, and
    why some cannot be read.
    """
    return changes_read(name, topic, DebeziumReader(Debezium(), CAPTURES[name].keys[topic]))


def changes_read(
    name: str, topic: str, reader: DebeziumReader
) -> tuple[list[Change], Defaults, list[str]]:
    capture = CAPTURES[name]
    reported, schemas, unreadable = list[Change](), list[StateRow](), list[str]()
    for record in capture.of(topic):
        match reader.read(record):
            case Changes(changes, types, defaults):
                reported += changes
                schemas += [
                    Schema(types, defaults).row(change.source, change.order) for change in changes
                ]
            case Tombstone() as tombstone if name.endswith("flattened_defaults"):
                reported += [one for one in [tombstone.deletion(topic)] if one is not None]
            case Unreadable(reason):
                unreadable.append(reason)
            case Tombstone() | Control():
                pass
    first = {content(change): change.order.offset for change in reversed(reported)}
    assignment = assigned(
        SourceEpochs(),
        reported,
        was_seen=lambda change: first[content(change)] < change.order.offset,
    )
    assert not assignment.held
    return (
        [*assignment.changes, *completed_in(assignment.changes)],
        Defaults.of(random.Random(topic).sample(schemas, len(schemas))),
        unreadable,
    )


def content(change: Change) -> str:
    """What is the same of a change that comes again in its partition."""
    return repr(
        (
            change.order.partition,
            change.order.position,
            change.order.rank,
            change.key,
            change.columns,
        )
    )


def row_of(kept: Kept, key: Key, defaults: Defaults, columns: Collection[str]) -> Row | None:
    """The row of a key, with what columns that were added gave it."""
    row_state = kept.row_state(key)
    given = defaults.given(kept.windows[key].source, row_state.upserted or BEFORE_ALL)
    row = row_state.row and {**given, **row_state.row}
    return {name: row[name] for name in columns} if row and row.keys() >= {*columns} else None


def schemaless_reader(name: str, topic: str) -> DebeziumReader:
    """A reader that knows the columns by a few readings of the database."""
    capture = CAPTURES[name]
    envelope = Debezium(
        settings={
            setting: value
            for setting, value in capture.settings.items()
            if setting in VALUE_SETTINGS
        }
    )
    return DebeziumReader(envelope, capture.keys[topic], SchemaHistory(capture.readings, envelope))


def differences(
    rows: Sequence[Mapping[str, Any]], truth: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> set[str]:
    """The columns that differ."""
    found = {ROW} if len(rows) != len(truth) else set[str]()
    for reported in truth:
        same = [row for row in rows if all(is_the_same(row[name], reported[name]) for name in keys)]
        found |= (
            {ROW}
            if len(same) != 1
            else {name for name in reported if not is_the_same(same[0][name], reported[name])}
        )
    return found


@pytest.mark.parametrize(
    ("name", "topic"), TABLES, ids=[label(name, topic) for name, topic in TABLES]
)
def test_the_rows_of_the_messages_are_those_of_the_database(name: str, topic: str) -> None:
    """In whatever order and parts they come, but for what messages cannot report."""
    truth, keys = CAPTURES[name].rows[topic], CAPTURES[name].keys[topic]
    changes, defaults, unreadable = changes_of(name, topic)
    assert unreadable == UNREADABLE.get(label(name, topic), [])
    dice = random.Random(label(name, topic))
    for parts in (1, 3):
        lake = Lake()
        shuffled = dice.sample(changes, len(changes))
        for part in range(parts):
            lake.execute(shuffled[part::parts])
        assert not lake.refused
        kept = Kept(windows=lake.known(), truncated=lake.truncated)
        columns = list(truth[0]) if truth else keys
        rows = [
            row for key in kept.windows if (row := row_of(kept, key, defaults, columns)) is not None
        ]
        assert differences(rows, truth, keys) == UNREPORTED.get(label(name, topic), set())


SCHEMALESS = [(name, topic) for name, topic in ALL if "schemaless" in name]


@pytest.mark.parametrize(
    ("name", "topic"), SCHEMALESS, ids=[label(name, topic) for name, topic in SCHEMALESS]
)
def test_messages_without_schemas_mean_the_same_by_the_columns_that_were_read_in_the_database(
    name: str, topic: str
) -> None:
    truth, keys = CAPTURES[name].rows[topic], CAPTURES[name].keys[topic]
    changes, _, unreadable = changes_read(name, topic, schemaless_reader(name, topic))
    database, _, scenario = name.partition("-")
    other = f"{database}-{SAME[scenario]}"
    assert unreadable == UNREADABLE.get(label(other, topic), [])
    assert differences(
        [*rows_in(kept_of(changes), truth[0]).values()], truth, keys
    ) == UNREPORTED.get(label(name, topic), UNREPORTED.get(label(other, topic), set()))


@given(seed=st.integers(0, 2**32))
def test_a_real_message_that_was_damaged_anywhere_is_read_or_says_why(seed: int) -> None:
    """In its schema, its payload, its key, or the header that reports its old key."""
    dice = random.Random(seed)
    name, topic = dice.choice(TABLES)
    record = dice.choice(
        [one for one in CAPTURES[name].of(topic) if one.value is not None and one.key is not None]
    )
    junk = json.dumps(dice.choice(JUNK)).encode()
    damaged = dice.choice(
        [
            replace(record, value=damage(dice, record.value or b"")),
            replace(record, key=damage(dice, record.key or b"")),
            replace(record, headers={OLD_KEY: junk}),
        ]
    )
    read = DebeziumReader(Debezium(), CAPTURES[name].keys[topic]).read(damaged)
    assert not isinstance(read, Unreadable) or read.reason


def damage(dice: random.Random, raw: bytes) -> bytes:
    """A message of which one part is another value, or is missing."""
    message = {"it": json.loads(raw)}
    holder, name = dice.choice(list(parts(message)))
    if isinstance(holder, dict) and name != "it" and dice.random() < 0.3:
        del holder[name]
    else:
        holder[name] = dice.choice(JUNK)
    return json.dumps(message["it"]).encode()


def parts(holder: Any) -> Iterator[tuple[Any, Any]]:
    for name in holder if isinstance(holder, dict) else range(len(holder)):
        yield holder, name
        if isinstance(holder[name], dict | list):
            yield from parts(holder[name])


def test_every_capture_is_of_a_table_that_is_compared_or_says_why_not() -> None:
    assert {label(*table) for table in ALL} >= UNREPORTED.keys() | UNREADABLE.keys()
    assert len(TABLES) > 60
    without_keys = {
        label(name, topic)
        for name, capture in CAPTURES.items()
        for topic, keys in capture.keys.items()
        if not keys
    }
    assert {one.partition("-")[2].partition(".")[0] for one in without_keys} == {"keyless"}


def test_rows_of_postgresql_have_the_time_of_their_commit() -> None:
    """All of a transaction have one, however long it was open."""
    times = dict[tuple[str, int | None], set[int | None]]()
    for name, topic in TABLES:
        for change in streamed(name, topic) if name.startswith("postgres-") else ():
            if change.transaction is not None:  # flattened rows do not report theirs
                times.setdefault((name, change.transaction), set()).add(change.event_ms)
    assert len(times) > 50
    assert {key: found for key, found in times.items() if len(found) > 1} == {}


def streamed(name: str, topic: str) -> list[Change]:
    """The changes that were read of the log, in its order."""
    changes, _, _ = changes_of(name, topic)
    found = (
        change for change in changes if change.snapshot is None and change.event_ms is not None
    )
    return sorted(found, key=lambda change: change.order)


def test_what_concerns_no_row_is_distinguished_in_what_was_recorded() -> None:
    found = set[Control]()
    for name in ("mariadb-control", "postgres-control"):
        reader = DebeziumReader(Debezium(), ("id",))
        found |= {
            read
            for record in CAPTURES[name].records
            if isinstance(read := reader.read(record), Control)
        }
    assert found == {Control.HEARTBEAT, Control.TRANSACTION, Control.SCHEMA_CHANGE, Control.MESSAGE}
