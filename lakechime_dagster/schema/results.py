"""What a step of a group did, type by type."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.schema.conservation import Verified
from lakechime_dagster.schema.producers import Brought
from lakechime_dagster.schema.replay import Replayed
from lakechime_dagster.schema.rescue import Rescue
from lakechime_dagster.triggers.lanes import Committed

TYPE_CAP, FROZEN = "type_cap", "frozen"  # why events of a type wait in the stream's table, until somebody decides
AT_ONCE = 1  # a `due_ts` that is over by any clock
COLD = "cold"  # the same, until there are more of them, or for some time


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What became of the events of one producer.

    Attributes:
        rescued: Rows that have something in `_rescued`.
        reasons: The values that these have there, by why.
    """

    events: int = 0
    rescued: int = 0
    reasons: Mapping[Rescue, int] = field(default_factory=dict, hash=False)

    def __add__(self, other: "Sent") -> "Sent":
        reasons = Counter(self.reasons) + Counter(other.reasons)
        return Sent(events=self.events + other.events, rescued=self.rescued + other.rescued, reasons=reasons)


def both(one: Mapping[str, Sent], other: Mapping[str, Sent]) -> dict[str, Sent]:
    """What became of the events of either."""
    return {who: one.get(who, Sent()) + other.get(who, Sent()) for who in {**one, **other}}


@dataclass(frozen=True, kw_only=True)
class TypeResult:
    """What a step did for one type: its rows in the interval, and where they are.

    Attributes:
        home: The group in whose folder its table lies; empty where that is the one that writes it.
        start: Up to which version of the stream's table it had been read; -1 is none of it.
        end: Up to which it is now; `start` where it failed or waits, before the step's own end where it catches up by parts.
        rows: Of the interval.
        written: Rows of its table; the others are discarded, or wait.
        rescued: Rows that have something in `_rescued`.
        reasons: The values that these have there, by why; of rows that can be read no more they are missing.
        pending: Rows that wait, with `waits` as the reason.
        commits: That hold them, the last one last: of this attempt, and of others that nobody settled.
        error: Why nothing of it was written.
        stack: Where that was raised, in Python and in the JVM.
        left: Rows behind its place that are not written for the error; None where nobody could count them.
        due_ts: When the group is to read on though nothing comes: what is cold by then, what catches up at once. 0 is with the next
            events.
        put_off: With what it failed before, where it was not tried again yet.
        replayed: What came of the replays that were asked for, whose commits are among `commits`.
        producers: Who sent the rows of the interval that are in the table or discarded; those of the fewest in sum.
        brought: What each producer brought to the layout that the step made.
    """

    type: str
    table: str
    start: int
    end: int
    home: str = ""
    rows: int = 0
    written: int = 0
    rescued: int = 0
    reasons: Mapping[Rescue, int] = field(default_factory=dict, hash=False)
    discarded: int = 0
    pending: int = 0
    waits: str = ""
    layout: int = 0
    columns_added: int = 0
    commits: tuple[Committed, ...] = ()
    error: str = ""
    stack: str = field(default="", repr=False)
    left: int | None = 0
    due_ts: int = 0
    put_off: str = ""
    replayed: tuple[Replayed, ...] = ()
    producers: Mapping[str, Sent] = field(default_factory=dict, hash=False)
    brought: Mapping[str, Brought] = field(default_factory=dict, hash=False)

    @property
    def committed(self) -> Committed | None:
        """The last commit; None where there was nothing to write."""
        return self.commits[-1] if self.commits else None

    @property
    def failure(self) -> str:
        """With what it failed, now or when it was tried last; empty where it did not."""
        return self.error or self.put_off

    @property
    def hinders(self) -> str:
        """Why it waits for a person; empty where it does not."""
        return "" if self.waits == COLD else self.waits

    @property
    def catches_up(self) -> bool:
        """Whether rows may lie behind its place at which this step did not look."""
        return bool(self.due_ts) and not self.pending

    @property
    def behind(self) -> int | None:
        """Rows of the stream's table behind its place that are not in its own; None where this step did not count them."""
        if self.put_off or self.catches_up:
            return None
        return self.left if self.error else self.pending

    @property
    def is_balanced(self) -> bool:
        """Whether each row of the interval is in the table, discarded, or waits."""
        return self.rows == self.written + self.discarded + self.pending


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """What a step did for all types of its group.

    Attributes:
        refused: Rows between the group's place and the end that no type could be told of, by reason.
        verified: What was found in a few of the rows that it wrote, of some types.
    """

    types: tuple[TypeResult, ...]
    refused: Mapping[str, int] = field(default_factory=dict)
    verified: tuple[Verified, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
