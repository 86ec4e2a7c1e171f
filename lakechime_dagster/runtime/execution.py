"""A running execution: what the body of a run uses while it works, its lease renewed by a
thread.
"""

import datetime as dt
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lakechime_dagster.dce.events import RegisteredEvent, to_json
from lakechime_dagster.dce.partitions import PartitionValue
from lakechime_dagster.dce.snapshots import SnapshotRange
from lakechime_dagster.errors import ConsumerBlockedError, ConsumerConflictError, LakeChimeError
from lakechime_dagster.runtime.platform import FIRED, Platform
from lakechime_dagster.triggers.backfills import Backfills
from lakechime_dagster.triggers.consumers import CommitMetadata, Execution, Span
from lakechime_dagster.triggers.ledger import events_of
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import FormatLog

RENEW_SECONDS = 15.0
ENV_LIMIT = 100_000  # bytes of one environment variable; Linux refuses 131,072


@dataclass
class RunningExecution:
    """An execution that this run has begun.

    `lost` is set when the lease could not be kept: another attempt may be at work, so nothing more
    should be written.
    """

    platform: Platform
    subscription: Subscription
    execution: Execution
    lost: threading.Event = field(default_factory=threading.Event)
    completed: bool = False
    _folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def events(self) -> list[RegisteredEvent]:
        """Exactly the events of this execution in commit order: those with its subscription's tags
        in its range of positions.

        They are of the subscription's tables, with a partition trigger of the partitions of its
        key. An amendment is one of them only if it brought the tags; without tags only changes of
        data are. Where a key fires again for late data, these are too, whatever their tags.
        """
        return events_of(self.platform.store.engine, self.subscription, self.execution)

    @property
    def ranges(self) -> dict[str, SnapshotRange]:
        """Per source table the snapshots to read: start exclusive, end inclusive."""
        return self.execution.ranges()

    @property
    def ordered(self) -> tuple[Span, ...]:
        """What backfills ordered of a consumer without a partition key: rows of its inputs that it
        takes as if they had changed.
        """
        if not self.execution.backfill:
            return ()
        orders = Backfills(self.platform.ledger).requests_of(self.execution.execution_id)
        return tuple(order.span for order in orders if order.span is not None)

    def now(self) -> dt.datetime:
        """The store's clock."""
        return from_milliseconds(self.platform.store.now())

    def env(self) -> dict[str, str]:
        """The variables to add to the environment of a child process.

        `LAKECHIME_EXECUTION` is the id of the execution, `LAKECHIME_DCES` its events as a JSON
        array. Above 100 kB the array is in a file that `LAKECHIME_DCES_FILE` names instead; it is
        removed when the execution's `with` block ends.
        """
        wire = json.dumps([to_json(event) for event in self.events], separators=(",", ":"))
        variables = {"LAKECHIME_EXECUTION": self.execution.execution_id}
        if len(wire.encode()) <= ENV_LIMIT:
            return variables | {"LAKECHIME_DCES": wire}
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="lakechime-")
        path = Path(self._folder.name) / "dces.json"
        path.write_text(wire)
        return variables | {"LAKECHIME_DCES_FILE": str(path)}

    def commit_metadata(self, watermark: int | None = None) -> CommitMetadata:
        """The metadata of the commit of this attempt."""
        execution = self.execution
        fired = [
            dict(zip(self.subscription.target_levels.names, partition, strict=True))
            for partition in self.fired_partitions
        ]
        cause = {"cause": "backfill"} if execution.backfill else {}
        return CommitMetadata(
            consumer=execution.consumer,
            number=execution.number,
            attempt=execution.attempt,
            end=execution.end,
            execution_id=execution.execution_id,
            watermark=watermark,
            tags=dict(self.subscription.commit_tags) | cause,
            facts={FIRED: fired} if fired else {},
        )

    @property
    def fired_partitions(self) -> tuple[tuple[PartitionValue, ...], ...]:
        """The target's partition that the execution's partition key stands for, if it does for one."""
        trigger = self.subscription.trigger
        if not isinstance(trigger, PartitionTrigger):
            return ()
        key = trigger.key_of(self.execution.consumer.key, self.now())
        partition = self.subscription.partition_of(key) if key is not None else None
        return (partition,) if partition is not None else ()

    def write_options(self, target: str) -> dict[str, str]:
        """Delta writer options by which the target lets this execution in once: transaction, and
        the commit metadata.

        `target` must be the table that the subscription declares to write, since that is who is
        asked what was committed.
        """
        if target != self.subscription.target:
            raise ConsumerConflictError(
                f"subscription {self.subscription.name} writes "
                f"{self.subscription.target or 'no table'}, not {target}; name it in "
                f"lakechime_sensor(writes=…)"
            )
        commit_metadata = self.commit_metadata()
        return {
            "txnAppId": commit_metadata.txn_app_id,
            "txnVersion": str(commit_metadata.number),
            "userMetadata": commit_metadata.to_text(),
        }

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


