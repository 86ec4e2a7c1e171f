"""A source as Dagster shows it."""

import pytest

from lakechime_dagster.assets.source import source_asset
from lakechime_dagster.dce.event import TableFormat
from lakechime_dagster.lake import Lake, SourceTable


@pytest.mark.parametrize(
    ("table_format", "kind"), [(TableFormat.DELTA, "deltalake"), (TableFormat.ICEBERG, "iceberg"), (TableFormat.HIVE, "hive")]
)
def test_the_kind_of_a_source_is_its_format(table_format: TableFormat, kind: str) -> None:
    orders = SourceTable("bronze.orders", format=table_format)
    assert source_asset(Lake("shop", [orders]), orders).kinds == {kind}
