"""The graph of jobs: who reads what another writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.lineage.graph.jobs import Job, JobGraph
from lakechime_dagster.lineage.record import Producer

TABLES = tuple("abcdef")
some_tables = st.sets(st.sampled_from(TABLES), max_size=3)


def make_job(name: str, *, reads: str = "", writes: str = "", namespace: str = "etl") -> Job:
    return Job(producer=Producer(namespace=namespace, job=name), reads=tuple(sorted(reads)), writes=tuple(sorted(writes)))


CHAIN = JobGraph([make_job("load", writes="a"), make_job("clean", reads="a", writes="bc"), make_job("sum", reads="bc", writes="d")])


def test_jobs_behind_one_are_told_by_steps_with_what_leads_there() -> None:
    found = CHAIN.around(CHAIN.job("load"))
    assert [(hit.layer, hit.job.name, hit.through) for hit in found] == [(1, "etl/clean", ("a",)), (2, "etl/sum", ("b", "c"))]
    assert [hit.job.name for hit in CHAIN.around(CHAIN.job("load"), depth=1)] == ["etl/clean"]
    assert [(hit.layer, hit.job.name) for hit in CHAIN.around(CHAIN.job("etl/sum"), upstream=True)] == [(1, "etl/clean"), (2, "etl/load")]


def test_a_job_that_reads_what_it_writes_is_not_behind_itself_and_a_circle_ends() -> None:
    graph = JobGraph([make_job("one", reads="ab", writes="a"), make_job("two", reads="a", writes="b")])
    assert [hit.job.name for hit in graph.around(graph.job("one"))] == ["etl/two"]
    assert list(graph.next_of(graph.job("one"))) == ["etl/two"]


def test_a_name_of_several_namespaces_asks_for_one_and_a_wrong_one_is_answered_by_near_ones() -> None:
    graph = JobGraph([make_job("load"), make_job("load", namespace="bi"), make_job("clean")])
    with pytest.raises(NotFoundError, match="several namespaces; name one of bi/load, etl/load"):
        graph.job("load")
    assert graph.job("bi/load").producer.namespace == "bi"
    with pytest.raises(NotFoundError, match="did you mean etl/clean"):
        graph.job("claen")
    with pytest.raises(NotFoundError, match="no run has recorded lineage yet"):
        JobGraph([]).job("load")


@given(st.lists(st.tuples(some_tables, some_tables), min_size=1, max_size=6))
def test_who_is_behind_a_job_has_it_before_itself_in_as_many_steps(shapes: list[tuple[set[str], set[str]]]) -> None:
    jobs = [make_job(f"j{at}", reads="".join(reads), writes="".join(writes)) for at, (reads, writes) in enumerate(shapes)]
    graph = JobGraph(jobs)
    down = {(one.name, hit.job.name): hit.layer for one in jobs for hit in graph.around(one)}
    up = {(hit.job.name, one.name): hit.layer for one in jobs for hit in graph.around(one, upstream=True)}
    assert down == up
    pairs = {(one.name, other.name) for one in jobs for other in jobs if one != other and set(one.writes) & set(other.reads)}
    assert {pair for pair, layer in down.items() if layer == 1} == pairs
