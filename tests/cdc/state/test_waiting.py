"""Rows that wait for a column are known by what is remembered alone."""

import random

from hypothesis import given

from lakechime_dagster.cdc.change import Operation
from lakechime_dagster.cdc.state import Role, change_row, waiting_keys
from tests.cdc.merge.lake import LENGTHS, SEEDS, Lake, changes_made, reported


@given(seed=SEEDS, length=LENGTHS)
def test_what_is_remembered_reports_which_rows_wait(seed: int, length: int) -> None:
    changes = [reported(change) for change in changes_made(random.Random(seed), length)]
    lake = Lake()
    lake.execute(changes)
    ends = [
        change_row(change, Role.TRUNCATION)
        for change in changes
        if change.operation is Operation.TRUNCATE
    ]
    assert sorted(waiting_keys([*lake.state, *ends])) == sorted(lake.waiting)
