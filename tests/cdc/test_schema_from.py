"""Reading the columns of a database's table for an execution: only where it is declared, and may be
asked.
"""

import pytest

from lakechime_dagster.cdc.database import schema_reading
from lakechime_dagster.errors import InvalidValueError, LakeChimeError
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.cdc import BronzeTable, CDCMerge, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Database, Debezium
from lakechime_dagster.tables.sources import JsonLines


def bronze(schema_from: Database | None) -> BronzeTable:
    table = cdc_table(
        "shop.orders",
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(keys=("id",)),
        schema=SourceSchema(read_from=schema_from),
    )
    return table.bronze


def test_a_database_that_may_not_be_asked_or_is_not_known_is_said_to_be_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declared = bronze(Database("$SHOP_URL", "shop.orders"))
    with pytest.raises(InvalidValueError, match=r"url '\$SHOP_URL': is not in the environment"):
        schema_reading(declared, load_settings(), {})
    monkeypatch.setenv("LAKECHIME_SOURCE_QUERIES", "off")
    with pytest.raises(LakeChimeError, match="LAKECHIME_SOURCE_QUERIES is off"):
        schema_reading(declared, load_settings(), {"SHOP_URL": "mysql://u@127.0.0.1:1/shop"})
