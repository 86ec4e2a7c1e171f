"""Positions: where an event stands in the commit order of its store."""

from dataclasses import dataclass
from typing import ClassVar

from lakechime_dagster.errors import InvalidValueError

MAX_SEQ = 2**63 - 1


@dataclass(frozen=True, order=True)
class Position:
    """A place in the feed, ordered as events became visible: (transaction, sequence).

    A reader that has seen position p is never later shown a new event at or below p. SQLite
    leave `tx_id` at 0. On the wire it is an opaque string.
    """

    tx_id: int
    seq: int

    ORIGIN: ClassVar["Position"]

    @classmethod
    def parse(cls, text: str) -> "Position":
        """The position that `str` wrote."""
        tx_id, dash, seq = text.partition("-") if isinstance(text, str) else ("", "", "")
        digits = dash and all(part.isascii() and part.isdigit() and len(part) <= 19 for part in (tx_id, seq))
        if not digits or int(seq) > MAX_SEQ or int(tx_id) > MAX_SEQ:
            raise InvalidValueError("position", text, "is not a position; give one that an event showed, such as 0-42")
        return cls(int(tx_id), int(seq))

    def __str__(self) -> str:
        return f"{self.tx_id}-{self.seq}"


Position.ORIGIN = Position(0, 0)
