"""A dump of PostgreSQL's table stands among transactions that report where the one before them had
ended, and not where they end.
"""

import json
from pathlib import Path

import pytest

from lakechime_dagster.cdc.change import WalPosition
from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.load import DumpError, LoadGapError
from lakechime_dagster.cdc.load_service import dump_loaded
from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.service import ReplicaTables
from lakechime_dagster.tables.databases import Debezium
from tests.cdc.factories import WAL, encoded, envelope_schema, make_payload
from tests.cdc.merge.lake import changes_in, kept_of, rows_in
from tests.support.refreshes import open_log
from tests.support.replica import append_messages, read, replica_tables

FORMAT = MessageFormat(envelope=Debezium(), keys=("id",))
SCHEMA = envelope_schema(("id", "int32", False), ("note", "string", True))
# by transaction, in the order of commits: where the one before had ended, and where its own changes
# lie
BEFORE, LONG, SHORT, AFTER = (100, 110), (130, 105), (180, 150), (200, 210)


def tables_of(folder: Path, *reported: tuple[int | None, int, int, str]) -> ReplicaTables:
    """A table whose stream reported of changes: where the transaction before had ended, their own
    checkpoints, keys and notes.
    """
    records = []
    for offset, (before, checkpoint, identity, note) in enumerate(reported):
        source = {
            **WAL,
            "sequence": json.dumps([before and str(before), str(checkpoint)]),
            "lsn": checkpoint,
            "ts_ms": 1_000 + checkpoint,
        }
        payload = make_payload("u", source=source, after={"id": identity, "note": note})
        records.append(
            Record(topic="orders", topic_id="t", offset=offset, value=encoded(payload, SCHEMA))
        )
    append_messages(str(folder / "orders__changes"), records, FORMAT)
    rows, bronze, state = (
        open_log(str(folder / f"orders{suffix}"), f"orders{suffix}")
        for suffix in ("", "__changes", "__state")
    )
    return replica_tables(rows, bronze, state, FORMAT)


def load(tables: ReplicaTables, folder: Path, lsn: int, *rows: tuple[int, str]) -> None:
    file = folder / "orders.jsonl"
    file.write_text(
        "\n".join(json.dumps({"id": identity, "note": note}) for identity, note in rows)
    )
    (chunk,) = dump_loaded(tables, file, WalPosition(lsn), 10, lambda: 5)
    assert (chunk.rows, chunk.snapshot) == (len(rows), f"log 0/{lsn:X}")


def rows_of(tables: ReplicaTables) -> dict[int, str]:
    """What all messages mean."""
    records = [
        Record(
            topic=row["topic"],
            topic_id=row["topic_id"],
            offset=row["offset"],
            value=row["value"].encode(),
        )
        for row in read(tables.bronze.location)
    ]
    rows = rows_in(kept_of(changes_in(FORMAT.reader(), records)))
    return {key[0]: row["note"] for key, row in rows.items()}


@pytest.mark.parametrize("lsn", [180, 190, 199])
def test_a_transaction_that_was_open_at_the_dump_is_above_it_though_its_changes_lie_below(
    lsn: int, tmp_path: Path
) -> None:
    """The one of 180 ends at 200: a dump of what was there before does not see its change, which
    lies at 150.
    """
    tables = tables_of(
        tmp_path, (*BEFORE, 1, "1"), (*LONG, 2, "2"), (*SHORT, 2, "above"), (*AFTER, 3, "above")
    )
    load(tables, tmp_path, lsn, (1, "dumped"), (2, "dumped"), (3, "dumped"), (4, "dumped"))
    assert rows_of(tables) == {1: "dumped", 2: "above", 3: "above", 4: "dumped"}
    (reported,) = {row["ts_ms"] for row in read(tables.bronze.location) if row["op"] == "r"}
    assert reported == 1_150, "the time of the stream at the dump"


def test_a_dump_that_the_stream_does_not_reach_or_has_not_passed_is_refused(tmp_path: Path) -> None:
    tables = tables_of(
        tmp_path, (None, 50, 1, "the first of all"), (*BEFORE, 1, "1"), (*SHORT, 2, "2")
    )
    with pytest.raises(
        LoadGapError, match=r"the stream of p\.shop\.orders begins at log 0/32, above log 0/31"
    ):
        load(tables, tmp_path, 49, (1, "dumped"))
    with pytest.raises(
        DumpError, match=r"log 0/5F lies in the first transaction that was streamed, .*; dump later"
    ):
        load(tables, tmp_path, 95, (1, "dumped"))
    with pytest.raises(
        DumpError,
        match=r"above the dump's position was streamed yet, .*; wait for a change of a row",
    ):
        load(tables, tmp_path, 180, (1, "dumped"))
    load(tables, tmp_path, 179, (1, "dumped"))
