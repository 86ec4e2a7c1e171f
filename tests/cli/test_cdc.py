"""`lakechime cdc show` and `check`: what CDC tables hold, and what their messages show."""

import ast
import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from dagster import DagsterRunStatus
from deltalake import DeltaTable

from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.spark_remembered import Seen
from lakechime_dagster.cli.common import subscription_declared
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.runtime.execution import RunningExecution, kept
from lakechime_dagster.sensors.tick import Tick
from lakechime_dagster.tables.cdc import CHANGES, STATE
from lakechime_dagster.tables.databases import Canal, Dms, Maxwell, Monitor
from lakechime_dagster.tables.databases import Database as SourceTable
from lakechime_dagster.triggers.consumers import ConsumerState, Execution
from lakechime_dagster.triggers.subscription import Subscription
from tests.cdc.factories import envelope_schema, make_payload, make_record
from tests.cdc.test_database_snapshot import Database, on_mariadb, on_postgres
from tests.cli.shop import NAME, Shop, counted
from tests.sensors.test_tick import ReportedRuns
from tests.support.cli import Answer, Cli
from tests.support.mariadb import MariaDB
from tests.support.world import ticked

SCHEMA = envelope_schema(
    ("id", "int64", False), ("name", "string", True), ("amount", "int64", True)
)
MARIADB = {
    "connector": "mariadb",
    "name": "m",
    "db": "shop",
    "table": "orders",
    "file": "mysql-bin.000003",
    "ts_ms": 1_700_000_000_000,
}


def reported(
    identity: int, pos: int, op: str = "c", *, transaction: object = None, **columns: object
) -> Record:
    """A message of Debezium about an order, at a position, which is its offset too."""
    row = {"id": identity, "name": "Ann", "amount": 5, **columns}
    sides = {"before": row if op == "d" else None, "after": None if op == "d" else row}
    payload = make_payload(
        op, source={**MARIADB, "pos": pos, "row": 0}, transaction=transaction, **sides
    )
    return make_record(payload, schema=SCHEMA, key={"id": identity}, offset=pos)


@pytest.fixture
def shop(lakechime: Cli) -> Shop:
    shop = Shop.declared(lakechime)
    shop.send(
        reported(1, 10),
        reported(2, 11, name="Bob"),
        reported(1, 12, "u", amount=6),
        reported(2, 13, "d", name="Bob"),
    )
    return shop


def test_list_reports_what_a_table_holds_remembers_and_refused(lakechime: Cli, shop: Shop) -> None:
    shop.refuse((1, "value: it is no JSON", "{}"))
    (table,) = lakechime("cdc", "show", "--json").json["tables"]
    assert (table["name"], table["source"], table["envelope"], table["keys"]) == (
        NAME,
        "in/*.jsonl",
        "Debezium",
        ["id"],
    )
    assert (
        table["rows"],
        table["deleted"],
        table["remembered"],
        table["waiting"],
        table["quarantined"],
    ) == (1, None, 4, 0, 1)
    assert table["consumers"][NAME] is None
    assert "not started" in lakechime("cdc", "show").out


def test_list_counts_rows_that_wait_for_a_column(lakechime: Cli, shop: Shop) -> None:
    shop.send(reported(3, 14, "u", name="__debezium_unavailable_value"), reported(4, 15))
    (table,) = lakechime("cdc", "show", "--json").json["tables"]
    assert (table["rows"], table["waiting"]) == (2, 1)
    shop.send(reported(3, 16, "u", name="Eve"))
    (table,) = lakechime("cdc", "show", "--json").json["tables"]
    assert (table["rows"], table["waiting"]) == (3, 0)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_deleted_row_that_stays_is_counted_apart_and_shown_with_its_end(
    lakechime: Cli, table_format: str
) -> None:
    shop = Shop.declared(lakechime, deletes="soft", format=table_format)
    assert lakechime("cdc", "show", "--json").json["tables"][0]["rows"] == 0
    shop.send(reported(1, 10), reported(2, 11, name="Bob"), reported(2, 13, "d", name="Bob"))
    (table,) = lakechime("cdc", "show", "--json").json["tables"]
    assert (table["rows"], table["deleted"], table["waiting"]) == (1, 1, 0)
    document = lakechime("cdc", "show", NAME, "--key", "[2]", "--json").json
    assert document["rows"] == [
        {"id": 2, "name": "Bob", "amount": 5, "__DELETED_AT": "2023-11-14T22:13:20+00:00"}
    ]
    assert (document["orders"][0]["upserted"][1], document["orders"][0]["deleted"][1]) == (
        [3, 11, 0],
        [3, 13, 0],
    )


