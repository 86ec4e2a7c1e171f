from pathlib import Path

from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.manifest import Manifest, PlannedColumn, PlannedTable, read_manifest

SOURCES = (
    Source(ColumnRef("bronze.orders"), Kind.AGGREGATION, True),
    Source(ColumnRef("bronze.orders", "id"), Kind.IDENTITY),
)
COLUMN = PlannedColumn(
    name="id",
    type={"type": "array", "elementType": "long", "containsNull": True},
    nullable=False,
    sources=SOURCES,
    opaque=("rows of an RDD",),
    udfs=("Python UDF f",),
    digest="d",
)
TABLE = PlannedTable(
    name="silver.paid",
    columns=(COLUMN, PlannedColumn(name="plain", type="long")),
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
        tables={"silver.paid": TABLE, "bronze.orders": PlannedTable(name="bronze.orders")},
        accepted={"k": "why"},
    )
    (tmp_path / "lineage.json").write_text(manifest.to_json())
    assert read_manifest(tmp_path / "lineage.json") == manifest
