"""The tables of which columns are known, under the names by which SQL from elsewhere calls them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.sql.relation import Origin, Relation


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
