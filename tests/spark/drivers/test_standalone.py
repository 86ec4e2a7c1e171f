"""A driver by master URL: the same code on a standalone cluster of one master and two workers from
pyspark's own scripts.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakechime_dagster.spark.jvm import find_java, pyspark_home
from tests.support.spark import await_true, need_bash, run_client, small_settings

pytestmark = [pytest.mark.spark, pytest.mark.services]

WORKERS = 2


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster on free ports of this machine, its workers registered."""
    need_bash()
    folder = tmp_path_factory.mktemp("cluster")
    processes = [start_daemon(folder, "master", "--port", "0")]
    try:
        log = folder / "master.log"
        await_true(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()),
            "the master listens",
        )
        found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
        assert found is not None
        for number in range(WORKERS):
            work = folder / f"worker-{number}"
            processes.append(
                start_daemon(
                    folder,
                    f"worker-{number}",
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--work-dir",
                    str(work),
                    found[1],
                )
            )
        await_true(
            lambda: log.read_text().count("Registering worker") == WORKERS, "the workers register"
        )
        yield found[1]
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


@pytest.mark.tier3
def test_a_merge_runs_on_the_executors_of_a_cluster(
    master: str, tmp_path: Path, spark_jars: Path
) -> None:
    code = """
        with open_here() as driver:
            say(driver.kind, driver.reason)
            path = str(home / "table")
            driver.spark.range(0, 100, 1, 4).write.format("delta").save(path)
            driver.spark.sql(f"MERGE INTO delta.`{path}` t USING (SELECT id + 90 AS id FROM range(20)) s ON t.id = s.id "
                             "WHEN NOT MATCHED THEN INSERT *")
            table = driver.spark.read.format("delta").load(path)
            say(table.count(), table.mapInArrow(lambda batches: batches, "id long").count())
            say(len(driver.spark._jsc.sc().statusTracker().getExecutorInfos()))
    """
    settings = small_settings(
        master, conf={"spark.executor.memory": "512m", "spark.cores.max": "2"}
    )
    said = run_client(code, tmp_path, spark_jars, settings)
    assert said[0].startswith(f"{master} started with Java")
    assert said[1:] == ["110 110", "3"]  # the driver and an executor on each worker


def start_daemon(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    kind = name.partition("-")[0]
    environment = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(pyspark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [
                pyspark_home() / "bin" / "spark-class",
                f"org.apache.spark.deploy.{kind}.{kind.title()}",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | environment,
            cwd=folder,
        )