def test_a_table_that_cannot_be_read_hinders_no_other_fact(lakechime: Cli, shop: Shop) -> None:
    (
        lakechime.home / "warehouse/shop/orders__state/_delta_log/00000000000000000000.json"
    ).write_text("{")
    answer = lakechime("cdc", "show", "--json")
    (table,) = answer.json["tables"]
    assert (answer.code, table["rows"], table["remembered"]) == (0, 1, None)
    assert "shop.orders__state" in table["problems"][0]


def test_explain_reports_all_that_is_known_of_a_key(lakechime: Cli, shop: Shop) -> None:
    document = lakechime("cdc", "show", NAME, "--key", "[1]", "--json").json
    assert document["rows"] == [{"id": 1, "name": "Ann", "amount": 6}]
    (orders,) = document["orders"]
    assert (orders["source"], orders["upserted"][1], orders["deleted"]) == (
        "m.shop.orders",
        [3, 12, 0],
        None,
    )
    assert counted(document) == {"change": 2}
    assert document["remembered"][0]["columns"]["amount"] == 5
    assert [(one["offset"], one["op"]) for one in document["messages"]] == [(12, "u"), (10, "c")]
    shown = lakechime("cdc", "show", NAME, "--key", "[1]").out
    assert all(
        part in shown
        for part in ("amount", "m.shop.orders", "remembered:", "messages, newest first:")
    )
    assert lakechime("cdc", "show", NAME, "--key", "[2]").out.startswith(
        "the table has no row of this key\n"
    )
    assert lakechime("cdc", "show", NAME, "--key", "[9]").code == 3


def test_a_key_is_columns_in_the_types_of_its_columns(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime)
    day = {"field": "id", "type": "int32", "name": "io.debezium.time.Date", "optional": False}
    schema = envelope_schema(day, ("name", "string", True), ("amount", "int64", True))
    number = (dt.date(2024, 5, 1) - dt.date(1970, 1, 1)).days
    row = {"id": number, "name": "Ann", "amount": 1}
    shop.send(make_record(make_payload(after=row), schema=schema, key=None))
    document = lakechime("cdc", "show", NAME, "--key", '["2024-05-01"]', "--json").json
    assert (document["rows"][0]["id"], len(document["messages"]), len(document["remembered"])) == (
        "2024-05-01",
        1,
        1,
    )
    wrong = lakechime("cdc", "show", NAME, "--key", '["May"]')
    assert (wrong.code, "id: 'May' is no date" in wrong.err) == (2, True)


def test_refused_messages_are_shown_with_their_position_and_reason(
    lakechime: Cli, shop: Shop
) -> None:
    assert lakechime("cdc", "show", NAME, "--quarantine").out == f"{NAME} has refused nothing\n"
    position = (
        '{"topic": "shop.orders", "partition": 0, "offset": %d, "key": null, "message": "{}"}'
    )
    shop.refuse((1, "value: it is no JSON", position % 7), (2, "op: it is none", position % 9))
    document = lakechime("cdc", "show", NAME, "--quarantine", "--json").json
    assert document["total"] == 2
    assert [
        (one["number"], one["topic"], one["offset"], one["reason"]) for one in document["refused"]
    ] == [(2, "shop.orders", 9, "op: it is none"), (1, "shop.orders", 7, "value: it is no JSON")]
    cut = lakechime("cdc", "show", NAME, "--quarantine", "--limit", "1").out
    assert ("value: it is no JSON" in cut, "1 older one not shown" in cut) == (False, True)


