"""The judge of the crash test sees what it is there to see: a world in which something was lost,
doubled or stuck.
"""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.crash.harness import SCHEMA, Deployment
from tests.crash.points import Point
from tests.support.postgres import Server
from tests.support.tables import write

POINT = Point.ZOMBIE


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Store and tables of a deployment of which no process was started, on SQLite."""
    nowhere = Server("", ())
    return Deployment(
        tmp_path, nowhere, f"sqlite:///{tmp_path / 'dce.sqlite'}", tmp_path, attempts=5
    )


def add(deployment: Deployment, table: str, *ids: int, registered: bool = True) -> None:
    log = deployment.platform.log(table)
    write(log.location, pa.table({"id": ids}, schema=SCHEMA))
    if registered:
        deployment.platform.store.register(log.events_of_commit(log.version))


def test_a_row_that_did_not_arrive_is_lost(deployment: Deployment) -> None:
    add(deployment, POINT.source, 1, 2)
    add(deployment, POINT.target, 1)
    assert deployment.judge([POINT]).lost == (f"row 2 of {POINT.target}",)


def test_a_row_that_arrived_twice_is_doubled(deployment: Deployment) -> None:
    add(deployment, POINT.source, 1)
    add(deployment, POINT.target, 1)
    add(deployment, POINT.target, 1)
    assert deployment.judge([POINT]).doubled == (f"row 1 of {POINT.target}",)


def test_a_commit_that_nobody_registered_is_lost(deployment: Deployment) -> None:
    add(deployment, POINT.source, 1)
    add(deployment, POINT.target, 1, registered=False)
    assert deployment.judge([POINT]).lost == (f"the event of commit 0 of {POINT.target}",)


def test_a_consumer_that_does_not_stand_at_its_newest_commit_is_stuck(
    deployment: Deployment,
) -> None:
    add(deployment, POINT.source, 1)
    add(deployment, POINT.target, 1)
    verdict = deployment.judge([POINT])
    assert (verdict.lost, verdict.doubled, len(verdict.stuck)) == ((), (), 1)
    assert not verdict.is_clean
