"""Names that assets, sensors and the command line share: run tags, assets, ops. None needs Dagster, which is slow to import."""

import re

from lakechime_dagster.triggers.lanes import Execution

EXECUTION_TAG = "lakechime/execution"
LANE_TAG = "lakechime/lane"
CAUSE_TAG = "lakechime/cause"
ATTEMPT_TAG = "lakechime/attempt"
MAX_TAG = 200  # characters of a lane's name in a tag; the id in the other tag is exact


def asset_name(table: str) -> str:
    """The asset key of a table as text: its name with slashes for dots."""
    return table.replace(".", "/")


def dagster_name(text: str) -> str:
    """A name that Dagster takes for a sensor or job: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def op_name(table: str) -> str:
    """The name of the op that computes a table."""
    return table.replace(".", "__")


def run_tags(execution: Execution) -> dict[str, str]:
    """The references by which a run finds its execution; never lists."""
    lane = f"{execution.lane.flow}[{execution.lane.key}]" if execution.lane.key else execution.lane.flow
    return {
        EXECUTION_TAG: execution.execution_id,
        LANE_TAG: lane[:MAX_TAG],
        CAUSE_TAG: execution.cause.value,
        ATTEMPT_TAG: str(execution.attempt),
    }