def planned(lakechime: Cli) -> Any:
    return lakechime("cdc", "check", NAME, "--json").json


def test_a_plan_shows_tables_and_messages_of_the_bronze_table(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime)
    assert planned(lakechime)["sample"]["messages"] == 0
    assert "nothing was checked: let the table run once" in lakechime("cdc", "check", NAME).out
    shop.send(reported(1, 10), reported(1, 11, "u"))
    document = planned(lakechime)
    assert {one["role"]: (one["name"], one["exists"]) for one in document["tables"]} == {
        "messages": (NAME + CHANGES, True),
        "rows": (NAME, True),
        "remembered": ("shop.orders__state", True),
        "refused": ("shop.orders__quarantine", False),
    }
    sample = document["sample"]
    assert (sample["messages"], sample["kinds"], sample["sources"]) == (
        2,
        {"change": 2},
        ["m.shop.orders"],
    )
    assert sample["columns"] == {"id": "bigint", "name": "string", "amount": "bigint"}
    assert [(one["weight"], one["about"]) for one in document["findings"]] == [
        ("warning", "row before")
    ]
    shown = lakechime("cdc", "check", NAME).out
    assert all(
        part in shown
        for part in ("2 messages of the bronze table read: change 2", "REPLICA IDENTITY FULL")
    )


WHY = ["--reason", "a column was lost", "--who", "ada"]
SOURCE = "m.shop.orders"
BLOCKED = (
    f"{NAME}: in partition 0 of t the position of {SOURCE} goes back from [3, 20] to [1, 4]: "
    f"`lakechime cdc epoch {NAME}`"
)


@pytest.fixture
def two_orders(lakechime: Cli) -> Shop:
    two_orders = Shop.declared(lakechime)
    two_orders.send(reported(1, 10), reported(2, 11))
    return two_orders


@pytest.fixture
def runs() -> ReportedRuns:
    return ReportedRuns()


def tick_of(lakechime: Cli, runs: ReportedRuns) -> Tick:
    """The commits of the bronze table are captured, and the sensor of the table looks."""
    lakechime("table", "reconcile", NAME + CHANGES)
    return ticked(lakechime.platform, subscription_declared(NAME, None), runs)


def completed(lakechime: Cli, runs: ReportedRuns) -> Execution:
    (execution,) = tick_of(lakechime, runs).launches
    lakechime.platform.ledger.complete(execution, None)
    return execution


def held(lakechime: Cli, runs: ReportedRuns, reason: str = BLOCKED) -> None:
    """An execution asks for a person."""
    (execution,) = tick_of(lakechime, runs).launches
    subscription: Subscription = subscription_declared(NAME, None)
    platform = lakechime.platform
    running = RunningExecution(
        platform,
        subscription,
        platform.ledger.begin(execution.execution_id, f"run-{execution.attempt}"),
    )
    with pytest.raises(ConsumerBlockedError), kept(running, platform.log(NAME), lambda line: None):
        raise ConsumerBlockedError(reason)
    runs.report(running.execution, DagsterRunStatus.FAILURE)


def opened(two_orders: Shop) -> int:
    """The epoch that an execution of Spark finds open."""
    from lakechime_dagster.cdc.service import Replica

    return (
        Seen(positions=tuple(Replica(two_orders.lakechime.platform, two_orders.table).positions()))
        .epochs[SOURCE]
        .opened
    )


def consumer(lakechime: Cli) -> Any:
    row = lakechime.platform.ledger.subscription(NAME)
    assert row is not None
    return lakechime.platform.ledger.consumers(row)[""]


def test_a_table_of_whose_messages_none_is_kept_is_not_rebuilt(lakechime: Cli) -> None:
    Shop.declared(lakechime)
    refused = lakechime("trigger", "seek", NAME, "--to", "beginning", *WHY)
    assert (
        refused.code,
        "holds no message, so that shop.orders would be empty" in refused.err,
    ) == (1, True), refused.err


