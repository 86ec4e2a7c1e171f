"""`make check`: every check that needs no server and no Spark, each with its verdict and its
time.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
DEFINITIONS = ROOT / "lakechime_dagster" / "definitions.py"
SHOWN = 40  # lines of a failed check
CHEAP_IMPORT = """
import sys, lakechime_dagster.definitions
heavy = {"pyspark", "delta", "dagster_pyspark", "psycopg", "deltalake", "pyarrow", "numpy"}
found = ", ".join(sorted(heavy & sys.modules.keys()))
sys.exit(f"importing the code location imports {found}: every process would pay" if found else 0)
"""
COINED = r"""
import pathlib, re, sys
# a consumer, a subscription, a low watermark, reported or recorded, again: docs/glossary.md
words = "lanes?|flows?|frontiers?|fates?|told|untold|tells|hears?|heard|anew|fire keys?|elsewhere|stamps?|drains?"
coined = re.compile(rf"(?<![a-z])({words})(?![a-z])", re.IGNORECASE)
folders = map(pathlib.Path, ("lakechime_dagster", "docs"))
files = [one for folder in folders for one in folder.rglob("*") if one.suffix in (".py", ".md")]
found = [
    f"{file}:{number}: {line.strip()}"
    for file in files
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    if coined.search(line)
]
sys.exit("words of our own where readers have one:\n" + "\n".join(found) if found else 0)
"""
STANDING = {
    "ruff": ["ruff", "check", "--quiet", "--output-format", "concise"],
    "format": ["ruff", "format", "--check", "--output-format", "concise"],
    "pyright": ["pyright", "--warnings"],
    "layers": ["lint-imports", "--no-cache"],
    "words": ["python", "-c", COINED],
}
OF_DEFINITIONS = {
    "cheap import": ["python", "-c", CHEAP_IMPORT],
    "dg check defs": ["dg", "check", "defs"],
    "documents": ["python", "scripts/reference.py", "--check"],
}


def main() -> int:
    """Runs all checks, shows the output of those that fail, and returns the exit code."""
    checks = {**STANDING, **OF_DEFINITIONS} if DEFINITIONS.is_file() else STANDING
    failed = [name for name, command in checks.items() if not passes(name, command)]
    print(
        f"{len(checks)} checks, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


def passes(name: str, command: list[str]) -> bool:
    """Runs one check and prints its line."""
    started = time.monotonic()
    environment = {**os.environ, "VIRTUAL_ENV": str(BIN.parent), "DAGSTER_DISABLE_TELEMETRY": "yes"}
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(
        f"  {name:14} {'ok' if done.returncode == 0 else 'FAILED':7} "
        f"{time.monotonic() - started:5.1f} s",
        flush=True,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).rstrip().splitlines()
        print("\n".join(["    …", *lines[-SHOWN:]] if len(lines) > SHOWN else lines), flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
