"""What a plan node gives: its columns with what they came from, what decides on its rows, and where expressions look columns up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.plans.dump import Attribute, Node
from lakechime_dagster.lineage.plans.roots import DataSets
from lakechime_dagster.lineage.plans.values import CONSTANT, Value, together


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a node gives."""

    id: int
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Frame:
    """The columns that a node gives, in order.

    `indirect` is what decides which rows there are, by sources of INDIRECT kinds. `rows` is where rows come from: data sets as
    a whole, which are what a count of rows is made of.
    """

    columns: tuple[Column, ...] = ()
    indirect: Value = CONSTANT
    rows: Value = CONSTANT

    def by_id(self) -> dict[int, Value]:
        return {column.id: column.value for column in self.columns}

    def value(self) -> Value:
        """What all columns together came from."""
        return together(column.value for column in self.columns)

    def deciding(self) -> Value:
        """What decides on the rows, and why it is not known where they come from."""
        return self.indirect.because(*self.rows.opaque)

    def giving(self, columns: Iterable[Column]) -> "Frame":
        """The same rows with these columns."""
        return Frame(tuple(columns), self.indirect, self.rows)

    def decided(self, kind: Kind, *values: Value) -> "Frame":
        """The same columns of fewer or other rows, on which these values decide."""
        return Frame(self.columns, together((self.indirect, *(value.then(kind) for value in values))), self.rows)

    def because(self, *reasons: str) -> "Frame":
        """The same rows and columns, of all of which something cannot be told for these reasons."""
        if not reasons:
            return self
        columns = (Column(one.id, one.name, one.value.because(*reasons)) for one in self.columns)
        return Frame(tuple(columns), self.indirect, self.rows.because(*reasons))

    def renamed(self, output: Iterable[Attribute]) -> "Frame":
        """The same columns by position, under other ids and names."""
        return self.giving(columns_of(output, (column.value for column in self.columns)))


def columns_of(output: Iterable[Attribute], values: Iterable[Value]) -> tuple[Column, ...]:
    """The columns of an output, whose values come in its order."""
    return tuple(Column(one.id, one.name, value) for one, value in zip(output, values, strict=True))


class Reader(Protocol):
    """What rules ask for: the meaning of the plans and expressions below."""

    def frame(self, plan: Node, scope: "Scope") -> Frame: ...

    def value(self, expression: Node, scope: "Scope") -> Value: ...

    def loop(self, plan: Node, scope: "Scope") -> Frame: ...

    def looped(self, number: int) -> Frame: ...

    def defined(self, cte: int, scope: "Scope") -> Frame: ...

    def checkpointed(self, leaf: Node) -> Frame | None: ...

    def data_sets(self, leaf: Node) -> DataSets: ...

    def is_stated(self, rows: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a rule looks things up: `columns` are those of the children, `outer` those around a subquery."""

    reader: Reader
    outer: Mapping[int, Value]
    columns: Mapping[int, Value]
    rows: Value = CONSTANT

    def frame(self, plan: Node) -> Frame:
        """What a child gives."""
        return self.reader.frame(plan, self)

    def over(self, *frames: Frame) -> "Scope":
        """For the expressions of a node whose children give these frames."""
        if len(frames) == 1:
            return Scope(self.reader, self.outer, frames[0].by_id(), frames[0].rows)
        columns = {column.id: column.value for frame in frames for column in frame.columns}
        return Scope(self.reader, self.outer, columns, together(frame.rows for frame in frames))

    def inside(self, plan: Node) -> Frame:
        """What the plan of a subquery gives, for which the columns here are outer ones."""
        return self.reader.frame(plan, Scope(self.reader, {**self.outer, **self.columns}, {}))

    def having(self, parts: Mapping[int, Value]) -> "Scope":
        """For an expression in which these have a number beside the columns."""
        return Scope(self.reader, self.outer, {**self.columns, **parts}, self.rows)

    def value(self, expression: Node) -> Value:
        return self.reader.value(expression, self)

    def values(self, expressions: Iterable[Node]) -> Value:
        """What these expressions together came from."""
        return together(self.reader.value(one, self) for one in expressions)

    def named(self, expressions: Iterable[Node]) -> tuple[Column, ...]:
        """The columns that named expressions give."""
        return tuple(Column(one.number("exprId"), one.text("name"), self.reader.value(one, self)) for one in expressions)

    def column(self, attribute: Attribute) -> Column:
        """The child's column of this id."""
        value = self.columns.get(attribute.id)
        return Column(attribute.id, attribute.name, Value().because(f"column {attribute.name} is not below") if value is None else value)


def of_tables(tables: Iterable[str], output: Iterable[Attribute]) -> Frame:
    """The columns of a table as they are, or of several that are read as one."""
    names = tuple(tables)
    return Frame(tuple(Column(one.id, one.name, _reference(names, one.name)) for one in output), rows=_reference(names, None))


def _reference(tables: Iterable[str], column: str | None) -> Value:
    return Value(frozenset(Source(ColumnRef(table, column), Kind.IDENTITY) for table in tables))
