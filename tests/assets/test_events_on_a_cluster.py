"""A group that names a driver of Spark is written by that one, while its stream goes by the deployment's."""

import json
import subprocess
from pathlib import Path

import dagster as dg
import pytest

from tests.spark.drivers.test_standalone import master
from tests.support.event_lake import FOLDER
from tests.support.follows import read
from tests.support.processes import REPOSITORY, environment, program
from tests.support.streams import event

pytestmark = [pytest.mark.tier3, pytest.mark.spark, pytest.mark.services, pytest.mark.e2e]

__all__ = ["master"]

MODULE = "tests.support.cluster_module"
SMALL = {"spark.executor.memory": "512m", "spark.cores.max": "2"}


def test_the_types_of_a_group_are_written_by_the_cluster_that_it_names(master: str, tmp_path: Path, spark_jars: Path) -> None:
    folder = tmp_path / "in"
    for one in (folder, tmp_path / "dagster"):
        one.mkdir()
    (folder / "a.jsonl").write_bytes(event("shop.buy", n=1) + b"\n" + event("shop.buy", n=2, odd=[{"a": 1}]) + b"\n")
    wishes = {
        FOLDER: str(folder),
        "LAKECHIME_TEST_SECOND_CLUSTER": master,
        "LAKECHIME_SPARK_DRIVER": "local",
        "LAKECHIME_SPARK_JARS": str(spark_jars),
        "LAKECHIME_SPARK_CONF": json.dumps(SMALL),
    }
    env = environment(tmp_path, **wishes)

    for job in ("second__tables", "second__shop"):
        command = [*program("dagster"), "job", "execute", "-m", MODULE, "-j", job]
        done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    instance = dg.DagsterInstance.from_config(str(tmp_path / "dagster"))
    assert driver_of(instance, "game/events").startswith("local: started with Java")
    assert driver_of(instance, "shop").startswith(f"{master}: started with Java")
    rows = read(str(tmp_path / "warehouse" / "shop" / "shop__buy"))
    assert sorted((row["n"], row["odd"]) for row in rows) == [(1, None), (2, [{"a": 1}])]


def driver_of(instance: dg.DagsterInstance, key: str) -> str:
    """What the one materialisation of an asset as a whole says of its driver."""
    found = [one.asset_materialization for one in instance.fetch_materializations(dg.AssetKey.from_user_string(key), limit=9).records]
    (whole,) = [one for one in found if one is not None and one.partition is None]
    return str(whole.metadata["spark"].value)
