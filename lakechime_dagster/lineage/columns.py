"""A column of a data set, and how a column of another one came from it; the kinds are those of OpenLineage's column lineage 1-2-0."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering

from lakechime_dagster.compat import StrEnum


@total_ordering
@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column, or with None as `column` the data set itself.

    `table` is the name of a table of the lake, or of a data set outside: its namespace, a slash and its name there.
    """

    table: str
    column: str | None = None

    def __lt__(self, other: "ColumnRef") -> bool:
        """A data set comes before its columns."""
        return (self.table, self.column is not None, self.column or "") < (other.table, other.column is not None, other.column or "")

    def __str__(self) -> str:
        return self.table if self.column is None else f"{self.table}.{self.column}"


class Kind(StrEnum):
    """How a source takes part; the first three are DIRECT, the others INDIRECT.

    IDENTITY: the value as it is. TRANSFORMATION: a function of it. AGGREGATION: of it in several rows. INDIRECT ones say
    which rows there are, or which of several values is taken. DRIVER is ours: a value that went through the driver program.
    """

    IDENTITY = "identity"
    TRANSFORMATION = "transformation"
    AGGREGATION = "aggregation"
    JOIN = "join"
    GROUP_BY = "group_by"
    FILTER = "filter"
    SORT = "sort"
    WINDOW = "window"
    CONDITIONAL = "conditional"
    DRIVER = "driver"

    @property
    def is_direct(self) -> bool:
        return self in _DIRECT

    def then(self, outer: "Kind") -> "Kind":
        """The kind of a source of a source: INDIRECT stays so, of two DIRECT ones the stronger holds."""
        if self is outer or self not in _DIRECT:
            return self
        if outer not in _DIRECT:
            return outer
        return max(self, outer, key=_DIRECT.index)


_DIRECT = (Kind.IDENTITY, Kind.TRANSFORMATION, Kind.AGGREGATION)
Step = tuple[Kind, bool]  # how a value goes on, and whether it is masked by that


def after(inner: Step, outer: Step) -> Step:
    """One step and then another. Of what is masked the kind is that of what masks it, as the greatest hash is no count."""
    (kind, was_masked), (later, is_masked) = inner, outer
    if not (was_masked or is_masked) or not (kind.is_direct and later.is_direct):
        return kind.then(later), was_masked or is_masked
    is_counted = (was_masked and kind is Kind.AGGREGATION) or (is_masked and later is Kind.AGGREGATION)
    return Kind.AGGREGATION if is_counted else Kind.TRANSFORMATION, True


@dataclass(frozen=True, order=True, slots=True)
class Source:
    """A column, or a whole data set, that takes part in a column or in a statement.

    `is_masking` says that its value cannot be told from the outcome: of an AGGREGATION as it was counted, else as of a hash.
    """

    ref: ColumnRef
    kind: Kind
    is_masking: bool = False

    def then(self, outer: Kind, is_masking: bool = False) -> "Source":
        """The same source seen through one more step."""
        kind, masks = after((self.kind, self.is_masking), (outer, is_masking))
        return self if kind is self.kind and masks == self.is_masking else Source(self.ref, kind, masks)

    @property
    def order(self) -> tuple[str, str, Kind, bool]:
        """By which sources are told; a data set comes before its columns."""
        return self.ref.table, self.ref.column or "", self.kind, self.is_masking


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnLineage:
    """What one column of a target came from: sources, in order and each once; or a constant; or what could not be told.

    `opaque` holds reasons: what the column came from is not, or not only, the sources. `foreign` names code that nobody looks
    into, such as a UDF: what it does with the sources is not known, but they are all there are. Never is a column silently
    without any of them.
    """

    column: str
    sources: tuple[Source, ...] = ()
    opaque: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", tuple(sorted(set(self.sources), key=lambda one: one.order)))
        for name in ("opaque", "foreign"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))

    @property
    def is_constant(self) -> bool:
        return not self.not_known and not any(source.kind.is_direct for source in self.sources)

    @property
    def not_known(self) -> tuple[str, ...]:
        """All that is not known of it: where else it came from, and what was done with its sources."""
        return self.opaque + self.foreign

    def joined(self, other: "ColumnLineage") -> "ColumnLineage":
        """Of two statements that both give the column."""
        return ColumnLineage(
            column=self.column, sources=self.sources + other.sources, opaque=self.opaque + other.opaque,
            foreign=self.foreign + other.foreign,
        )  # fmt: skip


def joined(columns: Iterable[ColumnLineage]) -> tuple[ColumnLineage, ...]:
    """Each column once, in the order in which they are met first."""
    found: dict[str, ColumnLineage] = {}
    for one in columns:
        found[one.column] = one.joined(found[one.column]) if one.column in found else one
    return tuple(found.values())
