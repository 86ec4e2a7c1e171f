"""The total order of the changes of one source: positions of the database's own log, never a time.

Times are not an order: MySQL's have a second's resolution, and a transaction that was held open writes its statements'
times behind those of transactions that were committed meanwhile.
"""

from typing import NamedTuple

Position = tuple[int, ...]  # of the connector, such as (file, byte, row); empty for envelopes without one

REPAIRS = (
    "lakechime-repair/"  # with which the ids of the topics begin by which it is told what was read of a database for a repair or a load
)

# ranks of changes that share a position: what a snapshot ends, a row that it read, a deletion, a new state
BEFORE_READ, READ, DELETE, UPSERT = -1, 0, 1, 2

_OF_WAL = 2  # parts of a position of PostgreSQL: that of its transaction, and its own


class Order(NamedTuple):
    """Where a change stands among those of its source; of two changes the greater one came later.

    An `epoch` begins when a source's positions begin anew. The `rank` orders what shares a position, as the two halves of
    a key change do; envelopes without a position leave it 0 and are ordered by their Kafka coordinate alone.
    """

    epoch: int = 0
    position: Position = ()
    rank: int = 0
    topic: str = ""  # the topic's id
    partition: int = -1
    offset: int = -1
    item: int = 0  # of several in one message

    def is_read_after(self, change: "Order") -> bool:
        """Whether this is a row of PostgreSQL read for a repair when a change had been made above which it does not stand.

        Its position is that of the newest change of which messages had told, and beside it the place in the log where it was read.
        """
        return (
            self.topic.startswith(REPAIRS) and len(self.position) == len(change.position) == _OF_WAL
            and self < change and self.position[1] >= change.position[1]
        )  # fmt: skip

    def before_deletion(self) -> "Order":
        """The bound below which everything came before the deletion at this position: where a key change takes its columns from."""
        if self.position:
            return Order(self.epoch, self.position, DELETE)
        return self._replace(item=self.item - 1)
