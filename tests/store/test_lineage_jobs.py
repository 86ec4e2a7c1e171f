"""Jobs with what they write and read, on every database."""

from sqlalchemy import Engine

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.jobs import Job
from lakechime_dagster.lineage.reads import Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.record import Producer
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.lineage.jobs import jobs_at
from lakechime_dagster.store.lineage.reads import keep_reads
from lakechime_dagster.store.lineage.records import SqlLineage
from tests.lineage.factories import make_record, make_statement


def make_job(namespace: str, job: str, *, writes: tuple[str, ...] = (), reads: tuple[str, ...] = (), owners: tuple[str, ...] = ()) -> Job:
    return Job(producer=Producer(namespace=namespace, job=job), writes=writes, reads=reads, owners=owners)


def test_a_job_has_all_that_its_newest_runs_write_and_read_and_one_that_only_reads_is_known_too(engine: Engine) -> None:
    first = make_statement("gold.days", amount="silver.orders.amount")
    second = make_statement("gold.days", amount="silver.orders.amount", note="silver.notes.text")
    other = make_statement("gold.weeks", amount="gold.days.amount")
    constant = make_statement("lab.fixed", constant=())
    SqlLineage(engine).record_all([
        make_record(first, job="sums", run="r1", at=1_000), make_record(second, job="sums", run="r2", at=2_000, owners=("ann",)),
        make_record(other, job="sums", run="r2", at=2_000), make_record(constant, job="fixed", at=2_000),
    ])  # fmt: skip
    refs = (ColumnRef("gold.days", "amount"), ColumnRef("gold.days", "note"), ColumnRef("gold.weeks"))
    readers = [Consumer(ConsumerKind.JOB, "bi", "report"), Consumer(ConsumerKind.DASHBOARD, "bi", "board")]
    with writing(engine) as connection:
        keep_reads(connection, [Read(consumer=one, refs=refs, at_ms=1_500, owners=("joe",)) for one in readers])
    report = make_job("bi", "report", reads=("gold.days", "gold.weeks"), owners=("joe",))
    sums = make_job(
        "test", "sums", writes=("gold.days", "gold.weeks"), reads=("gold.days", "silver.notes", "silver.orders"), owners=("ann",)
    )
    assert sorted(jobs_at(engine), key=lambda one: one.name) == [report, make_job("test", "fixed", writes=("lab.fixed",)), sums]
    before = {one.name: one for one in jobs_at(engine, 1_000)}["test/sums"]
    assert (before.writes, before.reads) == (("gold.days",), ("silver.orders",))
