"""Which columns look as if they held personal data: by their names, and by how many of their values are valid ones of a category.

Some validators take for personal what often is not: one in two numbers of ten digits is a phone number of somewhere, and every version
of four parts an address of a network. What they say counts where the name says the same.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lakechime_dagster.lake.names import folded
from lakechime_dagster.lineage.personal.leaves import Leaves
from lakechime_dagster.lineage.personal.named import category_of

LEAST = 5  # values, below which a share says nothing
MAX_PATHS = 5_000  # that are looked at
_END = re.compile(r"(:\$)?(\[\])*$")  # behind the last name of a path


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a validator is worth: for which category it speaks from which share of the values on, and whether the name must say so too."""

    category: str
    share: float
    needs_name: bool = False


EVIDENCE: Mapping[str, Evidence] = MappingProxyType({
    "email": Evidence(category="email", share=0.1),
    "iban": Evidence(category="iban", share=0.1),
    "phone": Evidence(category="phone", share=0.1),  # with its country's number
    "card": Evidence(category="card", share=0.8),  # one in eight numbers of sixteen digits passes
    "lettered_id": Evidence(category="national_id", share=0.8),
    "local_phone": Evidence(category="phone", share=0.5, needs_name=True),
    "ip": Evidence(category="ip", share=0.5, needs_name=True),
    "numbered_id": Evidence(category="national_id", share=0.5, needs_name=True),
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A column, or a path into one, that looks personal; of its `values` so many are `valid` ones, 0 where no validator knows them."""

    column: str
    category: str
    by_name: bool
    values: int
    valid: int

    @property
    def share(self) -> float:
        return self.valid / self.values if self.values else 0.0


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What was found in so many rows; `left_out` paths were too many to be looked at."""

    rows: int
    proposals: tuple[Proposal, ...]
    left_out: int = 0


def scanned(
    columns: Iterable[str], rows: Iterable[Mapping[str, object]], looks_like: Callable[[str], Iterable[str]], known: Collection[str] = ()
) -> Scan:
    """Propose columns and paths of some rows, but those that are known or lie within one; of the values nothing is kept but how many.

    Args:
        columns: All that the table has.
        rows: Some of it.
        looks_like: The names in EVIDENCE for which a value speaks.
        known: What is declared or decided.
    """
    leaves, values, valid = Leaves(), Counter[str](dict.fromkeys(columns, 0)), dict[str, Counter[str]]()
    left_out, count = set[str](), 0
    for row in rows:
        count += 1
        for path, text in leaves.of(row):
            if path not in values and len(values) >= MAX_PATHS:
                left_out.add(path)
                continue
            values[path] += 1
            valid.setdefault(path, Counter()).update(looks_like(text))
    taken = [folded(one) for one in known]
    proposals = tuple(
        one
        for path in values
        if not any(folded(path) == name or folded(path).startswith((f"{name}.", f"{name}:", f"{name}[")) for name in taken)
        for one in _proposals(path, values[path], valid.get(path, Counter()))
    )
    return Scan(rows=count, proposals=proposals, left_out=len(left_out))


def _proposals(path: str, values: int, valid: Counter[str]) -> Iterator[Proposal]:
    """One a category, by the best evidence for it."""
    named = category_of(_END.sub("", path).rsplit(".", 1)[-1])
    best: dict[str, int] = {named: 0} if named is not None else {}
    for name, evidence in EVIDENCE.items():
        is_enough = values >= LEAST and valid[name] >= evidence.share * values and (not evidence.needs_name or named == evidence.category)
        if is_enough or evidence.category == named:
            best[evidence.category] = max(best.get(evidence.category, 0), valid[name])
    for category, found in sorted(best.items()):
        yield Proposal(column=path, category=category, by_name=category == named, values=values, valid=found)
