"""A running execution: what the body of a run holds while it works, its lease kept by a thread."""

import datetime as dt
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.dce.event import RegisteredEvent, SnapshotId, to_json
from lakechime_dagster.dce.snapshots import SnapshotRange
from lakechime_dagster.dce.store import EventQuery
from lakechime_dagster.errors import LakeChimeError, LaneConflictError
from lakechime_dagster.resources.platform import Platform, tags_of
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.grid import from_milliseconds
from lakechime_dagster.triggers.lanes import CommitStamp, Execution
from lakechime_dagster.triggers.model import SnapshotTrigger

RENEW_SECONDS = 15.0
ENV_LIMIT = 100_000  # bytes of one environment variable; Linux refuses 131,072


@dataclass
class RunningExecution:
    """An execution that this run has begun.

    `lost` is set when the lease could not be kept: another attempt may be at work, so nothing more should be written.
    """

    platform: Platform
    flow: Flow
    execution: Execution
    lost: threading.Event = field(default_factory=threading.Event)
    settled: bool = False
    _folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def events(self) -> list[RegisteredEvent]:
        """Exactly the events of this execution: those of its flow's tables with its tags, in its range of positions."""
        found: list[RegisteredEvent] = []
        for table in self.flow.trigger.tables:
            query = EventQuery(
                table=table, cluster=self.flow.cluster, tags=self.flow.trigger.tags,
                after=self.execution.start.position, through=self.execution.end.position,
            )  # fmt: skip
            found += self.platform.store.fetch(query)
        return sorted(found, key=lambda event: event.position)

    @property
    def ranges(self) -> dict[str, SnapshotRange]:
        """Per source table the snapshots to read: start exclusive, end inclusive."""
        return self.execution.ranges()

    def matching(self, table: str) -> frozenset[SnapshotId] | None:
        """The snapshots of a table whose commits alone are to be read; None where the trigger wants all of the range."""
        trigger = self.flow.trigger
        if not isinstance(trigger, SnapshotTrigger) or not trigger.only_matching or table not in trigger.tables:
            return None
        found = {event.event.snapshot_id for event in self.events if event.event.table == table}
        return frozenset(snapshot for snapshot in found if snapshot is not None)

    def now(self) -> dt.datetime:
        """The store's clock."""
        return from_milliseconds(self.platform.store.now())

    def env(self) -> dict[str, str]:
        """The variables of a child process: `LAKECHIME_EXECUTION`, and the events as JSON in `LAKECHIME_DCES`.

        Above 100 kB they are in a file that `LAKECHIME_DCES_FILE` names; it lives as long as the execution runs.
        """
        wire = json.dumps([to_json(event) for event in self.events], separators=(",", ":"))
        variables = {"LAKECHIME_EXECUTION": self.execution.execution_id}
        if len(wire.encode()) <= ENV_LIMIT:
            return variables | {"LAKECHIME_DCES": wire}
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="lakechime-")
        path = Path(self._folder.name) / "dces.json"
        path.write_text(wire)
        return variables | {"LAKECHIME_DCES_FILE": str(path)}

    def stamp(self, watermark: int | None = None) -> CommitStamp:
        """What the commit of this attempt must say about itself."""
        execution = self.execution
        return CommitStamp(
            lane=execution.lane, step=execution.step, attempt=execution.attempt, end=execution.end,
            execution_id=execution.execution_id, watermark=watermark, tags=dict(tags_of(self.flow)),
        )  # fmt: skip

    def write_options(self, target: str) -> dict[str, str]:
        """Delta writer options by which the target lets this step in once: transaction, and the stamp.

        `target` must be the table that the flow declares to write, since that is who is asked what was committed.
        """
        if target != self.flow.target:
            raise LaneConflictError(
                f"flow {self.flow.name} writes {self.flow.target or 'no table'}, not {target}; name it in lakechime_sensor(writes=…)"
            )
        stamp = self.stamp()
        return {"txnAppId": stamp.txn_app_id, "txnVersion": str(stamp.step), "userMetadata": stamp.to_text()}

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


@contextmanager
def kept(running: RunningExecution, target: DeltaLog | None, log: Callable[[str], None]) -> Iterator[RunningExecution]:
    """Keep the lease while the body works; at its end settle by what the target holds.

    A flow without a target is not settled here: its run must have succeeded first, which its sensor sees.
    """
    stop = threading.Event()
    keeper = threading.Thread(target=_keep, args=(running, stop, log), name="lakechime-lease", daemon=True)
    keeper.start()
    try:
        yield running
        if target is not None and not running.settled:
            running.settled = running.platform.settle_if_committed(target, running.execution) is not None
    except Exception as error:
        running.platform.ledger.note_error(running.execution, f"{type(error).__name__}: {error}".splitlines()[0])
        raise
    finally:
        stop.set()
        keeper.join()
        running.close()


def _keep(running: RunningExecution, stop: threading.Event, log: Callable[[str], None]) -> None:
    execution = running.execution
    while not stop.wait(RENEW_SECONDS):
        try:
            alive = running.platform.ledger.renew(execution.execution_id, execution.attempt, execution.run_id or "")
        except LakeChimeError as error:  # a store that is away for a moment is asked again at the next turn
            log(f"the lease of execution {execution.execution_id} could not be renewed: {error}")
            continue
        if not alive:
            if not running.settled:
                running.lost.set()
                log(f"attempt {execution.attempt} of execution {execution.execution_id} was superseded")
            return
