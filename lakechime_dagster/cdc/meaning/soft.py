"""What a set of changes means where rows stay that the database deleted: of each key the row that is there, or that was there last.

A row that was deleted has the values that it had just before, by all changes below the deletion that took it, and is there
unless it waits for a column. A deletion or truncation that finds no row changes nothing: the one that took the row counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakechime_dagster.cdc.change import Key
from lakechime_dagster.cdc.meaning import fold
from lakechime_dagster.cdc.meaning.events import states_of
from lakechime_dagster.cdc.meaning.fold import AFTER_ALL, Ended, Image, Kept
from lakechime_dagster.cdc.order import Order


@dataclass(frozen=True)
class Soft:
    """That a table keeps deleted rows, and when truncations were, by their source and order."""

    truncated_at: Mapping[tuple[str, Order], int | None] = field(default_factory=dict)

    def image(self, kept: Kept, key: Key, below: Order = AFTER_ALL) -> Image:
        """What is known of a key's row by the changes below an order; of one that does not live as it was, and how it ended."""
        image = kept.image(key, below)
        if image.upserted is not None or key not in kept.windows:
            return image
        was = None
        for state in states_of(kept, self.truncated_at, key, below):
            if state.image.upserted is not None:
                was = state.image
            elif was is not None and was.ended is None and state.event is not None:
                was = replace(was, ended=Ended(state.event.order, state.event.at))
        return was or image

    def collected(self, kept: Kept, source: str, frontier: Order) -> Kept:
        """What is kept once nothing of a source is expected below the frontier any more; see `fold.collected`."""
        return fold.collected(kept, source, frontier, self.image)
