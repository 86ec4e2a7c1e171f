"""Drafts that come by themselves, of a held step, a check of the code or a backfill: what becomes of one whose source has drafted before.

What a person has written, told or ended is never written over by what comes by itself.
"""

import hashlib
from collections.abc import Iterable

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.text import MAX_NAME, shortened, storable
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.notices.changes import MAX_REFS, MAX_TEXT, Change, ChangeKind, ChangeState

MAX_SHOWN = 400  # characters of a source that is too long to be kept as it is


class Drafting(StrEnum):
    """What became of a draft that came by itself.

    DRAFTED: it is a new change. RENEWED: the next version of a draft that nobody but its source has written. KEPT: the draft stays, as
    it says that already or a person has amended it. TOLD: it stays, as it is announced. OVER: it stays done or withdrawn.
    """

    DRAFTED = "drafted"
    RENEWED = "drafted anew"
    KEPT = "kept"
    TOLD = "announced already"
    OVER = "over already"


class Again(StrEnum):
    """When a source whose change is over drafts another one; the one that is over stays as it is.

    AFTER_DONE: that it comes again says that it was not done; one that a person took back stays so. SAID_OTHERWISE: another thing
    than the source said last is another change.
    """

    NEVER = "never"
    AFTER_DONE = "after it is done"
    SAID_OTHERWISE = "said otherwise"


def drafting_of(state: ChangeState, *, is_own: bool, says_same: bool, again: Again) -> Drafting:
    """What becomes of a draft whose source has a change in some state.

    `is_own` says that the change is as its source wrote it, `says_same` that the source said this the last time too.
    """
    if state is ChangeState.ANNOUNCED:
        return Drafting.TOLD
    if state is ChangeState.PLANNED:
        return Drafting.RENEWED if is_own and not says_same else Drafting.KEPT
    is_due = state is ChangeState.DONE if again is Again.AFTER_DONE else again is Again.SAID_OTHERWISE and not says_same
    return Drafting.DRAFTED if is_due else Drafting.OVER


def source_key(source: str, number: int = 1) -> str:
    """The name under which the store keeps the change of that number of a source; each has its own, however long or odd the source is."""
    ending, shown = "" if number == 1 else f" ({number})", storable(source)
    if shown != source or len(shown) > MAX_NAME - len(ending):
        digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        shown = f"{shown[:MAX_SHOWN]}… {digest}"
    return shown + ending


def change_of_itself(kind: ChangeKind, what: str, refs: Iterable[ColumnRef], action: str = "") -> Change:
    """A change that no person writes: its words are cut to what can be kept, and what is too odd or too much to name is its whole table."""
    several = {ref if ref.column is None or _is_kept(ref.column) else ColumnRef(ref.table) for ref in refs}
    if len(several) > MAX_REFS:
        several = {ColumnRef(table) for table in sorted({ref.table for ref in several})[:MAX_REFS]}
    return Change(kind=kind, what=shortened(what, MAX_TEXT), refs=tuple(several), action=action)


def _is_kept(column: str) -> bool:
    return bool(column) and shortened(column, MAX_NAME) == column
