"""In what form a repair or a load writes rows: that of the table's own messages, whatever else is
beside them.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.load import UnrepairableError
from lakechime_dagster.cdc.load_service import first_streamed, messages_form
from lakechime_dagster.cdc.record import Record, TableFilter
from lakechime_dagster.cdc.service import ReplicaTables
from lakechime_dagster.tables.databases import Debezium
from tests.cdc.factories import envelope_schema, make_payload, make_record
from tests.support.orders import at_position, order
from tests.support.refreshes import open_log
from tests.support.replica import append_messages, replica_tables

Write = Callable[..., ReplicaTables]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    def write(*records: Record) -> ReplicaTables:
        messages = MessageFormat(
            envelope=Debezium(),
            keys=("id",),
            heartbeats="*.heartbeat",
            only=TableFilter(table="o*"),
        )
        bronze, state = tmp_path / "orders__changes", tmp_path / "orders__state"
        append_messages(str(bronze), records, messages)
        log = open_log(str(bronze), "orders__changes")
        return replica_tables(log, log, open_log(str(state), "orders__state"), messages)

    return write


def of_table(name: str, *, topic: str, at: int) -> Record:
    payload = make_payload("u", source=at_position(at, 9_000) | {"table": name})
    return replace(make_record(payload, schema=envelope_schema(), offset=at), topic=topic)


def test_heartbeats_and_messages_of_other_tables_are_no_source_of_the_table(written: Write) -> None:
    others = (
        of_table("heartbeat", topic="shop.heartbeat", at=7),
        of_table("people", topic="shop", at=8),
    )
    tables = written(*others, order(1, at=3, ts_ms=5_000))
    form = messages_form(tables)
    assert (form.source, form.newest_ms) == ("m.shop.orders", 5_000)
    assert first_streamed(tables)[0] == "m.shop.orders"


def test_a_table_that_several_tables_feed_is_refused(written: Write) -> None:
    tables = written(order(1, at=3), of_table("others", topic="shop", at=8))
    with pytest.raises(
        UnrepairableError, match=r"several tables feed it \(m\.shop\.orders, m\.shop\.others\)"
    ):
        messages_form(tables)
