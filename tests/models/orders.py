"""A backfill as orders on consumers: is each consumer's order done once, by a step that has read
what its ancestors' orders made?

A state machine, all of whose states are visited; without one of the rules each mutant must show a
counterexample.

The protocol. Of consumers a (reads a source), b (reads a), d (reads both) a plan orders some; b may
be pruned, as it does not read what changed; d may be a fire key that ignores what comes late. b or
d may be a fire key whose partitions were not there when the plan was made: it fires once when they
are, if ever, and ignores what comes after that. A claim has two parts: a look, at the orders and
then at the newest versions, and the claim itself, which lets only what was seen so through. (1)
While the order of an input of the consumer is open, nothing claims the consumer. (2) The next claim
of the consumer, by whomever, takes the order, up to the newest versions; what it took stays with
the execution, whatever becomes of its attempts. (3) Settling closes the order that the execution
took, after the commit's event is registered. (4) The order of a key that has not fired holds it
like any other, but is not open: nobody waits for it, and it is void once no order of the plan is
open.

An attempt that is called lost lives on as a zombie; the target lets one commit of a step in. A step
that finds everything equal leaves no commit, or a fence when it is not the first attempt.
Cancelling drops what is not taken. Without commits of the source meanwhile nothing is cancelled, no
consumer fires twice for the plan, and all of it is done in the end.

Folded: the run that begins a step, its death (a run that never moves again), and the loss of the
ledger; these are laws 5 to 8.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.models.exploring import Exploration, explore

A, B, D = (0, 1, 2)
NAMES = ("a", "b", "d")
SOURCE = -1
READS = ((SOURCE,), (A,), (A, B))
NONE, LATER, WAITING, TAKEN, DONE = range(5)
MUTANTS = {
    "no_hold": "a consumer is claimed while an order of its inputs is open",
    "end_before_hold": "the newest versions are read before it is asked whether an order of its inputs is open",
    "two_claims": "a claim for what came leaves the order for another one",
    "end_is_checkpoint": "a claim of an order reads up to the checkpoint only",
    "closed_at_claim": "an order is closed when it is claimed",
    "closed_before_registered": "an order is closed before the commit's event is registered",
    "closed_by_any": "completing closes the order of the consumer, whether the execution took it or not",
    "closed_by_commit_only": "a step that finds everything equal leaves its order open",
    "next_attempt_forgets": "the next attempt does what came, and not what was ordered",
    "next_attempt_takes": "the next attempt takes an order that came after the claim",
    "pruned_is_awaited": "a consumer waits also for inputs that the plan leaves out",
    "key_is_not_forced": "a fire key that has fired is claimed for what comes late alone",
    "new_key_has_no_order": "a key that has not fired fires while an order of its inputs is open",
    "void_is_forgotten": (
        "a key that was looked at before the plan was written is claimed though its order came and "
        "is void by now"
    ),
    "new_key_is_awaited": "the order of a key that has not fired is open, though its partitions may never be there",
}


class Shape(NamedTuple):
    """A plan: b may be pruned, d may be a key that has fired, one of them a `new` key, which may
    come to be complete.
    """

    prunes: bool = False
    is_key: bool = False
    new: int | None = None
    completes: bool = False


SHAPES = (
    Shape(),
    Shape(prunes=True, is_key=True),
    Shape(is_key=True),
    Shape(prunes=True),
    Shape(new=D, completes=True),
    Shape(new=B, completes=True),
    Shape(new=B),
)


class Run(NamedTuple):
    attempt: int
    step: int
    end: tuple[int, ...]
    is_ordered: bool


class Opened(NamedTuple):
    end: tuple[int, ...]
    took: bool
    attempt: int = 1


class Look(NamedTuple):
    end: tuple[int, ...]
    is_ordered: bool


class Commit(NamedTuple):
    step: int
    end: tuple[int, ...]
    is_ordered: bool


class Consumer(NamedTuple):
    checkpoint: tuple[int, ...]
    completed: int = 0
    version: int = 0  # of the table: commits that changed data
    seen: int = 0  # of these, how many are registered
    look: Look | None = None
    opened: Opened | None = None
    runs: tuple[Run, ...] = ()
    commit: Commit | None = None  # the newest one
    order: int = NONE
    made: int = 0  # the version that the order's step made, 0 for none
    read: tuple[int, ...] | None = None  # the end of the step that did the order
    fired: int = 0  # steps completed since the plan


class State(NamedTuple):
    consumers: tuple[Consumer, Consumer, Consumer]
    source: int = 0
    is_planned: bool = False
    is_cancelled: bool = False
    losses: int = 0
    is_complete: bool = False  # the partitions of the key that has not fired are there


class Orders:
    """The protocol, with at most one of its rules broken."""

    def __init__(self, broken: str, shape: Shape, *, sources: int, losses: int) -> None:
        self.broken, self.sources, self.losses = broken, sources, losses
        self.planned = (A, D) if shape.prunes else (A, B, D)
        self.is_key, self.new, self.completes = shape.is_key, shape.new, shape.completes

    def start(self) -> State:
        first, second, third = (Consumer(checkpoint=(0,) * len(reads)) for reads in READS)
        return State((first, second, third))

    def moves(self, state: State) -> Iterator[tuple[str, State]]:
        if state.source < self.sources:
            yield "the source commits", state._replace(source=state.source + 1)
        if not state.is_planned:
            yield "the plan is written", self._planned(state)
        elif (
            self.sources
            and not state.is_cancelled
            and any(consumer.order == WAITING for consumer in state.consumers)
        ):
            dropped = [
                consumer._replace(
                    order=NONE if consumer.order in (WAITING, LATER) else consumer.order
                )
                for consumer in state.consumers
            ]
            yield (
                "the plan is cancelled",
                state._replace(consumers=(dropped[0], dropped[1], dropped[2]), is_cancelled=True),
            )
        if self.completes and not state.is_complete:
            yield "the partitions of the new key are there", state._replace(is_complete=True)
        for number in (A, B, D):
            yield from self._claims(state, number)
            yield from self._attempts(state, number)
            yield from self._completes(state, number)

    def problem(self, state: State) -> str | None:
        for number, consumer in enumerate(state.consumers):
            if (
                consumer.order == DONE
                and consumer.read is None
                and self.broken != "closed_at_claim"
            ):
                return f"the order of {NAMES[number]} is closed, and no step did it"
            has_fired = (
                number == self.new
                and consumer.completed > 0
                and consumer.order not in (WAITING, TAKEN)
                and not state.is_cancelled
            )
            if (read := consumer.checkpoint if has_fired else consumer.read) is not None:
                late = [
                    one
                    for at, one in enumerate(READS[number])
                    if self._is_awaited(one) and state.consumers[one].made > read[at]
                ]
                if late:
                    return (
                        f"{NAMES[number]} did its order without what the order of {NAMES[late[0]]} "
                        f"made"
                    )
            if not self.sources and consumer.fired > 1 and self.new not in (number, *READS[number]):
                return f"{NAMES[number]} fires twice for the plan"
        return None

    def is_quiet(self, state: State) -> bool:
        consumers = state.consumers
        at_work = any(
            consumer.opened
            or consumer.runs
            or consumer.look
            or consumer.order in (WAITING, TAKEN)
            or consumer.seen < consumer.version
            for consumer in consumers
        )
        behind = any(
            not consumers[number].completed
            if state.is_complete
            else False
            if number == self.new
            else consumers[number].checkpoint != self._newest(state, number)
            for number in (A, B, D)
            if not self._is_key(number)
        )
        return state.is_planned and state.source == self.sources and not at_work and not behind

    def _planned(self, state: State) -> State:
        orders = [WAITING if number in self.planned else NONE for number in (A, B, D)]
        if self.new is not None and not (
            state.consumers[self.new].opened or state.consumers[self.new].completed
        ):
            orders[self.new] = NONE if self.broken == "new_key_has_no_order" else LATER
        consumers = [
            consumer._replace(order=order, fired=0)
            for consumer, order in zip(state.consumers, orders, strict=True)
        ]
        return state._replace(consumers=(consumers[0], consumers[1], consumers[2]), is_planned=True)

    def _is_key(self, number: int) -> bool:
        return self.is_key and number == D

    def _newest(self, state: State, number: int) -> tuple[int, ...]:
        return tuple(
            state.source if one == SOURCE else state.consumers[one].seen for one in READS[number]
        )

    def _is_held(self, state: State, number: int) -> bool:
        """Whether the consumer has an order, and one of its inputs too."""
        if state.consumers[number].order not in (WAITING, LATER) or self.broken == "no_hold":
            return False
        inputs = [
            state.consumers[one] for one in READS[number] if one != SOURCE and self._is_awaited(one)
        ]
        if self.broken == "pruned_is_awaited":
            return any(state.consumers[one].order != DONE for one in READS[number] if one != SOURCE)
        return any(one.order in (WAITING, TAKEN, LATER) for one in inputs)

    def _is_awaited(self, number: int) -> bool:
        """Whether who reads a consumer waits for its order."""
        return number in self.planned and (
            number != self.new or self.broken == "new_key_is_awaited"
        )

    def _claims(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        consumer, name = state.consumers[number], NAMES[number]
        if consumer.opened:
            return
        newest, is_held = self._newest(state, number), self._is_held(state, number)
        is_void = not any(one.order in (WAITING, TAKEN) for one in state.consumers)
        is_ordered = consumer.order == WAITING and not (
            self.broken == "key_is_not_forced" and self._is_key(number)
        )
        has_come = newest != consumer.checkpoint and not self._is_key(number)
        is_seen = is_ordered
        if number == self.new:
            # whose void order must have been seen too: what made it void is in no end that was read
            # before
            has_come, is_seen = (
                state.is_complete and not consumer.completed,
                is_ordered or consumer.order == LATER,
            )
            is_ordered = is_ordered or (consumer.order == LATER and not is_void and has_come)
        if consumer.look is None:
            if (is_ordered or has_come) and (not is_held or self.broken == "end_before_hold"):
                yield (
                    f"{name} is looked at",
                    _with(state, number, consumer._replace(look=Look(newest, is_seen))),
                )
            return
        end, saw = consumer.look
        gone = consumer._replace(look=None)
        is_moot = (
            not has_come
            if number == self.new
            else end == consumer.checkpoint or self._is_key(number)
        )
        if (
            is_held
            or (is_seen and not saw and self.broken != "void_is_forgotten")
            or (not is_ordered and is_moot)
        ):
            yield f"{name} is not claimed", _with(state, number, gone)
            return
        took = is_ordered and not (self.broken == "two_claims" and has_come)
        end = consumer.checkpoint if took and self.broken == "end_is_checkpoint" else end
        order = consumer.order if not took else DONE if self.broken == "closed_at_claim" else TAKEN
        runs = (*consumer.runs, Run(1, consumer.completed + 1, end, took))
        claimed = gone._replace(opened=Opened(end, took), runs=runs, order=order)
        yield f"{name} is claimed{' with its order' if took else ''}", _with(state, number, claimed)

    def _attempts(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        consumer, name = state.consumers[number], NAMES[number]
        opened = consumer.opened
        has_committed = (
            consumer.commit is not None and consumer.commit.step == consumer.completed + 1
        )
        if opened and state.losses < self.losses and not has_committed:
            took, order = opened.took, consumer.order
            if (
                self.broken == "next_attempt_takes"
                and order == WAITING
                and not self._is_held(state, number)
            ):
                took, order = True, TAKEN
            end, attempt = self._newest(state, number), opened.attempt + 1
            run = Run(
                attempt, consumer.completed + 1, end, took and self.broken != "next_attempt_forgets"
            )
            lost = consumer._replace(
                opened=Opened(end, took, attempt), runs=(*consumer.runs, run), order=order
            )
            yield (
                f"attempt {opened.attempt} of {name} is called lost",
                _with(state, number, lost)._replace(losses=state.losses + 1),
            )
        for run in consumer.runs:
            rest = consumer._replace(runs=tuple(one for one in consumer.runs if one != run))
            who = f"attempt {run.attempt} of {name}"
            if consumer.completed >= run.step or (
                consumer.commit is not None and consumer.commit.step >= run.step
            ):
                yield f"{who} is too late", _with(state, number, rest)
                continue
            commit = Commit(run.step, run.end, run.is_ordered)
            if number in self.planned or self.sources:
                yield (
                    f"{who} commits",
                    _with(
                        state, number, rest._replace(commit=commit, version=consumer.version + 1)
                    ),
                )
            is_equal = number not in self.planned or run.is_ordered
            if is_equal and opened and (run.attempt, opened.attempt) == (1, 1):
                yield f"{who} finds nothing", _with(state, number, self._completed(rest, commit, 0))
            elif is_equal and run.attempt > 1:
                yield f"{who} leaves a fence", _with(state, number, rest._replace(commit=commit))

    def _completes(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        consumer, name = state.consumers[number], NAMES[number]
        if consumer.seen < consumer.version:
            yield (
                f"the commit of {name} is registered",
                _with(state, number, consumer._replace(seen=consumer.version)),
            )
        is_reported = consumer.seen == consumer.version or self.broken == "closed_before_registered"
        if (
            consumer.opened
            and consumer.commit
            and consumer.commit.step == consumer.completed + 1
            and is_reported
        ):
            yield (
                f"{name} is completed",
                _with(state, number, self._completed(consumer, consumer.commit, consumer.version)),
            )

    def _completed(self, consumer: Consumer, commit: Commit, version: int) -> Consumer:
        assert consumer.opened is not None
        closes = consumer.opened.took or (
            self.broken == "closed_by_any" and consumer.order == WAITING
        )
        if self.broken == "closed_by_commit_only" and not version:
            closes = False
        done = consumer._replace(
            checkpoint=commit.end, completed=commit.step, opened=None, fired=consumer.fired + 1
        )
        if commit.is_ordered:
            done = done._replace(made=version, read=commit.end)
        return done._replace(order=DONE) if closes else done


def _with(state: State, number: int, consumer: Consumer) -> State:
    first, second, third = (
        consumer if at == number else one for at, one in enumerate(state.consumers)
    )
    return state._replace(consumers=(first, second, third))


def explored(broken: str = "") -> Exploration:
    """All shapes of the plan; the first that has a problem, else how many states they have
    together.
    """
    states = 0
    for sources, losses in ((0, 1), (1, int(bool(broken)))):
        for shape in SHAPES if sources == 0 or broken else SHAPES[:4]:
            found = explore(Orders(broken, shape, sources=sources, losses=losses))
            states += found.states
            if found.problem:
                return Exploration(states, found.problem, found.path)
    return Exploration(states)
