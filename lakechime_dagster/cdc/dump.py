"""Dumps of a database table that another tool wrote."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakechime_dagster.cdc.load import DumpError
from lakechime_dagster.tables.databases import JSON_LINES, PARQUET

BATCH = 2_000  # rows of Parquet in memory
Placed = tuple[str, Mapping[str, Any]]  # where a row stands, for people, and its values by column


@dataclass(frozen=True)
class Dump:
    """A file, or a folder of files side by side, in the order of their names. What begins with a dot or an underscore is none."""

    path: Path

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files.

        Raises:
            DumpError: There are none, or there is something else beside them.
        """
        if self.path.is_file():
            found = [self.path]
        elif self.path.is_dir():
            found = sorted(one for one in self.path.iterdir() if not one.name.startswith((".", "_")))
        else:
            raise DumpError(f"{self.path}: there is no such file or folder; name the dump, or mount it here")
        known = (*PARQUET, *JSON_LINES)
        if odd := [one for one in found if not one.is_file() or one.suffix.lower() not in known]:
            raise DumpError(f"{odd[0]} is no file of {', '.join('*' + one for one in known)}; a dump's files lie side by side, and alone")
        if not found:
            raise DumpError(f"{self.path} holds no file; name the folder of the dump")
        return tuple(found)

    def identity(self, as_of: str) -> str:
        """A short text that tells this dump from another one, or from the same after it was written anew."""
        told = [as_of, *(f"{one.name} {(stat := one.stat()).st_size} {stat.st_mtime_ns}" for one in self.files)]
        return hashlib.blake2b("\n".join(told).encode(), digest_size=8).hexdigest()

    def columns(self) -> tuple[str, ...]:
        """Those of the first row; empty of a dump without rows.

        Raises:
            DumpError: It cannot be read.
        """
        return next((tuple(row) for _, row in self.rows()), ())

    def rows(self) -> Iterator[Placed]:
        """All rows, in an order that is the same each time.

        Raises:
            DumpError: A file cannot be read.
        """
        return chain.from_iterable(_of_parquet(file) if file.suffix.lower() in PARQUET else _of_json_lines(file) for file in self.files)


def _of_parquet(file: Path) -> Iterator[Placed]:
    number = 0
    try:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=BATCH):
                for row in _exact(file, number, batch).to_pylist():
                    number += 1
                    yield f"{file.name}, row {number}", row
    except (pa.ArrowException, OSError, ValueError, OverflowError) as problem:
        raise DumpError(f"{file} cannot be read as Parquet after row {number}: {str(problem).splitlines()[0]}") from problem


def _exact(file: Path, before: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with times of a microsecond where they are finer, which no time of the lake is.

    Raises:
        DumpError: A time would be cut.
    """
    arrays = list[pa.Array]()
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        is_fine = (pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type)) and values.type.unit == "ns"
        if is_fine:
            counts = values.view(pa.int64()).to_pylist()
            cut = next((row for row, count in enumerate(counts, start=1) if count is not None and count % 1000), None)
            if cut is not None:
                raise DumpError(f"{file.name}, row {before + cut}: {name}: its digits below a microsecond have no place in the lake")
            values = values.cast(pa.timestamp("us", values.type.tz) if pa.types.is_timestamp(values.type) else pa.time64("us"))
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _of_json_lines(file: Path) -> Iterator[Placed]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{file.name}, line {number}", _row_of(f"{file.name}, line {number}", line)
    except (OSError, UnicodeDecodeError) as problem:
        raise DumpError(f"{file} cannot be read as JSON lines: {problem}") from problem


def _row_of(where: str, line: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line, parse_float=Decimal)
    except (ValueError, RecursionError) as problem:
        raise DumpError(f"{where}: it is no JSON: {problem}; a row is an object on one line") from problem
    if not isinstance(found, dict):
        raise DumpError(f"{where}: it is no row; write an object of the columns, on one line")
    return found


def first_repeated(keys: Iterable[tuple[str, str]]) -> tuple[str, str, str] | None:
    """A key that is there twice, and where; None where there is none. They are kept in a file meanwhile, and sorted there.

    Args:
        keys: Where each stands, and its text.
    """
    with closing(sqlite3.connect("")) as kept:  # a temporary file, which is removed with the connection
        kept.execute("CREATE TABLE keys (place TEXT, key TEXT)")
        kept.executemany("INSERT INTO keys VALUES (?, ?)", keys)
        found = kept.execute("SELECT key, MIN(rowid), MAX(rowid) FROM keys GROUP BY key HAVING COUNT(*) > 1 LIMIT 1").fetchone()
        if found is None:
            return None
        key, *rows = found
        first, last = (kept.execute("SELECT place FROM keys WHERE rowid = ?", (row,)).fetchone()[0] for row in rows)
        return key, first, last
