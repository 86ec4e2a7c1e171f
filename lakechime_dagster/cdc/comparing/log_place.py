"""The place of a database's log that a state of it is the state of: whether a change belongs to that state."""

from dataclasses import dataclass

from lakechime_dagster.cdc.order import Position
from lakechime_dagster.cdc.position import binlog_place
from lakechime_dagster.errors import InvalidValueError


@dataclass(frozen=True)
class BinlogPlace:
    """Where the binary log stood: all that lies below is in the cut, nothing else."""

    position: Position

    def __str__(self) -> str:
        return "binlog " + ":".join(map(str, self.position))

    def includes(self, position: Position, transaction: int | None = None) -> bool:
        """Whether a change is in the cut, by its position."""
        return position[: len(self.position)] < self.position


@dataclass(frozen=True)
class TransactionSnapshot:
    """Which transactions the cut of PostgreSQL sees: those below `end` but for the ones that were `open` then.

    All that it sees was committed below the log's place `lsn`; what lies below that place and is not seen, its number tells.
    Numbers are those of the log, of 32 bits, which begin anew.
    """

    lsn: int
    end: int
    open: frozenset[int]

    def __str__(self) -> str:
        without = f" but {', '.join(map(str, sorted(self.open)))}" if self.open else ""
        return f"{WalPlace(self.lsn)}, transactions below {self.end}{without}"

    def includes(self, position: Position, transaction: int | None = None) -> bool:
        """Whether a change is in the cut, by its transaction.

        Raises:
            InvalidValueError: The change tells no transaction.
        """
        if transaction is None:
            raise InvalidValueError("transaction", transaction, "a change of PostgreSQL is told by the number of its transaction")
        ahead = (transaction - self.end) % 2**32 < 2**31
        return not ahead and transaction % 2**32 not in self.open


@dataclass(frozen=True)
class WalPlace:
    """Where the log of PostgreSQL stood: all transactions that were committed up to there are in the state, no other."""

    lsn: int

    def __str__(self) -> str:
        return f"log {self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"

    @property
    def position(self) -> Position:
        """As far as positions tell it: their first part is where the transaction before had ended, so that one above may be below this."""
        return (self.lsn,)


LogPlace = BinlogPlace | TransactionSnapshot
StatedPlace = BinlogPlace | WalPlace  # as a tool writes down of what its dump is the state


def stated_place(text: str) -> StatedPlace:
    """The place that `mysql-bin.000003:1234` names, or PostgreSQL's `0/16B3748`.

    Raises:
        ValueError: The text is neither.
    """
    if binlog := binlog_place(text):
        return BinlogPlace(binlog)
    return WalPlace(lsn_of(text))


def lsn_of(text: str) -> int:
    """A place of PostgreSQL's log as a number.

    Raises:
        ValueError: The text is none.
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)
