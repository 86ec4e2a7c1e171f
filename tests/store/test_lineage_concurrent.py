"""Many who record lineage at once wait for each other and no more."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine

from lakechime_dagster.lineage import recording
from lakechime_dagster.lineage.columns import LineageRecord
from lakechime_dagster.lineage.network import network_of
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.lineage.service import network_at
from lakechime_dagster.lineage.store import LineageStandings
from tests.lineage.factories import make_record, make_statement
from tests.store.test_lineage import by_name, expected
from tests.store.test_lineage_network import reported

WRITERS, RECORDS, BATCH = 4, 60, 5

# a file: processes and threads open it
pytestmark = [pytest.mark.dialect, pytest.mark.several_connections]


def some_records(seed: int) -> list[LineageRecord]:
    """Of few producers, targets and columns, so that those of several writers meet."""
    chance = random.Random(seed)
    return [
        make_record(
            make_statement(
                f"gold.t{chance.randrange(3)}",
                a=f"silver.s{chance.randrange(4)}.c{chance.randrange(3)}",
            ),
            run=f"run-{chance.randrange(40)}-{seed % 2}",
            at=chance.randrange(1, 1_000),
            job=f"job-{chance.randrange(3)}",
        )
        for _ in range(RECORDS)
    ]


def test_what_many_record_at_once_is_what_holds(engine: Engine) -> None:
    lineage, batches = SqlLineage(engine), [some_records(seed) for seed in range(WRITERS)]

    def record(records: list[LineageRecord]) -> None:
        for at in range(0, RECORDS, BATCH):
            lineage.record_all(records[at : at + BATCH])

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(record, batches))
    everything = [record for batch in batches for record in batch]
    standing = LineageStandings(engine).all()
    assert {
        (one.producer, one.statement.target): by_name(one.statement) for one in standing
    } == expected(everything)
    assert reported(network_at(engine)) == reported(network_of([one.statement for one in standing]))


def test_who_meet_the_same_new_tables_as_source_and_target_do_not_lock_each_other_out(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, original = threading.Barrier(2), recording.ensured_writers

    def slow(*arguments: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            both.wait(1)  # for the other one to have made its target, if it can
        return original(*arguments)

    monkeypatch.setattr(recording, "ensured_writers", slow)
    records = [
        make_record(make_statement("gold.a", x="gold.b.x"), job="a"),
        make_record(make_statement("gold.b", x="gold.a.x"), job="b"),
    ]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(SqlLineage(engine).record, records)) == [True, True]
