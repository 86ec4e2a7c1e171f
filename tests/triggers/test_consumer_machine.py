"""One consumer under every interleaving that hypothesis finds: the real ledger, a real Delta table,
and what breaks without each rule.

Source commits are 1..n; the range (start, end] appends a row per commit to the target, but for the
pairs in which the second commit undoes the first: a range of nothing but such pairs has no net
effect, which makes the fence necessary. Whatever crashes, is called lost, goes on as a zombie or is
forgotten: the target never holds a commit twice, and when all is quiet it holds each one.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.schema import lc_consumer_partition, metadata
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.triggers.consumers import (
    CommitMetadata,
    Committed,
    ConsumerId,
    Execution,
    ExecutionState,
)
from lakechime_dagster.triggers.ledger import MAX_ATTEMPTS, Beside, Ledger
from lakechime_dagster.triggers.schema import (
    lc_attempt,
    lc_consumer,
    lc_execution,
    lc_intervention,
    lc_subscription,
)
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.tables import rows, write
from tests.support.world import World

pytestmark = pytest.mark.dialect

SOURCE, TARGET = "bronze.orders", "silver.orders"
COMMITS = 8
UNDONE = {(1, 2), (4, 5), (7, 8)}  # the second commit of a pair undoes the first
MAX_RUNS = 3
SCHEMA = pa.schema([("commit", pa.int64())])
SUBSCRIPTION = Subscription(name="silver", trigger=SnapshotTrigger(SOURCE), target=TARGET)


@dataclass
class Run:
    """A process at an attempt. `txn` is the version that it commits with."""

    name: str
    execution: Execution
    txn: int
    at: str = "launched"  # launched, begun, looked, written


class ConsumerMachine(RuleBasedStateMachine):
    """The protocol as it is; the broken twins override one rule each."""

    engine: ClassVar[Engine]
    rested: ClassVar[int] = 0  # machines that came to rest with nothing lost
    applied: tuple[int, ...] = ()  # the commits that the target holds at rest

    def __init__(self) -> None:
        super().__init__()
        with writing(self.engine) as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())
        self.folder = Path(tempfile.mkdtemp(prefix="lakechime-consumer-"))
        self.log = DeltaLog(str(self.folder / "target"), TARGET)
        self.world = World(self.engine)
        self.ledger = self.ledger_of(self.world)
        self.world = _WithLedger(self.engine, ledger_used=self.ledger)
        self.head = 0
        self.runs: list[Run] = []
        self.launched = 0
        self.losses = 0
        self.left = self.rebuilt = False

    # Rules that a twin breaks

    def ledger_of(self, world: World) -> Ledger:
        return world.ledger

    def txn_of(self, execution: Execution) -> int:
        return execution.number

    def last_committed(self, consumer: ConsumerId) -> Committed | None:
        return self.log.last_committed(consumer)

    def end_of(self, execution: Execution, found: Committed) -> Committed:
        return found

    # What happens

    @precondition(lambda self: self.head < COMMITS)
    @rule()
    def the_source_commits(self) -> None:
        self.head += 1
        self.world.change(SOURCE, self.head)

    @rule()
    def the_sensor_claims_and_launches(self) -> None:
        row = self.world.evaluator.activate(SUBSCRIPTION)
        decision = self.world.evaluator.evaluate(SUBSCRIPTION, row)
        for execution in self.world.evaluator.fire(
            SUBSCRIPTION, row, decision, self.last_committed
        ):
            self.launch(execution)

    @precondition(lambda self: self.may_be_lost() and len(self.runs) < MAX_RUNS)
    @rule(is_widened=st.booleans())
    def the_sensor_calls_the_attempt_lost(self, is_widened: bool) -> None:
        execution = self.opened()
        assert execution is not None
        if self.completed_by_commit(execution, execution.number):
            return
        row = self.world.evaluator.activate(SUBSCRIPTION)
        consumer = self.world.ledger.consumers(row)[""]
        end = self.world.evaluator.end_of(SUBSCRIPTION, row, consumer) if is_widened else None
        following = self.world.ledger.lose(
            execution, "its lease was over", end=end, immediately=True
        )
        if following is not None:  # else it is held
            self.launch(following)

    @precondition(lambda self: self.losses == 0 and self.log.exists())
    @rule()
    def the_ledger_is_lost(self) -> None:
        self.losses += 1
        with writing(self.engine) as connection:
            for table in (
                lc_intervention,
                lc_attempt,
                lc_execution,
                lc_consumer_partition,
                lc_consumer,
                lc_subscription,
            ):
                connection.execute(sa.delete(table))

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, MAX_RUNS - 1))
    def a_run_crashes(self, which: int) -> None:
        self.runs.remove(self.pick(which))

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, MAX_RUNS - 1))
    def a_run_goes_on(self, which: int) -> None:
        self.advance(self.pick(which))

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, MAX_RUNS - 1), times=st.integers(2, 4))
    def a_run_goes_on_for_a_while(self, which: int, times: int) -> None:
        run = self.pick(which)
        for _ in range(times):
            if run in self.runs:
                self.advance(run)

    # The life of a run

    def launch(self, execution: Execution) -> None:
        self.launched += 1
        self.runs.append(Run(f"run-{self.launched}", execution, self.txn_of(execution)))

    def advance(self, run: Run) -> None:
        try:
            if run.at == "launched":
                run.execution, run.at = (
                    self.world.ledger.begin(run.execution.execution_id, run.name),
                    "begun",
                )
            elif run.at == "begun":
                self.look(run)
            elif run.at == "looked":
                self.write(run)
            else:
                self.runs.remove(run)
                self.completed_by_commit(run.execution, run.txn)
        except (ConsumerConflictError, NotFoundError):  # it ends, saying what to do
            if run in self.runs:
                self.runs.remove(run)

    def look(self, run: Run) -> None:
        if self.completed_by_commit(run.execution, run.txn):
            self.runs.remove(run)
        else:
            run.at = "looked"

    def write(self, run: Run) -> None:
        """As a run does: complete without a commit if it may, else commit unless the target has
        this version already.
        """
        first, last = bounds(run.execution)
        commits = [] if is_undone(first, last) else list(range(first + 1, last + 1))
        if not commits and self.completed_empty(run):
            self.runs.remove(run)
            return
        run.at = "written"
        if (self.reached() or 0) >= run.txn:
            return  # Spark skips it
        commit_metadata = CommitMetadata(
            consumer=run.execution.consumer,
            number=run.execution.number,
            attempt=run.execution.attempt,
            end=run.execution.end,
        )
        data = rows(*[(commit,) for commit in commits], schema=SCHEMA)
        write(
            self.log.location,
            data,
            transaction=(commit_metadata.txn_app_id, run.txn),
            user_metadata=commit_metadata.to_text(),
        )

    def completed_empty(self, run: Run) -> bool:
        try:
            return self.world.ledger.complete(run.execution, None) or True
        except ConsumerConflictError:
            return False

    def completed_by_commit(self, execution: Execution, txn: int) -> bool:
        found = self.log.committed(execution.consumer, txn) if self.log.exists() else None
        if found is None:
            return False
        assert found.commit_metadata.number == txn or type(self) is not ConsumerMachine
        self.world.store.register(self.log.events_of_commit(int(found.version)))
        self.world.ledger.complete(execution, self.end_of(execution, found))
        return True

    # What must hold

    @invariant()
    def check(self) -> None:
        """After every step: nothing twice; when all is quiet, everything."""
        held = self.held()
        assert len(held) == len(set(held)), f"applied twice: {held}"
        if self.is_quiet():
            missing = set(range(1, self.head + 1)) - set(held)
            missing -= {commit for pair in UNDONE if not set(pair) & set(held) for commit in pair}
            assert not missing, (
                f"lost or half applied: {sorted(missing)}; the target has {sorted(held)}"
            )

    def teardown(self) -> None:
        """From wherever it is, the consumer comes to rest with nothing lost."""
        try:
            self.runs.clear()
            for _ in range(12):
                self.the_sensor_claims_and_launches()
                opened = self.opened()
                if opened is not None and not self.runs and opened.attempt < MAX_ATTEMPTS:
                    self.the_sensor_calls_the_attempt_lost(is_widened=False)
                while self.runs:
                    self.advance(self.runs[0])
                self.check()
                if self.is_quiet():
                    break
            assert self.is_quiet(), f"stuck: {self.opened()}"
            self.applied = tuple(sorted(self.held()))
            ConsumerMachine.rested += 1
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    # Reading

    def pick(self, which: int) -> Run:
        return self.runs[which % len(self.runs)]

    def opened(self) -> Execution | None:
        return next(
            iter(
                self.world.ledger.executions(
                    subscription=SUBSCRIPTION.name, state=ExecutionState.OPEN
                )
            ),
            None,
        )

    def may_be_lost(self) -> bool:
        """Whether an attempt is left, and one more for the end."""
        opened = self.opened()
        return opened is not None and opened.attempt < 4

    def is_quiet(self) -> bool:
        row = self.world.ledger.subscription(SUBSCRIPTION.name)
        consumer = self.world.ledger.consumers(row).get("") if row else None
        source = consumer.checkpoint.sources.get(SOURCE) if consumer else None
        at = int(source.snapshot_id or 0) if source else 0
        return not self.runs and self.opened() is None and at == self.head

    def reached(self) -> int | None:
        return (
            DeltaTable(self.log.location).transaction_version(
                str(ConsumerId("test", SUBSCRIPTION.name))
            )
            if self.log.exists()
            else None
        )

    def held(self) -> list[int]:
        if not self.log.exists():
            return []
        return pa.table(DeltaTable(self.log.location).to_pyarrow_table())["commit"].to_pylist()


@dataclass(frozen=True)
class _WithLedger(World):
    """A world that uses one ledger, which may be a broken one."""

    ledger_used: Ledger | None = None

    @property
    def ledger(self) -> Ledger:
        assert self.ledger_used is not None
        return self.ledger_used


def bounds(execution: Execution) -> tuple[int, int]:
    """The source commits (first, last] of an execution."""
    found = execution.ranges().get(SOURCE)
    return (int(found.start or 0), int(found.end)) if found else (0, 0)


def is_undone(first: int, last: int) -> bool:
    """Whether (first, last] has no net effect: nothing, or pairs that undo themselves."""
    commits = list(range(first + 1, last + 1))
    return all(tuple(commits[at : at + 2]) in UNDONE for at in range(0, len(commits), 2))


# The broken twins


class VersionPerAttempt(ConsumerMachine):
    """Every attempt commits with a version of its own instead of the step."""

    def txn_of(self, execution: Execution) -> int:
        return self.launched


class OwnEnd(ConsumerMachine):
    """The checkpoint moves to one's own end instead of the end in the step's commit."""

    def end_of(self, execution: Execution, found: Committed) -> Committed:
        current = self.ledger.execution(execution.execution_id) or execution
        return replace(found, commit_metadata=replace(found.commit_metadata, end=current.end))


class _WithoutFence(Ledger):
    def complete(
        self,
        execution: Execution,
        committed: Committed | None,
        *,
        reason: str = "",
        beside: Beside | None = None,
    ) -> bool:
        if committed is not None:
            return super().complete(execution, committed, reason=reason, beside=beside)
        with writing(self.engine) as connection:
            current = self.locked(connection, execution.execution_id)
            if current.state is ExecutionState.OPEN:
                self.close(
                    connection, current, ExecutionState.COMPLETED, execution.end, None, reason
                )
        return True


class NoFence(ConsumerMachine):
    """A step with nothing to do completes without a commit while another attempt may be alive."""

    def ledger_of(self, world: World) -> Ledger:
        return _WithoutFence(world.engine, world.deployment)


class FreshFromZero(ConsumerMachine):
    """After the loss of the ledger a consumer starts from zero instead of from the target's log."""

    def last_committed(self, consumer: ConsumerId) -> Committed | None:
        return None


