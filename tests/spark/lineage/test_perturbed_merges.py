"""What a merge is instructed to leave alone can hold anything: each variation is a shard of one
statement, whose keys meet no other's.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from lakechime_dagster.lineage.plan_nodes import with_generated
from lakechime_dagster.lineage.plan_statements import statements_of
from lakechime_dagster.spark.session import session_confs
from tests.lineage.plans.meanings import GENERATED, LAKE, Dumps, stored
from tests.support.perturbing import ALL, ONE_TASK, Row, columns_of, frame_of, perturbed
from tests.support.staying import (
    Columns,
    Reported,
    Result,
    Way,
    World,
    moved,
    turned_round,
    unseen,
    worlds,
)
from tests.support.zoo import SCHEMAS, Tables
from tests.support.zoo_writes import MERGES, TARGET, WRITES, make_target, make_views

pytestmark = pytest.mark.spark

STEP = 1_000
"""Between the keys of a shard and those of the next."""

KEYS = {
    "orders": ("id", "person"),
    "people": ("id",),
    "visits": ("person",),
    "target": ("id",),
    "generated": ("id",),
}
"""What reports a row's shard: in place of none it holds what no row has."""

LOOKED_UP = {"merge_with_conditions": ("id", "day")}
"""The columns of the target by which a merge finds its rows, else its id: these are reported of no
merge.
"""
REPLACING = ("delta_table_merge_all",)
"""Merges that leave nothing of the target."""

ITEM = "named_struct('sku', 's', 'price', 10)"
ROWS: dict[str, Sequence[Row]] = {
    "orders": (
        ("1", "1", "5", "'2'", "array()", ITEM),
        ("2", "2", "1", "'4'", "array()", ITEM),
        ("8", "3", "1", "'5'", "array()", ITEM),
        ("4", "5", "7", "'1'", "array()", ITEM),
        ("11", "6", "9", "'2'", "array()", ITEM),
        ("6", "7", "null", "'0'", "array()", ITEM),
    ),
    "people": (
        ("1", "'ann'", "'x'", "null"),
        ("2", "'bob'", "null", "1"),
        ("3", "'ann'", "'z'", "1"),
        ("4", "null", "'w'", "2"),
        ("5", "'ed'", "'y'", "3"),
    ),
    "visits": (
        ("1", "'1'", "'bye'"),
        ("2", "'2'", "'p'"),
        ("7", "'1'", "null"),
        ("3", "'3'", "'bye'"),
        ("8", "'2'", "'q'"),
    ),
}
"""Of each key one row, without which a merge cannot report which to take."""

SEVERAL = {
    **ROWS,
    "orders": (
        *ROWS["orders"],
        ("12", "1", "8", "'3'", "array()", ITEM),
        ("13", "2", "6", "'1'", "array()", ITEM),
        ("14", "5", "2", "'2'", "array()", ITEM),
    ),
}
TARGETS = {
    "target": (
        ("1", "'x'", "7", "'1'", ITEM),
        ("2", "null", "3", "'3'", "named_struct('sku', 't', 'price', 20)"),
        ("3", "'v'", "0", "'0'", "null"),
        ("5", "'y'", "1", "null", ITEM),
        ("9", "'z'", "null", "'0'", ITEM),
        ("12", "'w'", "2", "null", "named_struct('sku', 'u', 'price', null)"),
    ),
    "generated": (("1", "7"), ("2", "3"), ("8", "null"), ("9", "1")),
}
ASSIGNED = {"target": ("id", "name", "amount", "day", "item"), "generated": ("id", "amount")}
SHAPES = (*MERGES, "delta_table_merge", "delta_table_merge_all", "merge_into_of_a_frame")

Results = dict[str, tuple[Reported, dict[World, Result]]]


def table_of(merge: str) -> str:
    return "generated" if merge == "merge_generated_column" else "target"


def names_of(merge: str) -> tuple[str, ...]:
    added = {"merge_with_evolution": ("town",), "merge_generated_column": ("double_amount",)}
    return (*ASSIGNED[table_of(merge)], *added.get(merge, ()))


def reported(merge: str, dumps: dict[str, Dumps]) -> Reported:
    """What is reported of the target's columns, each of which is also what it was, unless all is
    replaced.
    """
    (statement,) = statements_of(dumps[merge], LAKE).statements
    table = table_of(merge)
    kept = {name: frozenset({(table, name)}) for name in held_of(merge)} | {
        "double_amount": frozenset({("generated", "amount")})
    }
    return Reported.of_write(
        with_generated(statement, GENERATED.get(table, {})),
        names_of(merge),
        {} if merge in REPLACING else kept,
    )


def held_of(merge: str) -> list[str]:
    """The columns of the target that may hold something else."""
    return [name for name in ASSIGNED[table_of(merge)] if name not in LOOKED_UP.get(merge, ("id",))]


