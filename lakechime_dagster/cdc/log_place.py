"""The place of a database's log that a state of it is the state of: whether a change belongs to that state."""

from dataclasses import dataclass

from lakechime_dagster.cdc.order import Position
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
        return f"log {self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}, transactions below {self.end}{without}"

    def includes(self, position: Position, transaction: int | None = None) -> bool:
        """Whether a change is in the cut, by its transaction.

        Raises:
            InvalidValueError: The change tells no transaction.
        """
        if transaction is None:
            raise InvalidValueError("transaction", transaction, "a change of PostgreSQL is told by the number of its transaction")
        ahead = (transaction - self.end) % 2**32 < 2**31
        return not ahead and transaction % 2**32 not in self.open


LogPlace = BinlogPlace | TransactionSnapshot
