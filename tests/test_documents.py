"""What the documents say is true: their links lead somewhere, and their code runs."""

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.dce.snapshots import Verdict
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.demo.flights import FAIL_SWITCH
from lakechime_dagster.demo.followed import CDC_SWITCH
from lakechime_dagster.lake import Lake, Maintenance, SourceTable, sql_table
from lakechime_dagster.settings import MARKER, Settings, SparkSettings
from lakechime_dagster.triggers.lanes import Cause
from tests.support.cli import Cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NAMED_LAWS = r"(?i)\blaws? (\d+(?:(?:, | to | and )\d+)*)"  # "law 7", "laws 5 to 8, 20"


def section_of(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one."""
    return (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def code_of(page: str, heading: str, language: str = "python") -> str:
    """The first block of a language below a heading."""
    block = re.search(rf"^```{language}\n(.*?)^```", section_of(page, heading), re.MULTILINE | re.DOTALL)
    assert block, f"{page} has no {language} block below {heading!r}"
    return block.group(1)


def lines_of(code: str) -> int:
    return sum(1 for line in code.splitlines() if line.strip() and not line.startswith("#"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_documents_that_are_promised_exist():
    promised = (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "docs/glossary.md",
        "docs/why.md",
        "docs/features.md",
        "docs/laws.md",
        "docs/benchmarks.md",
    )
    assert [name for name in promised if not (ROOT / name).is_file()] == []
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_the_lake_of_the_readme_loads_and_has_ten_lines():
    code = code_of("README.md", "Your own lake in ten lines")
    assert lines_of(code) <= 10
    names: dict = {"__name__": "readme_lake"}
    exec(compile(code, "README.md", "exec"), names)
    assert names["lake"].name == "shop"


def test_the_lake_that_follows_a_database_loads_as_printed():
    names: dict = {"__name__": "followed_lake"}
    exec(compile(code_of("docs/follow-a-database.md", "Declare it"), "follow-a-database.md", "exec"), names)
    assets = build_definitions(names["lake"]).resolve_asset_graph().get_all_asset_keys()
    assert {key.to_user_string() for key in assets} == {"file/landing/orders/*.jsonl", "shop/orders__changes", "shop/orders"}


def test_the_lake_with_a_stream_loads_as_printed():
    names: dict = {"__name__": "streamed_lake"}
    exec(compile(code_of("docs/events.md", "Declare"), "events.md", "exec"), names)
    assets = build_definitions(names["lake"]).resolve_asset_graph().get_all_asset_keys()
    assert {key.to_user_string() for key in assets} == {"file/in/*.jsonl", "game/events", "game_other", "shop"}
    assert names["shop"].table("shop.buy").name == "shop.shop__buy"


def test_the_maintained_lake_loads_as_printed_and_each_field_of_maintenance_is_told():
    names: dict = {"__name__": "kept_lake"}
    exec(compile(code_of("docs/maintenance.md", "Declare it"), "maintenance.md", "exec"), names)
    assets = build_definitions(names["lake"]).resolve_asset_graph().get_all_asset_keys()
    assert {key.to_user_string() for key in assets} == {"bronze/orders", "gold/totals", "gold/totals__maintenance"}
    told = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section_of("docs/maintenance.md", "Declare it"), re.MULTILINE)
    assert [name for cell in told for name in re.findall(r"\w+", cell)] == [one.name for one in fields(Maintenance)]


def the_example_of_the_readme() -> dg.Definitions:
    names: dict = {"__name__": "readme_sensor"}
    exec(compile(code_of("README.md", "A trigger on a job that exists already"), "README.md", "exec"), names)
    return names["defs"]


def test_a_lake_the_example_of_the_readme_and_another_lake_fit_into_one_code_location():
    def lake(name: str) -> dg.Definitions:
        return build_definitions(Lake(name, [SourceTable(f"{name}.x"), sql_table(f"{name}.y", sql=f"SELECT * FROM {name}.x")]))

    merged = dg.Definitions.merge(lake("shop"), lake("ships"), the_example_of_the_readme())
    assert {"shop__tables", "ships__tables"} <= {job.name for job in merged.get_repository_def().get_all_jobs()}


@pytest.fixture
def beside_the_marker(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder with the README's lake in it, and nothing set but what the README exports."""
    folder = Path.cwd()
    monkeypatch.delenv("LAKECHIME_HOME")
    name, _, value = re.findall(r"`export (\S+?)(=)(\S+)`", section_of("README.md", "Your own lake in ten lines"))[0]
    monkeypatch.setenv(name, value)
    (folder / MARKER).touch()
    (folder / "my_package").mkdir()
    (folder / "my_package" / "lake.py").write_text(code_of("README.md", "Your own lake in ten lines"))
    path, modules = list(sys.path), set(sys.modules)
    yield folder
    sys.path[:] = path
    for module in set(sys.modules) - modules:
        if module.startswith("my_package"):
            del sys.modules[module]


def test_the_trigger_of_the_readme_on_an_asset_is_explained_by_its_module(lakechime: Cli, beside_the_marker: Path):
    title = "A trigger on a job that exists already"
    (beside_the_marker / "my_package" / "features.py").write_text(code_of("README.md", title))
    (command,) = re.findall(r"`(lakechime trigger explain [^`]+)`", section_of("README.md", title))
    explained = lakechime(*command.split()[1:])
    assert explained.code == 0, explained.err
    assert explained.out.startswith("features ")


def test_the_commands_of_the_readme_work_after_its_lake(lakechime: Cli, beside_the_marker: Path):
    commands = [shlex.split(line, comments=True) for line in code_of("README.md", "Producers and people on call", "sh").splitlines()]
    assert [command[0] for command in commands] == ["lakechime"] * 3
    registered, listed, explained = [lakechime(*command[1:]) for command in commands]
    assert (registered.code, registered.err) == (0, "")
    assert [event["snapshot_id"] for event in listed.json["events"]] == ["17"]
    assert explained.code == 0, explained.err
    assert explained.out.startswith("silver.orders")


def test_the_readme_says_where_the_source_of_its_lake_is_looked_for(lakechime: Cli, beside_the_marker: Path):
    place = Path(lakechime.platform.location("bronze.orders")).relative_to(beside_the_marker)
    assert f"`{place}`" in section_of("README.md", "Your own lake in ten lines")


def test_the_readme_names_every_setting():
    named = re.findall(r"^\| `(LAKECHIME_\w+)` \|", section_of("README.md", "Settings"), re.MULTILINE)
    own = {f"LAKECHIME_{field.upper()}" for field in Settings.model_fields if field != "spark"}
    assert set(named) == own | {f"LAKECHIME_SPARK_{field.upper()}" for field in SparkSettings.model_fields} | {FAIL_SWITCH, CDC_SWITCH}
    assert len(named) == len(set(named))


def test_the_trigger_of_the_readme_is_a_sensor_of_an_existing_asset_in_five_lines():
    code = code_of("README.md", "A trigger on a job that exists already")
    stock = re.compile(r"@dg|def |defs = |import dagster| +context")
    added = [line for line in code.splitlines() if line.strip() and not stock.match(line)]
    assert len(added) == 5
    defs = the_example_of_the_readme()
    assert [sensor.name for sensor in defs.sensors or ()] == ["features"]


def test_the_asset_of_the_readme_is_launched_with_the_changes_of_its_table(lakechime: Cli, tmp_path: Path):
    assert lakechime("dce", "register", "--table", "silver.orders", "--snapshot-id", "1").code == 0
    defs = the_example_of_the_readme()
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        with dg.build_sensor_context(instance=instance, definitions=defs) as context:
            requests = list(defs.resolve_sensor_def("features").evaluate_tick(context).run_requests or ())
        assert len(requests) == 1
        job = defs.resolve_implicit_global_asset_job_def()
        run = job.execute_in_process(instance=instance, tags=requests[0].tags)
        said = [record.user_message for record in instance.all_logs(run.run_id)]
    assert run.success
    assert "1 changes of silver.orders" in said


def test_the_readme_begins_in_three_sentences_and_shows_the_ui():
    text = (ROOT / "README.md").read_text()
    opening = text.split("\n## ")[0].split("\n", 1)[1]
    assert len(re.findall(r"\.(?:\s|$)", opening)) == 3
    pictures = re.findall(r"!\[[^]]+\]\((docs/images/\w+\.png)\)", text)
    assert pictures
    assert all((ROOT / picture).read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_every_law_that_is_named_stands_in_the_page_of_laws():
    page = (ROOT / "docs" / "laws.md").read_text()
    assert [int(number) for number in re.findall(r"^(\d+)\. \*\*", page, re.MULTILINE)] == list(range(1, 21))
    texts = sources() | {file: file.read_text() for file in (ROOT / "tests").rglob("*.py")}
    texts |= {page: page.read_text() for page in PAGES}
    named = {int(number) for text in texts.values() for place in re.findall(NAMED_LAWS, text) for number in re.findall(r"\d+", place)}
    assert {5, 13, 20} <= named <= set(range(1, 21))
    assert "(laws.md)" in texts[ROOT / "docs" / "features.md"]
    assert "(docs/laws.md)" in texts[ROOT / "README.md"]
    assert "docs/laws.md" in texts[ROOT / "lakechime_dagster" / "store" / "ledger.py"].partition("\n")[0]


def test_the_rooms_of_the_contributing_guide_are_those_that_exist_in_the_order_of_the_contract():
    (contract,) = [
        one for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"] if one["id"] == "rooms"
    ]
    layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    package = ROOT / "lakechime_dagster"
    built = {room for layer in layers for room in layer if (package / room).is_dir() or (package / f"{room}.py").is_file()}
    section = section_of("CONTRIBUTING.md", "Rooms")
    chain = next(line for line in section.splitlines() if "→" in line)
    shown = [re.findall(r"\w+", layer) for layer in chain.split("→")]
    assert shown == [there for layer in layers if (there := [room for room in layer if room in built])]
    reserved = next(line for line in section.splitlines() if "reserved" in line)
    assert {room for layer in layers for room in layer} - built == set(re.findall(r"`(\w+)`", reserved))


def test_the_rooms_that_are_said_to_read_neither_environment_nor_clock_do_not():
    (rule,) = re.findall(r"((?:`\w+`(?:, | and )?)+) read neither the environment nor the clock", (ROOT / "CONTRIBUTING.md").read_text())
    rooms = re.findall(r"\w+", rule.replace(" and ", " "))
    assert rooms == ["dce", "triggers", "lake", "cdc"]
    files = [file for room in rooms for file in (ROOT / "lakechime_dagster" / room).rglob("*.py")]
    outside = re.compile(r"environ\b|getenv|load_settings|import time|\btime\.time|datetime\.now|utcnow|date\.today")
    assert [file.name for file in files if outside.search(file.read_text())] == ["memory.py"]  # the default of an argument


def test_words_of_the_glossary_stand_once():
    terms = re.findall(r"^\| ([^|]+?) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    terms = [term for term in terms if term not in ("term", "---")]
    assert len(terms) > 50
    assert sorted(terms) == sorted(set(terms))


def test_the_words_for_doing_again_name_commands_that_there_are(lakechime: Cli):
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    (replay,) = re.findall(r"^\| replay \| (.+) \|$", glossary, re.MULTILINE)
    (command,) = re.findall(r"`(.+?)`", replay)
    assert "back to replay" in lakechime(*command.split(), "--help").out
    assert not re.search(r"^\| (?:backfill|rebuild) \|", glossary, re.MULTILINE)
    given = {cause for cause in Cause if any(f"Cause.{cause.name}" in text for text in sources().values())}
    assert given == set(Cause)


def test_the_glossary_says_which_verdict_nothing_gives_yet():
    (row,) = re.findall(r"^\| verdict \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    given = {verdict for verdict in Verdict if any(f"Verdict.{verdict.name}" in text for text in sources().values())}
    assert set(re.findall(r"\b[A-Z]{3}[A-Z_]+\b", row)) == {verdict.name for verdict in Verdict}
    assert set(re.findall(r"(\w+) is reserved", row)) == {verdict.name for verdict in set(Verdict) - given}


def test_the_formats_that_are_read_are_told_from_those_that_are_pushed():
    compared = (ROOT / "docs" / "why.md").read_text()
    assert "open tables (Delta read; Iceberg and Hive by pushed events)" in compared
    packages = {"deltalake": "Delta", "pyiceberg": "Iceberg", "thrift": "Hive"}  # that read a format's own log
    capture = {file: text for file, text in sources().items() if file.parent.name == "capture"}
    read = {
        packages[found]
        for text in capture.values()
        for found in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
        if found in packages
    }
    assert read == {"Delta"}


def sources() -> dict[Path, str]:
    """The text of each module of the package."""
    return {file: file.read_text() for file in (ROOT / "lakechime_dagster").rglob("*.py")}
