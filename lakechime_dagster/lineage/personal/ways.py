"""By which ways values come to a column: each a column of a table that is read, and the functions that are applied to its value.

Functions are followed by which values that differ stay apart, or become one as spellings of the same (`lower`, `trim`). What gives
several people the same, such as the first letters of a name, is no way: who asks for one of them would be shown all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Kind


class Step(NamedTuple):
    """A function of a value, by the name of its class in Spark, and its constants before and behind the value, in order."""

    function: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Way(NamedTuple):
    """A column, or a path into one, and what is applied to its value, the first function first."""

    source: ColumnRef
    steps: tuple[Step, ...] = ()


class Lost(NamedTuple):
    """That values of a column come on in a way that is not followed, and why; None as its column where it is not known which."""

    source: ColumnRef | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Ways:
    """All ways to one column; a value is there by any of them. `fields` are those of a struct, by name."""

    several: frozenset[Way] = frozenset()
    lost: frozenset[Lost] = frozenset()
    fields: Mapping[str, "Ways"] = field(default_factory=dict, hash=False)

    def beside(self, other: "Ways") -> "Ways":
        """Where a value comes by one of two."""
        names = {*self.fields, *other.fields}
        fields = {name: self.fields.get(name, NO_WAY).beside(other.fields.get(name, NO_WAY)) for name in names}
        return Ways(several=self.several | other.several, lost=self.lost | other.lost, fields=fields)

    def then(self, step: Step) -> "Ways":
        """The same after one more function."""
        return replace(self.unnamed("a struct"), several=frozenset(Way(source, (*steps, step)) for source, steps in self.several))

    def unnamed(self, why: str) -> "Ways":
        """The same without fields of a struct, which are lost by what is done to the struct."""
        lost = frozenset().union(*(one.losing(why).lost for one in self.fields.values())) if self.fields else frozenset()
        return Ways(several=self.several, lost=self.lost | lost)

    def losing(self, why: str) -> "Ways":
        """What is left where something is done to the value that is not followed."""
        flat = self.unnamed(why)
        return Ways(lost=flat.lost | {Lost(one.source, why) for one in flat.several})

    def into(self, suffix: str) -> "Ways":
        """The ways to a part of the value; of one that something was applied to no part is known."""
        whole = {one for one in self.several if not one.steps}
        parts = {Way(ColumnRef(one.source.table, f"{one.source.column}{suffix}")) for one in whole}
        lost = {Lost(one.source, "a part of what a function gave") for one in self.several - whole}
        return Ways(several=frozenset(parts), lost=self.lost | lost)


NO_WAY = Ways()


def together(several: Iterable[Ways]) -> Ways:
    """Where a value comes by any of them."""
    made = NO_WAY
    for one in several:
        made = made.beside(one)
    return made


def told_ways(lineage: ColumnLineage) -> Ways:
    """The ways of which lineage alone tells: those by which the value stays as it is."""
    direct = [one for one in lineage.sources if one.kind.is_direct]
    same = {Way(one.ref) for one in direct if one.kind is Kind.IDENTITY and not one.is_masking and one.ref.column is not None}
    lost = {Lost(one.ref, "its expression is not known") for one in direct if Way(one.ref) not in same}
    return Ways(several=frozenset(same), lost=frozenset({*lost, *(Lost(None, why) for why in lineage.not_known)}))
