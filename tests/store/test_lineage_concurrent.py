"""Many who record lineage at once wait for each other and no more, and who follows the store misses nothing of it."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.lineage.columns import LineageRecord
from lakechime_dagster.lineage.network import network_of
from lakechime_dagster.lineage.network_store import CurrentNetwork
from lakechime_dagster.lineage.recording import SqlLineage, record_all_on
from lakechime_dagster.lineage.store import LineageStandings
from tests.lineage.factories import make_record, make_statement
from tests.store.test_lineage import by_name, expected
from tests.store.test_lineage_network import told

WRITERS, RECORDS, BATCH = 4, 60, 5

pytestmark = [pytest.mark.dialect, pytest.mark.several_connections]  # a file: processes and threads open it


def some_records(seed: int) -> list[LineageRecord]:
    """Of few producers, targets and columns, so that those of several writers meet."""
    chance = random.Random(seed)
    return [
        make_record(
            make_statement(f"gold.t{chance.randrange(3)}", a=f"silver.s{chance.randrange(4)}.c{chance.randrange(3)}"),
            run=f"run-{chance.randrange(40)}-{seed % 2}",
            at=chance.randrange(1, 1_000),
            job=f"job-{chance.randrange(3)}",
        )
        for _ in range(RECORDS)
    ]


def test_what_many_record_at_once_is_what_holds(engine: Engine) -> None:
    lineage, current, ended = SqlLineage(engine), CurrentNetwork(engine), Event()
    batches = [some_records(seed) for seed in range(WRITERS)]

    def record(records: list[LineageRecord]) -> None:
        for at in range(0, RECORDS, BATCH):
            lineage.record_all(records[at : at + BATCH])

    def follow() -> None:
        while not ended.is_set():
            current.network()

    with ThreadPoolExecutor(WRITERS + 1) as threads:
        following = threads.submit(follow)
        try:
            list(threads.map(record, batches))
        finally:
            ended.set()
        following.result()
    everything = [record for batch in batches for record in batch]
    standing = LineageStandings(engine).all()
    assert {(one.producer, one.statement.target): by_name(one.statement) for one in standing} == expected(everything)
    assert told(current.network()) == told(network_of([one.statement for one in standing]))


def test_what_was_recorded_by_a_transaction_that_ended_later_is_not_missed(engine: Engine) -> None:
    lineage, current = SqlLineage(engine), CurrentNetwork(engine)
    early, late = make_statement("gold.early", a="silver.s.a"), make_statement("gold.late", a="silver.s.a")
    if engine.dialect.name == "sqlite":  # where one writes at a time
        lineage.record_all([make_record(late, job="late"), make_record(early, job="early")])
    else:
        lineage.record(make_record(make_statement("silver.s", a="bronze.b.a"), job="first"))
        with writing(engine) as connection:
            record_all_on(connection, [make_record(late, job="late")])
            lineage.record(make_record(early, job="early"))  # begins later, and ends first
            assert "gold.late" not in {current.network().ref(int(node)).table for node in current.network().inputs.targets}
    found = current.network()
    assert {"gold.early", "gold.late"} <= {found.ref(int(node)).table for node in found.inputs.targets}
    records = [make_record(late, job="late"), make_record(early, job="early")]
    holding = {
        (one.producer, one.statement.target): by_name(one.statement)
        for one in LineageStandings(engine).of_targets(["gold.early", "gold.late"])
    }
    assert holding == expected(records)
