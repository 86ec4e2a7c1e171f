"""The columns of a table that follows a database: which it has, what of them its rows wait for, and
which rows they refuse.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.record import Record
from lakechime_dagster.formats.iceberg import IcebergLog
from tests.cdc.factories import envelope_schema, make_payload, make_record
from tests.cdc.spark.test_refresh import interrupt
from tests.support.orders import at_position, deletion, levelled, order
from tests.support.replica import Replica, read

pytestmark = pytest.mark.spark


@pytest.mark.tier2
def test_columns_are_added_and_widened_as_messages_bring_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",))
    table.send([order(1, at=1), order(2, at=2)])
    table.run()
    columns = [
        ("id", "int64", False),
        ("name", "string", True),
        ("amount", "int64", True),
        ("note", "string", True),
    ]
    row = {"id": 2**40, "name": "Eve", "amount": 7, "note": "new"}
    table.send(
        [
            make_record(
                make_payload(source=at_position(3), after=row),
                schema=envelope_schema(*columns),
                key={"id": 2**40},
            )
        ]
    )
    result = table.run()
    assert dict(result.schema) == {
        "id": "bigint",
        "name": "string",
        "amount": "bigint",
        "note": "string",
    }
    assert [(one["id"], one["note"]) for one in table.rows] == [
        (1, None),
        (2, None),
        (2**40, "new"),
    ]
    # with the older schema still, which some other shard may have
    table.send([order(1, at=4, name="Bob")])
    table.run()
    assert [(one["id"], one["name"]) for one in table.rows] == [
        (1, "Bob"),
        (2, "Ann"),
        (2**40, "Eve"),
    ]


def test_a_column_that_is_added_with_a_default_gives_it_to_the_rows_that_are_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",))
    table.send([order(1, at=1), order(2, at=2)])
    table.run()
    table.send([levelled(3, at=5, level=1)])
    result = table.run()
    assert levels(table) == {1: 7, 2: 7, 3: 1}
    assert (result.counts.inserted, result.counts.updated) == (1, 2)
    table.send([levelled(2, at=6, level=None), order(4, at=3)])
    assert table.run().counts.changed == 2
    # the fourth came late: it was there when the column came
    assert levels(table) == {1: 7, 2: None, 3: 1, 4: 7}
    table.send([order(5, at=7)])  # when the column was dropped again
    table.run()
    assert levels(table) == {1: 7, 2: None, 3: 1, 4: 7, 5: None}


def test_names_that_differ_in_case_alone_are_one_column_in_each_split_and_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A row that has two of them is quarantined."""
    reported = [
        aged(1, at=1, Age=30),
        aged(2, at=2, age="old"),
        aged(1, at=3, AGE=31),
        aged(3, at=4, Age=1, age=2),
    ]
    for number, parts in enumerate(
        ([reported], [reported[:2], reported[2:]], [reported[1:], reported[:1]])
    ):
        table = Replica(spark, tmp_path / str(number), ("id",))
        for part in parts:
            table.send(part)
            table.run()
        assert [
            (row["id"], [row[name] for name in row if name.lower() == "age"]) for row in table.rows
        ] == [(1, ["31"]), (2, ["old"])]
        (refused,) = read(f"{table.location}__quarantine")
        assert refused["reason"].startswith("columns Age and age, which differ in case alone")
        if number < 2:
            assert "Age" in table.rows[0]


def aged(number: int, *, at: int, **ages: object) -> Record:
    columns = [
        (name, "int32" if isinstance(age, int) else "string", True) for name, age in ages.items()
    ]
    payload = make_payload(source=at_position(at), after={"id": number, **ages})
    return make_record(
        payload,
        schema=envelope_schema(("id", "int32", False), *columns),
        key={"id": number},
        offset=at,
    )


def levels(table: Replica) -> dict[int, int | None]:
    return {row["id"]: row["level"] for row in table.rows}


@pytest.mark.parametrize("write_mode", [None, "merge-on-read"])
def test_a_column_of_which_no_type_holds_all_values_is_text_in_one_execution_and_in_two(
    spark: SparkSession, tmp_path: Path, write_mode: str | None
) -> None:
    first, last = [order(1, at=1), order(3, at=2, amount=-7)], [with_text(2, at=3, amount="x")]
    for folder, executions in (("one", [first + last]), ("two", [first, last])):
        (tmp_path / folder).mkdir()
        table, schemas = (Replica(spark, tmp_path / folder, ("id",), write_mode=write_mode), [])
        for records in executions:
            table.send(records)
            result = table.run()
            assert "quarantined" not in result.events
            schemas.append(dict(result.schema))
        assert schemas[-1] == {"id": "int", "name": "string", "amount": "string"}
        assert [(row["id"], row["amount"]) for row in table.rows] == [(1, "5"), (2, "x"), (3, "-7")]


