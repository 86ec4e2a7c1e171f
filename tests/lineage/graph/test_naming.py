"""What a person means by a text."""

import pytest

from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph import meant

COLUMNS = {"bronze.orders": ["id", "Total"], "cased": ["id", "ID"]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bronze.orders", ColumnRef("bronze.orders")),
        ("Bronze.Orders", ColumnRef("bronze.orders")),
        ("bronze.orders.ID", ColumnRef("bronze.orders", "id")),
        ("BRONZE.orders.total", ColumnRef("bronze.orders", "Total")),
        ("cased.ID", ColumnRef("cased", "ID")),
    ],
)
def test_letter_case_counts_only_where_it_distinguishes_names(text: str, found: ColumnRef) -> None:
    assert meant(text, COLUMNS, COLUMNS.__getitem__) == found


def test_a_name_that_may_be_two_is_none() -> None:
    with pytest.raises(NotFoundError):
        meant("cased.Id", COLUMNS, COLUMNS.__getitem__)
