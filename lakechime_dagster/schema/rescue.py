"""What of an event is in no column: where it was, its text, and why."""

from dataclasses import dataclass

from lakechime_dagster.compat import StrEnum


class Rescue(StrEnum):
    """Why a value is in `_rescued` and in no column.

    Attributes:
        UNKNOWN: There is no column for its path.
        MISMATCH: The columns of its path take no value of its kind.
        INEXACT: The column would hold something else: a double that is not this whole number, text with half of a surrogate pair.
        OVERFLOW: It is a number larger than the column of its path takes.
        CASE: A column for another field has this name but for the letters' case.
        DUPLICATE: Its object has a field of this name further behind.
        CAP: It would have a column, had the table not as many as it may, or as deep ones; or it is more than a VARIANT holds.
        MAP: Its object's fields are ids, and got no further columns.
        FROZEN: The contract lets no column be added.
        PRODUCER_CAP: It is withheld, as those who send it have brought as many columns as they may.
    """

    UNKNOWN = "unknown"
    MISMATCH = "mismatch"
    INEXACT = "inexact"
    OVERFLOW = "overflow"
    CASE = "case"
    DUPLICATE = "duplicate"
    CAP = "cap"
    MAP = "map"
    FROZEN = "frozen"
    PRODUCER_CAP = "producer_cap"


@dataclass(frozen=True)
class Rescued:
    """A value that is in no column: its JSON pointer (RFC 6901) in the event's own spelling, its text, and why."""

    pointer: str
    text: str
    reason: Rescue


def pointer_below(pointer: str, name: str) -> str:
    """The pointer of a field of an object."""
    return f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