def test_a_rewrite_that_dies_before_its_snapshot_is_current_is_done_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column that it made for the new type is none of the table's."""
    table = Replica(spark, tmp_path, ("id",), write_mode="copy-on-write")
    table.send([order(1, at=1)])
    table.run()
    table.send([with_text(2, at=2, amount="x")])
    with monkeypatch.context() as dying:
        dying.setattr(IcebergLog, "publish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.attempt(2)
    assert [(row["id"], row["amount"]) for row in table.rows] == [(1, 5)]
    assert table.attempt(2, attempt=2).schema == (
        ("id", "int"),
        ("name", "string"),
        ("amount", "string"),
    )
    table.number, table.checkpoint = 2, table.end().sources["orders__changes"]
    table.send([order(3, at=4)])
    table.run()
    assert table.rows == [
        {"id": 1, "name": "Ann", "amount": "5"},
        {"id": 2, "name": "Eve", "amount": "x"},
        {"id": 3, "name": "Ann", "amount": "5"},
    ]


def with_text(number: int, *, at: int, amount: str) -> Record:
    """An order after its amount became text in the database."""
    columns = [("id", "int32", False), ("name", "string", True), ("amount", "string", True)]
    payload = make_payload(
        source=at_position(at), after={"id": number, "name": "Eve", "amount": amount}
    )
    return make_record(payload, schema=envelope_schema(*columns), key={"id": number}, offset=at)


def test_what_cannot_be_read_is_quarantined_with_its_position_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",))
    table.send([order(1, at=1)])
    table.run()
    table.send([replace(order(1, at=2), value=b"no JSON", offset=2), order(2, at=4)])
    result = table.run()
    assert result.events == {"applied": 1, "quarantined": 1}
    assert [row["id"] for row in table.rows] == [1, 2]
    refused = {
        one["offset"]: row["reason"]
        for row in read(f"{table.location}__quarantine")
        if (one := json.loads(row["row"]))
    }
    assert "is no JSON" in refused[2]


def test_columns_are_chosen_and_named_as_is_declared_in_letters_of_whatever_case(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = {"ID": "order_id", "Amount": "amt"}
    table = Replica(
        spark,
        tmp_path,
        ("order_id",),
        merge={"except_column_list": ("NAME",)},
        options={"names": names},
    )
    table.send([order(1, at=1), order(2, at=2)])
    table.run()
    table.merge = {"column_list": ("ORDER_ID", "Amt")}
    table.send([order(1, at=3, amount=9), deletion(2, at=4)])
    table.run()
    assert table.rows == [{"order_id": 1, "amt": 9}]


@pytest.mark.parametrize(
    ("write_mode", "name", "of"),
    [(None, "filePath", "Delta"), ("copy-on-write", "_File", "Iceberg")],
)
def test_columns_of_names_that_a_table_cannot_have_are_left_out_and_block_nothing(
    spark: SparkSession, tmp_path: Path, write_mode: str | None, name: str, of: str
) -> None:
    table = Replica(
        spark, tmp_path, ("id",), options={"names": {"a b": "a_b"}}, write_mode=write_mode
    )
    table.send([order(1, at=1), order(2, at=2)])
    table.run()
    refused = (name, "_change_type", "x,y", "__cdc")
    columns = [("id", "int32", False), ("name", "string", True), ("amount", "int64", True)]
    columns += [(one, "string", True) for one in (*refused, "a b")]
    for at in (3, 4):
        row = {"id": 1, "name": "Eve", "amount": at, "a b": "taken", **dict.fromkeys(refused, "x")}
        payload = make_payload("u", source=at_position(at), after=row)
        table.send(
            [make_record(payload, schema=envelope_schema(*columns), key={"id": 1}, offset=at)]
        )
        result = table.run()
        assert result.events == {"applied": 1}
        assert [note for note in result.notes if name in note] == [
            (
                f"column {name} is not taken: {of} has columns of that name; give it another name by "
                f"names={{'{name}': …}}"
            )
        ]
    assert table.rows[0] == {"id": 1, "name": "Eve", "amount": 4, "a_b": "taken"}


def test_a_table_is_laid_out_for_those_who_read_it(spark: SparkSession, tmp_path: Path) -> None:
    table = Replica(
        spark, tmp_path, ("id",), options={"cluster_by": ("id",), "has_deletion_vectors": False}
    )
    table.send([order(1, at=1), order(2, at=2)])
    table.run()
    table.send([order(1, at=3, name="Bob")])
    table.run()
    details = DeltaTable(table.location)
    assert details.metadata().configuration["delta.enableDeletionVectors"] == "false"
    assert "clustering" in (details.protocol().writer_features or [])
    # by a reader without them
    assert sorted(details.to_pyarrow_table(columns=["name"])["name"].to_pylist()) == ["Ann", "Bob"]