# Ways through which each rule shows its worth


def go(machine: ConsumerMachine, *steps: str) -> tuple[int, ...]:
    """Take steps by name: `source`, `claim`, `lost` (widened), `ledger lost`, or `run-2` (that
    run's next step).

    Returns the commits that the target holds when the consumer has come to rest.
    """
    for step in steps:
        match step:
            case "source":
                machine.the_source_commits()
            case "claim":
                machine.the_sensor_claims_and_launches()
            case "lost":
                machine.the_sensor_calls_the_attempt_lost(is_widened=True)
            case "ledger lost":
                machine.the_ledger_is_lost()
            case name:
                for run in [run for run in machine.runs if run.name == name]:
                    machine.advance(run)
        machine.check()
    machine.teardown()
    return machine.applied


TWO_ATTEMPTS_COMMIT = [
    "source",
    "claim",
    "run-1",
    "lost",
    "run-1",
    "run-1",
    "run-2",
    "run-2",
    "run-2",
]
A_LATER_ATTEMPT_READS_FURTHER = [
    "source",
    "source",
    "claim",
    "source",
    "run-1",
    "lost",
    "run-1",
    "run-1",
    "lost",
]
NOTHING_TO_DO_BESIDE_ANOTHER_ATTEMPT = [
    *(
        "source",
        "source",
        "claim",
        "source",
        "run-1",
        "lost",
        "run-1",
        "run-2",
        "run-2",
        "run-1",
        "claim",
    ),
    *("run-3", "run-3", "run-2", "run-3"),
]
A_STEP_WITHOUT_COMMIT_THEN_THE_LEDGER_IS_LOST = [
    *(
        "source",
        "source",
        "claim",
        *["run-1"] * 3,
        "source",
        "claim",
        *["run-2"] * 4,
        "ledger lost",
    ),
    *("source", "source", "source", "claim"),
]
A_ZOMBIE_OF_A_LOST_LEDGER = [
    *(
        "source",
        "source",
        "source",
        "claim",
        *["run-1"] * 4,
        "source",
        "claim",
        "run-2",
        "run-2",
        "ledger lost",
        "source",
    ),
    *("claim", "claim", "run-3", "run-3", "run-2", "run-3"),
]
FEW = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


