"""Reads and appends rows of Delta tables without Spark."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from sqlglot import exp, parse_one

from lakechime_dagster.dce.snapshots import CommitsMissingError
from lakechime_dagster.errors import TableAbsentError, TableUnreadableError
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.triggers.schedule import from_milliseconds

TABLE = "t"
DIALECT = "postgres"  # which DataFusion speaks
# what Spark calls Delta's types otherwise
_SPARK = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_ARROW = {
    "bigint": "Int64",
    "int": "Int32",
    "smallint": "Int16",
    "tinyint": "Int8",
    "float": "Float32",
    "double": "Float64",
    "string": "Utf8",
    "boolean": "Boolean",
    "date": "Date32",
    "timestamp": 'Timestamp(Microsecond, Some("UTC"))',
    "timestamp_ntz": "Timestamp(Microsecond, None)",
}


@dataclass(frozen=True)
class DeltaRows:
    """The rows of the newest version of a table; a table that does not exist has none."""

    log: DeltaLog

    def types(self) -> dict[str, str]:
        """The columns with their types in Spark's words, those of nested ones as Delta has them."""
        table = self.log.state()
        fields = [] if table is None else table.schema().fields
        kinds = {field.name: getattr(field.type, "type", str(field.type)) for field in fields}
        return {name: _SPARK.get(kind, kind) for name, kind in kinds.items()}

    def count(self, *where: exp.Condition | str, **values: str | int) -> int:
        """How many rows there are."""
        found = self.query(
            exp.select(exp.Count(this=exp.Star()).as_("n"))
            .from_(TABLE)
            .where(*where, dialect=DIALECT),
            **values,
        )
        return found[0]["n"] if found else 0

    def count_known(self, name: str) -> int:
        """How many rows have a value in a column."""
        return self.count(known(name))

    def with_values(self, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rows that have these values in columns of types without parts."""
        types = self.types()
        if not types:
            return []
        return self.select(
            where=tuple(
                column(name).eq(_literal(value, types[name])) for name, value in values.items()
            )
        )

    def select(
        self,
        *columns: str,
        where: tuple[exp.Condition | str, ...] = (),
        newest: tuple[str, ...] = (),
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Rows with these columns, or all; by these columns from the greatest down, at most so
        many.
        """
        query = exp.select(*map(column, columns)) if columns else exp.select("*")
        query = query.from_(TABLE).where(*where, dialect=DIALECT)
        for name in newest:
            query = query.order_by(exp.Ordered(this=column(name), desc=True))
        return self.query(query if limit is None else query.limit(limit))

    def query(self, query: exp.Query | str, **values: str | int) -> list[dict[str, Any]]:
        """The rows of a query, which names the table `t`; `:name` in it stands for a value.

        Raises:
            TableUnreadableError: the table, or one of the columns, cannot be read.
        """
        table = self.log.state()
        if table is None:
            return []
        parsed = parse_one(query, read=DIALECT) if isinstance(query, str) else query
        sql = exp.replace_placeholders(parsed, **values).sql(DIALECT)
        try:
            return pa.table(QueryBuilder().register(TABLE, table).execute(sql)).to_pylist()
        except (DeltaError, OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise TableUnreadableError(
                f"{self.log.table} at {self.log.shown_location} cannot be read: {reason}"
            ) from error


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
    return exp.GTE(
        this=column(name), expression=_literal(from_milliseconds(milliseconds), "timestamp")
    )


def _literal(value: Any, ddl: str) -> exp.Condition:
    """A value as the engine compares it with a column of that type."""
    if isinstance(value, bytes):
        return exp.func("decode", exp.Literal.string(value.hex()), exp.Literal.string("hex"))
    kind = (
        f"Decimal128({ddl.removeprefix('decimal(').removesuffix(')')})"
        if ddl.startswith("decimal(")
        else _ARROW[ddl]
    )
    text = (
        value.isoformat()
        if hasattr(value, "isoformat")
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
    return exp.func("arrow_cast", exp.Literal.string(text), exp.Literal.string(kind))


ROWS = 2_000  # of a batch


@dataclass(frozen=True)
class Appended:
    """Some rows of one commit, or of the whole table at version `through`."""

    through: int
    rows: tuple[dict[str, Any], ...]
    is_last: bool  # of its commit


def appended(
    log: DeltaLog, after: int | None, columns: Sequence[str], through: int | None = None
) -> Iterator[Appended]:
    """The rows that were appended after a version, or with None all of them, commit by commit, in
    batches.

    Where the log no longer holds a commit after that version, all rows of the table are returned
    again. Else commits after `through` are left out.

    Raises:
        TableUnreadableError: the table, a file of it or one of the columns cannot be read.
    """
    state = log.state()
    if state is None:
        return
    newest = state.version()
    try:
        commits = (
            log.commits(after, newest if through is None else min(through, newest))
            if after is not None and after <= newest
            else None
        )
    except CommitsMissingError:
        commits = None
    if commits is None:
        files = [row["path"] for row in pa.table(state.get_add_actions(flatten=True)).to_pylist()]
        yield from _of_files(log, files, columns, newest)
        return
    for commit in commits:
        yield from _of_files(log, [file.path for file in commit.added], columns, commit.version)


def _of_files(
    log: DeltaLog, paths: Sequence[str], columns: Sequence[str], version: int
) -> Iterator[Appended]:
    for path in paths:
        try:
            with log.folder.open(unquote(path)) as source:
                file = pq.ParquetFile(source)
                missing = [name for name in columns if name not in file.schema_arrow.names]
                if missing:
                    present = ", ".join(file.schema_arrow.names)
                    raise TableUnreadableError(
                        f"{log.table} has no column {missing[0]} in its files; they have {present}"
                    )
                for batch in file.iter_batches(ROWS, columns=list(columns)):
                    yield Appended(version, tuple(batch.to_pylist()), is_last=False)
        except (OSError, pa.ArrowException, DeltaError) as error:
            reason = str(error).splitlines()[0]
            raise TableUnreadableError(
                f"{log.table} at {log.shown_location} cannot be read: {reason}"
            ) from error
    yield Appended(version, (), is_last=True)


def append_rows(
    log: DeltaLog, columns: Sequence[str], rows: Sequence[Sequence[Any]], facts: Mapping[str, str]
) -> int:
    """Append rows to an existing table, with these facts in the metadata of the commit, and return
    its version.

    Raises:
        TableAbsentError: there is no table.
        TableUnreadableError: it cannot be written.
    """
    table = _there(log)
    schema = pa.schema(table.schema())
    types = [schema.field(name) for name in columns]
    arrays = [
        pa.array(list(values), one.type)
        for values, one in zip(zip(*rows, strict=True), types, strict=True)
    ]
    _append(
        log,
        table,
        pa.Table.from_arrays(arrays, schema=pa.schema(types)),
        CommitProperties(custom_metadata=dict(facts)),
    )
    return table.version()


def append_once(
    log: DeltaLog, rows: Iterable[Mapping[str, Any]], app_id: str, version: int
) -> bool:
    """Append rows in the table's own columns; False when a commit of this transaction, or of a
    later version, did before.

    Raises:
        As `append_rows`.
    """
    table = _there(log)
    done = table.transaction_version(app_id)
    if done is not None and done >= version:
        return False
    data = pa.Table.from_pylist(
        [dict(row) for row in rows], schema=pa.schema(table.schema().to_arrow())
    )
    _append(log, table, data, CommitProperties(app_transactions=[Transaction(app_id, version)]))
    return True


def _there(log: DeltaLog) -> DeltaTable:
    table = log.state()
    if table is None:
        raise TableAbsentError(
            f"{log.table}: there is no Delta table at {log.shown_location} to append to"
        )
    return table


def _append(log: DeltaLog, table: DeltaTable, data: pa.Table, properties: CommitProperties) -> None:
    with log.writing():
        write_deltalake(table, data, mode="append", commit_properties=properties)
