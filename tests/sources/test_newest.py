"""The newest id of a table of real databases, and which of those that it had are there still."""

import pytest

from lakechime_dagster.errors import SourceUnreadableError
from lakechime_dagster.sources.newest import newest_id
from tests.sources.test_cut import ODD, Database, database

__all__ = ["database"]
pytestmark = pytest.mark.services


def test_the_newest_id_is_told_and_which_earlier_ones_are_there_still(database: Database) -> None:
    key = database.name("a:b 100%")
    database.run(f"CREATE TABLE {database.name(ODD)} ({key} INT PRIMARY KEY)")
    table = (database.schema, ODD)
    assert newest_id(database.url, table, "a:b 100%", ()) == (None, frozenset())
    database.run(f"INSERT INTO {database.name(ODD)} VALUES (1), (2), (7)")
    assert newest_id(database.url, table, "a:b 100%", ()) == (7, frozenset())
    assert newest_id(database.url, table, "a:b 100%", (1, 2, 3)) == (7, {1, 2})


def test_what_is_no_whole_number_is_no_id_and_what_is_not_there_is_refused(database: Database) -> None:
    database.run("CREATE TABLE orders (id VARCHAR(10) PRIMARY KEY)", "INSERT INTO orders VALUES ('7')")
    assert newest_id(database.url, (database.schema, "orders"), "id", ()) == (None, frozenset())
    with pytest.raises(SourceUnreadableError, match="nothing"):
        newest_id(database.url, (database.schema, "nothing"), "id", ())
