"""Replays: bringing events that came before into the columns that their type has by now, or into a stream that refused them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.schema.layout import Layout
from lakechime_dagster.schema.shape import covers
from lakechime_dagster.schema.variation import Variation

REBUILT = "rebuilt"  # the fact of a commit that made its table anew


@dataclass(frozen=True, kw_only=True)
class Replay:
    """That somebody wants a type's earlier events read again.

    Attributes:
        is_whole: All of them are; else those that may have a place by now which they had not when they were written.
        is_rebuild: The table is made anew from them, with a layout that is made anew too.
    """

    replay_id: int
    type: str
    is_whole: bool = False
    is_rebuild: bool = False


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a replay did.

    Attributes:
        replaced: Rows of the type's table that say something else now.
        added: Events that had no row, and have one now; of a rebuild without those that no step had read yet.
        removed: Rows of no event of the stream's table, which a rebuild alone takes away.
    """

    replay_id: int
    replaced: int = 0
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, kw_only=True)
class Drained:
    """What a drain did: so many rows that a stream had refused are events by now, and in its table."""

    drain_id: int
    rows: int = 0

    def to_facts(self) -> dict[str, Any]:
        """As a commit tells it."""
        return {"drain": self.drain_id, "drained": self.rows}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Drained | None":
        """What a commit tells; None where it has drained nothing."""
        return cls(drain_id=int(facts["drain"]), rows=int(facts["drained"])) if "drain" in facts else None


def settled_variations(
    variations: Mapping[str, Variation], layouts: Sequence[Layout], oldest: Mapping[str, int]
) -> Collection[str]:  # fmt: skip
    """The variations whose rows no replay would change: all of them were written when each value had a column of its field.

    A column that has a value never gives it up, as layouts only grow.

    Args:
        variations: Those that are known, by hash.
        layouts: All of the type, the first one first.
        oldest: With which number of a layout the oldest row of each variation was written.
    """
    return {
        name for name, number in oldest.items() if name in variations and 0 < number <= len(layouts)
        and covers(layouts[number - 1], variations[name])
    }  # fmt: skip
