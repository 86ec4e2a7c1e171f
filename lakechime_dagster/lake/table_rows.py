"""Tables as feeds: rows that others append to a table of the lake, a message each."""

from dataclasses import dataclass, field

from lakechime_dagster.dce.store import NamedTable
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.feeds import Feed, check_every
from lakechime_dagster.lake.names import checked_table_name, table_of_lake
from lakechime_dagster.triggers.grid import Schedule


@dataclass(frozen=True)
class TableRows:
    """The rows of a Delta table to which others append, each with a message in a column of text or bytes.

    Attributes:
        table: The table, or its name; it is declared in the same lake.
        payload: The column, of STRING or BINARY.
        every: How often new rows are read, such as `every(minutes=5)`; by default at each evaluation of its trigger.
    """

    table: str | NamedTable
    payload: str = field(default="payload", kw_only=True)
    every: Schedule | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        name = self.table if isinstance(self.table, str) else table_of_lake("TableRows", "table", self.table)
        object.__setattr__(self, "table", checked_table_name(name, "TableRows"))
        if not isinstance(self.payload, str) or not self.payload.strip():
            raise DeclarationError(f"TableRows {self.table}", "payload", f"{shown(self.payload)} is not the name of a column")
        check_every(f"TableRows {self.table}", self.every)

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self.table)

    def __str__(self) -> str:
        return f"{self.payload} of table {self.name}"


AnySource = Feed | TableRows
