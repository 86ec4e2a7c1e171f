"""A stock Dagster asset in a code location of its own, launched by a trigger: what the README
shows, run for real.
"""

import json
from pathlib import Path

import dagster as dg

from lakechime_dagster.runtime.resource import LakeChimeResource
from lakechime_dagster.sensors.trigger import lakechime_sensor
from lakechime_dagster.settings import load_settings
from lakechime_dagster.triggers.triggers import SnapshotTrigger

FEATURES = (
    "features.jsonl"  # in the home folder: a line per execution, with the events that it was given
)


@dg.asset
def features(
    context: dg.AssetExecutionContext, lakechime: LakeChimeResource
) -> dg.MaterializeResult:
    """What a job does that existed before any trigger: here it writes down what it was given."""
    with lakechime.execution(context) as running:
        line = {
            "execution": running.execution.execution_id,
            "snapshots": [event.event.snapshot_id for event in running.events],
            "env": running.env(),
        }
        with features_file().open("a") as file:
            file.write(json.dumps(line) + "\n")
        return dg.MaterializeResult(metadata={"events": len(running.events)})


def features_file() -> Path:
    return load_settings().home / FEATURES


defs = dg.Definitions(
    assets=[features],
    sensors=[
        lakechime_sensor("features", target=features, trigger=SnapshotTrigger(["silver.orders"]))
    ],
    resources={"lakechime": LakeChimeResource()},
    executor=dg.in_process_executor,
)
