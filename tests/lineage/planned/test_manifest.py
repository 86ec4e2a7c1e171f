from pathlib import Path

import pytest

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.manifest import Manifest, PlannedColumn, PlannedTable, read_manifest

SOURCES = (
    Source(ColumnRef("bronze.orders"), Kind.AGGREGATION, True),
    Source(ColumnRef("bronze.orders", "id"), Kind.IDENTITY),
)
COLUMN = PlannedColumn(
    column="id",
    type={"type": "array", "elementType": "long", "containsNull": True},
    nullable=False,
    sources=SOURCES,
    opaque=("rows of an RDD",),
    udfs=("Python UDF f",),
    digest="d",
)
TABLE = PlannedTable(
    target="silver.paid",
    columns=(COLUMN, PlannedColumn(column="plain", type="long")),
    indirect=SOURCES[:1],
    inputs=("bronze.orders",),
    rows="r",
    code="c",
    laid_out={"keys": "id"},
    owner="team:shop",
    unknown=("an action inside",),
    udfs=("mapInPandas",),
)


def test_a_file_gives_back_all_that_is_planned(tmp_path: Path) -> None:
    manifest = Manifest(
        lake="shop",
        tables={"silver.paid": TABLE, "bronze.orders": PlannedTable(target="bronze.orders")},
        accepted={"k": "why"},
    )
    (tmp_path / "lineage.json").write_text(manifest.to_json())
    assert read_manifest(tmp_path / "lineage.json") == manifest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"version": 1}', "has version 1, this one reads 2"),
        ('{"version": 2, "lake": "shop"}', "is not whole: tables: Field required"),
        ("{", "cannot be read: "),
    ],
)
def test_a_file_of_another_form_is_refused_with_what_is_wrong(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "lineage.json").write_text(text)
    with pytest.raises(InvalidValueError, match=f"{why}.*lakechime lineage plan --out"):
        read_manifest(tmp_path / "lineage.json")
