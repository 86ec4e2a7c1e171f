"""What the comparison of the tables with what must be there finds, and how it is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.compat import StrEnum

Row = Mapping[str, Any]  # column → cell


class Finding(StrEnum):
    """How a table compares; BEHIND differs because it, or an input, has not consumed everything yet."""

    EQUAL = "equal"
    DIFFERS = "differs"
    BEHIND = "behind"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first row, by key, that is not the same: only the cells that differ; no side where the row is absent."""

    key: Row
    expected: Row | None
    actual: Row | None

    def __str__(self) -> str:
        where = ", ".join(f"{name}={value}" for name, value in self.key.items())
        if self.actual is None:
            return f"{where}: is missing"
        if self.expected is None:
            return f"{where}: should not be there"
        cells = ", ".join(f"{name} is {self.actual[name]!r}, should be {value!r}" for name, value in self.expected.items())
        return f"{where}: {cells}"


@dataclass(frozen=True, kw_only=True)
class TableCheck:
    """What the comparison of one table found; `reason` says why a table counts as behind."""

    table: str
    finding: Finding
    expected_rows: int
    actual_rows: int
    difference: Difference | None = None
    reason: str = ""

    def __str__(self) -> str:
        rows = f"{self.actual_rows} rows" if self.finding is Finding.EQUAL else f"{self.actual_rows} of {self.expected_rows} rows"
        parts = [f"{self.table}: {self.finding}, {rows}", self.reason, str(self.difference or "")]
        return "; ".join(part for part in parts if part)
