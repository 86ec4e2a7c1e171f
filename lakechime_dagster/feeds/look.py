"""What asking a feed gives, whatever its kind."""

from dataclasses import dataclass
from typing import Protocol

from lakechime_dagster.triggers.feeds import FeedPlace


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a feed holds now.

    Attributes:
        end: Up to where it can be read; without `problems`, not before the place from which it was looked at.
        came: What lies between that place and the end, in words; empty where nothing does.
        rest: What is there beyond the end and cannot be read yet, in words.
        step_end: Up to where one step reads, where its limit comes before the end.
        left: What a step leaves to the next ones by its limit, in words; empty where it reads all.
        problems: Why it cannot be read on from the place unless a person decides how, each with the choices.
        kept: With problems, from where all that is there and was not read is read on, if what is gone is given up; None where
            it is the same place.
    """

    end: FeedPlace
    came: str = ""
    rest: str = ""
    step_end: FeedPlace | None = None
    left: str = ""
    problems: tuple[str, ...] = ()
    kept: FeedPlace | None = None


class OpenFeed(Protocol):
    """A feed that can be asked."""

    def look(self, place: FeedPlace | None) -> Look:
        """What it holds after a place; None is before everything.

        Raises:
            FeedUnreadableError: it cannot be asked.
        """
        ...
