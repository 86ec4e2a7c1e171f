"""The warm driver: clients share its JVM, cannot harm each other, and go on without it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakechime_dagster.lock import locked
from lakechime_dagster.spark.driver import _sign_in, clients_folder, warm_lock
from lakechime_dagster.spark.jvm import WarmFile, is_alive, warm_file
from lakechime_dagster.spark.warm import WarmHost, start_warm_driver
from tests.support.spark import await_true, run_client, small_settings, start_client

pytestmark = pytest.mark.spark

SETTINGS = small_settings("warm")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, spark_jars: Path) -> Iterator[WarmHost]:
    """A warm driver for the tests that do not end it."""
    host = start_warm_driver(SETTINGS, tmp_path_factory.mktemp("warm-home"), spark_jars)
    try:
        assert host.wait_warmed(240), host.log_file.read_text()
        yield host
    finally:
        host.stop()


@pytest.fixture
def started() -> Iterator[list[WarmHost]]:
    """Hosts that a test starts and may end; what it leaves is ended."""
    hosts: list[WarmHost] = []
    yield hosts
    for host in hosts:
        host.stop()


@pytest.mark.tier2
def test_two_clients_share_the_jvm_but_neither_views_nor_confs(
    host: WarmHost, spark_jars: Path
) -> None:
    with start_client(
        """
        driver = open_here()
        driver.spark.range(1).createOrReplaceTempView("mine")
        driver.spark.conf.set("spark.sql.shuffle.partitions", "9")
        say(driver.kind, jvm_pid(driver)); input()
        say(driver.spark.table("mine").count())
        """,
        host.home,
        spark_jars,
        SETTINGS,
    ) as first:
        assert first.stdout is not None
        kind, pid = first.stdout.readline().split()
        said = run_client(
            """
            with open_here() as driver:
                say(driver.kind, jvm_pid(driver), driver.reason)
                say(driver.spark.catalog.tableExists("mine"), driver.spark.conf.get("spark.sql.shuffle.partitions"))
                path = str(home / "shared")
                driver.spark.range(3).write.format("delta").save(path)
                driver.spark.sql(f"MERGE INTO delta.`{path}` t USING (SELECT 7L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
                say(driver.spark.read.format("delta").load(path).count())
            """,
            host.home,
            spark_jars,
            SETTINGS,
        )
        assert said == [
            f"warm {pid} attached to the warm driver of process {host.process.pid}",
            "False 2",
            "4",
        ]
        rest, _ = first.communicate("\n", timeout=60)
    assert (kind, rest) == ("warm", "1\n")


def test_a_client_keeps_its_handler_of_ctrl_c(host: WarmHost, spark_jars: Path) -> None:
    code = """
        import signal
        before = signal.getsignal(signal.SIGINT)
        with open_here() as driver:
            say(signal.getsignal(signal.SIGINT) is before)
        say(signal.getsignal(signal.SIGINT) is before)
    """
    assert run_client(code, host.home, spark_jars, SETTINGS) == ["True", "True"]


@pytest.mark.tier2
def test_the_job_of_a_killed_client_goes_on_until_the_next_one_cancels_its_tag(
    host: WarmHost, spark_jars: Path
) -> None:
    with start_client(
        """
        import threading
        from tests.spark.drivers.test_driver import LONG_JOB
        driver = open_here()
        def work():
            with driver.tagged("lakechime-dead-1"):
                driver.spark.sql(LONG_JOB).collect()
        threading.Thread(target=work).start()
        from tests.support.spark import await_true
        await_true(lambda: driver._running("lakechime-dead-1"), "the job runs")
        say("running")
        """,
        host.home,
        spark_jars,
        SETTINGS,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "running\n"
        client.kill()
    code = """
        with open_here() as driver:
            say(driver.kind, len(driver._running("lakechime-dead-1")))
            say(driver.cancel("lakechime-dead-1"), len(driver._running("lakechime-dead-1")))
            say(driver.spark.range(5).count())
    """
    assert run_client(code, host.home, spark_jars, SETTINGS) == ["warm 1", "1 0", "5"]


def test_clients_that_leave_take_what_the_jvm_held_for_them_along(
    host: WarmHost, spark_jars: Path
) -> None:
    code = """
        from py4j.java_gateway import JavaObject
        def held(driver):
            client = driver.spark.sparkContext._gateway._gateway_client
            return JavaObject("GATEWAY_SERVER", client).getGateway().getBindings().size()
        def used():
            driver = open_here()
            kept.append([driver, *(driver.spark.range(10) for _ in range(50))])  # as a process holds them to its very end
            kept[-1][1].selectExpr("id % 3 AS k").groupBy("k").count().collect()
            return driver
        from tests.support.spark import await_true
        kept = []
        with used() as driver:
            alone = held(driver)
        for _ in range(20):
            used().close()
        with used() as driver:
            await_true(lambda: held(driver) <= alone + 5 * 20, "of each of 20 clients the JVM holds no more than five objects", 30)
            say(alone > 50)
    """
    assert run_client(code, host.home, spark_jars, SETTINGS) == ["True"]


def test_a_client_of_other_settings_starts_a_driver_of_its_own_and_says_so(
    host: WarmHost, spark_jars: Path
) -> None:
    code = "with open_here() as driver: say(driver.kind)"
    said = run_client(
        code,
        host.home,
        spark_jars,
        small_settings("warm", conf={"spark.sql.ansi.enabled": "false"}),
    )
    assert said == [
        (
            "log: Starting a local Spark driver, because the warm driver was started with other "
            "settings or versions; start it again"
        ),
        "local",
    ]


def test_a_second_host_of_a_home_gives_way(
    host: WarmHost, spark_jars: Path, started: list[WarmHost]
) -> None:
    second = start_warm_driver(SETTINGS, host.home, spark_jars)
    started.append(second)
    assert second.process.wait(60) == 1
    assert f"Another warm driver serves {host.home}." in second.log_file.read_text()
    file = WarmFile.read(host.home)
    assert file is not None
    assert file.host_pid == host.process.pid


def test_a_killed_host_takes_its_jvm_along_and_the_next_client_starts_its_own(
    tmp_path: Path, spark_jars: Path, started: list[WarmHost]
) -> None:
    host = start_warm_driver(SETTINGS, tmp_path, spark_jars, is_exercised=False)
    started.append(host)
    jvm = await_up(host, generation=1).jvm_pid
    os.kill(host.process.pid, signal.SIGKILL)
    host.process.wait()
    said = run_client(
        "with open_here() as driver: say(driver.kind, driver.spark.range(3).count())",
        tmp_path,
        spark_jars,
        SETTINGS,
    )
    assert said == [
        (
            f"log: Starting a local Spark driver, because the warm driver of process "
            f"{host.process.pid} has died"
        ),
        "local 3",
    ]
    await_true(lambda: not is_alive(jvm), "the JVM of the killed host ends")


def test_a_jvm_is_replaced_after_its_clients_and_serves_the_attached_to_their_end(
    tmp_path: Path, spark_jars: Path, started: list[WarmHost]
) -> None:
    host = start_warm_driver(SETTINGS, tmp_path, spark_jars, clients_per_jvm=1, is_exercised=False)
    started.append(host)
    await_up(host, generation=1)
    with start_client(
        "driver = open_here(); say(jvm_pid(driver)); input(); say(driver.spark.range(6).count())",
        tmp_path,
        spark_jars,
        SETTINGS,
    ) as old:
        assert old.stdout is not None
        first = int(old.stdout.readline())
        second = await_up(host, generation=2).jvm_pid
        assert first != second
        assert old.communicate("\n", timeout=60)[0] == "6\n"
    await_true(lambda: not is_alive(first), "the retired JVM ends when its last client has left")
    assert is_alive(second)


def test_without_clients_the_jvm_sleeps_until_the_next_one_comes(
    tmp_path: Path, spark_jars: Path, started: list[WarmHost]
) -> None:
    host = start_warm_driver(SETTINGS, tmp_path, spark_jars, idle_seconds=5, is_exercised=False)
    started.append(host)
    first = await_up(host, generation=1).jvm_pid
    await_true(lambda: not is_alive(first), "the JVM without clients ends")
    said = run_client(
        "with open_here() as driver: say(driver.kind, driver.spark.range(2).count())",
        tmp_path,
        spark_jars,
        SETTINGS,
    )
    assert said == ["warm 2"]


def test_a_client_that_signs_in_while_the_jvm_is_to_sleep_keeps_it_up_for_others(
    tmp_path: Path, spark_jars: Path, started: list[WarmHost]
) -> None:
    host = start_warm_driver(SETTINGS, tmp_path, spark_jars, idle_seconds=5, is_exercised=False)
    started.append(host)
    file = await_up(host, generation=1)
    with locked(warm_lock(tmp_path), 20):  # as a client that attaches
        await_true(
            lambda: "the warm driver sleeps" in host.log_file.read_text(), "the host wants to sleep"
        )
        presence = _sign_in(clients_folder(tmp_path, file.host_pid, file.generation))
    said = run_client(
        "with open_here() as driver: say(driver.kind, jvm_pid(driver))",
        tmp_path,
        spark_jars,
        SETTINGS,
    )
    presence.end()
    assert said == [f"warm {file.jvm_pid}"]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, None], ids=["interrupt", "terminate", "parent gone"]
)
def test_a_host_ends_cleanly_even_while_it_starts(
    tmp_path: Path, spark_jars: Path, started: list[WarmHost], number: signal.Signals | None
) -> None:
    host = start_warm_driver(SETTINGS, tmp_path, spark_jars)
    started.append(host)
    await_true(lambda: warm_file(tmp_path).exists(), "the host runs")
    if number is None:
        assert host.process.stdin is not None
        host.process.stdin.close()
    else:
        host.process.send_signal(number)
    assert host.process.wait(60) == 0, host.log_file.read_text()
    assert not warm_file(tmp_path).exists()
    assert running_below(tmp_path) == ""


def await_up(host: WarmHost, generation: int) -> WarmFile:
    """The connection file when clients are let in to this JVM."""

    def up() -> WarmFile | None:
        found = WarmFile.read(host.home)
        return (
            found if found is not None and found.is_up and found.generation == generation else None
        )

    await_true(up, f"JVM {generation} is up; {host.log_file}", 240)
    file = up()
    assert file is not None
    return file


def running_below(home: Path) -> str:
    """The processes whose command line names this folder."""
    running = subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout
    return "\n".join(line for line in running.split("\n") if f"{home}/spark/running" in line)