def test_show_reports_positions_of_sources_and_why_the_consumer_is_blocked(
    lakechime: Cli, two_orders: Shop, runs: ReportedRuns
) -> None:
    table = lakechime("cdc", "show", NAME, "--json").json["table"]
    assert (table["asks"], table["opened"]) == (None, {SOURCE: 0})
    assert [
        (one["source"], one["epoch"], one["position"], one["offset"]) for one in table["positions"]
    ] == [(SOURCE, 0, [3, 11, 0], 11)]
    held(lakechime, runs)
    table = lakechime("cdc", "show", NAME, "--json").json["table"]
    consumer = table["consumers"][NAME]
    assert (consumer["state"], table["asks"], consumer["reason"].startswith(BLOCKED)) == (
        "BLOCKED",
        SOURCE,
        True,
    )
    shown = lakechime("cdc", "show", NAME).out
    assert all(part in shown for part in ("BLOCKED", "goes back from", SOURCE, "3, 11, 0"))


def test_an_epoch_that_is_confirmed_is_open_and_its_execution_is_tried_again(
    lakechime: Cli, two_orders: Shop, runs: ReportedRuns
) -> None:
    held(lakechime, runs)
    dry = lakechime("cdc", "epoch", NAME, "--dry-run", "--json").json
    assert (dry["confirmed"], opened(two_orders), consumer(lakechime).state) == (
        1,
        0,
        ConsumerState.BLOCKED,
    )
    two_orders.send(reported(3, 12))
    done = lakechime("cdc", "epoch", NAME, "--who", "ada")
    assert (done.code, f"epoch 1 of {SOURCE} is open" in done.out) == (0, True)
    assert (opened(two_orders), consumer(lakechime).state) == (1, ConsumerState.ACTIVE)
    (execution,) = tick_of(lakechime, runs).launches
    assert (execution.number, execution.attempt) == (1, 2)
    assert lakechime("trigger", "show", NAME, "--json").json["interventions"][0]["who"] == "ada"


def test_an_epoch_is_confirmed_once_for_each_time_it_is_asked_for(
    lakechime: Cli, two_orders: Shop, runs: ReportedRuns
) -> None:
    held(lakechime, runs)
    lakechime("cdc", "epoch", NAME)
    again = lakechime("cdc", "epoch", NAME)
    assert (
        again.code,
        "its consumer is not blocked; nothing was changed" in again.err,
        opened(two_orders),
    ) == (1, True, 1)
    held(lakechime, runs)
    assert lakechime("cdc", "epoch", NAME, "--json").json["confirmed"] == 2
    assert opened(two_orders) == 2


