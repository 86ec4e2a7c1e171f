"""What a database does to a few rows, statement by statement, for envelopes that tests write
themselves.
"""

import datetime
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from lakechime_dagster.cdc.change import Change, Key
from lakechime_dagster.cdc.record import Changes, Record
from tests.cdc.merge.lake import Reader, kept_of, rows_in

TYPES = {"id": "int", "name": "string", "amount": "decimal(10,2)", "at": "timestamp_ntz"}
TOPIC = "shop.orders"
Row = dict[str, Any]


@dataclass(frozen=True)
class Statement:
    """One statement: `read` of a row that was there before, `insert`, `update`, `delete` or
    `truncate`.

    Its rows are pairs of what each was before and is after, in the order in which the database
    changed them.
    """

    kind: str
    rows: tuple[tuple[Row, Row], ...] = ()


def history(
    dice: random.Random, length: int, kinds: Sequence[str]
) -> tuple[list[Statement], dict[Key, Row]]:
    """Some statements, and the rows that are there at the end. An update may give a row another
    key, and that one to a further row.
    """
    table: dict[Key, Row] = {}
    statements: list[Statement] = []
    for _ in range(length):
        kind = dice.choice(kinds)
        if kind == "read" and any(one.kind != "read" for one in statements):
            kind = "insert"
        if kind == "truncate":
            table.clear()
            statements.append(Statement(kind))
            continue
        candidates = free_keys(table) if kind in ("read", "insert") else list(table)
        chosen = dice.sample(candidates, min(dice.choice([1, 2, 3]), len(candidates)))
        if chosen:
            statements.append(
                Statement(kind, tuple(execute(dice, kind, table, key) for key in chosen))
            )
    return statements, table


def execute(dice: random.Random, kind: str, table: dict[Key, Row], key: Key) -> tuple[Row, Row]:
    """What a statement does to one row of the table."""
    old = table.pop(key, {})
    if kind == "delete":
        return old, {}
    if kind == "update" and dice.random() < 0.5:
        key = dice.choice(free_keys(table))
    table[key] = row(dice, key)
    return old, table[key]


def free_keys(table: Mapping[Key, Row]) -> list[Key]:
    return [(number,) for number in range(5) if (number,) not in table]


def row(dice: random.Random, key: Key) -> Row:
    moment = datetime.datetime(2024, 2, 29) + datetime.timedelta(
        microseconds=dice.randrange(10**12)
    )
    return {
        "id": key[0],
        "name": dice.choice([None, "Ann", "Zoë"]),
        "amount": dice.choice([None, Decimal(dice.randrange(-(10**6), 10**6)) / 100]),
        "at": dice.choice([None, moment]),
    }


def changed(old: Row, new: Row) -> Row:
    """What an update changed, as it was before."""
    return {name: value for name, value in old.items() if new.get(name) != value}


def folded(reader: Reader, records: Iterable[Record], dice: random.Random) -> Mapping[Key, Any]:
    """The rows that messages mean, in whatever order their changes come."""
    changes = [change for record in records for change in changes_of(reader, record)]
    return rows_in(kept_of(dice.sample(changes, len(changes))))


def changes_of(reader: Reader, record: Record) -> tuple[Change, ...]:
    found = reader.read(record)
    assert isinstance(found, Changes), found
    return found.changes
