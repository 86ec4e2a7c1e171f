"""What a user's project imports, and what it costs there."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import lakechime_dagster

ROOT = Path(lakechime_dagster.__path__[0])
WITHOUT_EXTRAS = """
import sys
from lakechime_dagster.errors import EXTRA_OF

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {*EXTRA_OF, "pandas", "dagster_pyspark", "dagster_postgres"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""
FIVE_LINES = """
import dagster as dg
from lakechime_dagster import LAKECHIME, DataChangeEvent, EventQuery, LakeChimeResource, SnapshotTrigger, lakechime_sensor, open_store

seen = []

@dg.asset
def features(context: dg.AssetExecutionContext, lakechime: LakeChimeResource):
    with lakechime.execution(context) as running:
        seen.extend(event.event.snapshot_id for event in running.events)

sensor = lakechime_sensor("features", target=features, trigger=SnapshotTrigger(["silver.orders"]))
defs = dg.Definitions([features], sensors=[sensor], resources={"lakechime": LAKECHIME})
is_store_imported = "sqlalchemy" in sys.modules

with dg.DagsterInstance.ephemeral() as instance:
    sensor(dg.build_sensor_context(instance=instance, definitions=defs))
    open_store().register([DataChangeEvent(table="silver.orders", snapshot_id="17")])
    (request,) = sensor(dg.build_sensor_context(instance=instance, definitions=defs)).run_requests
    done = dg.materialize([features], instance=instance, tags=request.tags, resources={"lakechime": LAKECHIME})
print(done.success, seen, len(open_store().fetch(EventQuery(table="silver.orders"))), is_store_imported)
"""
A_MISSING_EXTRA = """
from lakechime_dagster import DataChangeEvent, Lake, SourceTable, sql_table
from lakechime_dagster.cli.main import main
from lakechime_dagster.runtime.platform import open_platform

def said(act):
    try:
        act()
    except ImportError as error:
        print(error)

said(lambda: sql_table("gold.days", sql="SELECT 1 AS one"))
said(lambda: open_platform().log("bronze.orders"))
said(lambda: __import__("lakechime_dagster", fromlist=["build_definitions"]).build_definitions)
main(["serve"])
"""


def run(code: str, folder: Path) -> list[str]:
    """The lines that a fresh process prints, in which no package of an extra can be imported."""
    environment = os.environ | {"LAKECHIME_HOME": str(folder), "PYTHONPATH": str(ROOT.parent)}
    command = [sys.executable, "-c", WITHOUT_EXTRAS + code]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return (done.stdout + done.stderr if code is A_MISSING_EXTRA else done.stdout).splitlines()


def test_every_public_name_is_there_and_has_a_type() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text())
    typed = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(lakechime_dagster.__all__) <= typed
    assert [
        name for name in lakechime_dagster.__all__ if not hasattr(lakechime_dagster, name)
    ] == []
    assert (ROOT / "py.typed").is_file()


def test_a_trigger_on_a_stock_asset_needs_no_extra(tmp_path: Path) -> None:
    assert run(FIVE_LINES, tmp_path)[-1] == "True ['17'] 1 False"


def test_what_is_not_installed_is_named_with_its_extra(tmp_path: Path) -> None:
    extras = [
        line.partition("lakechime-dagster[")[2].partition("]")[0]
        for line in run(A_MISSING_EXTRA, tmp_path)
    ]
    assert [extra for extra in extras if extra] == ["spark", "delta", "delta", "api"]
