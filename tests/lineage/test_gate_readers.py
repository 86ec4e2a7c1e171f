"""Who reads what the gate found: jobs elsewhere by what they reported, subscriptions of the lake by
their code alone.
"""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.lineage.check import Class, Finding
from lakechime_dagster.lineage.plan import gate_readers
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable
from tests.lineage.factories import make_record, make_statement
from tests.support.cli import Cli

PAID = sql_table("silver.paid", sql="SELECT id, amount AS twice FROM bronze.orders", refresh="full")
TOTAL = sql_table("gold.total", sql="SELECT sum(id) AS total FROM silver.paid", refresh="full")
LAKE = Lake("shop", [SourceTable("bronze.orders"), PAID, TOTAL])
GONE = Finding(kind=Class.INFORMS, table="silver.paid", column="twice", what="is gone")


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("INSERT INTO mart.paid (paid) SELECT twice FROM silver.paid", Class.BREAKS),
        ("INSERT INTO mart.paid (paid) SELECT id FROM silver.paid WHERE twice > 3", Class.BREAKS),
        (
            (
                "INSERT INTO mart.paid (paid) SELECT f.* FROM elsewhere.fees f JOIN silver.paid USING "
                "(id)"
            ),
            Class.UNSURE,
        ),
        ("INSERT INTO mart.paid (paid) SELECT id FROM silver.paid", Class.INFORMS),
    ],
)
def test_a_column_that_is_gone_breaks_the_job_elsewhere_that_computes_something_of_it(
    lakechime: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, kind: Class
) -> None:
    monkeypatch.setenv("LAKECHIME_LAKE", f"{__name__}:LAKE")
    platform = lakechime.platform
    write_deltalake(
        platform.location("silver.paid"),
        pa.schema([("id", pa.int64()), ("twice", pa.int64())]).empty_table(),
    )
    reported = {
        "producer": "airflow",
        "task": "marts.paid",
        "sql": sql,
        "dialect": "spark",
        "state": "COMPLETE",
        "run": "1",
    }
    (tmp_path / "reported.jsonl").write_text(json.dumps(reported), encoding="utf-8")
    assert lakechime("lineage", "ingest", str(tmp_path / "reported.jsonl")).code == 0
    total = make_statement(target="gold.total", inputs=("silver.paid",), total="silver.paid.twice")
    own = make_record(
        total, at=platform.store.now(), job="gold.total", namespace=platform.ledger.deployment
    )
    # a subscription of the lake is compared by its code, whatever it read before
    assert SqlLineage(platform.store.engine).record(own)
    found = gate_readers(platform, LAKE, (GONE,))
    assert [one.kind for one in found.findings] == [kind]
    readers = [reader.consumer.name for several in found.readers.values() for reader in several]
    assert readers == ([] if kind is Class.INFORMS else ["marts.paid"])


def test_a_column_that_is_gone_breaks_who_read_it_in_another_spelling(lakechime: Cli) -> None:
    platform = lakechime.platform
    read = make_statement("mart.paid", paid="silver.paid.TWICE")
    record = make_record(read, at=platform.store.now(), job="marts.paid", namespace="airflow")
    SqlLineage(platform.store.engine).record(record)
    found = gate_readers(platform, LAKE, (GONE,))
    assert [one.kind for one in found.findings] == [Class.BREAKS]
    assert [one.consumer.name for several in found.readers.values() for one in several] == [
        "marts.paid"
    ]
