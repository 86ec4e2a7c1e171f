"""`make features`: holds docs/features.md against the last test run.

Each row of the table is a demand with its proof: the ids of the tests that prove it, or `open: reason`. A test that
was not collected, was skipped or did not pass fails the command. Named tests that the report of `make test` lacks,
or all of them when the code is newer than the report, are run here.
"""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "features.md"
REPORTS = (ROOT / "build" / "tests.xml", ROOT / "build" / "tests-streams.xml")  # of the parts of `make test`
OWN_REPORT = ROOT / "build" / "features.xml"
ROW = re.compile(r"^\| *(?P<id>\d+\.\d+-\d+) *\|(?P<demand>.*)\|(?P<proof>[^|]*)\| *$")
TEST_ID = re.compile(r"`(tests/[^`]+)`")

Outcomes = dict[str, list[str]]  # a test id without parameters -> the outcome of each of its runs


@dataclass(frozen=True)
class Demand:
    """A row of the page."""

    id: str
    text: str
    tests: tuple[str, ...]
    open_reason: str


def main() -> int:
    """Prints what is wrong and the closing counts; returns the exit code."""
    demands = parse(PAGE.read_text())
    named = {test for demand in demands for test in demand.tests}
    outcomes: Outcomes = {}
    for report in REPORTS:
        outcomes |= read(report) if is_fresh(report) else {}
    absent = sorted(test for test in named if not runs_of(test, outcomes))
    if absent:
        outcomes |= run(absent)
    wrong = problems(demands, outcomes)
    for line in wrong:
        print(line)
    n_open = sum(1 for demand in demands if demand.open_reason)
    unproved = {line.split(":", 1)[0] for line in wrong}
    n_proved = sum(1 for demand in demands if demand.tests and demand.id not in unproved)
    print(f"{len(demands)} demands, {n_proved} proved, {n_open} open")
    return 1 if wrong else 0


def parse(page: str) -> list[Demand]:
    """The rows of the page's tables."""
    rows = (ROW.match(line) for line in page.splitlines())
    return [demand_of(row) for row in rows if row]


def demand_of(row: re.Match[str]) -> Demand:
    """One row's demand; a proof that is neither tests nor `open: reason` is left empty and reported."""
    proof = row["proof"].strip()
    reason = proof.removeprefix("open:").strip() if proof.startswith("open:") else ""
    return Demand(row["id"], row["demand"].strip(), () if reason else tuple(TEST_ID.findall(proof)), reason)


def problems(demands: list[Demand], outcomes: Outcomes) -> list[str]:
    """What is wrong with the page or with its tests, one line each, led by the demand's id."""
    lines = [] if demands else [f"{PAGE.name}: no row found"]
    seen: set[str] = set()
    for demand in demands:
        if demand.id in seen:
            lines.append(f"{demand.id}: stands twice")
        seen.add(demand.id)
        if not demand.tests and not demand.open_reason:
            lines.append(f"{demand.id}: names neither a test nor `open: reason`")
        for test in demand.tests:
            runs = runs_of(test, outcomes)
            if not runs:
                lines.append(f"{demand.id}: {test} was not collected")
            lines.extend(f"{demand.id}: {test} {outcome}" for outcome in sorted({run for run in runs if run != "passed"}))
    return lines


def runs_of(test: str, outcomes: Outcomes) -> list[str]:
    """The outcomes of a test, of a single parametrisation of it, or of all tests of a file."""
    if test in outcomes:
        return outcomes[test]
    return [run for name, runs in outcomes.items() if name.startswith((f"{test}::", f"{test}[")) for run in runs]


def is_fresh(report: Path) -> bool:
    """Whether a report exists and no code is newer than it."""
    if not report.is_file():
        return False
    written = report.stat().st_mtime
    return not any(file.stat().st_mtime > written for folder in ("lakechime_dagster", "tests") for file in (ROOT / folder).rglob("*.py"))


def read(report: Path) -> Outcomes:
    """The outcomes in a JUnit report, by test id."""
    outcomes: Outcomes = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = test_id(case.get("classname") or "", case.get("name") or "")
        outcomes.setdefault(name, []).append(outcome_of(case))
    return outcomes


def test_id(classname: str, name: str) -> str:
    """`tests/a/test_b.py::test_c[x]` of a report's `tests.a.test_b` and `test_c[x]`."""
    parts = classname.split(".")
    for length in range(len(parts), 0, -1):
        file = Path(*parts[:length]).with_suffix(".py")
        if (ROOT / file).is_file():
            return "::".join([str(file), *parts[length:], name])
    return f"{classname}::{name}"


def outcome_of(case: ET.Element) -> str:
    """`passed`, or what happened instead."""
    skipped = case.find("skipped")
    if skipped is not None:
        return f"was skipped ({skipped.get('message')})"
    return "did not pass" if case.find("failure") is not None or case.find("error") is not None else "passed"


def run(tests: Iterable[str]) -> Outcomes:
    """Runs tests, leaving out those that do not exist, and returns their outcomes."""
    pytest = [sys.executable, "-m", "pytest", "-q"]
    env = os.environ | {"LAKECHIME_TEST_STREAM": "1"}  # what `make test` runs alone is no exception here
    files = sorted({test.split("::")[0] for test in tests if (ROOT / test.split("::")[0]).is_file()})
    listing = [*pytest, "--collect-only", *files]
    listed = subprocess.run(listing, cwd=ROOT, env=env, capture_output=True, text=True, check=False) if files else None
    collected = {line: ["passed"] for line in listed.stdout.splitlines()} if listed else {}
    there = [test for test in tests if runs_of(test, collected)]
    if not there:
        return {}
    print(f"running {len(there)} tests that the last `make test` does not vouch for", flush=True)
    OWN_REPORT.parent.mkdir(exist_ok=True)
    subprocess.run([*pytest, f"--junit-xml={OWN_REPORT}", *there], cwd=ROOT, env=env, check=False)
    return read(OWN_REPORT)


if __name__ == "__main__":
    sys.exit(main())
