"""Places of a database's log as the `source` of a connector's messages tells them."""

import re
from typing import Any

import orjson

from lakechime_dagster.cdc.comparing.log_place import BinlogPlace, StatedPlace, WalPlace
from lakechime_dagster.cdc.comparing.repair import OF_BINLOG, UnrepairableError, Words


def cut_at(words: Words, place: StatedPlace, told: int) -> dict[str, Any]:
    """The place of a settled cut of the database, as the connector's `source` tells it.

    Positions of PostgreSQL tell where the transaction before had ended, and that lies below what comes above the cut. So the
    greatest that the messages told before the cut is taken: what they told has no greater one, and is in the cut. What came later
    has a greater one, and where it has the same, as a row that a snapshot read may have told it, lies above the cut by its own place.

    Args:
        words: Of the table's messages.
        place: Of the cut.
        told: The greatest first part of the positions that the messages told before the cut was taken; any of MariaDB.

    Raises:
        UnrepairableError: The messages are of another database, or told of places to which this one's log has not come.
    """
    is_binlog, remedy = words.source["connector"] in OF_BINLOG, "let Monitor(database=…) name the server that the connector reads"
    if isinstance(place, BinlogPlace) and is_binlog:
        return binlog_at(words.source["file"], place)
    if isinstance(place, BinlogPlace) or is_binlog:
        raise UnrepairableError(
            f"{words.table}: its messages are those of {words.source['connector']}, and {place} is no place of it; {remedy}"
        )
    if told > place.lsn:
        raise UnrepairableError(
            f"{words.table}: its messages told of {WalPlace(told)}, to which the database, at {place}, has not come; {remedy}"
        )
    return wal_at(words, told, place.lsn - 1)


def binlog_at(file: str, cut: BinlogPlace) -> dict[str, Any]:
    """The place of a cut, its file named as the connector names them, by one of those names."""
    number, byte = cut.position[:2]
    named = re.sub(r"\d+$", lambda found: f"{number:0{len(found[0])}}", file)
    return {"file": named, "pos": byte, "row": 0}


def wal_at(words: Words, before: int, lsn: int) -> dict[str, Any]:
    """A place of PostgreSQL's log as the connector tells it: where the transaction before had ended, and a place of its own."""
    none = {name: None for name in ("txId", "xmin") if name in words.source}
    return {"lsn": lsn, "sequence": orjson.dumps([str(before), str(lsn)]).decode(), **none}
