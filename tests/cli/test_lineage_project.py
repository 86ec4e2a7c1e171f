"""`lakechime lineage export --format table`: what leads to what, flattened into a Delta table."""

from deltalake import DeltaTable

from lakechime_dagster.lineage.recording import SqlLineage
from tests.cli.test_lineage import recorded
from tests.lineage.factories import make_record, make_statement
from tests.support.cli import Cli

__all__ = ["recorded"]


def rows(recorded: Cli) -> set[tuple[str, str | None, str, str | None, int, str]]:
    table = DeltaTable(str(recorded.home / "warehouse" / "lakechime" / "lineage_flat")).to_pyarrow_table()
    return {tuple(row.values()) for row in table.to_pylist()}


def test_tables_and_columns_are_told_with_layer_and_kind(recorded: Cli) -> None:
    told = recorded("lineage", "export", "--format", "table", "--json").json
    found = rows(recorded)
    assert (told["written"], told["tables"] + told["columns"], told["refused"]) == (True, len(found), "")
    assert {
        ("bronze.weather", None, "gold.route_hour", None, 2, "direct"),
        ("bronze.weather", None, "gold.airline_scorecard", None, 2, "unsure"),
        ("bronze.flights", "dep_delay", "gold.route_hour", "avg", 2, "direct"),
        ("bronze.weather", "time_hour", "silver.flights", None, 1, "indirect"),
        ("silver.flights", "wind", "lab.guess", "risk", 1, "unsure"),
    } <= found
    assert recorded("dce", "list", "--table", "lakechime.lineage_flat", "--json").json["events"]


def test_nothing_is_written_while_nothing_has_changed(recorded: Cli) -> None:
    recorded("lineage", "export", "--format", "table")
    assert recorded("lineage", "export", "--format", "table", "--json").json["written"] is False
    assert "tells already all" in recorded("lineage", "export", "--format", "table").out
    assert recorded("lineage", "export", "--format", "table", "--rebuild", "--json").json["written"] is True
    more = make_statement("lab.more", a="silver.flights.wind")
    SqlLineage(recorded.platform.store.engine).record(make_record(more, job="more"))
    assert recorded("lineage", "export", "--format", "table", "--json").json["written"] is True
    assert ("silver.flights", "wind", "lab.more", "a", 1, "direct") in rows(recorded)


def test_columns_above_the_budget_are_refused_aloud_and_tables_are_told(recorded: Cli) -> None:
    answer = recorded("lineage", "export", "--format", "table", "--column-rows", "3")
    assert answer.err == (
        "warning: lakechime.lineage_flat tells no columns: their pairs are more than 3; raise --column-rows, or ask `lakechime lineage`\n"
    )
    assert {row[1] for row in rows(recorded)} == {None}
