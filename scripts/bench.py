"""`make bench`: runs every benchmark and prints its lines of goal, value and verdict.

A benchmark is a script in benchmarks/ that prints, with --json, a list of {"name", "value", "unit",
"goal", "verdict"} (verdict "ok", "short" or "info"; further fields are kept). Names given as
arguments choose among them.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
RESULTS = ROOT / "build" / "benchmarks.json"


def main() -> int:
    """Runs the chosen benchmarks; a number that falls short is no failure, a benchmark that does
    not run is one.
    """
    known = sorted(file.stem for file in BENCHMARKS.glob("*.py") if not file.stem.startswith("_"))
    parser = argparse.ArgumentParser(description="Run benchmarks.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of: {', '.join(known) or 'none yet'}"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    results: dict[str, Any] = {
        "machine": f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}",
        "lines": [],
    }
    broken = []
    for name in options.names or known:
        lines = measure(name)
        if lines is None:
            broken.append(name)
            continue
        results["lines"] += [{"benchmark": name, **line} for line in lines]
        if not options.json:
            print("\n".join(shown(name, line) for line in lines), flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    short = sum(1 for line in results["lines"] if line.get("verdict") == "short")
    print(
        json.dumps(results)
        if options.json
        else (
            f"{len(results['lines'])} numbers, {short} short of their goal, {len(broken)} not "
            f"measured"
        )
    )
    return 1 if broken else 0


def measure(name: str) -> list[dict[str, Any]] | None:
    """The lines of one benchmark; None, said aloud, if it does not run."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    try:
        return (
            json.loads(done.stdout)
            if done.returncode == 0
            else _failed(name, f"exit code {done.returncode}")
        )
    except ValueError:
        return _failed(name, "its --json output is no JSON")


def _failed(name: str, why: str) -> None:
    print(f"{name}: not measured: {why}", file=sys.stderr)


def shown(name: str, line: dict[str, Any]) -> str:
    """One line for people."""
    value = f"{line['value']} {line.get('unit', '')}".rstrip()
    return (
        f"{name + ': ' + str(line['name']):70} {value:>18}   goal {line.get('goal') or '-'!s:<16} "
        f"{line.get('verdict', 'info')}"
    )


if __name__ == "__main__":
    sys.exit(main())
