"""`make bench`: a line of goal, value and verdict for every number that was named."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import cdc, driver, events_many, json_hash, latency, lineage_graph, lineage_ingest, lineage_page, refresh, store, triggers
from benchmarks._lines import Line
from benchmarks._merges import merges
from benchmarks._orders import random_changes
from scripts import bench

ROOT = Path(__file__).resolve().parent.parent
GOOD = """
import json
print(json.dumps([{"name": "fast", "value": 0.9, "goal": ">= 0.85", "verdict": "ok"},
                  {"name": "slow", "value": 61.0, "unit": "ms", "goal": "<= 50", "verdict": "short"}]))
"""
NUMBERS = {
    "single registration against a raw insert of the same engine": (
        "store",
        "PostgreSQL, 8 writers: register / SQLAlchemy insert",
        ">= 0.85",
    ),
    "single registration against a raw insert, SQLite": ("store", "SQLite, 8 writers: register / SQLAlchemy insert", ">= 0.85"),
    "single registration against psycopg": ("store", "PostgreSQL, 8 writers: register / psycopg insert", ">= 0.4"),
    "bulk registration against COPY": ("store", "PostgreSQL, bulk, 1 writer: register 1000 / COPY 1000", ">= 0.3"),
    "event to the first line of the body": ("latency", "event to first line of the body, p50", "<= 7"),
    "warm session to the first row": ("driver", "warm session to first row", "<= 2"),
    "an execution into a small and a large table": ("refresh", "cost for a table 50 times as large", "<= 5"),
    "our merge of changes against others as documented": ("cdc", "1 % random: best as documented / ours", ">= 2"),
    "our merge of changes against others with our properties": ("cdc", "1 % random: best with our properties / ours", ">= 1"),
    "messages of changes read": ("cdc", "messages read, 2 cores: ours", ">= 100000"),
    "what events are made of against a Python function": ("json_hash", "CPU: Python function / JVM", ">= 4"),
    "a query for each type against a step": ("events_many", "100 types: a query for each / ours", ">= 3"),
    "a step of many types": ("events_many", "300 types: a step of 80,000 events", "<= 60"),
    "impact of a table that many read": ("lineage_graph", "impact of a hub on tables, p95", "<= 10"),
    "impact of its columns": ("lineage_graph", "impact of all 20 columns of a hub on columns, p95", "<= 5"),
    "what is around a table": ("lineage_graph", "what is around a hub, 150 tables, p95", "<= 200"),
    "the first look at the page of lineage": ("lineage_page", "first question, processor time of the server", "<= 200"),
    "lineage flattened": ("lineage_graph", "flatten to pairs of tables", "<= 15"),
    "columns of SQL in one pass": ("lineage_ingest", "TPC-DS: a column at a time / all columns in one pass", ">= 3"),
    "documents of SQL": ("lineage_ingest", "documents of SQL, one statement for ten tasks", ">= 500"),
    "run events of OpenLineage": ("lineage_ingest", "run events of OpenLineage, START and COMPLETE", ">= 500"),
    "records of lineage that are stored": ("lineage_graph", "records that are stored, by hundreds, first", ">= 500"),
    "an execution against recomputing": ("refresh", "recomputing whole / execution", ">= 1"),
}
TRIGGERS = {
    "{flows} flows, a tick after a minute of events (231): up to 100 launches": "<= 50",
    "{flows} flows, idle": "<= 10",
}


@dataclass
class Unmeasured:
    """A table of a benchmark without the table: every execution takes a second."""

    spark: object
    folder: Path
    rows: int

    def make(self) -> tuple[float, float]:
        """There is nothing to follow."""
        return 1.0, 1.0

    def change(self, round_: int) -> None:
        """Nothing changes."""

    def add(self) -> None:
        """Nothing comes."""

    def merge(self, _: object) -> float:
        return 1.0

    def follow(self) -> float:
        return 1.0

    recompute = follow


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Callable[[], Iterable[Line]]]:
    """The lines that each script would print, with nothing measured: a rate of 1, a second for all else."""
    url = f"sqlite:///{tmp_path / 'dce.sqlite'}"
    host = SimpleNamespace(wait_warmed=lambda _: True, stop=lambda: None, log_file=tmp_path)
    for script, name, instead in (
        (store, "rate", lambda *_, **__: 1.0), (store, "find_binaries", lambda: None),
        (store, "started", lambda *_, **__: nullcontext(url)),
        (driver, "first_row_seconds", lambda *_, **__: 1.0), (driver, "start_warm_driver", lambda *_: host),
        (refresh, "Bench", Unmeasured), (refresh, "open_driver", lambda *_, **__: nullcontext(SimpleNamespace(spark=None))),
    ):  # fmt: skip
        monkeypatch.setattr(script, name, instead)
    return {
        "store": lambda: [*store.on_postgres(0), *store.on_sqlite(0)],
        "latency": lambda: latency.lines([latency.Journey(0, 1, 2, 3, 4)]),
        "driver": lambda: driver.measure(tmp_path, 1, 1),
        "refresh": refresh.measure,
        "json_hash": lambda: json_hash.lines({way: [(1, 1)] * 2 for way in json_hash.WAYS}),
        "events_many": lambda: [
            *events_many.beside_queries(events_many.Ours(1, 1), 1),
            *events_many.of_many(events_many.Ours(1, 1), 80_000),
        ],
        "lineage_graph": lambda: lineage_graph.measure(tables=120, records=2),
        "lineage_page": lambda: lineage_page.measure(120, tmp_path, tmp_path / "dce.sqlite"),
        "lineage_ingest": lambda: lineage_ingest.measure(2, every=60),
        "cdc": lambda: [
            *cdc.compared(random_changes(1000, 0.01), {merge: [cdc.Run(1, 1, 1, 1)] for merge in merges()}),
            cdc.rate("ours", 2, 1, 1),
        ],
    }


@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_that_was_named_has_a_line_with_its_goal(number: str, lines: dict[str, Callable[[], Iterable[Line]]]) -> None:
    script, name, goal = NUMBERS[number]
    assert {line.name: line.goal for line in lines[script]()}[name] == goal


def test_an_execution_is_measured_into_the_two_sizes_that_were_named(lines: dict[str, Callable[[], Iterable[Line]]]) -> None:
    assert [line.name for line in lines["refresh"]()][:2] == ["1000 rows into 100,000", "1000 rows into 5,000,000"]


def test_ours_is_compared_with_the_best_of_the_others_of_each_kind() -> None:
    seconds = {"ours": 2, "Delta's recipe": 9, "delta-rs merge": 3}
    runs = {merge: [cdc.Run(seconds.get(merge.name, 8), 0, 0, 0)] for merge in merges()}
    found = {line.name: line.value for line in cdc.compared(random_changes(1000, 0.01), runs)}
    assert (found["1 % random: best as documented / ours"], found["1 % random: best with our properties / ours"]) == (1.5, 4)


def test_of_the_made_up_lineage_some_columns_may_come_from_any_column_of_each_input() -> None:
    network = lineage_graph.made_up(1_200)
    opaque = np.unique(network.unsure.targets)
    assert 0.02 < len(opaque) / (1_200 * lineage_graph.COLUMNS) < 0.04
    assert not np.isin(network.edges.targets, opaque).any()
    inputs = set(zip(network.inputs.sources.tolist(), network.inputs.targets.tolist(), strict=True))
    maybe = zip(network.unsure.sources.tolist(), network.datasets[network.unsure.targets].tolist(), strict=True)
    assert set(maybe) == {pair for pair in inputs if pair[1] in set(network.datasets[opaque].tolist())}


def test_ten_thousand_triggers_are_decided_unless_asked_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[int] = []
    monkeypatch.setattr(triggers, "find_binaries", lambda: None)
    monkeypatch.setattr(triggers, "started", lambda *_, **__: nullcontext(f"sqlite:///{tmp_path / 'dce.sqlite'}"))
    monkeypatch.setattr(triggers, "measured", lambda _, count: asked.append(count) or [])
    monkeypatch.setattr(sys, "argv", ["triggers.py"])
    triggers.main()
    assert asked == [10_000]


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
    measured, _, _ = page.partition("\n## ")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in measured.splitlines() if line.startswith("| ")]
    assert {row[3] for row in rows[1:]} <= {"ok", "short", "info"}
    short = [name for name, _, _, verdict in rows if verdict == "short"]
    reasons = re.findall(r"^- \*\*(.+?)\*\*: ((?:.+\n?)+?)(?=^- |\Z|\n)", page, re.MULTILINE)
    assert short
    assert set(short) <= {name for name, reason in reasons if len(reason.split()) > 10}


@pytest.mark.services
def test_a_benchmark_runs_and_gives_its_lines_with_their_goals(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "triggers.py"
    done = subprocess.run(
        [sys.executable, str(script), "--flows", "30", "--json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    assert len(lines) >= 3
    goals = {line["name"]: line["goal"] for line in lines}
    assert {name.format(flows=30): goal for name, goal in TRIGGERS.items()}.items() <= goals.items()
    assert all({"name", "value", "goal", "verdict"} <= set(line) and line["verdict"] in ("ok", "short", "info") for line in lines)
