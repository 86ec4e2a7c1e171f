"""What a step reads of a stream's table in one go, and which types apart from the others, as they are far behind."""

from collections.abc import Mapping
from dataclasses import dataclass

MAX_APART = 4  # parts beside the shared one in a step: what types that are far behind cost those that are not is bounded


@dataclass(frozen=True, kw_only=True)
class Part:
    """Types that are read up to one version of the stream's table, each from behind its own place.

    Attributes:
        starts: The version behind which each is read; one that is not before the end has nothing there.
    """

    starts: Mapping[str, int]
    end: int

    @property
    def behind(self) -> dict[str, int]:
        """The types that have something to be read."""
        return {name: start for name, start in self.starts.items() if start < self.end}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The part that types share that are about where their group is, and those of types that catch up by themselves.

    Types that are in none of them wait for a later step.
    """

    shared: Part
    apart: tuple[Part, ...] = ()


def planned(starts: Mapping[str, int], *, group: int, end: int, max_catchup: int) -> Plan:
    """What a step reads.

    A type that is more than `max_catchup` versions behind the group catches up by so many versions beside those of the step, so
    that it comes nearer whatever comes. Types whose places lie within one such part read it together; the oldest places are first.

    Args:
        starts: The types that are due.
        group: The version up to which the group has read.
        end: Up to which the step reads.
        max_catchup: One or more.
    """
    far = sorted((start, name) for name, start in starts.items() if group - start > max_catchup)
    shared = Part(starts={name: start for name, start in starts.items() if group - start <= max_catchup}, end=end)
    apart: list[Part] = []
    while far and len(apart) < MAX_APART:
        last = far[0][0] + max_catchup + end - group
        apart.append(Part(starts={name: start for start, name in far if start < last}, end=last))
        far = [(start, name) for start, name in far if start >= last]
    return Plan(shared=shared, apart=tuple(apart))
