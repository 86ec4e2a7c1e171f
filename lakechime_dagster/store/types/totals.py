"""Sums of what the steps of groups did, raised in the transaction that settles a step, so that nobody sums up steps to read them."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.schema.results import GroupResult, TypeResult
from lakechime_dagster.store.types import schema

REFUSED, SECONDS = "refused", "seconds"  # the counters of a group


def add_to_type(connection: Connection, type_id: int, one: TypeResult, now: int) -> None:
    """Add what a step did for a type to its sums; what it left where it is makes the type late from now on, unless it is already."""
    kind = schema.event_type.c
    sums = {
        "written_sum": kind.written_sum + one.written, "rescued_sum": kind.rescued_sum + one.rescued,
        "discarded_sum": kind.discarded_sum + one.discarded, "columns_added": kind.columns_added + one.columns_added,
        "failed_steps": kind.failed_steps + (1 if one.error else 0),
    }  # fmt: skip
    is_late = bool(one.failure or one.pending or one.catches_up)
    waiting = {} if one.failure else {"pending": one.pending if one.hinders else 0}  # cold ones are behind, and wait for nobody
    waiting |= {} if one.behind is None else {"rows_behind": one.behind}
    late = {"behind_ts": sa.func.coalesce(kind.behind_ts, now) if is_late else None}
    connection.execute(sa.update(schema.event_type).where(kind.type_id == type_id).values({**sums, **waiting, **late}))
    for reason, values in one.reasons.items():
        _raise(connection, schema.type_rescue, {"type_id": type_id, "reason": reason.value}, values)


def add_to_group(connection: Connection, deployment: str, group: str, result: GroupResult) -> None:
    """Add what a step did for no single type: the rows that it refused by reason, the seconds of its phases."""
    _add(connection, deployment, group, REFUSED, result.refused)
    _add(connection, deployment, group, SECONDS, result.seconds)


def _add(connection: Connection, deployment: str, group: str, counter: str, amounts: Mapping[str, float]) -> None:
    for label, amount in amounts.items():
        key = {"deployment": deployment, "group_name": group, "counter": counter, "label": label}
        _raise(connection, schema.group_total, key, amount)


def _raise(connection: Connection, table: sa.Table, key: Mapping[str, Any], amount: float) -> None:
    """Raise the `total` of a row; one step of a group settles at a time, so that nobody else makes the same row meanwhile."""
    this = [table.c[name] == value for name, value in key.items()]
    raised = connection.execute(sa.update(table).where(*this).values(total=table.c.total + amount))
    if not raised.rowcount:
        connection.execute(sa.insert(table).values(**key, total=amount))
