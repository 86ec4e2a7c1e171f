"""The columns of the database's tables, of a step whose messages do not bring them: from its schema changes, and a reading."""

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.cdc.meaning.wire import order_of
from lakechime_dagster.cdc.messages.message import payload_of
from lakechime_dagster.cdc.messages.record import Control
from lakechime_dagster.cdc.order import Order
from lakechime_dagster.cdc.remembering.state import Role, StateRow
from lakechime_dagster.cdc.remembering.table_schema import TableSchema, fresh, schemas_of
from lakechime_dagster.errors import LaneHeldError
from lakechime_dagster.spark.following.remembered import STATE_COLUMNS


def remembered_schemas(state: DataFrame) -> list[TableSchema]:
    """What rows of a table of what is remembered tell of the columns of the database's tables."""
    rows = state.where(F.col("role") == Role.SCHEMA.value).select(*STATE_COLUMNS).collect()
    return [TableSchema.of_row(StateRow(*row)) for row in rows]


def readings_in(state: DataFrame) -> list[TableSchema]:
    """Those of them that were read in the database."""
    return [one for one in remembered_schemas(state) if not one.is_told]


def told_schemas(name: str, messages: DataFrame, before: Iterable[TableSchema], places: Iterable[StateRow]) -> list[TableSchema]:
    """What the schema changes among the messages of a step tell that was not known before it.

    Args:
        name: The table, for errors.
        messages: Rows of its bronze table.
        before: What was known.
        places: How far each source had come before the step (`Role.PLACE`).

    Raises:
        LaneHeldError: Rows were read already as what was known then does not say, as a schema change came after them.
    """
    found: list[TableSchema] = []
    rows = messages.where(F.col("kind") == Control.SCHEMA_CHANGE.value).select("topic_id", "partition", "offset", "value").collect()
    for topic_id, partition, offset, value in rows:
        found += schemas_of(payload_of(value.encode(), "value"), Order(topic=topic_id, partition=partition, offset=offset))
    new = fresh(found, before)
    come = [(row.source, order_of(row.order).position) for row in places]
    for one in new:
        if any(source.endswith(f".{one.table}") and position >= one.order.position for source, position in come):
            raise LaneHeldError(
                f"{name}: that the columns of {one.table} changed at {list(one.order.position)} was told after rows from there on had been "
                f"read; `lakechime cdc rebuild {name}` reads all messages again, by what is known now"
            )
    return new
