"""The zoo's tables with rows that take every branch, and the same with columns that hold something
else.
"""

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from tests.support.staying import Columns, Way, World
from tests.support.zoo import SCHEMAS, Tables

Row = tuple[str, ...]
Rows = Mapping[str, Sequence[Row]]

ROWS: Rows = {
    "orders": (
        ("1", "1", "5", "'1'", "array('a', 'b')", "named_struct('sku', 's', 'price', 10)"),
        ("2", "1", "7", "'2'", "array('cc')", "named_struct('sku', 't', 'price', 20)"),
        ("3", "2", "1", "'1'", "array()", "named_struct('sku', 'u', 'price', 30)"),
        ("4", "2", "3", "'3'", "null", "named_struct('sku', 'v', 'price', null)"),
        ("5", "3", "9", "'2'", "array('d', 'e', 'f')", "named_struct('sku', 'w', 'price', 50)"),
        ("6", "null", "6", "null", "array('g')", "null"),
        ("7", "4", "null", "'4'", "array('h')", "named_struct('sku', 'x', 'price', 70)"),
        ("8", "3", "2", "'1'", "array('i', 'jj')", "named_struct('sku', 'y', 'price', 80)"),
        ("9", "3", "4", "'2'", "array('kkkkk')", "named_struct('sku', 'z', 'price', 90)"),
        ("10", "4", "null", "'5'", "null", "named_struct('sku', 'q', 'price', 15)"),
    ),
    "people": (
        ("1", "'ann'", "'x'", "null"),
        ("2", "'bob'", "null", "1"),
        ("3", "'ann'", "'z'", "1"),
        ("4", "null", "'w'", "2"),
        ("5", "'ed'", "'x'", "3"),
        ("6", "'flo'", "'q'", "2"),
    ),
    "visits": (
        ("1", "'1'", "'p'"),
        ("5", "'2'", "null"),
        ("null", "'1'", "null"),
        ("3", "'3'", "'r'"),
        ("3", "'3'", "'z'"),
        ("1", "'2'", "'ann'"),
        ("2", "'1'", "'q'"),
    ),
}
"""Each value as SQL. Some rows are alike in what groups are made by, or windows ordered by, so that
the rest of them decides.
"""


ONE_TASK = {"spark.sql.shuffle.partitions": "1", "spark.sql.leafNodeDefaultParallelism": "1"}
"""Of a session in which each execution is one task: of ten rows there is no work to share."""


def columns_of(table: str) -> tuple[str, ...]:
    return tuple(
        field.split()[0]
        for field in SCHEMAS[table].replace("struct<sku: string, price: int>", "struct").split(", ")
    )


ALL: Columns = frozenset((table, column) for table in SCHEMAS for column in columns_of(table))
"""Each column of each table."""


def perturbed(
    names: Sequence[str], rows: Sequence[Row], columns: Collection[str], way: Way
) -> list[Row]:
    """Rows of columns with these names, where some columns hold something else."""
    values = [list(column) for column in zip(*rows, strict=True)]
    for checkpoint, name in enumerate(names):
        if name in columns:
            values[checkpoint] = _held_instead(values[checkpoint], checkpoint, way)
    return list(zip(*values, strict=True))


def _held_instead(values: Sequence[str], checkpoint: int, way: Way) -> list[str]:
    if way is Way.REVERSED:
        return list(reversed(values))
    return [
        "null" if row % 3 == checkpoint % 3 else value
        for row, value in enumerate([*values[2:], *values[:2]])
    ]


class Filled:
    """The tables with their rows, each kept for the next one who asks."""

    def __init__(self, spark: SparkSession, rows: Rows = ROWS) -> None:
        self._spark = spark
        self._rows = rows
        self._frames: dict[tuple[str, frozenset[str], Way], DataFrame] = {}

    def tables(self, world: World) -> Tables:
        """The tables as they are in a world."""
        by_table = {
            name: frozenset(column for table, column in world.perturbed if table == name)
            for name in SCHEMAS
        }
        return Tables(
            self._spark,
            **{name: self._frame(name, held, world.way) for name, held in by_table.items()},
        )

    def _frame(self, table: str, columns: frozenset[str], way: Way) -> DataFrame:
        key = table, columns, way
        if key not in self._frames:
            self._frames[key] = frame_of(
                self._spark, table, perturbed(columns_of(table), self._rows[table], columns, way)
            )
        return self._frames[key]


def frame_of(spark: SparkSession, table: str, rows: Sequence[Row]) -> DataFrame:
    """One of the zoo's tables, as a frame of these rows."""
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    types = (
        SCHEMAS[table]
        .replace("struct<sku: string, price: int>", "struct<sku:string,price:int>")
        .split(", ")
    )
    cast = ", ".join(
        f"cast({name} as {kind}) as {name}" for name, kind in (one.split(" ", 1) for one in types)
    )
    return spark.sql(
        f"select {cast} from values {values} as t ({', '.join(columns_of(table))})"
    ).alias(table)
