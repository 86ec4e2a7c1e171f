"""What stands at the top of the repository, and what its two commands are made of."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder

from scripts import features

ROOT = Path(__file__).resolve().parent.parent
PAGE = """
| 3.1-01 | One | `tests/a/test_b.py::test_c` |
| 3.1-02 | Two | `tests/a/test_b.py::test_d` |
| 3.1-03 | Three | open: not built yet |
"""
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_c"/>
<testcase classname="tests.a.test_b" name="test_d">{outcome}</testcase>
</testsuite></testsuites>"""


def test_the_top_level_is_the_one_that_was_fixed():
    for folder in ("lakechime_dagster", "lakechime_dagster/assets", "lakechime_dagster/sensors", "tests"):
        assert (ROOT / folder / "__init__.py").is_file(), folder
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["build-system"]["build-backend"] == "hatchling.build"
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["lakechime_dagster"]
    places = [location["python_file"] for location in yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]]
    for place in places:
        assert (ROOT / place["working_directory"] / place["relative_path"]).is_file()
    assert [place["location_name"] for place in places] == [project["tool"]["dg"]["project"]["code_location_name"], "outside"]


def test_make_run_is_the_bootstrap_and_then_lakechime_dev():
    done = subprocess.run(["make", "-n", "--no-print-directory", "run"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.strip() for line in done.stdout.splitlines()] == ["sh scripts/bootstrap.sh", "exec .venv/bin/lakechime dev"]


def test_the_source_distribution_holds_all_that_make_and_the_readme_need():
    held = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert {
        "Makefile",
        "README.md",
        "CONTRIBUTING.md",
        "scripts/bootstrap.sh",
        "requirements.lock",
        "workspace.yaml",
        "dagster.yaml",
    } <= held
    assert not [path for path in held if path.startswith((".venv", ".lakechime/", ".hypothesis"))]


def test_pytest_shows_the_ten_slowest_tests():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert "--durations=10" in options


def test_scripts_are_for_a_posix_shell_and_macos_is_marked_untested():
    scripts = sorted((ROOT / "scripts").glob("*.sh"))
    assert {script.read_text().splitlines()[0] for script in scripts} == {"#!/bin/sh"}
    assert "SHELL = /bin/sh" in (ROOT / "Makefile").read_text()
    assert not [script.name for script in scripts if re.search(r"\[\[|\bfunction\b|\blocal\b|<<<|\bpipefail\b", script.read_text())]
    assert re.search(r"macOS is written for\s+and untested", (ROOT / "README.md").read_text())


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        ("", 0, ["3 demands, 2 proved, 1 open"]),
        ("<failure/>", 1, ["3.1-02: tests/a/test_b.py::test_d did not pass", "3 demands, 1 proved, 1 open"]),
        (
            '<skipped message="no server"/>',
            1,
            ["3.1-02: tests/a/test_b.py::test_d was skipped (no server)", "3 demands, 1 proved, 1 open"],
        ),
    ],
)
def test_make_features_prints_the_counts_and_fails_for_a_demand_that_is_not_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcome: str, code: int, said: list[str]
):
    (tmp_path / "tests" / "a").mkdir(parents=True)
    (tmp_path / "tests" / "a" / "test_b.py").touch()
    (tmp_path / "page.md").write_text(PAGE)
    (tmp_path / "report.xml").write_text(REPORT.format(outcome=outcome))
    monkeypatch.setattr(features, "ROOT", tmp_path)
    monkeypatch.setattr(features, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(features, "REPORTS", (tmp_path / "no-report.xml", tmp_path / "report.xml"))
    assert features.main() == code
    assert capsys.readouterr().out.splitlines() == said


def test_a_demand_that_another_one_says_is_withdrawn_with_its_id():
    page = features.PAGE.read_text()
    demands = {demand.id: demand for demand in features.parse(page)}
    (sentence,) = re.findall(r"Withdrawn, .+?: (.+?)\.\n", page, re.DOTALL)
    withdrawn = dict(re.findall(r"(\d\.\d-\d+)\s\((\d\.\d-\d+)\)", sentence))
    assert withdrawn == {"3.1-20": "3.1-06", "3.2-19": "3.2-15", "3.8-15": "3.8-02", "3.8-16": "3.8-14"}
    assert not withdrawn.keys() & demands.keys()
    assert set(withdrawn.values()) <= demands.keys()
    assert "tests/test_repository.py::test_every_make_target_that_the_readme_names_exists" in demands["3.1-06"].tests
