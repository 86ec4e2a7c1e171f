"""The examples of the documents run as printed."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.settings import MARKER
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable
from tests.support.cli import Cli

ROOT = Path(__file__).resolve().parent.parent


def section_of(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one."""
    return (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def code_of(page: str, heading: str, language: str = "python") -> str:
    """The first block of a language below a heading."""
    block = re.search(
        rf"^```{language}\n(.*?)^```", section_of(page, heading), re.MULTILINE | re.DOTALL
    )
    assert block, f"{page} has no {language} block below {heading!r}"
    return block.group(1)


def test_the_lake_of_the_readme_loads():
    code = code_of("README.md", "Your own lake in ten lines")
    names: dict = {"__name__": "readme_lake"}
    exec(compile(code, "README.md", "exec"), names)
    assert names["lake"].name == "shop"


def test_the_lake_that_follows_a_database_loads_as_printed():
    names: dict = {"__name__": "followed_lake"}
    exec(
        compile(
            code_of("docs/replicate-a-database.md", "Declare"), "replicate-a-database.md", "exec"
        ),
        names,
    )
    assets = build_definitions(names["lake"]).resolve_asset_graph().get_all_asset_keys()
    assert {key.to_user_string() for key in assets} == {
        "file/landing/orders/*.jsonl",
        "shop/orders__changes",
        "shop/orders",
    }


def test_the_lake_with_a_stream_loads_as_printed():
    names: dict = {"__name__": "streamed_lake"}
    exec(compile(code_of("docs/event-streams.md", "Declare"), "event-streams.md", "exec"), names)
    assets = build_definitions(names["lake"]).resolve_asset_graph().get_all_asset_keys()
    assert {key.to_user_string() for key in assets} == {
        "file/in/*.jsonl",
        "game/events",
        "game_other",
        "game_other__types",
        "shop",
        "shop__types",
    }
    assert names["shop"].table("shop.buy").name == "shop.shop__buy"


def test_the_store_is_asked_as_printed(lakechime: Cli, capsys: pytest.CaptureFixture[str]):
    partition = ("--partition", '["2026-01-31"]')
    assert (
        lakechime(
            "dce",
            "register",
            "--table",
            "bronze.orders",
            *partition,
            "--snapshot-id",
            "17",
            "--tag",
            "source=shop",
        ).code
        == 0
    )
    exec(compile(code_of("docs/producers.md", "Read the store"), "producers.md", "exec"), {})
    assert " 17 " in capsys.readouterr().out


def test_the_maintained_lake_loads_as_printed():
    names: dict = {"__name__": "kept_lake"}
    exec(compile(code_of("docs/maintenance.md", "Declare it"), "maintenance.md", "exec"), names)
    assets = build_definitions(names["lake"]).resolve_asset_graph().get_all_asset_keys()
    assert {key.to_user_string() for key in assets} == {
        "bronze/orders",
        "gold/totals",
        "gold/totals__maintenance",
    }


def the_example_of_the_readme() -> dg.Definitions:
    names: dict = {"__name__": "readme_sensor"}
    exec(compile(code_of("README.md", "A trigger on an existing job"), "README.md", "exec"), names)
    return names["defs"]


def test_a_lake_the_example_of_the_readme_and_another_lake_fit_into_one_code_location():
    def lake(name: str) -> dg.Definitions:
        return build_definitions(
            Lake(
                name,
                [SourceTable(f"{name}.x"), sql_table(f"{name}.y", sql=f"SELECT * FROM {name}.x")],
            )
        )

    merged = dg.Definitions.merge(lake("shop"), lake("ships"), the_example_of_the_readme())
    assert {"shop__tables", "ships__tables"} <= {
        job.name for job in merged.get_repository_def().get_all_jobs()
    }


@pytest.fixture
def beside_the_marker(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder with the README's lake in it, and nothing set but what the README
    exports.
    """
    folder = Path.cwd()
    monkeypatch.delenv("LAKECHIME_HOME")
    name, _, value = re.findall(
        r"`export (\S+?)(=)(\S+)`", section_of("README.md", "Your own lake in ten lines")
    )[0]
    monkeypatch.setenv(name, value)
    (folder / MARKER).touch()
    (folder / "my_package").mkdir()
    (folder / "my_package" / "lake.py").write_text(
        code_of("README.md", "Your own lake in ten lines")
    )
    path, modules = list(sys.path), set(sys.modules)
    yield folder
    sys.path[:] = path
    for module in set(sys.modules) - modules:
        if module.startswith("my_package"):
            del sys.modules[module]


def test_the_trigger_of_the_readme_on_an_asset_is_explained_by_its_module(
    lakechime: Cli, beside_the_marker: Path
):
    title = "A trigger on an existing job"
    (beside_the_marker / "my_package" / "features.py").write_text(code_of("README.md", title))
    (command,) = re.findall(r"`(lakechime trigger show [^`]+)`", section_of("README.md", title))
    explained = lakechime(*command.split()[1:])
    assert explained.code == 0, explained.err
    assert explained.out.startswith("features ")


def test_the_commands_of_the_readme_work_after_its_lake(lakechime: Cli, beside_the_marker: Path):
    commands = [
        shlex.split(line, comments=True)
        for line in code_of("README.md", "Producers and people on call", "sh").splitlines()
    ]
    assert [command[0] for command in commands] == ["lakechime"] * 3
    registered, listed, explained = [lakechime(*command[1:]) for command in commands]
    assert (registered.code, registered.err) == (0, "")
    assert [event["snapshot_id"] for event in listed.json["events"]] == ["17"]
    assert explained.code == 0, explained.err
    assert explained.out.startswith("silver.orders")


def test_the_asset_of_the_readme_is_launched_with_the_changes_of_its_table(
    lakechime: Cli, tmp_path: Path
):
    assert lakechime("dce", "register", "--table", "silver.orders", "--snapshot-id", "1").code == 0
    defs = the_example_of_the_readme()
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        with dg.build_sensor_context(instance=instance, definitions=defs) as context:
            requests = list(
                defs.resolve_sensor_def("features").evaluate_tick(context).run_requests or ()
            )
        assert len(requests) == 1
        job = defs.resolve_implicit_global_asset_job_def()
        run = job.execute_in_process(instance=instance, tags=requests[0].tags)
        said = [record.user_message for record in instance.all_logs(run.run_id)]
    assert run.success
    assert "1 changes of silver.orders" in said
