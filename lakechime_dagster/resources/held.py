"""Lanes that wait for a person: how far their steps read when they go on."""

from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.ledger_rows import FlowRow
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import LaneState, Place


def ends_of_held(platform: Platform, flow: Flow, row: FlowRow) -> dict[str, Place]:
    """By the key of its lane where a step that asked for a person ends when it is tried again: after all that came meanwhile.

    What answers its question may be in there, such as a new snapshot. What a claim took of a feed stays as it is.
    """
    if flow.feed is not None:
        return {}
    lanes = platform.ledger.lanes(row)
    return {key: platform.evaluator.end_of(flow, row, lane) for key, lane in lanes.items() if lane.state is LaneState.HELD}
