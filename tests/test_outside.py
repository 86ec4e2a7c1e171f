"""The code location `outside`: empty where nothing can be read, of nothing that runs, and loaded by
no run.
"""

from pathlib import Path

import pytest

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.recording import keep_reads
from lakechime_dagster.outside import outside_definitions
from lakechime_dagster.settings import Settings, load_settings
from tests.support.cli import Cli
from tests.support.processes import free_port

LAKE = "tests.cli.weather_lake:lake"


def reported(settings: Settings) -> tuple[set[str], str]:
    """The keys of the location, and what it says of itself."""
    definitions = outside_definitions(settings)
    graph = definitions.resolve_asset_graph()
    assert not graph.executable_asset_keys
    assert not [
        *(definitions.jobs or ()),
        *(definitions.sensors or ()),
        *(definitions.schedules or ()),
    ]
    return {key.to_user_string() for key in graph.get_all_asset_keys()}, str(
        definitions.metadata["outside"].value
    )


def read(lakechime: Cli, *names: str) -> None:
    now = lakechime.platform.store.now()
    with writing(lakechime.platform.store.engine) as connection:
        for name in names:
            keep_reads(
                connection,
                [
                    Read(
                        consumer=Consumer(ConsumerKind.DASHBOARD, "bi", name),
                        refs=(ColumnRef("gold.daily"),),
                        at_ms=now,
                    )
                ],
            )


def test_what_is_in_use_stands_there_and_nothing_of_it_runs(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(lakechime, "Sales", "Costs")
    keys, said = reported(load_settings(lake=LAKE))
    assert keys == {"dashboards/bi/Sales", "dashboards/bi/Costs", "gold/daily"}
    assert said.startswith("2 that read the lake and 0 data sets")


@pytest.mark.parametrize(
    "url",
    ["sqlite:///nowhere/dce.sqlite", "postgresql://user:hunter2@127.0.0.1:PORT/none", "mongo://x"],
)
def test_a_store_that_is_not_there_gives_an_empty_location_and_is_not_made(
    tmp_path: Path, url: str
) -> None:
    position = url.replace("nowhere", str(tmp_path / "nowhere")).replace("PORT", str(free_port()))
    keys, said = reported(load_settings(lake=LAKE, store_url=position, home=tmp_path))
    assert (keys, said.startswith("nothing is shown: "), "hunter2" in said) == (set(), True, False)
    assert list(tmp_path.iterdir()) == []


def test_a_lake_that_breaks_gives_an_empty_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_lake_of_outside.py").write_text("raise RuntimeError('while declaring')")
    monkeypatch.syspath_prepend(tmp_path)
    assert reported(load_settings(lake="broken_lake_of_outside:lake", home=tmp_path)) == (
        set(),
        "nothing is shown: while declaring",
    )
