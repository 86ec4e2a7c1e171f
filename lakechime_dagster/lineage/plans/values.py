"""What a column or an expression of a plan came from."""

from collections.abc import Iterable
from dataclasses import dataclass

from lakechime_dagster.lineage.columns import ColumnLineage, Kind, Source


@dataclass(frozen=True, slots=True)
class Value:
    """Sources with their kinds, and the reasons why they are not all; neither means a constant.

    `foreign` names code that the value went through and nobody looks into; the sources are its arguments. `fields` are those of a
    struct that the plan itself puts together, in order, so that one that is taken out again has its own sources only.
    """

    sources: frozenset[Source] = frozenset()
    opaque: frozenset[str] = frozenset()
    fields: tuple["Value", ...] | None = None
    foreign: frozenset[str] = frozenset()

    @property
    def is_constant(self) -> bool:
        return not (self.sources or self.opaque or self.foreign)

    def then(self, kind: Kind, is_masking: bool = False) -> "Value":
        """This value seen through one more step."""
        stepped = [source.then(kind, is_masking) for source in self.sources]
        if self.fields is None and all(one is before for one, before in zip(stepped, self.sources, strict=True)):
            return self
        return Value(frozenset(stepped), self.opaque, foreign=self.foreign)

    def because(self, *reasons: str) -> "Value":
        """This value, of which something cannot be told for these reasons."""
        return Value(self.sources, self.opaque | frozenset(reasons), foreign=self.foreign)

    def through(self, code: str) -> "Value":
        """What code that nobody looks into makes of this value."""
        return Value(self.then(Kind.TRANSFORMATION).sources, self.opaque, foreign=self.foreign | {code})

    def beside(self, other: "Value") -> "Value":
        """A value that may be either, or is made of both."""
        if self == other:
            return self
        return Value(self.sources | other.sources, self.opaque | other.opaque, foreign=self.foreign | other.foreign)

    def lineage(self, column: str) -> ColumnLineage:
        return ColumnLineage(column=column, sources=tuple(self.sources), opaque=tuple(self.opaque), foreign=tuple(self.foreign))


CONSTANT = Value()
_NOTHING: frozenset[Source] = frozenset()
_NONE: frozenset[str] = frozenset()


def together(values: Iterable[Value]) -> Value:
    """What all of these came from."""
    found = tuple(values)
    if len(found) == 1:
        return found[0]
    return Value(
        _NOTHING.union(*[value.sources for value in found]),
        _NONE.union(*[value.opaque for value in found]),
        foreign=_NONE.union(*[value.foreign for value in found]),
    )
