"""What a name in a query can mean: relations with their columns and origins."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lakechime_dagster.errors import shown
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Names, Source

if TYPE_CHECKING:
    from lakechime_dagster.lineage.sql_queries import Ctes


@dataclass(frozen=True, slots=True)
class Origin:
    """What a value came from: sources, and reasons why it may have come from something else too."""

    sources: frozenset[Source] = frozenset()
    opaque: frozenset[str] = frozenset()

    def then(self, outer: Kind, is_masking: bool = False) -> "Origin":
        """The same seen through one more step."""
        if outer is Kind.IDENTITY and not is_masking:
            return self
        return Origin(frozenset(source.then(outer, is_masking) for source in self.sources), self.opaque)

    def __or__(self, other: "Origin") -> "Origin":
        return Origin(self.sources | other.sources, self.opaque | other.opaque)


NOTHING = Origin()


def merged(several: Iterable[Origin]) -> Origin:
    """All of them as one."""
    found = list(several)
    if len(found) == 1:
        return found[0]
    sources = frozenset(source for one in found for source in one.sources)
    return Origin(sources, frozenset(reason for one in found for reason in one.opaque))


def opaque(*reasons: str) -> Origin:
    return Origin(opaque=frozenset(reasons))


@dataclass(frozen=True)
class Relation:
    """Columns in their order, by the names that they were written with.

    Attributes:
        more: Why there may be columns that are not told; empty where these are all.
        table: Whose they are, where it is a table: a column of it that is not told can be named all the same.
        rest: What a column comes from, besides, that is not told.
        temporary: The temporary table that it is, by what a statement that writes it has as its target.
    """

    columns: tuple[tuple[str, Origin], ...]
    more: str = ""
    table: str = ""
    rest: Origin = NOTHING
    temporary: str = ""

    @property
    def target(self) -> str:
        """What a statement writes that names it behind FROM; empty where it is a query."""
        return self.table or self.temporary

    @cached_property
    def _by_name(self) -> dict[str, Origin]:
        found: dict[str, Origin] = {}
        for name, origin in reversed(self.columns):  # of two of one name the first is meant
            found[name.casefold()] = origin
        return found

    def column(self, name: str) -> Origin | None:
        """Where a column that is told came from; None where there is none of that name."""
        return self._by_name.get(name.casefold())

    def untold(self, name: str | None) -> Origin:
        """Where a column, or with None all that are not told, came from, though it is not told that there is one."""
        ref = ColumnRef(self.table, name)
        known = Origin(frozenset({Source(ref, Kind.IDENTITY)})) if self.table else NOTHING
        return known | self.rest | opaque(self.more)

    def all(self) -> Origin:
        """What all its columns together came from."""
        return merged([*(origin for _, origin in self.columns), *([self.untold(None)] if self.more else [])])

    def renamed(self, names: Iterable[str]) -> "Relation":
        """The same with other names for its first columns."""
        given = list(names)
        if not given:
            return self
        if self.more:
            every = self.all()
            return Relation(tuple((name, every) for name in given), self.more, rest=every)
        kept = [name for name, _ in self.columns[len(given) :]]
        return Relation(tuple(zip([*given, *kept], (origin for _, origin in self.columns), strict=False)))


@dataclass
class Scope:
    """The relations that names mean where an expression stands, and those of the queries around it.

    Attributes:
        ctes: Common table expressions and what is temporary, each read when it is named first.
        relations: In the order of FROM.
        by_alias: The same by what columns are prefixed with.
        joined: Columns that a USING made one of several.
        named: Columns of this query's own list that stand before, by which SQL of some engines may go on.
        windows: What the named windows go by.
        chosen: The column that COLUMNS(…) stands for, where it is spelled out.
    """

    ctes: "Ctes"
    outer: "Scope | None" = None
    relations: list[Relation] = field(default_factory=list)
    by_alias: dict[str, Relation] = field(default_factory=dict)
    joined: dict[str, Origin] = field(default_factory=dict)
    named: dict[str, Origin] = field(default_factory=dict)
    windows: dict[str, Origin] = field(default_factory=dict)
    chosen: Origin | None = None

    def add(self, relation: Relation, *aliases: str) -> None:
        """One more relation; of two with the same alias the first keeps it."""
        self.relations.append(relation)
        for alias in aliases:
            self.by_alias.setdefault(alias.casefold(), relation)

    def column(self, parts: list[str]) -> Origin:
        """Where a column came from, by the parts of its name as written: `alias.column`, `column`, `column.field` and the like."""
        place: Scope | None = self
        passed: list[Relation] = []  # of which the column may be one, though it is found further out
        while place is not None:
            found = place._of_alias(parts)
            if found is not None:
                return found
            found = place._of_name(parts)
            if found is not None:
                return found | opaque(*(one.more for one in passed))
            passed += [one for one in place.relations if one.more]
            place = place.outer
        if passed:
            return passed[0].untold(parts[-1]) | opaque(*(one.more for one in passed))
        return opaque(f"column {shown('.'.join(parts))} is in none of the tables")

    def _of_alias(self, parts: list[str]) -> Origin | None:
        """`alias.column`, with what stands before an alias, or behind a column, left out."""
        for at in range(1, len(parts)):
            relation = self.by_alias.get(".".join(parts[:at]).casefold()) or self.by_alias.get(parts[at - 1].casefold())
            if relation is None:
                continue
            origin = relation.column(parts[at])
            if origin is None:
                reason = f"column {shown(parts[at])} is not in {parts[at - 1]}"
                origin = relation.untold(parts[at]) if relation.more else opaque(reason)
            return origin if at + 1 == len(parts) else origin.then(Kind.TRANSFORMATION)
        return None

    def _of_name(self, parts: list[str]) -> Origin | None:
        """`column`, or a field of one."""
        name = parts[0].casefold()
        origin = self.joined.get(name)
        if origin is None:
            origins = [found for one in self.relations if (found := one.column(name)) is not None]
            if len(origins) > 1:
                origin = merged(origins) | opaque(f"column {shown(parts[0])} may be of several tables")
            else:
                origin = origins[0] if origins else self.named.get(name)
        return origin if origin is None or len(parts) == 1 else origin.then(Kind.TRANSFORMATION)


@dataclass(frozen=True)
class SqlSchema:
    """The columns of tables, in their order; made once and asked by every statement.

    A table of the lake whose columns are not known is in `names` and not in `tables`.
    """

    tables: Mapping[str, Sequence[str]]
    names: Names = field(default_factory=Names)
    _relations: dict[str, Relation] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.names.with_tables(self.tables))

    def relation(self, written: str, namespace: str) -> Relation:
        """The table that SQL calls so; its columns are untold where they are not known."""
        name = self.names.of(written)
        table = name or f"{namespace}/{written}"
        found = self._relations.get(table)
        if found is None:
            found = _relation(table, self.tables.get(table), is_known=name is not None)
            if name is not None:  # others would be kept without end
                self._relations[table] = found
        return found

    def columns(self, table: str) -> Sequence[str] | None:
        """The columns of a table, or None where they are not known."""
        return self.tables.get(table)

    def with_table(self, name: str, columns: Iterable[str]) -> "SqlSchema":
        """The same with one more table, as one that a script has made."""
        return SqlSchema({**self.tables, name: tuple(columns)}, self.names)


def _relation(table: str, columns: Sequence[str] | None, is_known: bool) -> Relation:
    if columns is not None:
        of = tuple((name, Origin(frozenset({Source(ColumnRef(table, name), Kind.IDENTITY)}))) for name in columns)
        return Relation(of, table=table)
    reason = f"the columns of {table} are not known" if is_known else f"table {table} is not known"
    return Relation((), reason, table)
