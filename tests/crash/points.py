"""The points at which a process is killed, and the switch by which it learns that its hour has
come.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.tables.cdc import CHANGES

FOLDER = "LAKECHIME_TEST_CRASH"  # the variable that names the folder of the switches
RELEASE_SECONDS = 60


class Point(StrEnum):
    """Each has a subscription of its own, so that all of them are on the way at the same time."""

    AFTER_CLAIM = "after_claim"
    AFTER_RUN_REQUEST = "after_run_request"
    AFTER_RUN_START = "after_run_start"
    DURING_SPARK_JOB = "during_spark_job"
    AFTER_COMMIT = "after_commit_before_dce"
    AFTER_REGISTRATION = "after_dce_before_complete"
    ZOMBIE = "zombie"
    CODE_SERVER = "code_server"
    DAEMON = "daemon"
    WARM_DRIVER = "warm_driver"
    STORE = "store_restarted"
    BETWEEN_COMMITS = "between_commits"

    @property
    def follows(self) -> bool:
        """Whether its target follows a database's table, and is committed to after what is
        remembered beside it.
        """
        return self is Point.BETWEEN_COMMITS

    @property
    def source(self) -> str:
        """What is written to: what the target reads."""
        return self.target + CHANGES if self.follows else f"bronze.{self.value}"

    @property
    def target(self) -> str:
        """The target, and the name of its subscription."""
        return f"silver.{self.value}"


@dataclass(frozen=True)
class Switch:
    """Armed by the harness, taken once by the process that reaches the point: renaming a file is
    what is atomic.
    """

    folder: Path

    @classmethod
    def of_environment(cls) -> "Switch":
        return cls(Path(os.environ[FOLDER]))

    def arm(self, point: Point) -> None:
        self._file(point, "armed").touch()

    def is_armed(self, point: Point) -> bool:
        return self._file(point, "armed").exists()

    def reach(self, point: Point, subscription: str) -> bool:
        """Whether this process is the one to be struck here; only the first that asks is."""
        if subscription != point.target:
            return False
        mine = self._file(point, f"taken-{os.getpid()}")
        try:
            self._file(point, "armed").rename(mine)
        except FileNotFoundError:
            return False
        mine.write_text(str(os.getpid()))
        mine.rename(self._file(point, "reached"))
        return True

    def die(self, point: Point, subscription: str) -> None:
        """Kill this process if it is the one."""
        if self.reach(point, subscription):
            os.kill(os.getpid(), signal.SIGKILL)

    def stop(self, point: Point, subscription: str) -> None:
        """Stop this process if it is the one, until it is instructed to go on."""
        if self.reach(point, subscription):
            os.kill(os.getpid(), signal.SIGSTOP)

    def wait(self, point: Point, subscription: str) -> None:
        """Wait, if this process is the one, until the harness has struck somebody else."""
        if self.reach(point, subscription):
            end = time.monotonic() + RELEASE_SECONDS
            while not self._file(point, "released").exists() and time.monotonic() < end:
                time.sleep(0.05)

    def release(self, point: Point) -> None:
        self._file(point, "released").touch()

    def reached_by(self, point: Point) -> int | None:
        """The process that reached the point, or None so far."""
        file = self._file(point, "reached")
        return int(file.read_text()) if file.exists() else None

    def _file(self, point: Point, state: str) -> Path:
        return self.folder / f"{point.value}.{state}"
