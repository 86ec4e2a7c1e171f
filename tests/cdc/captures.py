"""The recorded captures: what real databases, Debezium and Kafka said of what was done, and what
the databases held at the end.
"""

import datetime
import gzip
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import Order
from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.state import TableSchema
from lakechime_dagster.cdc.values import single

FOLDER = Path(__file__).parent / "captures"


@dataclass(frozen=True)
class Capture:
    """One file: messages by topic in the order of their offsets, and by topic the rows of the table
    at the end, as text.

    `written` says when each message was, by topic, partition and offset, in milliseconds. `settings` are the connector's,
    `readings` what the columns of tables were when they were read.
    """

    name: str
    keys: Mapping[str, tuple[str, ...]]
    records: tuple[Record, ...]
    rows: Mapping[str, list[dict[str, Any]]]
    settings: Mapping[str, str]
    written: Mapping[tuple[str, int, int], int]
    readings: tuple[TableSchema, ...]

    def of(self, topic: str) -> Iterator[Record]:
        return (record for record in self.records if record.topic == topic)


def captures() -> list[Capture]:
    return [_read(path) for path in sorted(FOLDER.glob("*.jsonl.gz"))]


def _read(path: Path) -> Capture:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        head, *others = [json.loads(line) for line in lines]
    tables = [line for line in others if "rows" in line]
    messages = [line for line in others if "offset" in line]
    return Capture(
        name=path.name.removesuffix(".jsonl.gz"),
        keys={topic: tuple(columns) for topic, columns in head["keys"].items()},
        records=tuple(map(_record, messages)),
        rows={table["topic"]: table["rows"] for table in tables},
        settings=head["options"],
        written={
            (line["topic"], line["partition"], line["offset"]): line["timestamp_ms"]
            for line in messages
        },
        readings=tuple(_reading(line) for line in others if "columns" in line),
    )


def _reading(line: Mapping[str, Any]) -> TableSchema:
    order, dialect = Order(position=tuple(line["position"])), Dialect(line["dialect"])
    return TableSchema(table=line["table"], order=order, columns=line["columns"], dialect=dialect)


def _record(line: Mapping[str, Any]) -> Record:
    return Record(
        topic=line["topic"],
        topic_id=line["topic_id"],
        partition=line["partition"],
        offset=line["offset"],
        key=None if line["key"] is None else line["key"].encode(),
        value=None if line["value"] is None else line["value"].encode(),
        headers={name: text.encode() for name, text in line["headers"]},
    )


def is_the_same(value: Any, reported: str | None) -> bool:
    """Whether a value that was read is the one that the database reported in its own text."""
    match value:
        case None:
            return reported is None
        case bool():
            return reported in (("true", "t", "1") if value else ("false", "f", "0"))
        case float():
            return reported is not None and (
                value in (float(reported), _single(reported))
                or (math.isnan(value) and reported == "NaN")
            )
        case bytes():
            return reported == value.hex()
        case datetime.date() if reported in ("infinity", "-infinity"):
            return value.year == (9999 if reported == "infinity" else 1)
        case list():
            return reported is not None and _same_items(value, reported)
        case str():
            return value == reported or (
                _time_of_day(value) is not None
                and _time_of_day(value) == _time_of_day(reported or "")
            )
        case datetime.datetime():
            return value.isoformat(" ") == reported
        case Decimal():
            return format(value, "f") == reported
        case _:
            return str(value) == reported


def _single(text: str) -> float | None:
    """The number of 32 bits that a text means, with no more digits than distinguish it."""
    try:
        return single(float(text))
    except OverflowError:
        return None


def _time_of_day(text: str) -> str | None:
    """A time without its zone of UTC and the zeros at its end, in which texts of one time
    differ.
    """
    found = re.fullmatch(r"(-?\d+:\d\d:\d\d)(?:\.(\d+?)0*)?(?:Z|\+00:00)?", text)
    return found and f"{found[1]}.{(found[2] or '').rstrip('0')}"


def _same_items(values: list[Any], reported: str) -> bool:
    """Of an array of PostgreSQL: `{1,NULL,"with, comma"}`."""
    items = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}]+)', reported)
    texts = [
        None if bare == "NULL" else bare or re.sub(r"\\(.)", r"\1", quoted)
        for quoted, bare in items
    ]
    return len(texts) == len(values) and all(
        is_the_same(value, text) for value, text in zip(values, texts, strict=True)
    )
