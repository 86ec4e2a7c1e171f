"""The sensor that shows planned changes on each asset that they reach, as long as they are planned or announced.

What they reach outside of the lake is no asset here: the page of lineage and the texts to its owners tell of it.
"""

import json
from collections.abc import Collection, Mapping

import dagster as dg

from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lineage.notices.changes import ChangeState
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.platform import Platform, open_platform
from lakechime_dagster.sensors.looking import looking_sensor
from lakechime_dagster.store.notices.changes import Notices

INTERVAL_SECONDS = 60
NONE = "none any more"
MAX_SHOWN = 500  # assets a tick


def notices_sensor(lake: Lake, keys: Collection[dg.AssetKey]) -> dg.SensorDefinition:
    """The sensor of a lake whose assets have these keys; its cursor holds what it has shown, so that it tells an asset of what is new."""

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        before: dict[str, str] = json.loads(context.cursor or "{}")
        now = {table: text for table, text in planned(open_platform(), lake).items() if asset_key(table) in keys}
        new = {table: now.get(table, NONE) for table in sorted({*before, *now}) if before.get(table) != now.get(table)}
        shown = dict(list(new.items())[:MAX_SHOWN])
        told = {**before, **shown}
        cursor = json.dumps({table: text for table, text in told.items() if text != NONE})
        return dg.SensorResult(skip_reason=_reason(shown, now), cursor=cursor, asset_events=observations(shown))

    return looking_sensor(f"{lake.name}__notices", INTERVAL_SECONDS, "Shows planned changes on each asset that they reach.", look)


def planned(platform: Platform, lake: Lake) -> dict[str, str]:
    """By table the open changes that reach it, the newest first."""
    changes = Notices(platform.store.engine, platform.ledger.deployment).changes(ChangeState.PLANNED, ChangeState.ANNOUNCED)
    if not changes:
        return {}
    from lakechime_dagster.resources.lineage.asked import AskedLineage  # numpy, for who has a change to show
    from lakechime_dagster.resources.notices.hits import hits_of

    asked, found = AskedLineage(platform, lake), dict[str, list[str]]()
    for one in changes:
        for hit in hits_of(asked, one.change.refs):
            sure = "" if hit.is_sure else "; whether it reaches this is not sure"
            found.setdefault(hit.table, []).append(f"change {one.change_id}, {one.state}: {one.change.title}{sure}")
    return {table: "\n".join(lines) for table, lines in found.items()}


def observations(shown: Mapping[str, str]) -> list[dg.AssetObservation]:
    """What is shown on the assets of tables."""
    return [
        dg.AssetObservation(asset_key(table), metadata={"planned changes": dg.MetadataValue.text(text)}) for table, text in shown.items()
    ]


def _reason(shown: Mapping[str, str], now: Mapping[str, str]) -> str:
    if shown:
        return f"what is planned is shown anew on {_tables(shown)}"
    return f"what is planned is shown on {_tables(now)}" if now else "no change is planned"


def _tables(several: Mapping[str, str]) -> str:
    return f"{len(several)} table{'' if len(several) == 1 else 's'}"
