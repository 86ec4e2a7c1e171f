"""What an execution consumes: the events in its range that its trigger asked for."""

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.event import RegisteredEvent
from lakechime_dagster.store import ledger_schema as ledger
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.queries import in_order, is_after, is_new, is_through, select_events
from lakechime_dagster.store.rows import event_of
from lakechime_dagster.store.schema import dce_event, dce_table
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import Execution


def events_of(engine: Engine, flow: Flow, execution: Execution) -> list[RegisteredEvent]:
    """The events of an execution in commit order: those of its flow's tables that say something new to its trigger.

    Of a partition trigger those alone in the partitions that its lane fired for.
    """
    start, end = execution.start.position, execution.end.position
    with reading(engine) as connection:
        new = is_new(connection.dialect.name, dict(flow.trigger.tags))
        query = in_order(select_events().where(is_after(start), is_through(end), new))
        if flow.is_partitioned:
            query = query.join(ledger.lane_partition, _is_partition_of(execution))
        else:
            query = query.where(dce_table.c.cluster == flow.cluster, dce_table.c.name.in_(flow.trigger.tables))
        return [event_of(row) for row in connection.execute(query)]


def _is_partition_of(execution: Execution) -> sa.ColumnElement[bool]:
    """Whether the event is in a partition that the execution's lane remembers from its claim."""
    mine = sa.select(ledger.execution.c.lane_id).where(ledger.execution.c.execution_id == execution.execution_id).scalar_subquery()
    partition = ledger.lane_partition.c
    return sa.and_(
        partition.lane_id == mine,
        partition.cluster == dce_table.c.cluster,
        partition.table_name == dce_table.c.name,
        partition.partition_key == dce_event.c.partition_key,
    )
