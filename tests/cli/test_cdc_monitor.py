"""`lakechime cdc compare` and its repair beside a real MariaDB."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.dce.events import EventQuery
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.databases import Database, Monitor
from lakechime_dagster.tables.lake import Lake
from tests.cdc.factories import make_payload, make_record
from tests.cli.shop import NAME, Shop
from tests.cli.test_cdc import MARIADB, SCHEMA
from tests.support.cli import Cli
from tests.support.mariadb import CAPTURE_USER, MariaDB
from tests.support.replica import read

DATABASE = "monitored_by_command"


def reported(identity: int, amount: int) -> Any:
    source = {**MARIADB, "file": "mysql-bin.000001", "pos": identity, "row": 0}
    row = {"id": identity, "name": "Ann", "amount": amount}
    return make_record(
        make_payload("c", source=source, before=None, after=row),
        schema=SCHEMA,
        key={"id": identity},
        offset=identity,
    )


@pytest.fixture
def shop(mariadb: MariaDB, lakechime: Cli, spark_driver: Driver) -> Iterator[Shop]:
    """Of four orders in the lake one differs in the database, one is not there, and one is there
    that the lake does not have.
    """
    admin = mariadb.session()
    admin.run(
        f"CREATE DATABASE {DATABASE}",
        f"USE {DATABASE}",
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR(9), amount BIGINT)",
    )
    admin.run(
        "INSERT INTO orders VALUES (1, 'Ann', 5), (2, 'Ann', 6), (3, 'Ann', 5), (5, 'Ann', 5)"
    )
    lakechime.monkeypatch.setenv("LAKECHIME_SPARK_DRIVER", "local")
    lakechime.monkeypatch.setenv(
        "SHOP", f"mysql+pymysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{mariadb.port}/{DATABASE}"
    )
    shop = Shop.declared(
        lakechime, monitor=Monitor(database=Database("$SHOP", f"{DATABASE}.orders"))
    )
    shop.send(*[reported(identity, 5) for identity in (1, 2, 3, 4)])
    yield shop
    admin.run(f"DROP DATABASE {DATABASE}")
    admin.close()


@pytest.mark.spark
@pytest.mark.services
def test_rows_that_differ_are_reported_and_put_right_by_messages(
    lakechime: Cli, shop: Shop
) -> None:
    found = lakechime("cdc", "compare", NAME, "--within", "0", "--json")
    document = found.json
    assert (found.code, document["same"], document["lake_rows"], document["source_rows"]) == (
        1,
        False,
        4,
        4,
    )
    assert document["keys"] == {'["2"]': "different", '["4"]': "extra", '["5"]': "missing"}
    assert (
        document["different"],
        document["extra"],
        document["missing"],
        document["duplicate"],
    ) == (1, 1, 1, 0)

    shown = lakechime("cdc", "compare", NAME, "--within", "0")
    assert shown.code == 1
    assert (
        "the lake has not read past the snapshot: what is missing may still be on its way"
        in shown.out
    )

    planned = lakechime("cdc", "compare", NAME, "--repair", "--within", "0", "--dry-run")
    assert (planned.code, planned.out.partition(" as ")[0]) == (
        0,
        f"2 rows and 1 deletion would be appended to {NAME}__changes,",
    )
    done = lakechime(
        "cdc", "compare", NAME, "--repair", "--key", "[2]", "--key", '["4"]', "--json"
    ).json
    assert (done["rows"], done["deletions"], done["version"], done["twice"]) == (
        ['["2"]'],
        ['["4"]'],
        1,
        [],
    )
    odd = lakechime("cdc", "compare", NAME, "--repair", "--key", '["two"]')
    assert (odd.code, "column id: 'two' is no value of bigint" in odd.err) == (1, True)
    rows = [
        row
        for row in read(shop.location("__changes"))
        if row["topic_id"].startswith("lakechime-repair/")
    ]
    assert sorted((row["op"], row["row_key"]) for row in rows) == [("d", "[4]"), ("r", "[2]")]
    events = lakechime.platform.store.fetch(EventQuery(table=f"{NAME}__changes"))
    assert [event.event.snapshot_id for event in events][-1] == "1"


def test_what_cannot_be_asked_is_columns_in_its_reason(lakechime: Cli) -> None:
    Shop.declared(lakechime)
    missing = lakechime("cdc", "compare", NAME)
    assert (
        missing.code,
        "declares no database to compare it with; declare cdc_table(…, monitor=Monitor(…))"
        in missing.err,
    ) == (1, True)
    Shop.declared(lakechime, monitor=Monitor(database=Database("$NOT_THERE", "shop.orders")))
    odd = lakechime("cdc", "compare", NAME, "--repair", "--key", "1")
    assert (odd.code, "is no JSON array of 1 texts or whole numbers, such as [1]" in odd.err) == (
        2,
        True,
    )


@pytest.mark.spark
@pytest.mark.services
def test_dagster_makes_both_checks_in_the_job_of_monitors(
    lakechime: Cli, shop: Shop, tmp_path: Path
) -> None:
    assert shop.table.monitor is not None
    quick = replace(shop.table.monitor, within=dt.timedelta(0))
    definitions = build_definitions(Lake("shop", [replace(shop.table, monitor=quick)]))
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        run = definitions.resolve_job_def("shop__monitors").execute_in_process(instance=instance)
    found = {one.check_name: one for one in run.get_asset_check_evaluations()}
    same = found["same_as_database"]
    assert (same.passed, same.severity, same.metadata["rows of the lake"].value) == (
        False,
        dg.AssetCheckSeverity.WARN,
        4,
    )
    assert same.description == (
        "rows: 1 missing, 1 extra, 1 different; may be on its way: the lake has not read past "
        "the snapshot"
    )
    assert '| ["4"] | extra |' in str(same.metadata["keys that differ"].value)
    assert "the database was not asked" not in found["keeps_up"].metadata
