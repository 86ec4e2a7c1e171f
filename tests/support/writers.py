"""A process that registers events in transactions of random size, delay and outcome: `python -m
tests.support.writers URL WRITER EVENTS`.
"""

import random
import sys
import time

from lakechime_dagster.dce.engine import open_engine, writing
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.store import DCEStore, register_batch
from tests.factories import make_event

LATE, ROLLED_BACK = 0.05, 0.03  # shares of transactions


class _GivenUpError(Exception):
    """The transaction is to be rolled back."""


def main(url: str, writer: str, events: int) -> None:
    """Register `events` events of this writer, each in the end exactly once; rolled back ones are
    tried again.
    """
    choice = random.Random(int(writer))
    store = DCEStore(open_engine(url))
    tables = [f"stress.own{writer}", "stress.shared"]
    for table in tables:
        store.declare(table, PartitionLevels.of({"writer": "int"}))
    done = 0
    while done < events:
        size = min(choice.choice([1, 1, 2, 50, 400]), events - done)
        table = tables[choice.random() < 0.1]
        batch = [
            make_event(table, partition=[int(writer)], snapshot_id=str(number + 1))
            for number in range(done, done + size)
        ]
        if size == 1 and choice.random() < 0.5:
            # the one statement by which producers register an event
            done += len(store.register(batch).registered)
            continue
        try:
            with writing(store.engine) as connection:
                register_batch(connection, batch)
                if choice.random() < LATE:
                    time.sleep(choice.random() * 0.03)
                if choice.random() < ROLLED_BACK:
                    raise _GivenUpError
        except _GivenUpError:
            continue
        done += size


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
