"""The zoo's tables with rows that take every branch, and the same with columns that hold something else."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from tests.support.zoo import SCHEMAS, Tables

Rows = Mapping[str, Sequence[tuple[str, ...]]]

ROWS: Rows = {
    "orders": (
        ("1", "1", "5", "'1'", "array('a', 'b')", "named_struct('sku', 's', 'price', 10)"),
        ("2", "1", "7", "'2'", "array('cc')", "named_struct('sku', 't', 'price', 20)"),
        ("3", "2", "1", "'1'", "array()", "named_struct('sku', 'u', 'price', 30)"),
        ("4", "2", "9", "'3'", "null", "named_struct('sku', 'v', 'price', null)"),
        ("5", "3", "3", "'2'", "array('d', 'e', 'f')", "named_struct('sku', 'w', 'price', 50)"),
        ("6", "null", "6", "null", "array('g')", "null"),
        ("7", "4", "null", "'4'", "array('h')", "named_struct('sku', 'x', 'price', 70)"),
        ("8", "3", "2", "'1'", "array('i', 'jj')", "named_struct('sku', 'y', 'price', 80)"),
    ),
    "people": (
        ("1", "'ann'", "'x'", "null"), ("2", "'bob'", "null", "1"), ("3", "'cy'", "'z'", "1"), ("4", "null", "'w'", "2"),
        ("5", "'ed'", "'x'", "3"), ("6", "'flo'", "'q'", "2"),
    ),
    "visits": (
        ("1", "'1'", "'p'"), ("3", "'2'", "null"), ("null", "'1'", "'q'"), ("5", "'3'", "'r'"), ("1", "'2'", "'ann'"), ("2", "'1'", "'z'"),
    ),
}  # fmt: skip
"""Each value as SQL. No two rows are alike in what they are ordered by."""


def columns_of(table: str) -> tuple[str, ...]:
    return tuple(field.split()[0] for field in SCHEMAS[table].replace("struct<sku: string, price: int>", "struct").split(", "))


ALL = frozenset((table, column) for table in SCHEMAS for column in columns_of(table))
"""Each column of each table."""


class Filled:
    """The tables with their rows, each kept for the next one who asks."""

    def __init__(self, spark: SparkSession, rows: Rows = ROWS) -> None:
        self._spark = spark
        self._rows = rows
        self._frames: dict[tuple[str, frozenset[str]], DataFrame] = {}

    def tables(self, perturbed: Collection[tuple[str, str]] = ()) -> Tables:
        """The tables, where these columns hold the values of other rows, or none."""
        by_table = {name: frozenset(column for table, column in perturbed if table == name) for name in SCHEMAS}
        return Tables(self._spark, **{name: self._frame(name, columns) for name, columns in by_table.items()})

    def _frame(self, table: str, perturbed: frozenset[str]) -> DataFrame:
        key = table, perturbed
        if key not in self._frames:
            self._frames[key] = _frame(self._spark, table, _rows(table, self._rows[table], perturbed))
        return self._frames[key]


def _rows(table: str, rows: Sequence[tuple[str, ...]], perturbed: Collection[str]) -> Iterable[tuple[str, ...]]:
    columns = [list(values) for values in zip(*rows, strict=True)]
    for place, name in enumerate(columns_of(table)):
        if name in perturbed:
            moved = columns[place][2:] + columns[place][:2]
            columns[place] = ["null" if row % 3 == place % 3 else value for row, value in enumerate(moved)]
    return zip(*columns, strict=True)


def _frame(spark: SparkSession, table: str, rows: Iterable[tuple[str, ...]]) -> DataFrame:
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    types = SCHEMAS[table].replace("struct<sku: string, price: int>", "struct<sku:string,price:int>").split(", ")
    cast = ", ".join(f"cast({name} as {kind}) as {name}" for name, kind in (one.split(" ", 1) for one in types))
    return spark.sql(f"select {cast} from values {values} as t ({', '.join(columns_of(table))})").alias(table)
