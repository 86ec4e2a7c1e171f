"""Old runs that told nothing new go; no answer changes by it."""

from dataclasses import replace

from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.lineage.columns import LineageRecord, Producer
from lakechime_dagster.lineage.recording import SqlLineage, expire_runs
from lakechime_dagster.lineage.store import LineageStandings, code_since, forget_code_on
from tests.lineage.factories import make_record, make_statement

DELAY, WIND = make_statement(delay="bronze.flights.dep_delay"), make_statement(wind="bronze.weather.wind")
PRODUCER = Producer(namespace="test", job="daily")


def make_run(at: int, statement: object = DELAY, code: str = "one") -> LineageRecord:
    return replace(make_record(statement, run=f"run-{at}", at=at), code=code, version=str(at))  # type: ignore[arg-type]


def answers(engine: Engine) -> object:
    standings = LineageStandings(engine)
    since = code_since(engine, PRODUCER, "gold.daily", "two")
    return [standings.all(at) for at in range(1, 12)], standings.history("gold.daily"), since


def test_runs_that_told_nothing_new_go_and_no_answer_changes(engine: Engine) -> None:
    runs = [make_run(at) for at in range(1, 5)] + [make_run(at, WIND) for at in range(5, 8)]
    SqlLineage(engine).record_all([*runs, *(make_run(at, WIND, "two") for at in range(8, 11))])
    before = answers(engine)
    assert expire_runs(engine, 10, dry_run=True) == expire_runs(engine, 10) == 5
    assert expire_runs(engine, 10) == 0
    assert answers(engine) == before


def test_rows_are_by_older_code_before_the_first_run_of_the_newest(engine: Engine) -> None:
    lineage = SqlLineage(engine)
    lineage.record_all([make_run(1), make_run(2)])
    assert code_since(engine, PRODUCER, "gold.daily", "one") is None
    lineage.record_all([make_run(3, code="two"), make_run(4, code="two")])
    since = code_since(engine, PRODUCER, "gold.daily", "two")
    assert since is not None
    assert (since.version, since.at_ms) == ("3", 3)
    with writing(engine) as connection:
        forget_code_on(connection, PRODUCER, "gold.daily", 4)
    assert code_since(engine, PRODUCER, "gold.daily", "two") is None
