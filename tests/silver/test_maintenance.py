"""The commit that reports a type's checkpoint stays in its table's log, whatever maintenance commits
behind it.
"""

import datetime as dt

import pytest

from lakechime_dagster.silver.maintenance import keeping_newest
from lakechime_dagster.tables.maintenance import LOG, Maintenance, TableFiles, log_kept

DAY = 86_400_000
NOW = 1_000 * DAY


def kept(age: float | None, **properties: str) -> dict[str, str]:
    """The properties that are declared of a table whose newest commit is so many days old."""
    files = TableFiles(
        table="shop.buy", properties={f"delta.{name}": value for name, value in properties.items()}
    )
    reported = None if age is None else NOW - round(age * DAY)
    return dict(
        keeping_newest(
            Maintenance(properties={"delta.appendOnly": "false"}), files, reported, NOW
        ).properties
    )


def test_the_log_of_a_type_that_is_written_is_left_as_it_is() -> None:
    assert kept(0) == kept(14.9) == kept(None) == {"delta.appendOnly": "false"}


@pytest.mark.parametrize("age", [15.1, 29, 400])
def test_of_a_type_that_is_written_no_more_the_log_keeps_its_last_commit(age: float) -> None:
    properties = kept(age)
    assert properties == {"delta.appendOnly": "false", LOG: properties[LOG]}
    assert log_kept(properties) >= dt.timedelta(days=age + 30)