@pytest.fixture
def consumer_engine(engine: Engine) -> Iterator[Engine]:
    """The database of the machines, on each kind."""
    ConsumerMachine.engine = engine
    yield engine
    del ConsumerMachine.engine


@pytest.fixture
def consumer_on_sqlite(sqlite_engine: Engine) -> Iterator[None]:
    ConsumerMachine.engine = sqlite_engine
    yield
    del ConsumerMachine.engine


def test_each_source_commit_is_applied_once_whatever_happens(consumer_engine: Engine) -> None:
    few = FEW if consumer_engine.dialect.name == "sqlite" else settings(FEW, max_examples=5)
    before = ConsumerMachine.rested
    run_state_machine_as_test(ConsumerMachine, settings=few)
    assert ConsumerMachine.rested > before, (
        "no machine came to rest: this test no longer proves anything"
    )


TWINS = [
    (VersionPerAttempt, TWO_ATTEMPTS_COMMIT, "applied twice"),
    (OwnEnd, A_LATER_ATTEMPT_READS_FURTHER, "lost or half applied"),
    (NoFence, NOTHING_TO_DO_BESIDE_ANOTHER_ATTEMPT, "applied twice"),
    (FreshFromZero, A_STEP_WITHOUT_COMMIT_THEN_THE_LEDGER_IS_LOST, "stuck"),
]


@pytest.mark.parametrize(("twin", "way", "harm"), TWINS)
def test_without_one_of_the_rules_a_commit_is_lost_or_doubled_or_the_consumer_is_stuck(
    twin: type[ConsumerMachine], way: list[str], harm: str, consumer_engine: Engine
) -> None:
    go(ConsumerMachine(), *way)
    with pytest.raises(AssertionError, match=harm):
        go(twin(), *way)


@pytest.mark.usefixtures("consumer_on_sqlite")
def test_a_zombie_of_a_lost_ledger_and_an_empty_step_do_not_lose_a_commit() -> None:
    assert go(ConsumerMachine(), *A_ZOMBIE_OF_A_LOST_LEDGER) == (1, 2, 3, 4, 5)
