"""Each statement of a program is matched with its own commit."""

import json

from lakechime_dagster.lineage.columns import to_metadata
from lakechime_dagster.lineage.plan_dump import Dump
from lakechime_dagster.lineage.plan_statements import Commit, matched

MARK = "0f"


def executed(number: int, begun_ms: int, ended_ms: int, says: str | None = None) -> Dump:
    return Dump(None, execution=number, begun_ms=begun_ms, ended_ms=ended_ms, says=says)


def marked(version: int, at_ms: int, execution: str) -> Commit:
    return Commit(version=str(version), at_ms=at_ms, says=json.dumps({"lakechime_writes": ["another", MARK], "execution": execution}))


def test_statements_of_threads_are_told_apart_by_the_executions_that_commits_name() -> None:
    commits = [marked(2, 25, "6.6"), marked(1, 15, "7.9")]
    assert matched([executed(5, 10, 30), executed(6, 10, 30), executed(7, 10, 30)], commits, MARK) == [None, "2", "1"]


def test_a_commit_within_the_batch_of_a_stream_is_of_the_statement_that_made_it() -> None:
    assert matched([executed(3, 10, 30), executed(4, 12, 20)], [marked(1, 15, "3.4")], MARK) == [None, "1"]


def test_a_commit_that_names_none_is_of_a_statement_that_said_the_same_while_it_was_made() -> None:
    digest = "1ef7c28b"  # of another text
    said = executed(5, 10, 20), executed(6, 20, 30), executed(7, 10, 20, digest)
    assert matched(said, [Commit(version="4", at_ms=25), Commit(version="3", at_ms=9)], MARK) == [None, "4", None]
    assert matched(said, [Commit(version="5", at_ms=20), Commit(version="4", at_ms=20)], MARK) == ["4", "5", None]


def test_a_commit_of_another_program_is_of_none() -> None:
    other = Commit(version="4", at_ms=15, says=to_metadata(["another"]))
    said = Commit(version="5", at_ms=15, says="by hand")
    assert matched([executed(5, 10, 20, "1ef7c28b")], [other, said, marked(6, 15, "8.8")], MARK) == [None]
