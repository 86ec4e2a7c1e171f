"""What is there of a group's types: of each what is known, what steps did for it, and how it fares."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.streams.event_types import event_types
from lakechime_dagster.schema.moves import misplaced
from lakechime_dagster.schema.repository import NOWHERE, KnownType, TypePlace
from lakechime_dagster.schema.results import COLD
from lakechime_dagster.store.types.waits import Waits, waits

CATCHES_UP = "catches up"
NEVER_WRITTEN = Waits(reason="nothing was written yet", rows=0)


class Fares(StrEnum):
    """How a type fares.

    Attributes:
        OK: Its table holds what came up to its place.
        FAILED: Its newest step could not write it; it keeps its place, and is tried again.
        WAITS: It has no table, or one that is declared elsewhere.
    """

    OK = "ok"
    FAILED = "failed"
    WAITS = "waits"


@dataclass(frozen=True, kw_only=True)
class GroupedType:
    """A type of a group.

    Attributes:
        totals: What all its steps did in sum: rows, written, rescued, discarded; empty before the first.
        waits: What its newest step told of why it wrote nothing.
    """

    group: EventGroup
    known: KnownType
    totals: Mapping[str, int] = field(default_factory=dict, hash=False)
    waits: Waits | None = None

    @property
    def table(self) -> str:
        """Its table's name, be it there yet or not."""
        return f"{self.known.home or self.group.name}.{self.known.table}"

    @property
    def fares(self) -> Fares:
        if self.known.error:
            return Fares.FAILED
        return Fares.OK if self.known.place.commits and not misplaced(self.group, self.known) else Fares.WAITS

    @property
    def reason(self) -> str:
        """Why it is not OK; empty where it is."""
        match self.fares:
            case Fares.OK:
                return ""
            case Fares.FAILED:
                return self.known.error
            case Fares.WAITS:
                return misplaced(self.group, self.known) or (self.waits or NEVER_WRITTEN).reason

    @property
    def left(self) -> str:
        """Why a step left events of it that need nobody: they are cold, or it catches up; empty where none are."""
        if self.fares is not Fares.OK or not self.known.due_ts:
            return ""
        return COLD if self.waits is not None and self.waits.reason == COLD else CATCHES_UP

    def behind(self, newest: TypePlace) -> int:
        """How many versions of the stream's table came behind its place; all, where that table was made anew since."""
        place = self.known.place
        return max(0, newest.version - (place.version if place.uid in (None, newest.uid) else NOWHERE))


def types_of(platform: Platform, group: EventGroup) -> list[GroupedType]:
    """The types that came to a group, by name."""
    types = event_types(platform)
    totals, waiting = types.totals(group.name), waits(types, group.name)
    return [
        GroupedType(group=group, known=known, totals=totals.get(name, {}), waits=waiting.get(name))
        for name, known in types.types(group.name).items()
    ]
