"""How far a load of a whole table has come, which its messages tell themselves, so that another process goes on from there."""

from dataclasses import dataclass, replace

import orjson

from lakechime_dagster.cdc.comparing.compare import Key
from lakechime_dagster.cdc.comparing.log_place import BinlogPlace, StatedPlace, WalPlace
from lakechime_dagster.cdc.order import REPAIRS, Position
from lakechime_dagster.errors import LakeChimeError

LOADS = f"{REPAIRS}load/"  # with which the topic ids of such messages begin
LOAD = "lakechime-load"  # the header that tells how far the load has come with the chunk
ORIGIN = ("lakechime-origin", b"load")


class LoadGapError(LakeChimeError):
    """Changes may be lost between the rows of a load and the first change that was streamed.

    Attributes:
        table: The one to load.
        source: The one of the database, as its messages name it.
        cut: Where the database's log stood.
        first: The first change that was streamed; None where there is none.
    """

    def __init__(self, table: str, source: str, cut: StatedPlace, first: Position | None) -> None:
        self.table, self.source, self.cut, self.first = table, source, str(cut), first
        if first is None:
            why = f"no message of {source} was streamed yet, so that what changes from now on may not be told"
        else:
            begins = BinlogPlace(first) if isinstance(cut, BinlogPlace) else WalPlace(first[0])
            why = f"the stream of {source} begins at {begins}, above {cut}: what changed between them is told by nothing"
        remedy = "start the connector, wait for a change of a row, and load from the server that it reads, or what was dumped since"
        super().__init__(f"{table}: {why}; {remedy}")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a load has come.

    Attributes:
        load: Its id.
        rows: That were told.
        last: The key of the last of them; the next chunk is above it.
        is_last: There was no row above that.
        dump: What the rows were read from, where that was no database (`Dump.identity`).
    """

    load: str
    rows: int = 0
    last: Key | None = None
    is_last: bool = False
    dump: str = ""

    def after(self, keys: list[Key], *, is_last: bool) -> "Progress":
        """The same with a chunk of these keys, which are in order."""
        return replace(self, rows=self.rows + len(keys), last=keys[-1] if keys else self.last, is_last=is_last)

    def to_json(self) -> bytes:
        """As the header of each message of a chunk tells it."""
        told = {"id": self.load, "rows": self.rows, "last": self.last, "is_last": self.is_last}
        return orjson.dumps(told | ({"dump": self.dump} if self.dump else {}))

    @staticmethod
    def from_json(told: bytes) -> "Progress":
        """What a header tells."""
        found = orjson.loads(told)
        return Progress(
            load=found["id"], rows=found["rows"], last=tuple(found["last"]), is_last=found["is_last"], dump=found.get("dump", "")
        )  # fmt: skip


def check_reach(table: str, source: str, cut: StatedPlace, first: Position | None) -> None:
    """Refuse a cut below which the stream does not begin.

    Raises:
        LoadGapError: what lies between them would be told by nothing.
    """
    if first is None or first[: len(cut.position)] > cut.position:
        raise LoadGapError(table, source, cut, first)
