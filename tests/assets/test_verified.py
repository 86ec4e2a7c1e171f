"""The check whether each event of a group is in the table of its type once: made at times of its
own, not by executions.
"""

from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from lakechime_dagster.assets.events import conserved
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.runtime.names import verify_check_key
from lakechime_dagster.silver.results import Example, Fault, Verified
from lakechime_dagster.tables.events import GroupOptions, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.schedule import every
from tests.assets.test_events import Game, buy, checks, game, sell

__all__ = ["game"]


def shown(result: dg.AssetCheckResult) -> dict[str, Any]:
    return {name: value.value for name, value in result.metadata.items()}


def test_what_is_wrong_is_named_by_its_row_and_path_without_its_value() -> None:
    examples = (
        Example(fault=Fault.LOST, source="a@0"),
        Example(fault=Fault.LACKS, source="a@7", pointer="/x|y", value="secret"),
    )
    result = conserved(
        [
            Verified(
                type="buy",
                table="shop.shop__buy",
                faults={Fault.LOST: 3, Fault.LACKS: 1},
                examples=examples,
            )
        ]
    )
    assert (result.passed, result.severity, result.description) == (
        False,
        dg.AssetCheckSeverity.ERROR,
        "shop.shop__buy: 3 lost, 1 lacks",
    )
    lines = shown(result)["faults"].splitlines()[2:]
    assert lines == [
        "| shop.shop__buy | lost | 3 | a@0 |",
        "| shop.shop__buy | lacks | 1 | a@7 /x\\|y |",
    ]
    assert "secret" not in repr(result)


def test_a_group_that_says_when_has_the_check_and_its_sensor_and_no_execution_makes_it() -> None:
    stream = event_stream("game", source=JsonLines("in"))
    quiet, watched = (
        event_group("shop", stream, match="shop.*", options=GroupOptions(verify=when))
        for when in (None, every(days=1))
    )
    for group, has_check in ((quiet, False), (watched, True)):
        definitions = build_definitions(Lake("ev", [stream, group]))
        assert (
            verify_check_key(group)
            in definitions.resolve_asset_graph().get(dg.AssetKey("shop")).check_keys
        ) is has_check
        assert ("ev__verify" in {sensor.name for sensor in definitions.sensors or ()}) is has_check
        assert {node.name for node in definitions.resolve_job_def("ev__shop").nodes} == {"shop"}
    assert {node.name for node in definitions.resolve_job_def("ev__verify").nodes} == {
        "shop_each_event_once"
    }


@pytest.mark.spark
def test_a_lost_row_is_columns_in_the_check_and_no_execution_makes_it(game: Game) -> None:
    stream = event_stream("game", source=JsonLines(str(game.folder)), producer_field="$.title")
    game.definitions = build_definitions(
        Lake(
            "ev",
            [
                stream,
                event_group(
                    "shop", stream, match="shop.*", options=GroupOptions(verify=every(days=1))
                ),
            ],
        )
    )
    game.ingest(buy(1), sell(2), buy(3))
    (request,) = game.tick("shop").run_requests
    assert "each_event_once" not in {key.name for key in request.asset_check_keys}
    assert "each_event_once" not in checks(game.run("ev__shop", tags=dict(request.tags)))
    assert checks(game.run("ev__verify")) == {"each_event_once": True}
    DeltaTable(game.location("shop.buy")).delete("n = 3")
    (found,) = game.run("ev__verify", raise_on_error=False).get_asset_check_evaluations()
    assert (found.passed, found.description) == (False, "shop.shop__buy: 1 lost")
