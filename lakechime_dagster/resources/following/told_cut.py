"""A cut of the database that a table follows, and the place at which the table's messages tell of what it sees."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from lakechime_dagster.cdc.comparing.log_place import StatedPlace
from lakechime_dagster.cdc.comparing.repair import OF_BINLOG, Words
from lakechime_dagster.cdc.comparing.told_place import cut_at
from lakechime_dagster.lake.monitors import Monitor

if TYPE_CHECKING:
    from lakechime_dagster.capture.delta import DeltaLog
    from lakechime_dagster.sources.cut import Cut

STATEMENT_SECONDS = 60


@dataclass(frozen=True)
class ToldCut:
    """A cut, its place in the database's log, and that place as the connector's `source` tells it.

    A message there loses to all changes that the cut does not see, and wins against all that the table's messages told before
    it. Changes that it sees and of which no message had come yet win too, and say the same or come before others that do; key
    changes among them take what their rows were before the cut (`Order.is_read_after`).
    """

    cut: "Cut"
    place: StatedPlace
    at: Mapping[str, Any]


@contextmanager
def cut_told(bronze: "DeltaLog", words: Words, monitor: Monitor, pause: Callable[[float], None]) -> Iterator[ToldCut]:
    """A cut of a table's database, which ends with the context.

    Args:
        bronze: The table of messages.
        words: Of these messages.
        monitor: Which names the database.
        pause: Waits for so many seconds, while transactions that have written to PostgreSQL's table end.

    Raises:
        TableBusyError: they do not.
        UnrepairableError: the messages are of another server.
        SourceUnreadableError: the database cannot be asked.
    """
    from lakechime_dagster.sources.settled import settled

    told = 0 if words.source["connector"] in OF_BINLOG else _newest_told(bronze)  # before the cut, so that it is in the cut
    with settled(monitor.url(os.environ), *monitor.source_table, seconds=STATEMENT_SECONDS, pause=pause) as found:
        yield ToldCut(found.cut, found.place, cut_at(words, found.place, told))


def _newest_told(bronze: "DeltaLog") -> int:
    """The greatest first part of the positions that messages tell, ours too."""
    from lakechime_dagster.capture.rows import TABLE, DeltaRows, column, known

    newest = exp.Max(this=exp.func("array_element", column("position"), exp.Literal.number(1))).as_("newest")
    (row,) = DeltaRows(bronze).query(exp.select(newest).from_(TABLE).where(known("position")))
    return row["newest"] or 0
