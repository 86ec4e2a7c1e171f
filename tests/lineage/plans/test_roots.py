"""Which data sets the folders and files are of that a leaf reads."""

import pytest

from lakechime_dagster.lineage.columns import Names
from lakechime_dagster.lineage.plan_dump import TableLocation
from lakechime_dagster.lineage.plan_expressions import MANY, read_at

NAMES = Names(("days", "days.of"), {"days": "s3://lake/days", "days.of": "s3a://lake/days/of"})


@pytest.mark.parametrize(
    ("root", "read"),
    [
        ("s3a://lake/days", "days"),
        ("s3a://lake/days/day=1/part-0.parquet", "days"),
        ("s3a://lake/days/of/day=1", "days.of"),
        ("s3a://lake/days-of/day=1", "s3://lake/days-of"),
        ("s3a://lake/others/day=1/hour=2", "s3://lake/others"),
        ("s3a://lake/others/day=1/part-0.c000.csv", "s3://lake/others"),
        ("s3a://lake/others/_SUCCESS", "s3://lake/others"),
        ("s3a://lake/others/7.csv", "s3://lake/others/7.csv"),
        ("file:/others/_kind=1", "file/others"),
        ("file:/", "file/"),
    ],
)
def test_a_folder_or_file_is_of_the_nearest_table_above_or_of_a_folder_outside(
    root: str, read: str
) -> None:
    found = read_at(TableLocation(path=root, roots=(root,)), NAMES)
    assert (found.names, found.unknown) == ((read,), frozenset())
    assert found.outside == (frozenset() if read.startswith("days") else {read})


def test_a_table_that_the_catalog_knows_is_that_table_wherever_its_files_are() -> None:
    assert read_at(
        TableLocation(identifier="days", roots=("s3://elsewhere/a", "s3://elsewhere/b")), NAMES
    ).names == ("days",)


def test_a_folder_of_many_files_among_which_a_table_may_be_is_not_taken_for_all_of_them() -> None:
    assert read_at(
        TableLocation(roots=("s3://lake/other", "s3://lake"), is_grouped=True), NAMES
    ).unknown == {MANY}
    assert (
        read_at(TableLocation(roots=("s3://lake/other",), is_grouped=True), NAMES).unknown
        == frozenset()
    )
    inner = read_at(TableLocation(roots=("s3://lake/days",), is_grouped=True), NAMES)
    assert (inner.names, inner.unknown) == (("days",), {MANY})
