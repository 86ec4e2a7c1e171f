"""What lies in the folder of a Delta table: the files of its rows, those that commits removed, and those that none names. No JVM.

The folder is listed once. The log is read backwards only until each listed file is explained, or its commit would be older than it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable

from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.capture.delta_log import DeltaLevels
from lakechime_dagster.dce.commits import TableCommit
from lakechime_dagster.errors import TableAbsentError
from lakechime_dagster.lake.layout import Span
from lakechime_dagster.lake.maintenance_plan import DataFile, OldFile, TableFiles
from lakechime_dagster.triggers.grid import DAY_MS

LOG_FOLDER = "_delta_log"
CHANGES_FOLDER = "_change_data"
VECTORS = "deletion_vector_"  # their names are spelled otherwise in the log; VACUUM knows them


@dataclass(frozen=True)
class Listed:
    """A file of the folder, by its path as text, not as a URL; `modified` in milliseconds."""

    path: str
    size: int
    modified: int


def table_files(log: DeltaLog, cluster_by: Sequence[str] = ()) -> TableFiles:
    """The files of a table as they lie now; of one that is clustered by these columns, how its rows lie together too.

    Raises:
        TableAbsentError: there is no table.
        TableUnreadableError: its place is out of reach.
    """
    state = log.state()
    if state is None:
        raise TableAbsentError(f"{log.table}: there is no Delta table at {log.shown_location}; wait for its first write")
    live = _live(state, cluster_by[:1])
    names = {unquote(file.path) for file in live}
    others = [file for file in _listed(log) if file.path not in names]
    removed, orphans = _explained(log, others)
    return TableFiles(
        table=log.table,
        live=tuple(live),
        removed=tuple(removed),
        orphans=tuple(orphans),
        properties=dict(state.metadata().configuration),
        is_clustered="clustering" in (state.protocol().writer_features or ()),
        dimensions=max(1, len(cluster_by)),
    )


def _live(state: DeltaTable, spread: Sequence[str]) -> list[DataFile]:
    levels = DeltaLevels.of_schema(json.loads(state.schema().to_json()), state.metadata().partition_columns)
    deleted = _deleted(state)
    keys = [(f"partition.{name}", f"partition.{physical}") for name, physical in zip(levels.levels.names, levels.physical, strict=True)]
    found = []
    for row in pa.table(state.get_add_actions(flatten=True)).to_pylist():
        raw = {physical: row.get(shown, row.get(spelled)) for (shown, spelled), physical in zip(keys, levels.physical, strict=True)}
        found.append(
            DataFile(
                path=row["path"], size=row["size_bytes"], rows=row["num_records"], deleted=deleted.get(unquote(row["path"]), 0),
                modified=row["modification_time"], partition=levels.values(raw), span=next((_span(row, name) for name in spread), None),
            )
        )  # fmt: skip
    return found


def _span(row: Mapping[str, Any], name: str) -> Span | None:
    """From the least to the greatest value of a column in a file, where its statistics tell."""
    least, greatest = row.get(f"min.{name}"), row.get(f"max.{name}")
    return None if least is None or greatest is None else (least, greatest)


def _deleted(state: DeltaTable) -> dict[str, int]:
    """How many rows of each file are deleted by a vector."""
    if "deletionVectors" not in (state.protocol().reader_features or ()):
        return {}
    root = unquote(urlsplit(state.table_uri).path).rstrip("/") + "/"
    found: dict[str, int] = {}
    for batch in pa.RecordBatchReader.from_stream(state.deletion_vectors()):
        for path, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            name = unquote(urlsplit(path).path).removeprefix(root)
            found[name] = kept.values.false_count
    return found


def _listed(log: DeltaLog) -> Iterator[Listed]:
    """The files in the folder, but for the log, vectors, what Spark hides, and tables that lie within."""
    files = log.files

    def within(folder: str) -> Iterator[Listed]:
        entries = files.get_file_info(pafs.FileSelector(folder, recursive=False))
        if folder and any(entry.base_name == LOG_FOLDER for entry in entries):
            return
        for entry in entries:
            path = entry.path.strip("/")
            if entry.type == pafs.FileType.Directory:
                if path == CHANGES_FOLDER or "=" in entry.base_name or not entry.base_name.startswith(("_", ".")):
                    yield from within(path)
            elif not entry.base_name.startswith(("_", ".", VECTORS)):
                yield Listed(path, entry.size or 0, (entry.mtime_ns or 0) // 1_000_000)

    yield from within("")


def _explained(log: DeltaLog, files: list[Listed]) -> tuple[list[OldFile], list[OldFile]]:
    """Files that hold no row: those that a commit removed, or wrote as changes, since then; and those that none names."""
    left = {file.path: file for file in files}
    removed: list[OldFile] = []
    for commit in log.commits_backwards() if left else ():
        for path in _let_go(commit):
            if (file := left.pop(path, None)) is not None:
                removed.append(OldFile(path=path, size=file.size, since=commit.timestamp or file.modified))
        if not left or (commit.timestamp or 0) < min(file.modified for file in left.values()) - DAY_MS:
            break
    return removed, [OldFile(path=file.path, size=file.size, since=file.modified) for file in left.values()]


def _let_go(commit: TableCommit) -> Iterator[str]:
    """The files that a commit took from the table, and those of its change feed, which are never rows of it."""
    for file in (*commit.removed, *commit.moved_out):
        yield unquote(file.path)
    for path in commit.change_files:
        yield unquote(path)
