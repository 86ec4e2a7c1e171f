"""Rows of a Delta table for answers that a person reads: by a small query, without a JVM."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError
from sqlglot import exp

from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.triggers.grid import from_milliseconds

TABLE = "t"
_SPARK = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}  # what Spark calls Delta's types otherwise
_ARROW = {
    "bigint": "Int64", "int": "Int32", "smallint": "Int16", "tinyint": "Int8", "float": "Float32", "double": "Float64",
    "string": "Utf8", "boolean": "Boolean", "date": "Date32", "timestamp": 'Timestamp(Microsecond, Some("UTC"))',
    "timestamp_ntz": "Timestamp(Microsecond, None)",
}  # fmt: skip


@dataclass(frozen=True)
class DeltaRows:
    """The rows of a table as it is now; a table that is not there has none."""

    log: DeltaLog

    def types(self) -> dict[str, str]:
        """The columns with their types in Spark's words, those of nested ones as Delta has them."""
        table = self.log.state()
        fields = [] if table is None else table.schema().fields
        told = {field.name: getattr(field.type, "type", str(field.type)) for field in fields}
        return {name: _SPARK.get(kind, kind) for name, kind in told.items()}

    def count(self, *where: exp.Condition) -> int:
        """How many rows there are."""
        found = self.query(exp.select(exp.Count(this=exp.Star()).as_("n")).from_(TABLE).where(*where))
        return found[0]["n"] if found else 0

    def select(
        self, *columns: str, where: tuple[exp.Condition, ...] = (), newest: tuple[str, ...] = (), limit: int | None = None
    ) -> list[dict[str, Any]]:
        """Rows with these columns, or all; by these columns from the greatest down, at most so many."""
        query = exp.select(*map(column, columns)) if columns else exp.select("*")
        query = query.from_(TABLE).where(*where)
        for name in newest:
            query = query.order_by(exp.Ordered(this=column(name), desc=True))
        return self.query(query if limit is None else query.limit(limit))

    def query(self, query: exp.Select) -> list[dict[str, Any]]:
        """The rows of a query, which names the table `t`.

        Raises:
            TableUnreadableError: the table, or one of the columns, cannot be read.
        """
        table = self.log.state()
        if table is None:
            return []
        try:
            return pa.table(QueryBuilder().register(TABLE, table).execute(query.sql("postgres"))).to_pylist()
        except (DeltaError, OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise TableUnreadableError(f"{self.log.table} at {self.log.shown_location} cannot be read: {reason}") from error


def column(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


def texts(name: str, *values: str) -> exp.Condition:
    """That a column has one of these texts."""
    return column(name).isin(*map(exp.Literal.string, values))


def known(name: str) -> exp.Condition:
    """That a column is not null."""
    return exp.not_(column(name).is_(exp.Null()))


def since(name: str, milliseconds: int) -> exp.Condition:
    """That a column's time is this one, in milliseconds since the epoch, or later."""
    return exp.GTE(this=column(name), expression=_literal(from_milliseconds(milliseconds), "timestamp"))


def row_is(values: Mapping[str, Any], types: Mapping[str, str]) -> tuple[exp.Condition, ...]:
    """That a row has these values in columns of these types."""
    return tuple(column(name).eq(_literal(value, types[name])) for name, value in values.items())


def _literal(value: Any, ddl: str) -> exp.Condition:
    """A value as the engine compares it with a column of that type."""
    if isinstance(value, bytes):
        return exp.func("decode", exp.Literal.string(value.hex()), exp.Literal.string("hex"))
    kind = f"Decimal128({ddl.removeprefix('decimal(').removesuffix(')')})" if ddl.startswith("decimal(") else _ARROW[ddl]
    text = value.isoformat() if hasattr(value, "isoformat") else str(value).lower() if isinstance(value, bool) else str(value)
    return exp.func("arrow_cast", exp.Literal.string(text), exp.Literal.string(kind))
