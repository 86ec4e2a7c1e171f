"""The check by another engine: equal tables are equal, and a wrong cell is found and shown."""

import datetime as dt
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.demo.flights import KAFKA, flights_lake
from lakechime_dagster.demo.plan import Plan, Written
from lakechime_dagster.demo.replay import Replayer
from lakechime_dagster.demo.reservations import tables_after
from lakechime_dagster.demo.verify import (
    Finding,
    TableCheck,
    build_expected,
    relation_name,
    verify,
    verify_events,
    warehouse_location,
)
from lakechime_dagster.tables.events import table_of
from lakechime_dagster.tables.sources import MessageTable
from tests.support.iceberg import IcebergWorld
from tests.support.stores import fresh_memory

pytestmark = pytest.mark.tier2

HOURS = 40  # one day complete, the next one under way


@cache
def expected() -> dict[str, pa.Table]:
    """What the computed tables, and those that follow the database, must hold after these hours."""
    plan, targets = Plan(days=2), flights_lake(KAFKA).targets
    with build_expected(plan.written(HOURS), tables_after(plan, HOURS)) as connection:
        names = [table.name for table in targets if not isinstance(table, MessageTable)]
        return {name: connection.table(relation_name(name)).to_arrow_table() for name in names}


@cache
def reported() -> dict[str, pa.Table]:
    """The tables of the airports' events, each event rescued as a whole, so that it is reported
    without knowing of columns.
    """
    lines = list(Plan(days=2).written(HOURS).airport_lines())
    tables: dict[str, list[dict[str, object]]] = {}
    for line in lines:
        if line.event is not None:
            kind = line.event["type"]
            group = {"gate": "gates", "crew": "crews"}.get(kind.partition(".")[0], "airport_other")
            rescued = [
                {"p": f"/{name}", "v": value, "r": "unknown"}
                for name, value in line.event.items()
                if value is not None
            ]
            tables.setdefault(f"{group}.{table_of(kind)}", []).append(
                {"_src": line.source, "_rescued": json.dumps(rescued)}
            )
    taken = [
        (line.source, line.text, line.event or {}, None if line.event else "not_json")
        for line in lines
    ]
    tables["airport.events"] = [
        {
            "_src": source,
            "payload": text,
            "type": event.get("type"),
            "producer": event.get("airline"),
            "reason": reason,
        }
        for source, text, event, reason in taken
    ]
    return {name: pa.Table.from_pylist(rows) for name, rows in tables.items()}


@pytest.fixture(scope="module")
def bronze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse into which a day and a half were replayed."""
    home = tmp_path_factory.mktemp("bronze")
    Replayer(home / "warehouse", DCEStore(fresh_memory()), home / "replay.json", days=2).run(
        hours=HOURS
    )
    return home / "warehouse"


class World:
    """A warehouse whose computed tables are what the expectation says, until a test makes one
    wrong.
    """

    def __init__(self, warehouse: Path, bronze: Path) -> None:
        self.warehouse = warehouse
        self.written: Written = Plan(days=2).written(HOURS)
        (warehouse / "bronze").parent.mkdir(parents=True, exist_ok=True)
        (warehouse / "bronze").symlink_to(bronze / "bronze")
        self.iceberg = IcebergWorld.within(warehouse)
        self.tables = expected()
        for name, rows in self.tables.items():
            self.write(name, rows)
        for name, rows in reported().items():
            write_deltalake(self.location(name), rows)

    def write(self, name: str, rows: pa.Table) -> None:
        if name == "gold.daily_delays":
            self.iceberg.fill(name, rows)
            return
        write_deltalake(self.location(name), rows, mode="overwrite", schema_mode="overwrite")

    def change(self, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
        """Replace the rows of a table by what a change makes of the right ones."""
        self.write(name, change(self.tables[name]))

    def checks(self) -> dict[str, TableCheck]:
        return {
            check.table: check
            for check in verify(
                self.location,
                self.written,
                tables_after(Plan(days=2), HOURS),
                catalog=self.iceberg.properties,
            )
        }

    def location(self, name: str) -> str:
        return warehouse_location(self.warehouse)(name)


@pytest.fixture
def world(tmp_path: Path, bronze: Path) -> World:
    return World(tmp_path / "warehouse", bronze)


def test_a_wrong_cell_a_missing_row_and_missing_changes_are_found_and_shown(world: World) -> None:
    def one_more(rows: pa.Table) -> pa.Table:
        first = pc.and_(pc.equal(rows["carrier"], "UA"), True)  # type: ignore[attr-defined]
        position = rows.schema.get_field_index("cancelled")
        return rows.set_column(
            position,
            "cancelled",
            pc.if_else(first, pc.add(rows["cancelled"], 1), rows["cancelled"]),  # pyright: ignore[reportAttributeAccessIssue]
        )

    world.change("gold.airline_scorecard", one_more)
    world.change(
        "gold.route_hour",
        lambda rows: rows.sort_by([(name, "ascending") for name in ("origin", "dest", "hour")])[1:],
    )
    world.change(
        "cdc.bookings",
        lambda rows: rows.filter(pc.field("changed_at") < dt.datetime(2013, 1, 2, 15)),
    )
    checks = world.checks()

    check = checks["gold.airline_scorecard"]
    assert check.finding is Finding.DIFFERS
    assert check.difference is not None
    assert check.difference.key == {"carrier": "UA"}
    assert check.difference.expected is not None
    assert check.difference.actual == {"cancelled": check.difference.expected["cancelled"] + 1}
    assert "carrier=UA: cancelled is" in str(check)
    check = checks["gold.route_hour"]
    assert (check.finding, str(check.difference)) == (
        Finding.DIFFERS,
        "origin=EWR, dest=ALB, hour=13: is missing",
    )
    assert checks["cdc.bookings"].finding is Finding.DIFFERS


def without(rows: pa.Table, number: int) -> pa.Table:
    return pa.concat_tables([rows[:number], rows[number + 1 :]])


def other_gate(rows: pa.Table) -> pa.Table:
    reported = [
        text.replace('"/gate", "v": "', '"/gate", "v": "X') if number == 3 else text
        for number, text in enumerate(rows["_rescued"].to_pylist())
    ]
    return rows.set_column(rows.schema.get_field_index("_rescued"), "_rescued", pa.array(reported))


def test_an_event_that_is_not_once_and_whole_in_its_table_is_found(world: World) -> None:
    table = "gates.gate__assigned"

    def found(rows: pa.Table) -> TableCheck:
        write_deltalake(world.location(table), rows, mode="overwrite")
        checks = {check.table: check for check in verify_events(world.location, world.written)}
        assert {check.finding for name, check in checks.items() if name != table} == {Finding.EQUAL}
        return checks[table]

    right = reported()[table]
    strange = right.slice(3, 1).set_column(0, "_src", pa.array(["2013-01-01T05.jsonl@7"]))
    wrong = {
        "is missing": without(right, 3),
        "number of rows is 2, should be 1": pa.concat_tables([right, right.slice(3, 1)]),
        "should not be there": pa.concat_tables([right, strange]),
        "gate is 'X": other_gate(right),
    }
    for shown, rows in wrong.items():
        check = found(rows)
        assert check.finding is Finding.DIFFERS
        assert shown in str(check.difference)
