"""Dumps of a database's table, with which the history of the table begins that follows it."""

import re
from dataclasses import dataclass, field
from pathlib import PurePath

from lakechime_dagster.errors import DeclarationError, shown

PARQUET, JSON_LINES = (".parquet",), (".jsonl", ".ndjson", ".json")
_OTHERS = {".csv", ".tsv", ".txt", ".sql", ".dump", ".xml", ".avro", ".orc", ".gz", ".bz2", ".xz", ".zst", ".zip"}  # that a dump may be
_BINLOG = re.compile(r"[^:/'\s]+\.[0-9]{1,18}:[0-9]{1,18}")
_STATEMENT = re.compile(r"\b(?:MASTER|SOURCE)_LOG_FILE\s*=\s*'([^']+)'\s*,\s*(?:MASTER|SOURCE)_LOG_POS\s*=\s*([0-9]+)", re.IGNORECASE)
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


@dataclass(frozen=True)
class Snapshot:
    """The rows that a database's table had at one place of its log, dumped by another tool.

    Files are Parquet (`*.parquet`), or JSON lines (`*.jsonl`, `*.ndjson`, `*.json`) with an object a line: a row with the
    columns' names in the database. All rows of a dump have the same columns.

    Attributes:
        path: A file, or a folder with the files side by side; in the project's folder where it is relative.
        as_of: The place, such as `mysql-bin.000003:1234`, or the statement `CHANGE MASTER TO …` that `mariadb-dump
            --master-data` writes; of PostgreSQL the consistent point of the slot whose snapshot was dumped, such as `0/16B3748`.
    """

    path: str
    as_of: str = field(kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path.strip() or "://" in self.path:
            raise DeclarationError("Snapshot", "path", f"{shown(self.path)} is no file or folder of this machine, or mounted there")
        if PurePath(self.path).suffix.lower() in _OTHERS:
            problem = f"{shown(self.path)} is no dump that is read; write it as Parquet, or as JSON lines (*.jsonl)"
            raise DeclarationError("Snapshot", "path", problem)
        stated = str(self.as_of).strip() if isinstance(self.as_of, str) else ""
        if found := _STATEMENT.search(stated):
            stated = f"{found[1]}:{found[2]}"
        if not _BINLOG.fullmatch(stated) and not _LSN.fullmatch(stated):
            problem = f"{shown(self.as_of)} is no place of a database's log, such as mysql-bin.000003:1234, or 0/16B3748 of PostgreSQL"
            raise DeclarationError("Snapshot", "as_of", f"{problem}; write it as the tool did that made the dump")
        object.__setattr__(self, "as_of", stated)

    def __str__(self) -> str:
        return f"{self.path} as of {self.as_of}"
