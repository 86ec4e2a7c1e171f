"""Names of columns: exact ones, and one spelling for the rows and the table that holds them, as Spark and Delta find both in any case."""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.names import folded


def column(name: str) -> Column:
    """A column by its exact name, dots and all."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A column's exact name in SQL."""
    return "`" + name.replace("`", "``") + "`"


def spelled(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """The rows with those of their columns that are among the names spelled as these are."""
    spelling = {folded(name): name for name in names}
    wanted = [spelling.get(folded(name), name) for name in rows.columns]
    return rows if wanted == rows.columns else rows.toDF(*wanted)


def require_columns(table: str, rows: DataFrame, names: Iterable[str]) -> None:
    """See to it that a table's computed rows have each of its key and partition columns, once."""
    for name in names:
        found = [one for one in rows.columns if folded(one) == folded(name)]
        if not found:
            what = f"does not return the column {name}, which is a key or partition of it, only {', '.join(rows.columns)}"
            raise DeclarationError(table, "columns", f"{what}; return it, or declare a column that is returned")
        if len(found) > 1:
            raise DeclarationError(table, "columns", f"returns {' and '.join(found)}, which are one column to Spark; return one of them")