def free_of(merge: str) -> Columns:
    """All columns that may hold something else."""
    return ALL | {(table_of(merge), name) for name in held_of(merge)}


def worlds_of(merge: str, known: Reported) -> tuple[World, ...]:
    """Each source emptied and turned round: in one statement they cost next to nothing."""
    return (*worlds(known, free_of(merge)), *turned_round(known.sources))


class Shards:
    """The tables of many worlds in one, of which each has its own keys."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self._worlds = worlds

    def rows(self, table: str, names: Sequence[str], rows: Sequence[Row]) -> list[Row]:
        found: list[Row] = []
        for number, world in enumerate(self._worlds):
            held = {column for held, column in world.perturbed if held == table}
            shard = perturbed(
                names,
                _with_other_keys(names, rows, held & {*KEYS[table]}, world.way),
                held - {*KEYS[table]},
                world.way,
            )
            found += [_moved(names, KEYS[table], row, number * STEP) for row in shard]
        return found

    def apart(
        self, rows: Collection[dict[str, object]], names: Sequence[str]
    ) -> list[list[list[object]]]:
        """The rows of the target by world, with the keys that they have there."""
        found: list[list[list[object]]] = [[] for _ in self._worlds]
        for row in rows:
            number, key = divmod(int(str(row["id"])), STEP)
            found[number].append(
                [json.dumps(key if name == "id" else row.get(name)) for name in names]
            )
        return found


def _with_other_keys(
    names: Sequence[str], rows: Sequence[Row], keys: Collection[str], way: Way
) -> Sequence[Row]:
    """The rows with keys of each other, or with some that no row has."""
    if way is Way.REVERSED:
        return perturbed(names, rows, keys, way)
    return [
        _moved(names, keys, row, STEP // 2) if checkpoint % 3 else row
        for checkpoint, row in enumerate(rows)
    ]


def _moved(names: Sequence[str], keys: Collection[str], row: Row, by: int) -> Row:
    return tuple(
        str(int(value) + by) if name in keys else value
        for name, value in zip(names, row, strict=True)
    )


def merged(
    spark: SparkSession, merge: str, asked: Sequence[World], folder: Path
) -> dict[World, Result]:
    """The target's rows in each world after one merge of them all."""
    shards = Shards(asked)
    rows = SEVERAL if merge in ("merge_newest_of_a_key", "merge_grouped") else ROWS
    tables = Tables(
        spark,
        **{
            name: frame_of(spark, name, shards.rows(name, columns_of(name), rows[name]))
            for name in SCHEMAS
        },
    )
    make_views(tables)
    table = table_of(merge)
    fill(spark, folder, table, shards.rows(table, ASSIGNED[table], TARGETS[table]))
    if merge in MERGES:
        spark.sql(MERGES[merge])
    else:
        WRITES[merge](tables, str(folder))
    found = shards.apart(
        DeltaTable(str(folder / table)).to_pyarrow_table().to_pylist(), names_of(merge)
    )
    return dict(zip(asked, found, strict=True))


def fill(spark: SparkSession, folder: Path, table: str, rows: Sequence[Row]) -> None:
    """A target of these rows, in the session's catalog; Spark's own way takes longer, and is taken
    where values are generated.
    """
    spark.sql(f"drop table if exists {table}")  # of one that is replaced all files are read
    names, values = ", ".join(ASSIGNED[table]), ", ".join(f"({', '.join(row)})" for row in rows)
    if table == "generated":
        make_target(spark, str(folder), table)
        spark.sql(f"insert into {table} ({names}) values {values}")
        return
    made = spark.sql(f"select * from values {values} as t ({names})").to(
        spark.createDataFrame([], TARGET).schema
    )
    write_deltalake(folder / table, made.toArrow())
    spark.sql(f"create table {table} using delta location '{folder / table}'")


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """By merge what is reported, and what it gives."""
    dumps, folder = stored("writes"), tmp_path_factory.mktemp("merges")
    known = {merge: reported(merge, dumps) for merge in SHAPES}
    with session_confs(spark, ONE_TASK):
        yield {
            merge: (one, merged(spark, merge, worlds_of(merge, one), folder / merge))
            for merge, one in known.items()
        }
    for name in TARGETS:
        spark.sql(f"drop table if exists {name}")


def test_no_row_of_a_target_changes_by_what_is_not_reported_to_have_a_part_in_it(
    results: Results,
) -> None:
    assert {
        merge: wrong for merge, (known, given) in results.items() if (wrong := moved(known, given))
    } == {}


UNSEEN = {"delta_table_merge_all": {"rows by people.id"}}
"""What is reported and cannot be seen: of what is replaced by all rows of the source nothing depends on
which of them match.
"""


def test_each_source_of_a_merge_that_is_left_out_is_found(results: Results) -> None:
    assert {
        merge: {repr(one) for one in never}
        for merge, (known, given) in results.items()
        if (never := unseen(known, given))
    } == UNSEEN
