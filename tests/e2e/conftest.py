"""What the end-to-end tests share: a running `dagster dev`, and orders that went round the loop
once.
"""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakechime_dagster.spark.warm import start_warm_driver
from tests.support.dagster_dev import LAKE, DagsterDev, dagster_dev
from tests.support.processes import REPOSITORY, free_port, program
from tests.support.spark import small_settings
from tests.support.tables import write

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("amount", pa.int64())])


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory, spark_jars: Path) -> Iterator[DagsterDev]:
    """`dagster dev` with the test lake and a stock asset beside it, on a warm driver, until the
    package is through.

    Its assets link to a page of lineage that whoever looks at one starts by himself.
    """
    home = tmp_path_factory.mktemp("shop")
    workspace = home / "workspace.yaml"
    positions = {
        "lakechime_dagster": "lakechime_dagster/definitions.py",
        "stock": "tests/e2e/stock.py",
        "outside": "lakechime_dagster/outside.py",
    }
    workspace.write_text(
        "load_from:\n"
        + "".join(
            f"  - python_file: {{relative_path: '{REPOSITORY / path}', working_directory: "
            f"'{REPOSITORY}', location_name: {name}}}\n"
            for name, path in positions.items()
        )
    )
    page = f"http://127.0.0.1:{free_port()}"
    wishes = {
        "LAKECHIME_LAKE": LAKE,
        "LAKECHIME_SPARK_DRIVER": "warm",
        "LAKECHIME_SPARK_JARS": str(spark_jars),
        "LAKECHIME_LINEAGE_URL": page,
    }
    host = start_warm_driver(small_settings("warm"), home, spark_jars)
    try:
        with dagster_dev(
            "dagster-dev",
            [*program("dagster"), "dev", "-w", str(workspace)],
            home,
            set(positions),
            home,
            **wishes,
        ) as running:
            yield running
    finally:
        host.stop()


@pytest.fixture(scope="package")
def orders(shop: DagsterDev) -> dict[str, Any]:
    """Two good orders and a bad one, committed by delta-rs, registered by the command line; the run
    that they launched.
    """
    day = dt.date(2024, 5, 1)
    rows = [
        {"id": 1, "day": day, "amount": 10},
        {"id": 2, "day": day, "amount": 20},
        {"id": 3, "day": day, "amount": -1},
    ]
    write(
        shop.home / "warehouse" / "bronze" / "orders",
        pa.Table.from_pylist(rows, schema=SCHEMA),
        partition_by=["day"],
    )
    done = shop.lakechime(
        "dce",
        "register",
        "--table",
        "bronze.orders",
        "--operation",
        "APPEND",
        "--partition",
        '["2024-05-01"]',
        "--snapshot-id",
        "0",
        "--tag",
        "producer=shop",
    )
    return {"registration": done, "run": shop.await_run("silver.orders")}
