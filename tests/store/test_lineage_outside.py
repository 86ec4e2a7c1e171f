"""What is outside of a lake and in use, as both databases report it."""

from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.external import ExternalTable, Outside, outside_of
from lakechime_dagster.lineage.recording import SqlLineage, keep_reads
from tests.lineage.factories import make_record, make_statement

LAKE = ("silver.orders", "gold.days")


def read_by(name: str, at: int, *refs: str) -> Read:
    found = tuple(
        ColumnRef(table, column) for table, _, column in (ref.rpartition(".") for ref in refs)
    )
    return Read(
        consumer=Consumer(ConsumerKind.DASHBOARD, "superset", name),
        refs=found,
        at_ms=at,
        owners=(f"team:{name}",),
        link="https://x",
    )


def look(engine: Engine, since: int = 0, most: int = 10) -> Outside:
    return outside_of(engine, LAKE, "local", since, most)


def keep(engine: Engine, *reads: Read) -> None:
    with writing(engine) as connection:
        keep_reads(connection, reads)


def test_who_read_last_comes_first_with_what_it_reads_and_the_rest_is_counted(
    engine: Engine,
) -> None:
    keep(
        engine,
        read_by("old", 10, "gold.days.n"),
        read_by("new", 30, "gold.days.n", "gold.days.day", "silver.orders.id"),
        read_by("mid", 20, "x.y.z"),
    )
    found = look(engine, most=2)
    assert [
        (one.consumer.name, one.tables, one.last_ms, one.owners, one.link)
        for one in found.consumers
    ] == [
        ("new", ("gold.days", "silver.orders"), 30, ("team:new",), "https://x"),
        ("mid", ("x.y",), 20, ("team:mid",), "https://x"),
    ]
    assert (found.more, look(engine, since=25).more, len(look(engine, since=25))) == (1, 0, 1)


def test_data_sets_that_the_lake_does_not_declare_are_reported_with_both_sides(
    engine: Engine,
) -> None:
    lineage = SqlLineage(engine)
    lineage.record(
        make_record(
            make_statement("silver.orders", id="mysql/shop.orders.id"), namespace="local", at=5
        )
    )
    lineage.record(
        make_record(
            make_statement("export.days", n="gold.days.n", m="raw.months.m"),
            namespace="airflow",
            at=7,
            owners=("team:x",),
        )
    )
    lineage.record(
        make_record(make_statement("scratch.ours", n="gold.days.n"), namespace="local", at=9)
    )
    lineage.record(
        make_record(
            make_statement("other.lake", n="scratch.ours.n"),
            namespace="elsewhere",
            job="laned",
            at=9,
        )
    )
    assert look(engine).tables == (
        ExternalTable(table="other.lake", last_ms=9, inputs=("scratch.ours",)),
        ExternalTable(
            table="export.days", last_ms=7, inputs=("gold.days", "raw.months"), owners=("team:x",)
        ),
        ExternalTable(table="raw.months", last_ms=7, readers=("export.days",)),
        ExternalTable(table="mysql/shop.orders", last_ms=5, readers=("silver.orders",)),
    )
    assert [one.table for one in look(engine, since=6, most=2).tables] == [
        "other.lake",
        "export.days",
    ]
    assert (look(engine, most=2).more, look(engine, since=8).more) == (2, 0)


def test_what_another_deployments_consumers_write_is_an_asset_there_and_not_shown(
    engine: Engine,
) -> None:
    from dataclasses import replace

    record = make_record(make_statement("their.table", n="gold.days.n"), namespace="theirs")
    SqlLineage(engine).record(replace(record, consumer="theirs/subscription"))
    assert look(engine).tables == ()
