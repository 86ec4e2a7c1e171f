"""What a table needs so that a row of it becomes what merging made of it."""

from typing import Any

from lakechime_dagster.cdc.meaning.fold import Row
from lakechime_dagster.cdc.meaning.wire import encoded


class Need:
    """What a row of the table needs.

    Where deleted rows stay, one is written too that ends (`END`), that is there again after that (`RETURN`), or that ended and
    was otherwise than was known (`AMEND`).
    """

    INSERT, UPDATE, DELETE, NOTHING = "I", "U", "D", "="
    END, RETURN, AMEND = "d", "i", "u"


def need_of(before: Row | None, after: Row | None, is_same: bool) -> str | None:
    """What the table's row needs; None where there is none and was none."""
    if before is None:
        return None if after is None else Need.INSERT
    if after is None:
        return Need.DELETE
    return Need.NOTHING if is_same and all(_equal(before.get(name), value) for name, value in after.items()) else Need.UPDATE


def soft_need(need: str | None, had_ended: bool, has_ended: bool) -> str | None:
    """The same of a row that is kept, by whether it had ended before and has now; None of one that ended, and is as it was."""
    match need, had_ended, has_ended:
        case (Need.UPDATE, False, True):
            return Need.END
        case (Need.UPDATE, True, False):
            return Need.RETURN
        case (Need.UPDATE, True, True):
            return Need.AMEND
        case (Need.NOTHING, True, _):
            return None
        case _:
            return need


def _equal(one: Any, other: Any) -> bool:
    return one == other or encoded(one) == encoded(other)
