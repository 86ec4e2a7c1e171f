"""What need no longer be remembered of changes: nothing is expected any more that could come between them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lakechime_dagster.cdc.change import Key
from lakechime_dagster.cdc.meaning import scd2
from lakechime_dagster.cdc.meaning.fold import BEFORE_ALL, Kept, Window, collected
from lakechime_dagster.cdc.meaning.merging import Known
from lakechime_dagster.cdc.meaning.scd2 import Tracked
from lakechime_dagster.cdc.meaning.snapshot import Snapshots
from lakechime_dagster.cdc.meaning.soft import Soft
from lakechime_dagster.cdc.meaning.wire import Span, key_of, order_of, order_text
from lakechime_dagster.cdc.order import BEFORE_READ, Order
from lakechime_dagster.cdc.remembering.open_transactions import kept as kept_probes
from lakechime_dagster.cdc.remembering.state import Role, StateRow, base_row, change_of, change_row, known_of
from lakechime_dagster.cdc.remembering.table_schema import TableSchema, needed


def frontier_before(young: Order) -> Order | None:
    """The order that a source may be collected up to whose oldest change that is not settled is this one; it cuts no transaction.

    None of changes without a position, which stand in as many orders as there are partitions.
    """
    if not young.position:
        return None
    if len(young.position) == 2:  # PostgreSQL: its transaction's place, then its own
        return Order(epoch=young.epoch, position=young.position[:1])
    return Order(epoch=young.epoch, position=young.position, rank=BEFORE_READ)


def collected_rows(
    rows: Iterable[StateRow],
    truncated: Mapping[str, frozenset[Order]],
    frontiers: Mapping[str, Order],
    tracked: Tracked | None = None,
    soft: Soft | None = None,
) -> list[StateRow]:
    """What is still to be remembered of keys that are merged together, once nothing is expected below the frontiers.

    Of a key without a later change nothing is: its row in the table says all, and of a deleted one nothing need be known. A
    row that waits for a column stays, as it is not in the table. Where the table holds histories, `tracked` says how, and `soft`
    where it keeps deleted rows.
    """
    by_key: dict[str, list[StateRow]] = {}
    for row in rows:
        by_key.setdefault(row.key or "", []).append(row)
    known: dict[Key, Known] = {}
    for text, several in by_key.items():
        if (found := known_of(several)) is not None:
            known[key_of(text)] = found
    windows = {key: Window(source=one.source, base=one.base, changes=one.changes) for key, one in known.items()}
    kept = Kept(windows=windows, truncated=truncated)
    histories = (tracked or Tracked()).histories(kept, known)
    for source in sorted({one.source for one in known.values()} & frontiers.keys()):
        if tracked is not None:
            histories = scd2.collected(histories, source, frontiers[source], track=tracked.track)
        else:
            collect = collected if soft is None else soft.collected
            histories = replace(histories, kept=collect(histories.kept, source, frontiers[source]))
    rest: list[StateRow] = []
    for key, window in histories.kept.windows.items():
        waiting = _missing(known[key], window)
        if not window.changes and (not waiting or window.base.ended is not None):
            continue
        if window.base.upserted is not None or window.base.deleted > BEFORE_ALL:
            base = histories.bases.get(key, scd2.Base())
            span = Span(base.start_seq, base.start_at) if tracked is not None and base.start_seq is not None else None
            rest.append(base_row(key, window.source, window.base, waiting, span))
        rest += [change_row(change) for change in window.changes]
    return rest


def _missing(known: Known, window: Window) -> frozenset[str]:
    """The columns of the new base that nobody carried."""
    base = window.base
    if base.upserted is None:
        return frozenset()
    gone = [one for one in known.changes if one.operation.is_upsert and base.deleted < one.order <= base.upserted]
    wanted = {name for one in gone for name in one.omitted}
    wanted |= known.waiting if (known.base.upserted or BEFORE_ALL) > base.deleted else frozenset()
    return frozenset(wanted - base.columns.keys())


def compacted(rows: Iterable[StateRow], frontiers: Mapping[str, Order]) -> list[StateRow]:
    """Of what is remembered of whole sources what still matters: newest places, frontiers and probes, late truncations, open snapshots."""
    newest: dict[tuple[str, ...], StateRow] = {}
    marks: list[StateRow] = []
    probes: list[StateRow] = []
    found: list[StateRow] = []
    schemas: list[TableSchema] = []
    for row in rows:
        order = order_of(row.order)
        match row.role:
            case Role.PLACE.value:
                name = row.source, row.op or "", order.topic, str(order.partition)
                if name not in newest or order_of(newest[name].order) < order:
                    newest[name] = row
            case Role.BEAT.value:
                name = (row.source,)
                newest[name] = max(newest.get(name, row), row, key=lambda one: one.ts_ms or 0)
            case Role.PROBE.value:
                probes.append(row)
            case Role.TRUNCATION.value if order >= frontiers.get(row.source, BEFORE_ALL):
                found.append(row)
            case Role.MARK.value:
                marks.append(row)
            case Role.COLUMNS.value:
                found.append(row)
            case Role.SCHEMA.value:
                schemas.append(TableSchema.of_row(row))
            case _:
                pass
    opened, _ = Snapshots().with_changes(map(change_of, marks))
    open_ones = {place for place, ends in opened.ends.items() if len(ends) == 1}
    for row in marks:
        order = order_of(row.order)
        if (row.source, Order(order.epoch, order.position, BEFORE_READ)) in open_ones:
            found.append(row)
    frontier_rows = [StateRow(Role.FRONTIER.value, None, source, order_text(order)) for source, order in frontiers.items()]
    return [*found, *newest.values(), *kept_probes(probes), *frontier_rows, *(one.row for one in needed(schemas))]


def open_snapshots(marks: Sequence[StateRow]) -> set[str]:
    """The sources of which a snapshot is being taken, or was left off."""
    opened, _ = Snapshots().with_changes(map(change_of, marks))
    return {source for (source, _), ends in opened.ends.items() if len(ends) == 1}
