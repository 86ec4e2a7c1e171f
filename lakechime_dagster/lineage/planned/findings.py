"""What a change of the code does to one table: how bad it is, of what, why, and whether a person accepted it."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lineage.columns import ColumnRef

GONE = "is gone"
NO_TABLE = "is no table of the lake any more"
DIGITS = 16
MARKS = re.compile(r" \[([0-9a-f, ]+)\]$")  # at the end of a key


class Class(StrEnum):
    """What a finding is about, the worst first.

    BREAKS: does not resolve any more, or a column that is read is gone or has another type. ROWS: which rows there are, or how they
    are kept. VALUES: what a column holds. UNSURE: it may be any of these, but what is computed cannot be told. INFORMS: no reader
    need do anything.
    """

    BREAKS = "breaks"
    ROWS = "rows change"
    VALUES = "values change"
    UNSURE = "unsure"
    INFORMS = "informs"


ORDER = tuple(Class)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one change does to one table. `because` is the chain of columns or tables by which it is reached, first the change itself.

    `marks` are digests of what the changes that it comes from made, where no words tell it.
    """

    kind: Class
    table: str
    column: str | None
    what: str
    because: tuple[ColumnRef, ...] = ()
    marks: tuple[str, ...] = ()
    owner: str = ""
    accepted: str = ""

    @property
    def key(self) -> str:
        """By which it is accepted: it is another one when anything of it is other, also what cannot be said in words."""
        marks = f" [{', '.join(self.marks)}]" if self.marks else ""
        return f"{self.kind}: {self.ref}: {self.what}{marks}"

    @property
    def ref(self) -> ColumnRef:
        return ColumnRef(self.table, self.column)

    @property
    def takes_away(self) -> bool:
        """Whether a column or a table is no more."""
        return self.what in (GONE, NO_TABLE)


def sorted_findings(several: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first, those of a table together."""
    return tuple(sorted(several, key=lambda one: (ORDER.index(one.kind), one.table, one.column or "", one.what)))


def mark_of(value: object) -> str:
    """A digest of a value that is JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode(errors="surrogatepass")).hexdigest()[:DIGITS]


def marks_in(key: str) -> tuple[str, ...]:
    """The marks that stand in a key."""
    found = MARKS.search(key)
    return tuple(found.group(1).split(", ")) if found is not None else ()