def test_a_confirmation_that_was_cut_short_opens_no_further_epoch(
    lakechime: Cli, two_orders: Shop, runs: ReportedRuns
) -> None:
    held(lakechime, runs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakechime_dagster.triggers.interventions.Interventions.resume", _cut_short)
        assert lakechime("cdc", "epoch", NAME).code == 1
    assert (opened(two_orders), consumer(lakechime).state) == (1, ConsumerState.BLOCKED)
    assert lakechime("cdc", "epoch", NAME, "--json").json["confirmed"] == 1
    assert (opened(two_orders), consumer(lakechime).state) == (1, ConsumerState.ACTIVE)


def _cut_short(*_: object, **__: object) -> None:
    raise OSError("killed")


def test_what_is_blocked_for_another_reason_is_not_confirmed(
    lakechime: Cli, two_orders: Shop, runs: ReportedRuns
) -> None:
    held(lakechime, runs, f"{NAME}: amount is decimal(9,3) now")
    answer = lakechime("cdc", "epoch", NAME)
    assert (
        answer.code,
        "its consumer is BLOCKED: shop.orders: amount is decimal(9,3) now" in answer.err,
    ) == (1, True)
    assert DeltaTable(two_orders.location(STATE)).version() == 0


NOWHERE = "mysql+pymysql://reader:hunter2@127.0.0.1:1/shop"
WRITTEN = """types={
    "id": "decimal(20,0)",
    "amount": "decimal(10,2)",
    "of \\"whom\\"": "string",
    "at": "timestamp",
    "seen": "timestamp_ntz",
    "paid": "boolean",
    # "place": point has no exact type
},
"""


@pytest.fixture
def mysql(mariadb: MariaDB) -> Iterator[Database]:
    with on_mariadb(mariadb) as found:
        found.run(
            "CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY, amount DECIMAL(10,2), `of "
            '"whom"` VARCHAR(9), at TIMESTAMP,'
            " seen DATETIME(6), paid BIT(1), place POINT)"
        )
        yield found


@pytest.fixture
def store(postgres_url: str) -> Iterator[Database]:
    with on_postgres(postgres_url) as found:
        found.run(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, amount NUMERIC(10,2), at TIMESTAMPTZ, "
            "note TEXT)"
        )
        yield found


def written(lakechime: Cli, *arguments: str) -> Answer:
    return lakechime("cdc", "check", NAME, "--types", *arguments)


def of_database(database: Database, table: str = "orders") -> tuple[str, ...]:
    return "--source-url", database.url, "--source-table", f"{database.schema}.{table}"


@pytest.mark.services
def test_types_are_written_as_they_are_declared_and_what_has_none_is_named(
    lakechime: Cli, mysql: Database
) -> None:
    Shop.declared(lakechime, envelope=Maxwell())
    answer = written(lakechime, *of_database(mysql))
    assert (answer.code, answer.out) == (1, WRITTEN)
    assert (
        'no exact type for place (point): declare "string" to keep the text that the tool writes'
        in answer.err
    )
    document = written(lakechime, *of_database(mysql), "--json").json
    assert (document["source_table"], document["refused"]) == (
        f"{mysql.schema}.orders",
        {"place": "point"},
    )
    assert (
        ast.literal_eval(answer.out.strip().removeprefix("types=").removesuffix(","))
        == document["types"]
    )


@pytest.mark.services
def test_types_of_postgresql_are_written_for_a_tool_that_follows_it(
    lakechime: Cli, store: Database
) -> None:
    lakechime.monkeypatch.setenv("SHOP", store.url)
    Shop.declared(
        lakechime,
        envelope=Dms(),
        monitor=Monitor(database=SourceTable("$SHOP", f"{store.schema}.orders")),
    )
    answer = written(lakechime, "--json")
    assert (answer.code, answer.json["types"]) == (
        0,
        {"id": "bigint", "amount": "decimal(10,2)", "at": "timestamp", "note": "string"},
    )
    Shop.declared(lakechime, envelope=Canal())
    other = written(lakechime, *of_database(store))
    assert (
        other.code,
        "Canal captures MySQL and MariaDB, and this is PostgreSQL" in other.err,
    ) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            [],
            2,
            (
                "'--source-url': give the URL of the database, or declare cdc_table(…, "
                "monitor=Monitor(…))"
            ),
        ),
        (
            ["--source-url", NOWHERE, "--source-table", "a.b"],
            1,
            "mysql+pymysql://reader:***@127.0.0.1:1/shop cannot be read",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_named(
    lakechime: Cli, arguments: list[str], code: int, message: str
) -> None:
    Shop.declared(lakechime, envelope=Maxwell())
    answer = written(lakechime, *arguments)
    assert (answer.code, message in answer.err, "hunter2" in answer.err, answer.out) == (
        code,
        True,
        False,
        "",
    )


def test_a_deployment_that_may_ask_no_database_asks_none(lakechime: Cli) -> None:
    lakechime.monkeypatch.setenv("LAKECHIME_SOURCE_QUERIES", "off")
    lakechime.monkeypatch.setenv("SHOP", NOWHERE)
    Shop.declared(
        lakechime, envelope=Maxwell(), monitor=Monitor(database=SourceTable("$SHOP", "shop.orders"))
    )
    given = ("--source-url", NOWHERE)
    answers = written(lakechime), written(lakechime, *given)
    assert [answer.code for answer in answers] == [1, 1]
    assert all(
        "LAKECHIME_SOURCE_QUERIES is off, so that no database is asked" in answer.err
        for answer in answers
    )
