"""Which dashboards, people and jobs elsewhere a change hits: by the columns that they read, or by
the rows.
"""

from lakechime_dagster.lineage.answers import AffectedConsumer, affected_consumers, reached_tables
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.network import Certainty, network_of
from tests.lineage.graph.test_answers import LAKE

NETWORK = network_of(LAKE)


def read(name: str, *refs: str, at: int = 1_000) -> Read:
    found = [
        ColumnRef(table, column or None)
        for table, _, column in (ref.rpartition(".") for ref in refs)
    ]
    return Read(
        consumer=Consumer(ConsumerKind.DASHBOARD, "bi", name),
        refs=tuple(found),
        at_ms=at,
        owners=(f"{name}@x",),
    )


def hit_by(changed: str, *reads: Read) -> list[AffectedConsumer]:
    table, _, column = changed.rpartition(".")
    refs = [ColumnRef(table, column)]
    return list(affected_consumers(refs, reached_tables(NETWORK, refs), reads))


def test_a_dashboard_is_hit_by_the_columns_that_it_reads_and_by_no_others() -> None:
    several = (
        read("delays", "gold.daily.mean"),
        read("wind", "silver.flights.wind"),
        read("all", "gold.daily.mean", "silver.flights.delay"),
    )
    found = hit_by("bronze.flights.dep_delay", *several)
    assert [
        (one.consumer.name, one.certainty, [str(ref) for ref in one.refs]) for one in found
    ] == [
        ("all", Certainty.DIRECT, ["gold.daily.mean", "silver.flights.delay"]),
        ("delays", Certainty.DIRECT, ["gold.daily.mean"]),
    ]


def test_who_reads_a_table_whose_rows_are_hit_is_hit_and_who_reads_nobody_knows_what_perhaps() -> (
    None
):
    several = (
        read("rows", "gold.daily."),
        read("column", "gold.daily.mean"),
        read("guess", "gold.guess.guess"),
    )
    assert [
        (one.consumer.name, one.certainty) for one in hit_by("silver.flights.carrier", *several)
    ] == [("column", Certainty.INDIRECT), ("rows", Certainty.INDIRECT), ("guess", Certainty.UNSURE)]
    assert [
        one.certainty for one in hit_by("bronze.weather.wind", read("some", "silver.flights."))
    ] == [Certainty.UNSURE]
