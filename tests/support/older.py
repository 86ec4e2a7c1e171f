"""Lets all that was done to a Delta table have been done earlier."""

import json
import os
from pathlib import Path
from typing import Any

from lakechime_dagster.triggers.schedule import DAY_MS


def make_older(location: Path, days: int) -> None:
    """Let all that was done to a table have been done that much earlier; Spark must not have seen
    it, or forget that.
    """
    for path in location.glob("_delta_log/.*.json.crc"):  # Hadoop's, of texts that are others then
        path.unlink()
    for path in [one for one in location.rglob("*") if one.is_file()]:
        if path.suffix == ".json":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            path.write_text(
                "\n".join(
                    json.dumps({kind: _older(action, days) for kind, action in line.items()})
                    for line in lines
                )
            )
        os.utime(
            path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - days * DAY_MS * 1_000_000)
        )


def _older(action: dict[str, Any], days: int) -> dict[str, Any]:
    times = ("timestamp", "deletionTimestamp", "modificationTime", "createdTime")
    return {
        name: value - days * DAY_MS if name in times and value else value
        for name, value in action.items()
    }
