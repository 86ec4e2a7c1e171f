"""Positions follow commit order: eight writers against a reader that pages through the feed while
they write.
"""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

import lakechime_dagster
from lakechime_dagster.dce.engine import at_once, writing
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.schema import dce_event
from lakechime_dagster.dce.store import DCEStore, register_batch
from tests.factories import make_event

WRITERS = 8
EVENTS = int(os.environ.get("LAKECHIME_STRESS_EVENTS", "40000")) // WRITERS  # of each writer
EXPECTED = {(str(writer), str(number + 1)) for writer in range(WRITERS) for number in range(EVENTS)}
# seconds between two looks while they write: as long as a late transaction, and the cores are the
# writers'
PAUSE = 0.02
Seen = Counter[tuple[str, str]]

# a file: processes and threads open it
pytestmark = [pytest.mark.tier2, pytest.mark.several_connections]


class FeedReader:
    """Reads as triggers do: page by page after the last position."""

    def __init__(self, store: DCEStore) -> None:
        self.store, self.checkpoint, self.seen = store, Position.ORIGIN, Seen()
        self.in_order = True

    def read(self) -> int:
        page = self.store.feed(self.checkpoint, limit=5_000)
        positions = [event.position for event in page.events]
        self.in_order &= positions == sorted(set(positions)) and all(
            position > self.checkpoint for position in positions
        )
        self.seen.update(
            (str(event.event.partition[0]), str(event.event.snapshot_id))
            for event in page.events
            if event.event.partition
        )
        self.checkpoint = page.through
        return len(positions)


class NaiveReader:
    """The broken twin: remembers the highest number that it saw, not caring which transactions are
    still running.
    """

    def __init__(self, store: DCEStore) -> None:
        self.store, self.last, self.seen = store, 0, Seen()

    def read(self) -> int:
        query = select(dce_event.c.seq, dce_event.c.partition_key, dce_event.c.snapshot_id)
        with at_once(self.store.engine) as connection:
            rows = connection.execute(
                query.where(dce_event.c.seq > self.last).order_by(dce_event.c.seq)
            ).all()
        self.seen.update((row.partition_key.strip("[]"), row.snapshot_id) for row in rows)
        self.last = rows[-1].seq if rows else self.last
        return len(rows)


def test_a_reader_of_the_feed_loses_and_doubles_nothing_while_eight_processes_write(
    engine: Engine,
) -> None:
    reader = FeedReader(DCEStore(engine))

    _write_and_read(engine, reader.read)

    lost, doubled = (
        EXPECTED - set(reader.seen),
        [event for event, times in reader.seen.items() if times > 1],
    )
    assert (len(reader.seen), len(lost), len(doubled)) == (WRITERS * EVENTS, 0, 0)
    assert reader.in_order


def test_a_reader_of_the_feed_waits_for_a_transaction_that_commits_later(engine: Engine) -> None:
    if engine.dialect.name != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    store = DCEStore(engine)
    for table in ("stress.first", "stress.second"):
        store.declare(table, PartitionLevels.of({"writer": "int"}))
    late, early = (
        make_event(table, partition=[number], snapshot_id="1")
        for number, table in enumerate(("stress.first", "stress.second"))
    )
    reader, naive = FeedReader(store), NaiveReader(store)
    with writing(engine) as connection:
        register_batch(connection, [late])
        store.register([early])
        reader.read()
        naive.read()
    reader.read()
    naive.read()
    assert reader.seen == Seen([("0", "1"), ("1", "1")])
    assert naive.seen == Seen([("1", "1")])  # the broken twin has lost one


def _write_and_read(engine: Engine, read: Callable[[], int]) -> None:
    """Read until every writer has ended and nothing more comes."""
    url = engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.support.writers", url]
    root = Path(lakechime_dagster.__path__[0]).parent
    writers = [
        subprocess.Popen([*command, str(number), str(EVENTS)], cwd=root)
        for number in range(WRITERS)
    ]
    ended = threading.Event()
    watcher = threading.Thread(
        target=lambda: ([writer.wait() for writer in writers], ended.set()), daemon=True
    )
    watcher.start()
    try:
        while True:
            was_over = ended.is_set()
            if read() == 0 and was_over:
                break
            ended.wait(PAUSE)
    finally:
        for writer in writers:
            writer.kill()
        watcher.join()
    if failed := [writer.returncode for writer in writers if writer.returncode]:
        pytest.fail(f"writers ended with {failed}")
