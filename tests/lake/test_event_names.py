"""Types and fields find their tables and columns, each its own, and are known again."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from lakechime_dagster.tables.events import MAX_COLUMN, MAX_TABLE, SIBLING, column_of, field_of, table_of

TYPES = st.text(alphabet="ab_.-A0 é", max_size=8) | st.text()
FIELDS = st.text(alphabet="ax_v 0é[/", max_size=10) | st.text(max_size=20)


@given(TYPES, TYPES)
@example("shop.buy", "shop__buy")
@example("a_.b", "a._b")
@example("A", "a")
@example("a" * 100, "a" * 101)
def test_no_two_types_share_a_table(one: str, other: str) -> None:
    assert (table_of(one) == table_of(other)) == (one == other)


@given(TYPES)
def test_a_table_has_a_name_that_every_catalog_takes(type_name: str) -> None:
    assert re.fullmatch(r"[a-z0-9_]+", table_of(type_name))
    assert len(table_of(type_name)) <= MAX_TABLE


def test_a_name_that_ends_as_one_with_a_digest_gets_its_own() -> None:
    taken = table_of("Buy")
    assert table_of(taken) != taken
    assert table_of(taken.replace("__", ".")) != taken


@given(FIELDS)
def test_a_field_is_read_back_from_its_column(field: str) -> None:
    if SIBLING not in column_of(field) and len(column_of(field)) < MAX_COLUMN:
        assert field_of(column_of(field)) == field


@given(FIELDS, FIELDS, st.sampled_from(["long", "string"]))
def test_no_field_has_the_column_of_another_or_of_a_sibling(one: str, other: str, kind: str) -> None:
    assert (column_of(one) == column_of(other)) == (one == other)
    assert column_of(one) != f"{column_of(other)}{SIBLING}{kind}"


@given(FIELDS)
def test_a_column_needs_no_mapping_and_is_no_technical_one(field: str) -> None:
    assert all(letter.isalnum() or letter == "_" for letter in column_of(field))
    assert column_of(field) not in ("_src", "_ingested_at", "_hash", "_schema_version", "_rescued")
    assert len(column_of(field)) <= MAX_COLUMN
