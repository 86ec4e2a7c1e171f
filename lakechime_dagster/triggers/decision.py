"""Decides whether the evidence fires a trigger, and explains why or why not."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lakechime_dagster.dce.events import Position, RegisteredEvent
from lakechime_dagster.triggers.consumers import (
    NO_REQUESTS,
    Checkpoint,
    ConsumerRequests,
    SourceOffsets,
)
from lakechime_dagster.triggers.schedule import Schedule, from_milliseconds
from lakechime_dagster.triggers.triggers import (
    Atom,
    Late,
    PartitionKey,
    PartitionTrigger,
    SnapshotTrigger,
)


@dataclass(frozen=True, kw_only=True)
class Firing:
    """One execution that should be claimed: its consumer's key, and why.

    `completed` is how many executions of the consumer the decision knew of: a consumer that moved
    on since needs another decision. `offsets` are up to where the subscription's source is to be
    read, which is polled before a claim, never within; the source `has_more` where an execution
    does not take all that it holds.
    """

    key: str = ""
    partition: PartitionKey | None = None
    reason: str
    completed: int | None = None
    offsets: SourceOffsets | None = None
    has_more: bool = False


@dataclass(frozen=True)
class LackingKey:
    """A partition key that does not fire, and why: `pending` until its partitions are there,
    `expired` after its deadline, `blocked` where only a person can move it.
    """

    key: str
    state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What an evaluation found. `reasons` is never empty; the first sentence says most.

    `refused` would fire, could it be launched. `through` is the position up to which events were
    evaluated; `waits` says that events up to there may still fire the trigger later, so that they
    must be evaluated again. `lacking` are all keys of a partition trigger that have not fired, in
    the order of their ticks.
    """

    trigger: str
    fires: bool
    reasons: tuple[str, ...]
    firings: tuple[Firing, ...] = ()
    refused: tuple[Firing, ...] = ()
    events: tuple[RegisteredEvent, ...] = ()
    through: Position = Position.ORIGIN
    waits: bool = False
    lacking: tuple[LackingKey, ...] = ()

    @property
    def sentence(self) -> str:
        return "; ".join(self.reasons)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The matching events of one table after a consumer's checkpoint: how many, and their
    registration times.
    """

    table: str
    count: int = 0
    first_ts: int | None = None
    last_ts: int | None = None
    unmatched: int = 0


@dataclass(frozen=True, kw_only=True)
class ConsumerView:
    """What the ledger says of a consumer when its trigger is evaluated.

    `blocked` is a sentence when the consumer may not claim (paused, BLOCKED); `open` one when an
    execution is open. It may be both: the open execution of a BLOCKED consumer waits for a person.
    `requests` are those of backfills that its next claim takes. `claimed_ms` is when its last
    execution was claimed, read only where the trigger asks for it.
    """

    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    completed: int = 0
    open: str = ""
    blocked: str = ""
    requests: ConsumerRequests = NO_REQUESTS
    claimed_ms: int | None = None


def decide_snapshot(
    name: str,
    trigger: SnapshotTrigger,
    consumer: ConsumerView,
    waiting: Sequence[Waiting],
    *,
    now_ms: int,
    through: Position,
) -> Decision:
    """Fire when a matching event waits of enough tables, whose tick has passed and whose quiet time
    is over, or when a backfill requested it.
    """
    matching = [table for table in waiting if table.count]
    total = sum(table.count for table in matching)
    counted = _counted(total, matching)

    def answer(fires: bool, *reasons: str) -> Decision:
        firings = (Firing(reason=reasons[0], completed=consumer.completed),) if fires else ()
        waits = bool(total or consumer.open or consumer.requests.ids)
        return Decision(
            trigger=name,
            fires=fires,
            reasons=reasons,
            firings=firings,
            through=through,
            waits=waits,
        )

    if hindrance := consumer.blocked or consumer.open or consumer.requests.waiting_for:
        return answer(False, hindrance, *([counted] if total else []))
    if consumer.requests.ids:
        return answer(True, consumer.requests.sentence, *([counted] if total else []))
    if not total:
        return answer(False, _nothing(trigger, waiting))
    first_ts = min(table.first_ts or 0 for table in matching)
    last_ts = max(table.last_ts or 0 for table in matching)
    unchanged = {
        table.table: watched.is_optional
        for table, watched in zip(waiting, trigger.watched, strict=False)
        if not table.count
    }
    paced = _spaced(trigger, consumer.claimed_ms, now_ms) or _paced(
        trigger, now_ms, first_ts, last_ts, unchanged
    )
    if paced:
        return answer(False, f"{counted}; {paced}")
    return answer(True, _counted(total, matching, "arrived"))


class Arrived(NamedTuple):
    """An event that changed data; commit and partition have the id of their table."""

    position: Position
    commit: tuple[int, str | int]
    partition: tuple[int, str]
    added_bytes: int


def end_within(
    bounds: Sequence[int | None],
    arrived: Iterable[Arrived],
    checkpoint: Position,
    through: Position,
) -> Position:
    """The position up to which at most so many commits, partitions and bytes arrived after a
    checkpoint, or one commit of more; `through` where there are no more.

    Args:
        bounds: Those of `SnapshotTrigger.bounds`.
        arrived: Events in commit order. Those of a commit, one for each partition, are never
            divided.
        checkpoint: Before the first of them.
        through: Of the last of them, or after it.
    """
    commits, partitions = set[tuple[int, str | int]](), set[tuple[int, str]]()
    added_bytes = 0
    last = before = checkpoint  # the event before, and the one before the newest commit
    for event in arrived:
        before = before if event.commit in commits else last
        commits.add(event.commit)
        partitions.add(event.partition)
        added_bytes += event.added_bytes
        taken = zip((len(commits), len(partitions), added_bytes), bounds, strict=True)
        if len(commits) > 1 and any(most is not None and one > most for one, most in taken):
            return before
        last = event.position
    return through


def _spaced(trigger: SnapshotTrigger, claimed_ms: int | None, now_ms: int) -> str:
    """Why a trigger may not fire again yet; empty where it may."""
    if trigger.min_time_between is None or claimed_ms is None:
        return ""
    due = from_milliseconds(claimed_ms) + trigger.min_time_between
    if due <= from_milliseconds(now_ms):
        return ""
    return f"fires again from {_shown_time(due)} on, {trigger.min_time_between} after its last execution"


def _paced(
    trigger: SnapshotTrigger,
    now_ms: int,
    first_ts: int,
    last_ts: int,
    unchanged: Mapping[str, bool],
) -> str:
    """Why events that wait since `first_ts`, the newest since `last_ts`, do not fire a trigger yet;
    empty where they do. Of the unchanged tables it is said whether they are optional.
    """
    if trigger.every is not None:
        now = from_milliseconds(now_ms)
        tick = trigger.every.last(now)
        if tick is None or from_milliseconds(first_ts) > tick:
            return _next_tick(trigger.every, now, "the next tick is")
    quiet, waited = (dt.timedelta(milliseconds=now_ms - since) for since in (last_ts, first_ts))
    is_patient = trigger.max_wait is None or waited < trigger.max_wait
    are_left_out = all(unchanged.values()) or not trigger.has_optional
    if not is_patient and are_left_out:
        return ""
    if len(trigger.tables) - len(unchanged) < trigger.needed:
        return f"{', '.join(unchanged)} did not change yet"
    if trigger.wait_after_last is not None and quiet < trigger.wait_after_last:
        newest = _shown_time(from_milliseconds(last_ts))
        return (
            f"waiting until none arrives for {trigger.wait_after_last} (the last one arrived "
            f"{newest})"
        )
    return ""


def _next_tick(every: Schedule, now: dt.datetime, what: str) -> str:
    upcoming = every.next(now)
    return f"{what} {_shown_time(upcoming)}" if upcoming else "the schedule has ended"


def source_rests(every: Schedule | None, asked_ms: int | None, now_ms: int) -> str:
    """Why a source is not to be polled now, which was polled last at that time; empty where it
    is.
    """
    if every is None:
        return ""
    now = from_milliseconds(now_ms)
    tick = every.last(now)
    if tick is not None and (asked_ms is None or from_milliseconds(asked_ms) < tick):
        return ""
    return _next_tick(every, now, "its source is polled next at")


@dataclass(frozen=True, kw_only=True)
class AtomState:
    """What is known of one partition: whether it is there with the tags, and if not, what is known
    instead.
    """

    available: bool
    seen: bool = False
    dropped: bool = False
    newest: str = ""  # the newest partition of the table that has an event, where this one has none


@dataclass(frozen=True, kw_only=True)
class KeyEvidence:
    """What the ledger and the store say of one partition key."""

    key: PartitionKey
    consumer: ConsumerView = field(default_factory=ConsumerView)
    fired: bool = False
    late_events: int = 0
    atoms: Mapping[Atom, AtomState] = field(default_factory=dict)

    def state(self, atom: Atom) -> AtomState:
        return self.atoms.get(atom, AtomState(available=False))


SHOWN = 3  # keys of which is said what they lack
PENDING, EXPIRED, BLOCKED = "pending", "expired", "blocked"  # states of a key that does not fire


def decide_partition(
    name: str,
    trigger: PartitionTrigger,
    keys: Sequence[KeyEvidence],
    *,
    in_flight: int,
    activated_ms: int,
    now_ms: int,
    through: Position,
    blocked: str = "",
    at_rest: int = 0,
    accepts: Callable[[Firing], bool] = lambda firing: True,
) -> Decision:
    """Fire for each complete key that has not fired, oldest first, and for late changes of fired
    keys and what backfills requested.

    So many more keys are `at_rest`: they fired, and nothing is to be done for them. What `accepts`
    says cannot be launched takes no room; it is asked until there is no room left.
    """
    now = from_milliseconds(now_ms)
    firings: list[Firing] = []
    lacking: list[LackingKey] = []
    busy = 0
    # late events, requests, or an open execution, that a blocked consumer must not forget
    kept = False
    for evidence in keys:
        consumer, text = evidence.consumer, evidence.key.text
        hindrance = consumer.requests.waiting_for or consumer.blocked
        if consumer.open and not consumer.blocked:
            busy += 1
        elif hindrance and _is_wanted(trigger, evidence):
            lacking.append(LackingKey(text, BLOCKED, hindrance))
            kept = kept or bool(consumer.open or consumer.requests.ids or evidence.late_events)
        elif reason := _reason(trigger, evidence):
            firings.append(
                Firing(
                    key=text, partition=evidence.key, reason=reason, completed=consumer.completed
                )
            )
        elif not evidence.fired:
            end = _deadline(trigger, evidence.key, activated_ms)
            if end is not None and end < now:
                why = f"expired at {_shown_time(end)}: {_missing(evidence)}"
                lacking.append(LackingKey(text, EXPIRED, why))
            else:
                lacking.append(LackingKey(text, PENDING, _missing(evidence)))
    hindered, waiting = (
        [f"{one.key}: {one.reason}" for one in lacking if one.state == state]
        for state in (BLOCKED, PENDING)
    )
    expired = [f"{one.key} {one.reason}" for one in lacking if one.state == EXPIRED]
    done = at_rest + sum(evidence.fired and not evidence.consumer.open for evidence in keys)
    counts = ", ".join(
        [f"{done} of {at_rest + len(keys)} keys fired"]
        + [
            f"{count} {what}"
            for count, what in ((busy, "in flight"), (len(expired), "expired"))
            if count
        ]
    )
    if blocked:
        return Decision(
            trigger=name,
            fires=False,
            reasons=(blocked, counts),
            through=through,
            waits=True,
            lacking=tuple(lacking),
        )
    chosen, refused = _launchable(firings, max(0, trigger.max_in_flight - in_flight), accepts)
    left = len(firings) - len(chosen) - len(refused)
    more = (
        [
            (
                f"{_keys(left)} more {'is' if left == 1 else 'are'} ready; {trigger.max_in_flight} may "
                f"run at once"
            )
        ]
        if left
        else []
    )
    first = _first([*hindered, *waiting])  # what only a person can move is said first
    return Decision(
        trigger=name,
        fires=bool(chosen),
        reasons=(
            *(firing.reason for firing in chosen),
            *more,
            *first,
            *reversed(expired[-SHOWN:]),
            counts,
        ),
        firings=chosen,
        refused=refused,
        through=through,
        waits=bool(busy or firings or kept),
        lacking=tuple(lacking),
    )


def _is_complete(evidence: KeyEvidence) -> bool:
    return all(evidence.state(atom).available for atom in evidence.key.atoms)


def _is_wanted(trigger: PartitionTrigger, evidence: KeyEvidence) -> bool:
    """Whether a consumer that may not claim is missed: it is at work or requested, or would fire,
    or may have lost late changes.
    """
    consumer = evidence.consumer
    if consumer.open or consumer.requests.waiting_for:
        return True
    return (
        trigger.late is Late.REFIRE or bool(consumer.requests.ids)
        if evidence.fired
        else _is_complete(evidence)
    )


def _reason(trigger: PartitionTrigger, evidence: KeyEvidence) -> str:
    """Why a key fires whose consumer may claim; empty where it does not."""
    text = evidence.key.text
    if not evidence.fired:
        return (
            f"all {len(evidence.key.atoms)} partitions of {text} are there"
            if _is_complete(evidence)
            else ""
        )
    if evidence.consumer.requests.ids:
        return f"{text} is {evidence.consumer.requests.sentence}"
    if trigger.late is Late.REFIRE and evidence.late_events:
        return f"{_events(evidence.late_events)} arrived late for {text}"
    return ""


def _first(sentences: Sequence[str]) -> list[str]:
    left = len(sentences) - SHOWN
    return [
        *sentences[:SHOWN],
        *([f"{_keys(left)} more {'waits' if left == 1 else 'wait'}"] if left > 0 else []),
    ]


def _launchable(
    firings: Sequence[Firing], room: int, accepts: Callable[[Firing], bool]
) -> tuple[tuple[Firing, ...], tuple[Firing, ...]]:
    """The first firings that can be launched, as many as there is room for, and those before the
    last of them that cannot.
    """
    chosen: list[Firing] = []
    refused: list[Firing] = []
    for firing in firings:
        if len(chosen) == room:
            break
        (chosen if accepts(firing) else refused).append(firing)
    return tuple(chosen), tuple(refused)


def _missing(evidence: KeyEvidence) -> str:
    """What a key lacks, first partition named: "47 of 48 partitions; bronze.weather[…, 5] lacks tag
    complete=true".
    """
    states = [(atom, evidence.state(atom)) for atom in evidence.key.atoms]
    there = sum(state.available for _, state in states)
    atom, state = next((atom, state) for atom, state in states if not state.available)
    if state.dropped:
        lack = "was dropped"
    elif state.seen and atom.tags:
        lack = f"lacks tag {atom.tags}"
    else:
        lack = "has no event yet"
    newest = f" (its newest partition is {state.newest})" if state.newest else ""
    return f"{there} of {len(states)} partitions; {atom} {lack}{newest}"


def _deadline(
    trigger: PartitionTrigger, key: PartitionKey, activated_ms: int
) -> dt.datetime | None:
    """When the wait for a key ends."""
    return (
        None
        if trigger.deadline is None
        else max(key.point, from_milliseconds(activated_ms)) + trigger.deadline
    )


def _nothing(trigger: SnapshotTrigger, waiting: Sequence[Waiting]) -> str:
    unmatched = sum(table.unmatched for table in waiting)
    tables = ", ".join(table.table for table in waiting) or ", ".join(trigger.tables)
    wanted = " or ".join(dict.fromkeys(str(one.tags) for one in trigger.watched if one.tags))
    if unmatched and wanted:
        return f"{_events(unmatched)} of {tables} arrived, none with {wanted}"
    return f"nothing new in {tables}"


def _counted(total: int, matching: Sequence[Waiting], verb: str = "") -> str:
    parts = ", ".join(f"{table.count} of {table.table}" for table in matching)
    return f"{_events(total)} {verb or ('waits' if total == 1 else 'wait')} ({parts})"


def _events(count: int) -> str:
    return f"{count} event{'' if count == 1 else 's'}"


def _keys(count: int) -> str:
    return f"{count} key{'' if count == 1 else 's'}"


def _shown_time(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"
