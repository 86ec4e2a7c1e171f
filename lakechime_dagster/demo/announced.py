"""The branch of the flights lake that takes the airports' events: a table for each type, and what follows from one of them."""

from pathlib import Path

from lakechime_dagster import (
    Asset,
    EventGroup,
    EventStream,
    JsonLines,
    LakeTable,
    SnapshotTrigger,
    SourceTable,
    event_group,
    event_stream,
    every,
    sql_table,
)

FOLDER = "airport"  # in the home folder, where the replay writes the files of the stream
GATE_CHANGED = "gate.changed"


def announced_tables(folder: Path) -> list[EventStream | EventGroup | SourceTable | LakeTable]:
    """The branch, whose events come as files in this folder; passengers are of `airport_other`, which is there by itself."""
    airport = event_stream(
        "airport",
        source=JsonLines(str(folder), every=every(minutes=2)),
        producer_field="$.airline",
        asset=Asset(owner="team:ops", description="Events of gates, crews and passengers as the airports emit them."),
    )
    gates = event_group("gates", airport, match="gate.*", owner="team:ops")
    crews = event_group("crews", airport, match="crew.*", owner="team:ops")
    return [airport, gates, crews, gates.table(GATE_CHANGED), gate_changes()]


def gate_changes() -> LakeTable:
    """The table that sums up a type that no declaration describes."""
    return sql_table(
        "gold.gate_changes",
        sql="""
            -- How often each airline's gates change at each airport, and how many minutes before.
            SELECT origin, airline,
                   count(*) AS changes,
                   min(notice) AS shortest_notice
            FROM gates.gate__changed
            GROUP BY origin, airline
        """,
        keys=["origin", "airline"],
        refresh="affected_keys",
        trigger=SnapshotTrigger(every=every(minutes=1)),
        asset=Asset(owner="team:analytics"),
    )
