"""Decides whether the evidence fires a trigger, and explains why or why not."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakechime_dagster.dce.events import Position, RegisteredEvent
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.consumers import NO_REQUESTS, Checkpoint, ConsumerRequests, SourceOffsets
from lakechime_dagster.triggers.schedule import Schedule, from_milliseconds, to_milliseconds
from lakechime_dagster.triggers.triggers import FireKey, Late, PartitionTrigger, SnapshotTrigger

AT_THE_LATEST = dt.timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Unread:
    """How many such events of one table wait, when they were registered, and which columns they changed."""

    count: int = 0
    first_ts: int | None = None
    last_ts: int | None = None
    columns: tuple[str, ...] = ()


NOTHING_UNREAD = Unread()


def due_ms(unread: Unread, every: Schedule | None) -> int:
    """When they wake the consumer all the same: a day after the first of them, or at the last grid point before that.

    Where no grid point is within that day, it is no use to wait: they wake it as any other event.
    """
    assert unread.first_ts is not None
    first = from_milliseconds(unread.first_ts)
    latest = first + AT_THE_LATEST
    if every is None:
        return to_milliseconds(latest)
    point = every.last(latest)
    return to_milliseconds(point) if point is not None and point > first else unread.first_ts


COMPACTED = "its earlier history is compacted: `store expire` kept only the tags that triggers asked for then"


@dataclass(frozen=True, kw_only=True)
class Firing:
    """One execution that should be claimed: its consumer's key, and why.

    `completed` is how many steps of the consumer the decision knew of: a consumer that moved on since needs another decision. `source`
    is up to where the subscription's source is to be read, which is asked before a claim, never within; the source `has_more` where a step
    does not take all that it holds.
    """

    key: str = ""
    fire_key: FireKey | None = None
    reason: str
    completed: int | None = None
    offsets: SourceOffsets | None = None
    has_more: bool = False


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What an evaluation found. `reasons` is never empty; the first sentence says most.

    `refused` would fire, could it be launched. `through` is the position up to which the evaluation looked; `waits` says
    that events up to there may still fire the trigger later, so that they must be looked at again.
    """

    trigger: str
    fires: bool
    reasons: tuple[str, ...]
    firings: tuple[Firing, ...] = ()
    refused: tuple[Firing, ...] = ()
    events: tuple[RegisteredEvent, ...] = ()
    through: Position = Position.ORIGIN
    waits: bool = False

    @property
    def sentence(self) -> str:
        return "; ".join(self.reasons)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The matching events of one table after a consumer's checkpoint: how many, and their registration times.

    `unread` are those beside them that changed only columns that the consumer does not read.
    """

    table: str
    count: int = 0
    first_ts: int | None = None
    last_ts: int | None = None
    unmatched: int = 0
    unread: Unread = NOTHING_UNREAD

    @property
    def woken(self) -> "Waiting":
        """The same with what is not read among what is."""
        if not self.unread.count:
            return self
        first = [one for one in (self.first_ts, self.unread.first_ts) if one is not None]
        last = [one for one in (self.last_ts, self.unread.last_ts) if one is not None]
        return replace(
            self,
            count=self.count + self.unread.count,
            first_ts=min(first, default=None),
            last_ts=max(last, default=None),
            unread=NOTHING_UNREAD,
        )


@dataclass(frozen=True, kw_only=True)
class ConsumerView:
    """What the ledger says of a consumer when its trigger is evaluated.

    `blocked` is a sentence when the consumer may not claim (paused, held, stale); `open` one when an execution is open. A consumer
    that is held is both: its open execution waits for a person. `requests` are those of backfills that its next claim takes.
    """

    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    completed: int = 0
    open: str = ""
    blocked: str = ""
    requests: ConsumerRequests = NO_REQUESTS


def decide_snapshot(
    name: str, trigger: SnapshotTrigger, consumer: ConsumerView, waiting: Sequence[Waiting], *, now_ms: int, through: Position
) -> Decision:
    """Fire when a matching event waits whose grid point has come and whose quiet time is over, or when a backfill ordered it.

    Events of columns that the consumer does not read fire nothing, until they would have waited for more than a day.
    """
    unread = [table for table in waiting if table.unread.count]
    read_at = min((due_ms(table.unread, trigger.every) for table in unread), default=0)
    if consumer.requests.ids or now_ms >= read_at:
        waiting, unread = [table.woken for table in waiting], []
    matching = [table for table in waiting if table.count]
    total = sum(table.count for table in matching)
    counted = _counted(total, matching)
    passed_over = [_passed_over(name, unread, read_at)] if unread else []

    def answer(fires: bool, *reasons: str) -> Decision:
        firings = (Firing(reason=reasons[0], completed=consumer.completed),) if fires else ()
        waits = bool(total or unread or consumer.open or consumer.requests.ids)
        reasons = (*reasons, *passed_over)
        return Decision(trigger=name, fires=fires, reasons=reasons, firings=firings, through=through, waits=waits)

    if hindrance := consumer.blocked or consumer.open or consumer.requests.held_back:
        return answer(False, hindrance, *([counted] if total else []))
    if consumer.requests.ids:
        return answer(True, consumer.requests.sentence, *([counted] if total else []))
    if not total:
        return answer(False, *([] if unread else [_nothing(trigger, waiting)]))
    now = from_milliseconds(now_ms)
    first_ts = min(table.first_ts or 0 for table in matching)
    last_ts = max(table.last_ts or 0 for table in matching)
    if trigger.every is not None:
        point = trigger.every.last(now)
        if point is None or from_milliseconds(first_ts) > point:
            upcoming = trigger.every.next(now)
            when = f"the next grid point is {_shown_time(upcoming)}" if upcoming else "the schedule has ended"
            return answer(False, f"{counted}; {when}")
    if trigger.wait_after_last is not None:
        quiet = dt.timedelta(milliseconds=now_ms - last_ts)
        waited = dt.timedelta(milliseconds=now_ms - first_ts)
        if quiet < trigger.wait_after_last and (trigger.max_wait is None or waited < trigger.max_wait):
            return answer(
                False,
                f"{counted}; waiting until none came for {trigger.wait_after_last} (last one {_shown_time(from_milliseconds(last_ts))})",
            )
    return answer(True, _counted(total, matching, "came"))


def source_rests(every: Schedule | None, asked_ms: int | None, now_ms: int) -> str:
    """Why a source is not to be asked now, which was asked last at that time; empty where it is."""
    if every is None:
        return ""
    now = from_milliseconds(now_ms)
    point = every.last(now)
    if point is not None and (asked_ms is None or from_milliseconds(asked_ms) < point):
        return ""
    upcoming = every.next(now)
    return f"its source is asked next at {_shown_time(upcoming)}" if upcoming else "the schedule has ended"


@dataclass(frozen=True, kw_only=True)
class AtomState:
    """What is known of one partition: whether it is there with the tags, and if not, what is known instead.

    Of events that are `compacted` only the tags were kept that triggers asked for when they expired.
    """

    available: bool
    seen: bool = False
    dropped: bool = False
    compacted: bool = False
    near_miss: str = ""


@dataclass(frozen=True, kw_only=True)
class KeyEvidence:
    """What the ledger and the store say of one fire key."""

    key: FireKey
    consumer: ConsumerView = field(default_factory=ConsumerView)
    fired: bool = False
    late_events: int = 0
    atoms: Mapping[Atom, AtomState] = field(default_factory=dict)


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
    accepts: Callable[[Firing], bool] = lambda firing: True,
) -> Decision:
    """Fire for each complete key that has not fired, oldest first, and for late changes of fired keys and what backfills ordered.

    What `accepts` says cannot be launched takes no room; it is asked until there is no room left.
    """
    firings: list[Firing] = []
    blocked_keys: list[str] = []
    waiting: list[str] = []
    expired: list[str] = []
    done = busy = 0
    kept = False  # late events, requests, or an open step, that a blocked consumer must not forget
    for evidence in keys:
        if evidence.consumer.open and evidence.consumer.blocked:
            blocked_keys.append(f"{evidence.key.text}: {evidence.consumer.blocked}")
            kept = True
        elif evidence.consumer.open:
            busy += 1
        elif evidence.consumer.requests.held_back:
            done += evidence.fired
            blocked_keys.append(f"{evidence.key.text}: {evidence.consumer.requests.held_back}")
            kept = True
        elif evidence.fired:
            done += 1
            is_ordered = bool(evidence.consumer.requests.ids)
            if (trigger.late is Late.REFIRE or is_ordered) and evidence.consumer.blocked:
                blocked_keys.append(f"{evidence.key.text}: {evidence.consumer.blocked}")
                kept = kept or bool(evidence.late_events) or is_ordered
            elif is_ordered:
                firings.append(_firing(evidence, f"{evidence.key.text} is {evidence.consumer.requests.sentence}"))
            elif trigger.late is Late.REFIRE and evidence.late_events:
                reason = f"{_events(evidence.late_events)} came late for {evidence.key.text}"
                firings.append(_firing(evidence, reason))
        elif all(evidence.atoms.get(atom, AtomState(available=False)).available for atom in evidence.key.atoms):
            if evidence.consumer.blocked:
                blocked_keys.append(f"{evidence.key.text}: {evidence.consumer.blocked}")
            else:
                reason = f"all {len(evidence.key.atoms)} partitions of {evidence.key.text} are there"
                firings.append(_firing(evidence, reason))
        elif (end := _deadline(trigger, evidence.key, activated_ms)) is not None and end < from_milliseconds(now_ms):
            expired.append(f"{evidence.key.text} expired at {_shown_time(end)}: {_missing(trigger, evidence)}")
        else:
            waiting.append(f"{evidence.key.text}: {_missing(trigger, evidence)}")
    waiting = [*blocked_keys, *waiting]  # what only a person can move is said first
    counts = (
        f"{done} of {len(keys)} keys fired" + (f", {busy} in flight" if busy else "") + (f", {len(expired)} expired" if expired else "")
    )
    if blocked:
        return Decision(trigger=name, fires=False, reasons=(blocked, counts), through=through, waits=True)
    room = max(0, trigger.max_in_flight - in_flight)
    chosen, refused = _launchable(firings, room, accepts)
    reasons = [firing.reason for firing in chosen]
    left = len(firings) - len(chosen) - len(refused)
    if left:
        reasons.append(f"{_keys(left)} more {'is' if left == 1 else 'are'} ready; {trigger.max_in_flight} may run at once")
    reasons += waiting[:3]
    if len(waiting) > 3:
        reasons.append(f"{_keys(len(waiting) - 3)} more {'waits' if len(waiting) == 4 else 'wait'}")
    reasons += reversed(expired[-3:])
    return Decision(
        trigger=name,
        fires=bool(chosen),
        reasons=(*reasons, counts),
        firings=chosen,
        refused=refused,
        through=through,
        waits=bool(busy or firings or kept),
    )


def _launchable(firings: Sequence[Firing], room: int, accepts: Callable[[Firing], bool]) -> tuple[tuple[Firing, ...], tuple[Firing, ...]]:
    """The first firings that can be launched, as many as there is room for, and those before the last of them that cannot."""
    chosen: list[Firing] = []
    refused: list[Firing] = []
    for firing in firings:
        if len(chosen) == room:
            break
        (chosen if accepts(firing) else refused).append(firing)
    return tuple(chosen), tuple(refused)


def _firing(evidence: KeyEvidence, reason: str) -> Firing:
    return Firing(key=evidence.key.text, fire_key=evidence.key, reason=reason, completed=evidence.consumer.completed)


def _missing(trigger: PartitionTrigger, evidence: KeyEvidence) -> str:
    """What a key lacks, first partition named: "47 of 48 partitions; bronze.weather[…, 5] lacks tag complete=true"."""
    states = [(atom, evidence.atoms.get(atom, AtomState(available=False))) for atom in evidence.key.atoms]
    there = sum(state.available for _, state in states)
    atom, state = next((atom, state) for atom, state in states if not state.available)
    if state.dropped:
        lack = "was dropped"
    elif state.seen and trigger.tags:
        lack = f"lacks tag {', '.join(f'{key}={value}' for key, value in trigger.tags.items())}"
        lack += f" ({COMPACTED})" if state.compacted else ""
    else:
        lack = "has no event yet"
    near = f" (there is {state.near_miss}, of another type)" if state.near_miss else ""
    return f"{there} of {len(states)} partitions; {atom} {lack}{near}"


def _deadline(trigger: PartitionTrigger, key: FireKey, activated_ms: int) -> dt.datetime | None:
    """When the wait for a key ends."""
    return None if trigger.deadline is None else max(key.point, from_milliseconds(activated_ms)) + trigger.deadline


def _nothing(trigger: SnapshotTrigger, waiting: Sequence[Waiting]) -> str:
    unmatched = sum(table.unmatched for table in waiting)
    tables = ", ".join(table.table for table in waiting) or ", ".join(trigger.tables)
    if unmatched and trigger.tags:
        wanted = ", ".join(f"{key}={value}" for key, value in trigger.tags.items())
        return f"{_events(unmatched)} of {tables} came, none with {wanted}"
    return f"nothing new in {tables}"


def _counted(total: int, matching: Sequence[Waiting], verb: str = "") -> str:
    parts = ", ".join(f"{table.count} of {table.table}" for table in matching)
    return f"{_events(total)} {verb or ('waits' if total == 1 else 'wait')} ({parts})"


def _passed_over(name: str, tables: Sequence[Waiting], read_at: int) -> str:
    """What does not wake a consumer, and until when at the latest."""
    count = sum(table.unread.count for table in tables)
    columns = ", ".join(f"{table.table}.{column}" for table in tables for column in table.unread.columns)
    they, are = ("it", "is") if count == 1 else ("they", "are")
    at = _shown_time(from_milliseconds(read_at))
    return f"{_events(count)} changed only what {name} does not read ({columns}); {they} {are} read with the next, at the latest at {at}"


def _events(count: int) -> str:
    return f"{count} event{'' if count == 1 else 's'}"


def _keys(count: int) -> str:
    return f"{count} key{'' if count == 1 else 's'}"


def _shown_time(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"
