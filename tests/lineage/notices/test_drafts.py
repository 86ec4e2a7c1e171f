"""What is drafted by itself can be kept, whatever the names and types that it is of."""

import pytest

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.notices.changes import MAX_REFS, MAX_TEXT, ChangeKind
from lakechime_dagster.lineage.notices.drafts import change_of_itself, source_key

LONG = "struct<" + ", ".join(f"a_field_with_a_long_name_{number}: decimal(38,18)" for number in range(60)) + ">"


def test_what_is_too_long_to_be_kept_is_cut_and_says_so() -> None:
    change = change_of_itself(ChangeKind.SCHEMA_CHANGE, LONG, [ColumnRef("bronze.orders", "customer")], "adapt")
    assert (len(change.what), change.what[:7], change.what[-1]) == (MAX_TEXT, "struct<", "…")
    assert (change.refs, change.action) == ((ColumnRef("bronze.orders", "customer"),), "adapt")


@pytest.mark.parametrize("name", ["a\nb", "a\0", " a", "", "\ud800", "a" * 513])
def test_a_column_that_cannot_be_named_is_told_as_its_table(name: str) -> None:
    change = change_of_itself(ChangeKind.SCHEMA_CHANGE, f"bronze.orders.{name} is gone", [ColumnRef("bronze.orders", name)])
    assert change.refs == (ColumnRef("bronze.orders"),)


def test_more_columns_than_a_notice_names_are_told_as_their_tables() -> None:
    refs = [ColumnRef(f"bronze.t{number % 2}", f"c{number}") for number in range(MAX_REFS + 1)]
    assert change_of_itself(ChangeKind.BACKFILL, "again", refs).refs == (ColumnRef("bronze.t0"), ColumnRef("bronze.t1"))


def test_a_source_is_kept_as_it_is_where_it_can_be() -> None:
    assert (source_key("gate/silver.paid"), source_key("gate/silver.paid", 2)) == ("gate/silver.paid", "gate/silver.paid (2)")
    keys = {source_key("x" * length, number) for length in (508, 509, 512, 513) for number in (1, 2)}
    assert (len(keys), max(map(len, keys)) <= 512) == (8, True)
