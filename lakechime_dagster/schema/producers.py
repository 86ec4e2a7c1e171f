"""Who sends a type's events: what each producer brought first, and of what no column is made as he has brought too many.

A column is on the account of the first in a slice who sends what it holds and has room for one more. Where nobody has room it is
withheld, until somebody else sends it, or a person pins its path. What no producer of the slice sends is on nobody's account.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakechime_dagster.lake.contracts import Contract
from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.layout import Column, Holds, Layout, next_layout
from lakechime_dagster.schema.observed import Observed, Pair
from lakechime_dagster.schema.variation import ELEMENT, ROOT, Variation, field_path

NOBODY = ""  # who sends events that tell no producer
OTHER = "(other)"  # who are told in sum
Withheld = Mapping[Pair, str]  # paths with kinds that get no column, each with who sends it


@dataclass(frozen=True, kw_only=True)
class Brought:
    """What a producer brought to a type first: columns of single values, and siblings, which are conflicts."""

    columns: int = 0
    conflicts: int = 0

    def __add__(self, other: "Brought") -> "Brought":
        return Brought(columns=self.columns + other.columns, conflicts=self.conflicts + other.conflicts)


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """The producers of a type as a step finds them.

    Attributes:
        cap: The columns that one may bring; None for any number.
        columns: Those that each has brought.
        sent: Variations of a slice, with who sends them; who sent one first comes before the others.
    """

    cap: int | None = None
    columns: Mapping[str, int] = field(default_factory=dict)
    sent: Sequence[tuple[Variation, Sequence[str]]] = ()


@dataclass(frozen=True, kw_only=True)
class Allotted:
    """A layout, what is withheld of it, and what each producer brought to it."""

    layout: Layout
    withheld: Withheld
    brought: Mapping[str, Brought]


def allotted(layout: Layout, observed: Observed, contract: Contract, withheld: Withheld, accounts: Accounts) -> Allotted:
    """The next layout, in which no producer brings columns beyond the cap.

    The layout is that of what was observed without what is withheld, and of nothing else; the same arguments give the same.
    """
    senders = _Senders(accounts, _lacking(layout, observed) if accounts.sent else frozenset())
    kept = {} if accounts.cap is None else {pair: who for pair, who in withheld.items() if senders.is_kept(pair, contract)}
    while True:
        grown = next_layout(layout, observed.without(kept), contract)
        brought, beyond = _billed(layout, grown, observed, contract, kept, senders)
        if not beyond:
            taken = _by_path(grown) if kept else {}
            still = {pair: who for pair, who in kept.items() if not any(one.takes(pair[1]) for one in taken.get(pair[0], ()))}
            return Allotted(layout=grown, withheld=still, brought=brought)
        kept |= beyond  # each time more, of which there is an end


class _Senders:
    """Who sends what, the first one first, and whose account has room."""

    def __init__(self, accounts: Accounts, asked: frozenset[Pair]) -> None:
        self.cap, self.columns = accounts.cap, accounts.columns
        self.sent: dict[Pair, dict[str, tuple[int, int]]] = {}
        for at, (variation, several) in enumerate(accounts.sent):
            for pair in variation.kinds & asked:
                for number, who in enumerate(several):
                    self.sent.setdefault(pair, {}).setdefault(who, (at, number))

    def of(self, pairs: Sequence[Pair]) -> list[str]:
        """Who sends any of these."""
        found: dict[str, tuple[int, int]] = {}
        for pair in pairs:
            for who, at in self.sent.get(pair, {}).items():
                found[who] = min(at, found.get(who, at))
        return sorted(found, key=found.__getitem__)

    def has_room(self, who: str, brought: Mapping[str, Brought]) -> bool:
        return self.cap is None or self.columns.get(who, 0) + (brought[who].columns if who in brought else 0) < self.cap

    def is_kept(self, pair: Pair, contract: Contract) -> bool:
        """Whether what was withheld stays so for all that comes now."""
        return pair[0] not in contract.pins and not any(self.has_room(who, {}) for who in self.of([pair]))


def _billed(
    before: Layout, after: Layout, observed: Observed, contract: Contract, kept: Withheld, senders: _Senders
) -> tuple[dict[str, Brought], dict[Pair, str]]:
    """On whose account each new column is, and what is beyond all accounts."""
    brought, beyond = dict[str, Brought](), dict[Pair, str]()
    if after == before:
        return brought, beyond
    had = _by_path(before)
    for path, column in columns_of(after):
        old = had.get(path, [])
        if column.holds in {one.holds for one in old} or path in contract.pins or not (column.is_single or column.is_sibling):
            continue
        pairs = [
            (path, kind) for kind in sorted(observed.paths[path].kinds)
            if _brings(kind, column) and (path, kind) not in kept and not any(one.takes(kind) for one in old)
        ]  # fmt: skip
        several = senders.of(pairs)
        payer = next((who for who in several if not column.is_single or senders.has_room(who, brought)), None)
        if payer is not None:
            mine = Brought(columns=int(column.is_single), conflicts=int(column.is_sibling))
            brought[payer] = brought.get(payer, Brought()) + mine
        elif several:
            beyond |= {pair: next(iter(senders.of([pair])), several[0]) for pair in pairs}
    return brought, beyond


def _lacking(layout: Layout, observed: Observed) -> frozenset[Pair]:
    """What was observed and no column takes: of all else nobody needs to know who sends it."""
    there = _by_path(layout)
    return frozenset(
        (path, kind) for path, seen in observed.paths.items() for kind in seen.kinds
        if kind is not Kind.NULL and not any(one.takes(kind) for one in there.get(path, ()))
    )  # fmt: skip


def _brings(kind: Kind, column: Column) -> bool:
    """Whether values of a kind make such a column; the text of any value is made by objects alone, as pins are left out."""
    return kind is Kind.OBJECT if column.holds is Holds.JSON else column.takes(kind)


def columns_of(layout: Layout) -> Iterator[tuple[str, Column]]:
    """All columns of a layout, those of single values and those that hold others, with their paths."""
    waiting = [(field_path(ROOT, one.field), one) for one in reversed(layout.columns)]
    while waiting:
        path, column = waiting.pop()
        yield path, column
        waiting += [(field_path(path, one.field), one) for one in reversed(column.fields)]
        waiting += [(path + ELEMENT, column.element)] if column.element is not None else []


def _by_path(layout: Layout) -> dict[str, list[Column]]:
    found: dict[str, list[Column]] = {}
    for path, column in columns_of(layout):
        found.setdefault(path, []).append(column)
    return found
