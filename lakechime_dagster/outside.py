"""The code location `outside`: external assets of what only runs and other programs report.
It is reloaded when that changes.

What it says never decides anything: it has no job, sensor or executable asset, so that no run loads
it. Where the store or the lake cannot be read it is empty, since a picture that is missing hinders
nobody.
"""

import logging

import dagster as dg

from lakechime_dagster.assets.external import outside_specs
from lakechime_dagster.lineage.external import look_outside
from lakechime_dagster.runtime.resource import lake_of_definitions
from lakechime_dagster.settings import Settings, lake_name, load_settings, own_definitions
from lakechime_dagster.tables.lake import find_lake

logger = logging.getLogger(__name__)


def outside_definitions(settings: Settings) -> dg.Definitions:
    """What is outside of the lake of these settings, as its store has it now."""
    try:
        lake = find_lake(own_definitions(settings), lake_name(settings), lake_of_definitions)
        looked = look_outside(settings, lake)
        specs = outside_specs(looked, lake, settings.lineage_url)
    except Exception as error:  # noqa: BLE001 - a lake may fail in any way; the location that runs it says so
        logger.warning("nothing is shown of what is outside of the lake: %s", error)
        return dg.Definitions(metadata={"outside": f"nothing is shown: {error}"})
    if looked.outside.more:
        logger.warning("outside of the lake: %s", looked.sentence)
    return dg.Definitions(assets=specs, metadata={"outside": looked.sentence})


@dg.definitions
def defs() -> dg.Definitions:
    """The code location."""
    return outside_definitions(load_settings())
