"""A benchmark runs and prints its lines of goal, value and verdict."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "triggers.py"


@pytest.mark.tier3
def test_a_benchmark_runs_and_prints_its_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--subscriptions", "30", "--keys", "50", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    assert lines
    assert all(
        {"name", "value", "goal", "verdict"} <= set(line)
        and line["verdict"] in ("ok", "short", "info")
        for line in lines
    )
