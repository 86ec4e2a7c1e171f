"""`make bench`: a line of goal, value and verdict for every number that was named."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import bench

ROOT = Path(__file__).resolve().parent.parent
GOOD = """
import json
print(json.dumps([{"name": "fast", "value": 0.9, "goal": ">= 0.85", "verdict": "ok"},
                  {"name": "slow", "value": 61.0, "unit": "ms", "goal": "<= 50", "verdict": "short"}]))
"""
NUMBERS = {
    "single registration against a raw insert of the same engine": ("store", r'"SQLAlchemy insert": 0\.85'),
    "single registration against psycopg": ("store", r'"psycopg insert": 0\.4\b'),
    "bulk registration against COPY": ("store", r'"COPY \d+": 0\.3\b'),
    "10,000 triggers": ("triggers", r"default=10_000"),
    "due triggers": ("triggers", r'"ms", 50\b|\b50,?\s*\)'),
    "idle tick": ("triggers", r'idle".*"ms", 10\)'),
    "event to the first line of the body": ("latency", r"GOAL_SECONDS = 7\.0"),
    "warm session to the first row": ("driver", r"GOAL_SECONDS = 2\.0"),
    "an execution into a small and a large table": ("refresh", r"SIZES = \(100_000, 5_000_000\)\nCHANGED = 1_000"),
}


@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_that_was_named_has_a_benchmark_with_its_goal(number: str) -> None:
    script, goal = NUMBERS[number]
    assert re.search(goal, (ROOT / "benchmarks" / f"{script}.py").read_text())


def test_make_bench_prints_goal_value_and_verdict_per_line_and_names_what_was_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "broken.py").write_text("raise SystemExit(3)")
    (tmp_path / "_shared.py").write_text("raise SystemExit(4)")
    monkeypatch.setattr(bench, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "build" / "benchmarks.json")
    monkeypatch.setattr(sys, "argv", ["bench.py"])
    assert bench.main() == 1
    printed = capsys.readouterr()
    fast, slow, total = printed.out.splitlines()
    assert re.fullmatch(r"good: fast +0\.9 +goal >= 0\.85 +ok", fast)
    assert re.fullmatch(r"good: slow +61\.0 ms +goal <= 50 +short", slow)
    assert total == "2 numbers, 1 short of their goal, 1 not measured"
    assert printed.err == "broken: not measured: exit code 3\n"
    assert len(json.loads((tmp_path / "build" / "benchmarks.json").read_text())["lines"]) == 2


def test_what_falls_short_of_its_goal_stands_in_the_page_with_the_reason() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")]
    assert {row[3] for row in rows[1:]} <= {"ok", "short", "info"}
    short = [name for name, _, _, verdict in rows if verdict == "short"]
    reasons = re.findall(r"^- \*\*(.+?)\*\*: ((?:.+\n?)+?)(?=^- |\Z|\n)", page, re.MULTILINE)
    assert short
    assert set(short) <= {name for name, reason in reasons if len(reason.split()) > 10}


@pytest.mark.services
def test_a_benchmark_runs_and_gives_lines_of_that_form(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "triggers.py"
    done = subprocess.run(
        [sys.executable, str(script), "--flows", "30", "--json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    assert len(lines) >= 3
    assert all({"name", "value", "goal", "verdict"} <= set(line) and line["verdict"] in ("ok", "short", "info") for line in lines)
