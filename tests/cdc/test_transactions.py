"""What came of transactions, counted beside what their ends report: of real servers' messages, all of
them, or but some.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from lakechime_dagster.assets.cdc import whole
from lakechime_dagster.cdc.job import format_of
from lakechime_dagster.cdc.monitor import Counted
from lakechime_dagster.cdc.monitor_service import transactions_counted
from lakechime_dagster.cdc.record import Message, Record, bronze_row
from lakechime_dagster.cdc.service import Replica
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.tables.databases import UNDECLARED
from lakechime_dagster.tables.sources import JsonLines
from tests.cdc.captures import captures
from tests.cli.shop import Shop
from tests.support.cli import Cli
from tests.support.replica import BRONZE

CAPTURES = {
    capture.name: capture for capture in captures() if capture.name.endswith("-transactions")
}
MINUTE = 60_000
# the transaction amid which Connect was killed
MANY = {"mariadb-transactions": "0-1-21", "postgres-transactions": "773"}
LAST = {"mariadb-transactions": "0-1-23", "postgres-transactions": "775"}
Reported = tuple[Record, int]


@dataclass
class Orders:
    """The messages of a capture about one of its tables, and of its transactions, in a bronze
    table.
    """

    shop: Shop
    name: str
    clock: Callable[[int], None]

    @property
    def reported(self) -> list[Reported]:
        """All that came, with the time of each."""
        topics = (f"{self.name}.shop.orders", f"{self.name}.transaction")
        capture = CAPTURES[self.name]
        return [
            (one, capture.written[one.topic, one.partition, one.offset])
            for one in capture.records
            if one.topic in topics
        ]

    def comes(self, reported: Iterable[Reported]) -> None:
        reader = format_of(self.shop.table.bronze).reader()
        rows = [
            bronze_row(Message(one, list(one.headers.items()), at), reader) for one, at in reported
        ]
        self.shop.write("__changes", rows, BRONZE)

    def counted(self, minutes: int = 1) -> Counted:
        """So many minutes after the last message was written."""
        self.clock(max(CAPTURES[self.name].written.values()) + minutes * MINUTE)
        return transactions_counted(
            Replica(self.shop.lakechime.platform, self.shop.table), UNDECLARED
        )


@pytest.fixture(params=sorted(CAPTURES))
def orders(
    request: pytest.FixtureRequest, lakechime: Cli, monkeypatch: pytest.MonkeyPatch
) -> Orders:
    return of(request.param, lakechime, monkeypatch)


def of(name: str, lakechime: Cli, monkeypatch: pytest.MonkeyPatch, **declared: Any) -> Orders:
    source = JsonLines("in", records=True, transactions="*.transaction", **declared)
    return Orders(
        Shop.declared(lakechime, source=source),
        name,
        lambda at: monkeypatch.setattr(DCEStore, "now", lambda _: at),
    )


def payload(record: Record) -> dict[str, Any]:
    found = {} if record.value is None else json.loads(record.value)
    return found.get("payload", found)


def is_of(record: Record, transaction: str) -> bool:
    """Whether it is a change of this transaction."""
    return (
        str((payload(record).get("transaction") or {}).get("id")).partition(":")[0] == transaction
    )


def without(reported: list[Reported], transaction: str, *ids: int) -> list[Reported]:
    """All but the changes of a transaction to these rows, or to any, however often they came."""
    return [
        one
        for one in reported
        if not (is_of(one[0], transaction) and (not ids or payload(one[0])["after"]["id"] in ids))
    ]


def later(reported: list[Reported]) -> list[Reported]:
    """Messages that come again, the last of each partition a second after all others."""
    end = max(at for _, at in reported) + 1000
    last = {one.partition: one for one, _ in reported if payload(one).get("transaction")}
    return [(replace(one, offset=one.offset + 1000), end) for one in last.values()]


def test_of_all_that_came_nothing_is_lost_though_connect_was_killed_amid_it_and_sent_some_again(
    orders: Orders,
) -> None:
    orders.comes(orders.reported)
    found = orders.counted()
    assert (found.transactions, found.changes, found.is_whole, found.on_their_way) == (
        6,
        413,
        True,
        0,
    )
    result = whole(found)
    assert (result.passed, result.description) == (True, None)
    again = [one for one, _ in orders.reported if is_of(one, MANY[orders.name])]
    assert len(again) == {"mariadb-transactions": 400, "postgres-transactions": 767}[orders.name]


def test_a_change_that_is_dropped_is_reported_with_its_transaction_and_how_many_came(
    orders: Orders,
) -> None:
    orders.comes([*without(orders.reported, MANY[orders.name], 450), *later(orders.reported)])
    found = orders.counted()
    (lacking,) = found.lacking
    assert (lacking.source, lacking.end.transaction) == (
        f"{orders.name}.shop.orders",
        MANY[orders.name],
    )
    assert (lacking.expected, lacking.found, lacking.is_sure) == (400, 399, True)
    result = whole(found)
    topic, partition, offset = lacking.end.where
    reported = f"{orders.name}.shop.orders: of transaction {MANY[orders.name]}, which ended at "
    reported += f"{topic}[{partition}]@{offset}, 399 of 400 changes arrived"
    assert (result.passed, result.severity.value, result.description) == (False, "ERROR", reported)


@pytest.mark.parametrize("name", ["mariadb-transactions"])
def test_of_two_shards_with_the_same_transactions_the_one_that_lacks_a_change_is_named(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    orders = of(name, lakechime, monkeypatch, shards=r"(?P<shard>east|west)\.shop\.orders")

    def at(shard: str, reported: list[Reported]) -> list[Reported]:
        return [
            (
                replace(
                    one,
                    topic=one.topic.replace(name, shard),
                    topic_id=one.topic_id + shard,
                    value=renamed(one.value, shard),
                ),
                time,
            )
            for one, time in reported
        ]

    def renamed(value: bytes | None, shard: str) -> bytes | None:
        return None if value is None else value.replace(name.encode(), shard.encode())

    orders.comes(
        at("east", orders.reported)
        + at("west", [*without(orders.reported, MANY[name], 105), *later(orders.reported)])
    )
    found = orders.counted()
    assert (found.transactions, [one.source for one in found.lacking]) == (12, ["west.shop.orders"])


def test_changes_that_report_no_transaction_are_a_problem_and_no_loss(orders: Orders) -> None:
    def unreported(record: Record) -> Record:
        found = payload(record)
        if found.get("transaction") is None:
            return record
        whole_message = json.loads(record.value or b"")
        whole_message["payload"]["transaction"] = None
        return replace(record, value=json.dumps(whole_message).encode())

    orders.comes((unreported(one), at) for one, at in orders.reported)
    found = orders.counted()
    assert (found.lacking, len(found.problems)) == ((), 1)
    assert f"changes of {orders.name}.shop.orders name no transaction" in found.problems[0]
    assert "provide.transaction.metadata=true" in found.problems[0]
    assert not whole(found).passed
