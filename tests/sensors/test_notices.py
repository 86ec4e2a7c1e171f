"""Planned changes are shown once on each asset that they reach, and no longer when they are withdrawn."""

from pathlib import Path

import dagster as dg

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.notices.changes import Notices
from tests.assets import test_named_types as types
from tests.cli.weather_lake import lake
from tests.lineage.notices.changes import make_change
from tests.support.cli import Cli


def test_a_planned_change_is_shown_on_each_asset_that_it_reaches_until_it_is_withdrawn(lakechime: Cli, tmp_path: Path) -> None:
    notices, cursor = Notices(lakechime.platform.store.engine, lakechime.platform.ledger.deployment), None
    sensor = build_definitions(lake).resolve_sensor_def("weather__notices")

    def tick() -> tuple[dict[str, str], str]:
        nonlocal cursor
        with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance, dg.build_sensor_context(instance=instance, cursor=cursor) as context:
            result = sensor.evaluate_tick(context)
        cursor = result.cursor or cursor
        shown = {".".join(event.asset_key.path): event.metadata["planned changes"].value for event in result.asset_events}
        return {name: str(text) for name, text in shown.items()}, result.skip_message or ""

    assert tick() == ({}, "no change is planned")
    kept = notices.draft(make_change(), "me")
    title = f"change {kept.change_id}, planned: Deprecation: bronze.weather.humid on 2026-12-31"
    unsure = f"{title}; whether it reaches this is not sure"
    reached = {"bronze.weather": title, "silver.flights": unsure, "gold.daily": unsure, "gold.wet": unsure}
    assert tick() == (reached, "what is planned is shown anew on 4 tables")
    assert tick() == ({}, "what is planned is shown on 4 tables")
    notices.withdraw(kept.change_id, By(who="me", reason="why"))
    assert tick() == (dict.fromkeys(reached, "none any more"), "what is planned is shown anew on 4 tables")
    assert tick() == ({}, "no change is planned")


def test_types_that_the_lake_names_show_it_too_and_what_is_no_asset_is_not_counted(lakechime: Cli, tmp_path: Path) -> None:
    notices = Notices(lakechime.platform.store.engine, lakechime.platform.ledger.deployment)
    kept = notices.draft(make_change("shop.shop__sell", "shop.shop__gift", "mysql/shop.orders", on=None), "me")
    sensor = build_definitions(types.lake()).resolve_sensor_def("ev__notices")
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance, dg.build_sensor_context(instance=instance) as context:
        result = sensor.evaluate_tick(context)
    (shown,) = result.asset_events
    assert (shown.asset_key, result.skip_message) == (types.SELL, "what is planned is shown anew on 1 table")
    assert str(shown.metadata["planned changes"].value).startswith(f"change {kept.change_id}, planned: ")
