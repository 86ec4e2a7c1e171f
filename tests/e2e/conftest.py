"""What the end-to-end tests share: orders that went round the loop once."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from tests.support.dagster_dev import DagsterDev
from tests.support.tables import write

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("amount", pa.int64())])


@pytest.fixture(scope="session")
def orders(shop: DagsterDev) -> dict[str, Any]:
    """Two good orders and a bad one, committed by delta-rs, registered by the command line; the run that they launched."""
    day = dt.date(2024, 5, 1)
    rows = [{"id": 1, "day": day, "amount": 10}, {"id": 2, "day": day, "amount": 20}, {"id": 3, "day": day, "amount": -1}]
    write(shop.home / "warehouse" / "bronze" / "orders", pa.Table.from_pylist(rows, schema=SCHEMA), partition_by=["day"])
    done = shop.lakechime(
        "dce", "register", "--table", "bronze.orders", "--operation", "APPEND", "--partition", '["2024-05-01"]', "--snapshot-id", "0",
        "--tag", "producer=shop",
    )  # fmt: skip
    return {"registration": done, "run": shop.await_run("silver.orders")}
