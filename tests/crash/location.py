"""The code location of the crash test: a lake with a subscription per point, the product's own
functions wrapped so that they strike there.
"""

import functools
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lakechime_dagster.assets import cdc, tables
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.runtime import execution as running_module
from lakechime_dagster.sensors import tick as tick_module
from lakechime_dagster.tables.cdc import CDCMerge, CDCTable, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers import ledger as ledger_module
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.crash.points import Point, Switch
from tests.support.processes import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

switch = Switch.of_environment()
in_run = threading.local()
HELD_BY_HARNESS = (Point.CODE_SERVER, Point.DAEMON, Point.WARM_DRIVER, Point.STORE)
# true after a second for each row
SLOW = "length(java_method('java.lang.Thread', 'sleep', 1000L)) > 0"


def before(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Let `act` see the arguments of each call of a function of the product."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        act(*args)
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def after(owner: Any, name: str, act: Callable[[Any], None]) -> None:
    """Let `act` see what each call of a function of the product returns."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        act(result)
        return result

    setattr(owner, name, wrapped)


def install() -> None:
    """Strike at the points, and let leases and pauses be short, so that a minute's wait takes
    seconds.
    """
    ledger_module.LEASE_MS = int(12_000 * PATIENCE)
    tick_module.UNBEGUN_MS = int(20_000 * PATIENCE)
    ledger_module.BACKOFF_MS = (0, 500, 1_000, 2_000, 2_000)
    ledger_module.MAX_ATTEMPTS = int(os.environ.get("LAKECHIME_TEST_ATTEMPTS", "5"))
    running_module.RENEW_SECONDS = 2.0
    after(
        Ledger,
        "claim",
        lambda execution: switch.die(Point.AFTER_CLAIM, execution.consumer.subscription),
    )
    after(
        Ledger,
        "begin",
        lambda execution: switch.die(Point.AFTER_RUN_START, execution.consumer.subscription),
    )
    before(
        tables,
        "complete",
        lambda running, *_: switch.die(Point.AFTER_COMMIT, running.subscription.name),
    )
    before(Ledger, "complete", _before_completing)
    _wrap_runs()


def _before_completing(ledger: Ledger, execution: Any, *_: Any) -> None:
    if getattr(in_run, "yes", False):  # a sensor that completes what a dead run left is not the one
        switch.die(Point.AFTER_REGISTRATION, execution.consumer.subscription)


def _wrap_runs() -> None:
    """In a run only: say who works, and put the points of a write around Spark's append."""
    materialise = tables.materialise

    @functools.wraps(materialise)
    def wrapped(*args: Any) -> Any:
        from lakechime_dagster.cdc import spark_refresh
        from lakechime_dagster.spark.commit import Target

        if not hasattr(spark_refresh.write_rows, "__wrapped__"):
            before(
                spark_refresh,
                "write_rows",
                lambda _, target, *__: switch.die(Point.BETWEEN_COMMITS, target.name),
            )
        original = Target.append
        sign = switch.folder / f"run-{os.getpid()}"
        sign.touch()
        in_run.yes = True
        setattr(Target, "append", functools.partialmethod(appended, original))  # noqa: B010 - a method of other parameters
        try:
            return materialise(*args)
        finally:
            in_run.yes, Target.append = False, original
            sign.unlink(missing_ok=True)

    for module in (tables, cdc):
        setattr(module, "materialise", wrapped)  # noqa: B010 - of other parameters than the type checker knows


def appended(target: Any, original: Callable[..., None], rows: "DataFrame") -> None:
    """Spark's append, at which a process is struck before the commit, or while the job that leads
    to it runs.
    """
    subscription = target.name
    switch.stop(Point.ZOMBIE, subscription)
    for point in HELD_BY_HARNESS:
        switch.wait(point, subscription)
    if subscription == Point.DURING_SPARK_JOB.target and switch.is_armed(Point.DURING_SPARK_JOB):
        context = rows.sparkSession.sparkContext
        threading.Thread(
            target=_die_while_running,
            args=(context, min(context.getJobTags()), subscription),
            daemon=True,
        ).start()
        rows = rows.where(SLOW)
    original(target, rows)


def _die_while_running(context: Any, tag: str, subscription: str) -> None:
    tracker = context._jsc.sc().statusTracker()
    while not any(_is_running(tracker, job) for job in tracker.getJobIdsForTag(tag)):
        time.sleep(0.02)
    switch.die(Point.DURING_SPARK_JOB, subscription)


def _is_running(tracker: Any, job: int) -> bool:
    info = tracker.getJobInfo(job)
    return info.isDefined() and info.get().status().toString() == "RUNNING"


def build_lake() -> Lake:
    """A source and a target per point, without keys but for one that follows messages: a row that
    is written twice shows.
    """
    sources = {point: SourceTable(point.source) for point in Point if not point.follows}
    replica = [_followed(point) for point in Point if point.follows]
    return Lake(
        "crash",
        [*sources.values(), *[_copy(point, source) for point, source in sources.items()], *replica],
    )


def _followed(point: Point) -> CDCTable:
    """A target that follows messages, which the harness writes: its source is a folder in which
    nothing is.
    """
    nothing = switch.folder / "source"
    nothing.mkdir(exist_ok=True)
    return cdc_table(
        point.target,
        source=JsonLines(str(nothing)),
        envelope=Debezium(),
        merge=CDCMerge(keys=("id",)),
    )


def _copy(point: Point, source: SourceTable) -> LakeTable:
    @spark_table(point.target, reads={"rows": source.changes()}, trigger=SnapshotTrigger())
    def copy(rows: "DataFrame") -> "DataFrame":
        """The rows of its source."""
        return rows

    return copy


install()
defs = build_definitions(build_lake())
