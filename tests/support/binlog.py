"""What stands in the binary log of the tests' MariaDB, in its order: of each event that tells of rows its checkpoint and its time."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.mariadb import MariaDB

ROWS = {23, 24, 25}  # rows that were written, updated, deleted
HEADER = struct.Struct("<IBIII")  # time, type, server, length, next checkpoint


class RowsEvent(NamedTuple):
    """The event of a statement's rows; its time is that of the statement, in milliseconds of whole seconds."""

    at: int
    ts_ms: int


def rows_events(server: MariaDB, file: str, start: int) -> Iterator[RowsEvent]:
    """Those of a file from a checkpoint on."""
    data, at = (server.folder / "data" / file).read_bytes(), start
    while at < len(data):
        seconds, kind, _, length, _ = HEADER.unpack_from(data, at)
        if kind in ROWS:
            yield RowsEvent(at, seconds * 1000)
        at += length
