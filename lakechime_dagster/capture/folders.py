"""Folders that appends made in a table's own, and that hold nothing any more. No JVM."""

import re
from pathlib import Path

_OF_AN_APPEND = re.compile(r"[0-9a-f]{32}")


def remove_empty_folders(location: str, before: int) -> int:
    """Remove the empty folders of appends that nobody has touched since then, in milliseconds; how many there were.

    A vacuum leaves them. Object stores have no folders; what is elsewhere than on this machine's disk has none to remove.
    """
    root, removed = Path(location), 0
    if "://" in location or not root.is_dir():
        return 0
    for folder in root.iterdir():
        if _OF_AN_APPEND.fullmatch(folder.name) and folder.stat().st_mtime_ns < before * 1_000_000:
            try:
                folder.rmdir()
            except OSError:  # it holds something, or is no folder, or somebody else was first
                continue
            removed += 1
    return removed
