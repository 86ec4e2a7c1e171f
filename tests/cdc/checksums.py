"""What databases themselves said of the canonical texts and checksums of tables whose changes were
captured, and the rows of the lake.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.compare import Comparison, Key, Queries, Summary, comparison_of
from lakechime_dagster.cdc.values import Columns, connect_schema
from lakechime_dagster.tables.databases import PLACEHOLDER
from tests.cdc.captures import captures
from tests.cdc.merge.lake import kept_of, rows_in
from tests.cdc.test_captures import changes_of

FILE = Path(__file__).with_name("checksums.json")
CAPTURES = {
    capture.name: capture
    for capture in captures()
    if capture.name.rpartition("-")[2] in ("types", "edges")
}
TABLES = [
    (name, topic.rpartition(".")[2]) for name, capture in CAPTURES.items() for topic in capture.rows
]
# by table, the columns that a message does not report as the database has them, and rows that it does
# not report at all
LOST = {
    "mariadb-types.numbers": {"f"},
    "mariadb-types.zero_dates": {"d_required", "dt_required"},
    "postgres-types.not_numbers": {"d", "n"},
}
# a moment of the year 1, which a snapshot reads two days early
UNREAD = {"postgres-types": "DELETE FROM moments WHERE id = 2"}


@dataclass(frozen=True)
class Reported:
    """What the database reported of one table: types, the text and hash of each row by its key, the
    order of keys, checksums of ranges.
    """

    types: dict[str, str]
    rows: dict[Key, tuple[str, int]]
    order: list[Key]
    ranges: list[tuple[Key | None, Key | None, Summary]]


def reported(name: str, table: str) -> Reported:
    """What was recorded of a table."""
    known = json.loads(FILE.read_text(encoding="utf-8"))[f"{name}.{table}"]
    return Reported(
        types=known["types"],
        rows={tuple(key): (text, value) for *key, text, value in known["rows"]},
        order=[tuple(key) for key in known["order"]],
        ranges=[
            (low and tuple(low), high and tuple(high), Summary(*summary))
            for low, high, summary in known["ranges"]
        ],
    )


def topic_of(name: str, table: str) -> str:
    return next(topic for topic in CAPTURES[name].rows if topic.rpartition(".")[2] == table)


def lake_types(name: str, table: str) -> dict[str, str]:
    """The types of the lake's columns, by the schema of the table's messages."""
    value = next(
        record.value
        for record in CAPTURES[name].of(topic_of(name, table))
        if record.value is not None
    )
    row = connect_schema(json.loads(value)["schema"]).field("after")
    assert row is not None
    return dict(Columns(row, PLACEHOLDER).ddl)


def lake_rows(name: str, table: str) -> list[Mapping[str, Any]]:
    """The rows of the lake, by the messages of the table."""
    changes, *_ = changes_of(name, topic_of(name, table))
    return [*rows_in(kept_of(changes), lake_types(name, table)).values()]


def comparison(name: str, table: str, source_types: dict[str, str]) -> Comparison:
    """The comparison of the columns that messages carry."""
    lost, lake = LOST.get(f"{name}.{table}", ()), lake_types(name, table)
    source = {one: kind for one, kind in source_types.items() if one not in lost}
    dialect = Dialect.MYSQL if name.startswith("mariadb") else Dialect.POSTGRES
    return comparison_of(
        dialect,
        source,
        {one: lake[one] for one in source},
        CAPTURES[name].keys[topic_of(name, table)],
    )


@dataclass
class Asked:
    """Takes queries instead of running them; the last one is kept."""

    sql: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        self.sql, self.parameters = sql, parameters
        return [(0, 0, 0)]  # which is a summary


def texts_of(compared: Queries) -> Asked:
    """The query for all rows, with the text that is hashed before the hash."""
    asked = Asked()
    replace(compared, run=asked).rows(None, None)
    hashed = f", {compared.hash} AS h"
    return replace(asked, sql=asked.sql.replace(hashed, f", {compared.row}{hashed}"))


def row_text(compared: Comparison, row: Mapping[str, Any]) -> str:
    """The text that engines hash of a row of the lake, in plain Python."""
    values = [(found, row[name]) for name, found in compared.columns.items()]
    texts = ("n" if value is None else found.twin(value) for found, value in values)
    return "".join(
        text if value is None else f"{len(text)}:{text}"
        for text, (_, value) in zip(texts, values, strict=True)
    )


def row_hash(compared: Comparison, row: Mapping[str, Any]) -> int:
    """The hash of a row of the lake, in plain Python."""
    return int.from_bytes(
        hashlib.md5(row_text(compared, row).encode(), usedforsecurity=False).digest()[:8],
        signed=True,
    )
