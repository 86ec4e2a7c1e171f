"""What a declaration of maintenance is answered with where it cannot work."""

import datetime as dt
import re
from typing import Any

import pytest

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.cdc import CDCMerge, change_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"every": "daily"}, "Maintenance, every: 'daily' is no schedule; write every(days=1)"),
    ({"budget": 0}, "Maintenance, budget: 0 is not a whole number of at least 1"),
    ({"min_files": True}, "Maintenance, min_files: True is not a whole number of at least 2"),
    (
        {"small_file": 10, "target_file": 19},
        "Maintenance, target_file: 19 is less than twice small_file (10); what was joined would be small",
    ),
    ({"keep_for": dt.timedelta(hours=2)}, "is not a timedelta of at least 7 days: readers and writers may still need the files"),
    ({"orphans_after": dt.timedelta(days=1)}, "is not a timedelta of at least 3 days: readers and writers may still need the files"),
    ({"max_deleted_ratio": 5}, "Maintenance, max_deleted_ratio: 5 is not a part of the rows; write it as 0.05"),
    ({"remove_orphans": "yes"}, "Maintenance, remove_orphans: 'yes' is neither True nor False"),
    ({"properties": {"delta.x": 5}}, "Maintenance, properties: {'delta.x': 5} is no map of names to texts, such as"),
    (
        {"properties": {"delta.enableDeletionVectors": "true"}},
        "Maintenance, properties: 'delta.enableDeletionVectors' is chosen by what is declared of the table, such as its readers",
    ),
    ({"properties": {"owner": "ann"}}, "Maintenance, properties: 'owner' may be a name of Spark's own, such as owner; write delta.…"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_what_cannot_work_is_refused_by_field_and_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(message)):
        Maintenance(**given)


def test_tables_carry_it_and_all_three_of_one_that_follows_a_database() -> None:
    maintenance = Maintenance(keep_for=dt.timedelta(days=30))
    computed = sql_table(
        "gold.total", sql="SELECT count(*) AS n FROM bronze.orders", refresh="full", storage=Storage(maintenance=maintenance)
    )
    follows = change_table(
        "shop.orders", source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",)), storage=Storage(maintenance=maintenance)
    )
    assert [table.maintenance for table in (computed, follows, follows.bronze)] == [maintenance] * 3
