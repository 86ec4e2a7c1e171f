"""What producers sent and brought, raised in the transaction that settles a step or learns from it: a step tried again counts once.

Of a type as many producers are kept by name as `MAX_KEPT`, and all who brought columns; what others did is kept in sum.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.schema.producers import OTHER, Brought
from lakechime_dagster.schema.results import Sent
from lakechime_dagster.store.dialect import among, insert_or_raise
from lakechime_dagster.store.types import schema

MAX_KEPT = 500  # of a type

_Key = tuple[int, str]  # the number of a type, and a producer


def add_sent(connection: Connection, several: Mapping[int, Mapping[str, Sent]]) -> None:
    """Add what a settled step counted of each type's producers, by the number of the type."""
    told = {(type_id, who): one for type_id, sent in several.items() for who, one in sent.items()}
    if not told:
        return
    names = _kept(connection, told)
    events, rescued, reasons = Counter[_Key](), Counter[_Key](), Counter[tuple[int, str, str]]()
    for key, one in told.items():
        events[names[key]] += one.events
        rescued[names[key]] += one.rescued
        for reason, values in one.reasons.items():
            reasons[(*names[key], reason.value)] += values
    rows = [{"type_id": type_id, "producer": who, "events": events[type_id, who], "rescued": rescued[type_id, who]}
            for type_id, who in {*names.values()}]  # fmt: skip
    connection.execute(insert_or_raise(connection, schema.type_producer), rows)
    if reasons:
        values = [{"type_id": key[0], "producer": key[1], "reason": key[2], "total": total} for key, total in reasons.items()]
        connection.execute(insert_or_raise(connection, schema.producer_rescue), values)


def add_brought(connection: Connection, type_id: int, brought: Mapping[str, Brought], variations: Mapping[str, int]) -> None:
    """Add what each producer brought to a type, as it is learnt: columns and conflicts, and variations that are kept."""
    if not brought and not variations:
        return
    keys = [(type_id, who) for who in {**brought, **variations}]
    names = _kept(connection, keys, always=[key for key in keys if key[1] in brought and brought[key[1]].columns])
    found: dict[str, Counter[str]] = {}
    for key in keys:
        mine, counts = brought.get(key[1], Brought()), found.setdefault(names[key][1], Counter())
        counts.update({"variations": variations.get(key[1], 0), "columns": mine.columns, "conflicts": mine.conflicts})
    rows = [{"type_id": type_id, "producer": who, **counts} for who, counts in found.items()]
    connection.execute(insert_or_raise(connection, schema.type_producer), rows)


def columns_brought(connection: Connection, types: Mapping[int, str]) -> dict[str, dict[str, int]]:
    """The columns that each producer has brought to these types, by their names; who has brought none is left out."""
    found: dict[str, dict[str, int]] = {name: {} for name in types.values()}
    row = schema.type_producer.c
    of_types = sa.select(row.type_id, row.producer, row["columns"]).where(among(connection, row.type_id, [*types]), row["columns"] > 0)
    for type_id, who, columns in connection.execute(of_types):
        found[types[type_id]][who] = columns
    return found


def _kept(connection: Connection, keys: Collection[_Key], always: Sequence[_Key] = ()) -> dict[_Key, _Key]:
    """Under which name each producer is kept: his own, or OTHER where a type has too many already."""
    row, types = schema.type_producer.c, sorted({type_id for type_id, _ in keys})
    counted = sa.select(row.type_id, sa.func.count()).where(among(connection, row.type_id, types)).group_by(row.type_id)
    there = {row[0]: row[1] for row in connection.execute(counted)}
    coming = Counter(type_id for type_id, _ in keys)
    full = [type_id for type_id in types if there.get(type_id, 0) + coming[type_id] > MAX_KEPT]
    known = sa.select(row.type_id, row.producer).where(among(connection, row.type_id, full))
    named = {(type_id, who) for type_id, who in connection.execute(known)} if full else set[_Key]()
    named |= {*always} | {key for key in keys if key[0] not in full}
    room = Counter(dict.fromkeys(full, MAX_KEPT)) - Counter(type_id for type_id, _ in named)
    for key in sorted({*keys} - named):
        if room[key[0]] > 0:
            named.add(key)
            room[key[0]] -= 1
    return {key: key if key in named else (key[0], OTHER) for key in keys}
