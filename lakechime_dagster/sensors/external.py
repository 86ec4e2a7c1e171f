"""The sensor that reloads the code location of external assets."""

import dagster as dg

from lakechime_dagster.lineage.external import NotReloadedError, look_outside, reload_outside
from lakechime_dagster.sensors.observing import looking_sensor
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.lake import Lake

INTERVAL_SECONDS = 60
UNSET = "it shows what it read when it was loaded last: set LAKECHIME_WEBSERVER_URL to have it loaded anew"


def outside_sensor(lake: Lake) -> dg.SensorDefinition:
    """The sensor of a lake; its cursor is the digest of what the location was told to show last."""

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        settings = load_settings()
        looked = look_outside(settings, lake)
        if looked.digest == context.cursor:
            return dg.SensorResult(skip_reason=looked.sentence, cursor=context.cursor)
        if not settings.webserver_url:
            return dg.SensorResult(skip_reason=f"{looked.sentence}; {UNSET}", cursor=context.cursor)
        try:
            reload_outside(settings.webserver_url)
        except NotReloadedError as error:
            return dg.SensorResult(skip_reason=f"{looked.sentence}; {error}", cursor=context.cursor)
        return dg.SensorResult(skip_reason=f"{looked.sentence}; the location was loaded anew", cursor=looked.digest)

    about = "Has the code location `outside` loaded anew when other dashboards, people or data sets are in use."
    return looking_sensor(f"{lake.name}__outside", INTERVAL_SECONDS, about, look)
