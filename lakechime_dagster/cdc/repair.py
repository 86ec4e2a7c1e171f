"""Messages that put rows right which a table lost: what the database says of them at a cut, in the words of its own messages.

Such a message is what Debezium's snapshot would have written there and then: a row that was read (`r`), or the deletion of
one that is not there (`d`), at the place of the cut. Its order is above all that the cut holds, and below all that came later.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from lakechime_dagster.cdc.checksum import Comparison
from lakechime_dagster.cdc.compare import Key
from lakechime_dagster.cdc.connect import ConnectSchema, connect_schema
from lakechime_dagster.cdc.debezium import is_envelope
from lakechime_dagster.cdc.log_place import BinlogPlace, LogPlace
from lakechime_dagster.cdc.message import parsed
from lakechime_dagster.cdc.monitored import key_shown
from lakechime_dagster.cdc.reading import EnvelopeReader
from lakechime_dagster.cdc.record import Changes, Record
from lakechime_dagster.cdc.written import written
from lakechime_dagster.errors import LakeChimeError

REPAIRS = "lakechime-repair/"  # with which the topic ids of such messages begin
ORIGIN = ("lakechime-origin", b"repair")  # their header
OF_BINLOG = ("mariadb", "mysql")  # connectors whose places are those of a binary log
Texts = Mapping[str, str | None]  # the canonical texts of a row, by column


class UnrepairableError(LakeChimeError):
    """A row cannot be put right by a message; says why, and what can be done instead."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """In what words a table's messages are written, by one of them.

    `newest_ms` is the newest time that its source has told of: a repair tells of no later one, which would say that all before
    it is complete.
    """

    table: str
    newest_ms: int | None
    schema: Mapping[str, Any]
    source: Mapping[str, Any]
    columns: Mapping[str, ConnectSchema]


@dataclass(frozen=True, kw_only=True)
class RowWriter:
    """Writes what the database says of keys at one cut."""

    words: Words
    cut: LogPlace
    comparison: Comparison
    reader: EnvelopeReader

    def record(self, at: Record, key: Key, row: Texts | None) -> Record:
        """The message at a coordinate, read back and held against the database's texts; None is no row.

        Raises:
            UnrepairableError: A value has no form in a message, or it would say something else.
        """
        told = dict(zip(self.comparison.keys, key, strict=True))
        record = replace(at, key=key_shown(key).encode(), value=repair_message(self.words, self.cut, told, row))
        check_message(record, self.reader, self.comparison, told, row)
        return record


def words_of(table: str, message: Record, newest_ms: int | None, connectors: Collection[str] = OF_BINLOG) -> Words:
    """The words of a message of Debezium.

    Args:
        table: The one that errors name.
        message: One that tells of a row.
        newest_ms: The newest time that its source has told of.
        connectors: Those of which places can be written.

    Raises:
        UnrepairableError: It brings no schema, is flattened, or comes from a database for which no place can be written.
    """
    remedy = f"put {table} right by a new snapshot of the connector"
    found = parsed(message.value or b"null", "value", is_exact=False)
    if not isinstance(found, dict) or found.keys() != {"schema", "payload"} or not is_envelope(found["payload"] or {}):
        raise UnrepairableError(f"{table}: its messages bring no schema, or are flattened to the row, and cannot be written; {remedy}")
    row = connect_schema(found["schema"]).field("after")
    source = found["payload"]["source"]
    if row is None or source.get("connector") not in connectors:
        raise UnrepairableError(
            f"{table}: a place of {source.get('connector')} cannot be written yet, only those of MariaDB's binary log; {remedy}"
        )
    return Words(table=table, newest_ms=newest_ms, schema=found["schema"], source=source, columns=dict(row.fields))


def repair_message(words: Words, cut: LogPlace, key: Texts, row: Texts | None) -> bytes:
    """What says of a key which row it has at a cut; None is no row. Columns that the message's schema does not have are left out.

    Raises:
        UnrepairableError: A value has no form in a message.
    """
    assert isinstance(cut, BinlogPlace)  # as `words_of` asked
    told = _told(words, key if row is None else row)
    return message(words, binlog_at(words.source["file"], cut), told if row is None else None, None if row is None else told)


def message(words: Words, at: Mapping[str, Any], before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bytes:
    """What says of a row that it was read so (`r`), or that it is not there (`d`) where there is none after.

    Args:
        words: In which it is written; its time is theirs.
        at: The place, as the connector's `source` tells it.
        before: The row, or its key, as JSON of the schema.
        after: The same.
    """
    source = {**words.source, "snapshot": "false", "ts_ms": words.newest_ms}
    source |= {name: None for name in ("gtid", "thread", "query", "sequence") if name in source}
    payload = {"before": before, "after": after, "source": {**source, **at}, "op": "d" if after is None else "r", "ts_ms": words.newest_ms}
    return orjson.dumps({"schema": words.schema, "payload": payload})


def check_message(record: Record, reader: EnvelopeReader, comparison: Comparison, key: Texts, row: Texts | None) -> None:
    """Read a message as the table will, and compare what it says with the database's own texts.

    Raises:
        UnrepairableError: It would say something else.
    """
    reading = reader.read(record)
    if not isinstance(reading, Changes) or len(reading.changes) != 1:
        raise UnrepairableError(f"key {dict(key)}: the message that would put it right cannot be read: {reading}")
    (change,) = reading.changes
    told = dict(zip(comparison.keys, change.key, strict=True)) if row is None else dict(change.columns)
    for name, text in (key if row is None else row).items():
        found = comparison.columns[name][1]
        value = told.get(name)
        if name in told and (None if value is None else found.twin(value)) != text:
            raise UnrepairableError(f"key {dict(key)}: column {name} would become {value!r}, and the database has it as {text!r}")


def binlog_at(file: str, cut: BinlogPlace) -> dict[str, Any]:
    """The place of a cut, its file named as the connector names them, by one of those names."""
    number, byte = cut.position[:2]
    named = re.sub(r"\d+$", lambda found: f"{number:0{len(found[0])}}", file)
    return {"file": named, "pos": byte, "row": 0}


def _told(words: Words, row: Texts) -> dict[str, Any]:
    told = dict[str, Any]()
    for name, text in row.items():
        if (schema := words.columns.get(name)) is None:
            continue
        try:
            told[name] = None if text is None else written(schema, text)
        except (ValueError, ArithmeticError, KeyError) as problem:
            kind = schema.name or schema.type
            raise UnrepairableError(f"{words.table}: column {name}, {text!r}, has no form as {kind}: {problem}") from problem
    return told


def left_out(words: Words, lake: Sequence[str], comparison: Comparison) -> list[str]:
    """The columns of the lake's table that a message cannot carry."""
    return [name for name in lake if name not in words.columns or name not in comparison.columns]
