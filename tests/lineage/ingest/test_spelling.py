"""Columns go by the names of their tables, in whatever letter case others tell them."""

from lakechime_dagster.lineage.facts import spelled
from tests.lineage.ingest.factories import STORE, columns, dataset, make_event, told


def test_columns_are_told_by_the_names_that_their_tables_have_them_by() -> None:
    run = told(make_event(outputs=(dataset(STORE, "gold/days", columnLineage=columns(DAY=("raw/orders", "ID", "IDENTITY"))),)))
    found = spelled(run, {"gold.days": ["day"], "s3://lake/raw/orders": ["id", "Id"]}.get)
    assert {fact[2] for fact in found.facts if fact[0] == "schema"} == {"day"}
    assert {(fact[2], fact[5]) for fact in found.facts if fact[0] == "src"} == {("day", "ID")}
