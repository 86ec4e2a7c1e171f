"""What an execution consumes: the events in its range that its trigger asked for."""

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.event import RegisteredEvent
from lakechime_dagster.store import ledger_schema as ledger
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.queries import in_order, is_after, is_data, is_new, is_through, select_events
from lakechime_dagster.store.rows import event_of
from lakechime_dagster.store.schema import dce_event, dce_table
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import Execution, Place
from lakechime_dagster.triggers.model import Late, PartitionTrigger


def events_of(engine: Engine, flow: Flow, execution: Execution) -> list[RegisteredEvent]:
    """The events of an execution in commit order: those of its flow's tables that say something new to its trigger.

    Of a partition trigger those alone in the partitions that its lane fired for; where that fires again for what came late,
    all changes of data are news to it, whatever their tags.
    """
    start, end = execution.start.position, execution.end.position
    with reading(engine) as connection:
        new = is_new(connection.dialect.name, dict(flow.trigger.tags))
        if _fires_again(connection, flow, execution):
            new = sa.or_(new, is_data)
        query = in_order(select_events().where(is_after(start), is_through(end), new))
        if flow.is_partitioned:
            query = query.join(ledger.lane_partition, _is_partition_of(execution))
        else:
            query = query.where(dce_table.c.cluster == flow.cluster, dce_table.c.name.in_(flow.trigger.tables))
        return [event_of(row) for row in connection.execute(query)]


def _fires_again(connection: Connection, flow: Flow, execution: Execution) -> bool:
    """Whether a key fires for what came late: it goes on from where it fired before, and was not put back."""
    if not isinstance(flow.trigger, PartitionTrigger) or flow.trigger.late is not Late.REFIRE or execution.step == 1:
        return False
    of_lane, step = ledger.execution.c.lane_id == _lane_of(execution), ledger.execution.c.step == execution.step - 1
    before = connection.execute(sa.select(ledger.execution.c.start_place).where(of_lane, step)).scalar_one_or_none()
    return before is None or Place.from_json(before).position < execution.start.position


def _lane_of(execution: Execution) -> sa.ScalarSelect[int]:
    return sa.select(ledger.execution.c.lane_id).where(ledger.execution.c.execution_id == execution.execution_id).scalar_subquery()


def _is_partition_of(execution: Execution) -> sa.ColumnElement[bool]:
    """Whether the event is in a partition that the execution's lane remembers from its claim."""
    partition = ledger.lane_partition.c
    return sa.and_(
        partition.lane_id == _lane_of(execution),
        partition.cluster == dce_table.c.cluster,
        partition.table_name == dce_table.c.name,
        partition.partition_key == dce_event.c.partition_key,
    )
