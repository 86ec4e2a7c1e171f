"""Tables that follow a database, and the tables of messages beside them, as assets."""

from typing import Any

import dagster as dg

from lakechime_dagster.assets.flows import bronze_job_of, change_job_of
from lakechime_dagster.assets.table import attempting_asset, declared
from lakechime_dagster.cdc.messages.readers import format_of
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.change_tables import CHANGES, STATE, BronzeTable, ChangeTable
from lakechime_dagster.lake.events import EventTable
from lakechime_dagster.lake.feeds import KafkaTopic
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.lineage.declared import outside_inputs
from lakechime_dagster.triggers.flow import Flow

KINDS = ("deltalake", "spark")


def bronze_asset(lake: Lake, table: BronzeTable, flow: Flow) -> dg.AssetsDefinition:
    """The asset of a table of messages; it depends on what is outside of the lake: its topic or folder, and the declared database's table.

    Raises:
        DeclarationError: its envelope cannot be read by what is declared of it.
    """
    _check_envelope(table)
    kinds = (*KINDS, "kafka") if isinstance(table.feed, KafkaTopic) else KINDS
    metadata = {**_metadata(table, flow), "source": str(table.feed), "envelope": type(table.envelope).__name__}
    given = declared(lake, table, metadata, kinds)
    given["ins"] = inputs_outside(table)
    return attempting_asset(
        lake,
        table,
        flow,
        given,
        lambda spark, running, log: spark.ingest(running, bronze_job_of(lake, table, running), log, table.write_as),
    )


def change_asset(lake: Lake, table: ChangeTable, flow: Flow) -> dg.AssetsDefinition:
    """The asset of a table that follows a database; it depends on its table of messages."""
    metadata = {**_metadata(table, flow), "on drift": str(table.schema.on_drift), "remembers in": table.name + STATE}
    given = declared(lake, table, metadata, KINDS)
    return attempting_asset(
        lake, table, flow, given, lambda spark, running, log: spark.follow(running, change_job_of(table, running), log, table.write_as)
    )


def inputs_outside(table: BronzeTable | EventTable) -> dict[str, dg.AssetIn]:
    """What a table is fed from outside of the lake, by its declaration. As inputs, since those alone may have keys of any letters."""
    keys = map(asset_key, outside_inputs(table))
    return {f"outside_{number}": dg.AssetIn(key=key, dagster_type=dg.Nothing) for number, key in enumerate(keys)}


def _metadata(table: BronzeTable | ChangeTable, flow: Flow) -> dict[str, Any]:
    return {"waits for": flow.condition, "keys": ", ".join(table.keys), "dagster/table_name": table.name}


def _check_envelope(table: BronzeTable) -> None:
    try:
        format_of(table).reader()
    except ValueError as problem:
        field, _, remedy = str(problem).partition(": ")
        raise DeclarationError(table.name.removesuffix(CHANGES), field if remedy else "types", remedy or field) from problem
