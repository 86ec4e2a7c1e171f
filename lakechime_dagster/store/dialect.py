"""What PostgreSQL and SQLite say differently: the clock, the transaction's number, the bound of visibility."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Column, ColumnElement, Connection, Integer, Table, any_, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

BIG = BigInteger().with_variant(Integer(), "sqlite")  # SQLite counts rows in plain INTEGER columns only
EVERYTHING = 2**63 - 1  # the bound of a database in which commit order is number order


class _BigIntegerFunction(FunctionElement[int]):
    inherit_cache = True
    type: TypeEngine[int] = BigInteger()


class StoreNow(_BigIntegerFunction):
    """The store's clock, in milliseconds since the epoch."""

    name = "store_now"
    inherit_cache = True


class TransactionId(_BigIntegerFunction):
    """The number of the running transaction; 0 where there is one writer at a time."""

    name = "transaction_id"
    inherit_cache = True


class VisibleBelow(_BigIntegerFunction):
    """The transaction number below which every transaction has ended: what is there can be read for good."""

    name = "visible_below"
    inherit_cache = True


@compiles(StoreNow, "postgresql")
def _now_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    return "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


@compiles(StoreNow, "sqlite")
def _now_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))"


@compiles(TransactionId, "postgresql")
def _transaction_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    return "(pg_current_xact_id()::text::bigint)"


@compiles(TransactionId, "sqlite")
def _transaction_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return "0"


@compiles(VisibleBelow, "postgresql")
def _visible_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    return "(pg_snapshot_xmin(pg_current_snapshot())::text::bigint)"


@compiles(VisibleBelow, "sqlite")
def _visible_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return str(EVERYTHING)


def insert_if_absent(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that leaves out rows whose key is there."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def insert_or_raise(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that raises the counts of rows whose key is there, which are the columns beside the key, by those that it brings."""
    counts = [column.name for column in table.columns if not column.primary_key]
    if connection.dialect.name == "postgresql":
        statement = postgresql.insert(table)
        raised = {name: table.c[name] + statement.excluded[name] for name in counts}
        return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=raised)
    other = sqlite.insert(table)
    raised = {name: table.c[name] + other.excluded[name] for name in counts}
    return other.on_conflict_do_update(index_elements=list(table.primary_key), set_=raised)


def among(connection: Connection, column: Column[Any], values: Sequence[Any]) -> ColumnElement[bool]:
    """Whether the column holds one of many values: one array on PostgreSQL, so that the statement's text stays the same."""
    if connection.dialect.name == "postgresql":
        return column == any_(bindparam(None, list(values), type_=ARRAY(column.type)))
    return column.in_(values)


def now_ms(connection: Connection) -> int:
    """The store's clock in milliseconds since the epoch; a clock of the host on SQLite, the server's on PostgreSQL."""
    return connection.execute(select(StoreNow())).scalar_one()


def high_water(connection: Connection) -> int:
    """The bound of visibility of this moment: only rows with `tx_id` below it may be read as a feed.

    In the transactions of `reading` it holds for all statements; in those of `writing` use `VisibleBelow()` in the
    statement that reads.
    """
    return connection.execute(select(VisibleBelow())).scalar_one()