@contextmanager
def kept(
    running: RunningExecution, target: "FormatLog | None", log: Callable[[str], None]
) -> Iterator[RunningExecution]:
    """Keep the lease while the body works; at its end complete by what the target holds.

    A body that raises ConsumerBlockedError lets its consumer wait for a person at once.
    A subscription without a target is not completed here: its run must have succeeded first, which
    its sensor sees.
    """
    stop = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(running, stop, log), name="lakechime-lease", daemon=True
    )
    keeper.start()
    try:
        yield running
        if target is not None and not running.completed:
            running.completed = (
                running.platform.complete_if_committed(target, running.execution) is not None
            )
    except ConsumerBlockedError as error:
        _block(running, error, log)
        raise
    except Exception as error:
        _note(running, error, log)
        raise
    finally:
        stop.set()
        keeper.join()
        running.close()


def _note(running: RunningExecution, error: Exception, log: Callable[[str], None]) -> None:
    """Keep the first line of why the attempt fails."""
    try:
        running.platform.ledger.note_error(
            running.execution, f"{type(error).__name__}: {error}".splitlines()[0]
        )
    except Exception as failure:  # noqa: BLE001 - whatever hinders that must not hide the error itself
        log(f"the error of attempt {running.execution.attempt} could not be kept: {failure}")


def _block(
    running: RunningExecution, error: ConsumerBlockedError, log: Callable[[str], None]
) -> None:
    """Let the consumer wait for a person, unless a later attempt has begun."""
    execution, name = running.execution, running.subscription.name
    try:
        again = (
            f"`lakechime trigger resume {name} --reason …` tries execution {execution.number} again"
        )
        reason = (
            f"{error}; it goes on by itself once {error.ends_when}, or {again}"
            if error.ends_when
            else f"{error}; then {again}"
        )
        if running.platform.ledger.block_execution(execution, reason):
            log(f"{name} is BLOCKED: {reason}")
    except Exception as failure:  # noqa: BLE001 - as above; without it the next attempt fails likewise
        log(f"{name} could not be blocked: {failure}")


def _keep(running: RunningExecution, stop: threading.Event, log: Callable[[str], None]) -> None:
    execution = running.execution
    while not stop.wait(RENEW_SECONDS):
        try:
            alive = running.platform.ledger.renew(
                execution.execution_id, execution.attempt, execution.run_id or ""
            )
        except (
            LakeChimeError
        ) as error:  # a store that is away for a moment is asked again at the next turn
            log(f"the lease of execution {execution.execution_id} could not be renewed: {error}")
            continue
        if not alive:
            if not running.completed:
                running.lost.set()
                log(
                    f"attempt {execution.attempt} of execution {execution.execution_id} is "
                    f"{_superseded(running)}"
                )
            return


def _superseded(running: RunningExecution) -> str:
    """By whom, as far as that has begun."""
    try:
        current = running.platform.ledger.execution(running.execution.execution_id)
    except LakeChimeError:  # who it is does not matter more than that it is so
        current = None
    if current is None or current.run_id is None:
        return "superseded by a run that has not begun"
    return f"superseded by run {current.run_id} (attempt {current.attempt})"
