"""Scenarios of more than one snapshot: asked for, by another connector, after a failover."""

from typing import Any

from tests.cdc.recording.mariadb import MariaDBStage
from tests.cdc.recording.scenario import Database, scenario
from tests.cdc.recording.stage import Stage
from tests.support.processes import await_found


@scenario(
    "incremental",
    "An incremental snapshot asked for by the signal table reads in chunks of 4 while rows of its "
    "first chunk change in its window.",
    options={
        "signal.data.collection": "shop.debezium_signal",
        "incremental.snapshot.chunk.size": "4",
    },
)
def incremental(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
        "CREATE TABLE debezium_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data "
        "VARCHAR(2048))",
        "INSERT INTO orders VALUES " + ", ".join(f"({key}, 'first')" for key in range(1, 11)),
    )
    stage.connect()
    stage.run(
        "UPDATE orders SET state = 'before' WHERE id IN (1, 9)", "DELETE FROM orders WHERE id = 4"
    )
    writer = stage.session()
    writer.run(
        *["BEGIN", "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"]
        if stage.is_postgres
        else ["LOCK TABLES orders WRITE"]
    )
    signal = '{"type": "incremental", "data-collections": ["shop.orders"]}'
    stage.run(f"INSERT INTO debezium_signal VALUES ('ask', 'execute-snapshot', '{signal}')")
    # The window is open once its signal is there; reading the chunk waits for the lock, so what the
    # writer does falls into the window.
    opened = "SELECT id FROM debezium_signal WHERE type = 'snapshot-window-open'"
    await_found(lambda: stage.run(opened), "the window", 60, stage.expect_health)
    writer.run(
        "UPDATE orders SET state = 'in the window' WHERE id = 2",
        "DELETE FROM orders WHERE id = 3",
        "INSERT INTO orders VALUES (4, 'in the window')",
        "COMMIT" if stage.is_postgres else "UNLOCK TABLES",
    )

    def is_last(message: dict[str, Any]) -> bool:
        return '"snapshot":"incremental"' in (message["value"] or "") and '"payload":{"id":10}' in (
            message["key"] or ""
        )

    stage.await_message("orders", is_last)
    stage.run(
        "UPDATE orders SET state = 'after' WHERE id IN (1, 10)", "DELETE FROM orders WHERE id = 8"
    )


@scenario(
    "resnapshot",
    "A connector of another name takes a snapshot into the same topics; meanwhile rows changed and "
    "came, none went.",
)
def resnapshot(stage: Stage) -> None:
    _before_snapshot(stage)
    stage.end()
    stage.run(
        "UPDATE orders SET state = 'unwatched' WHERE id IN (2, 4)",
        "INSERT INTO orders VALUES (6, 'unwatched')",
    )
    stage.connect()
    stage.run(
        "UPDATE orders SET state = 'second stream' WHERE id = 2", "DELETE FROM orders WHERE id = 6"
    )


@scenario(
    "resnapshot_gap",
    "As resnapshot, but a row is deleted while nobody watches: only its absence from the second "
    "snapshot reports.",
)
def resnapshot_gap(stage: Stage) -> None:
    _before_snapshot(stage)
    stage.end()
    stage.run(
        "DELETE FROM orders WHERE id = 4", "UPDATE orders SET state = 'unwatched' WHERE id = 2"
    )
    stage.connect()
    stage.run(
        "UPDATE orders SET state = 'second stream' WHERE id = 2",
        "INSERT INTO orders VALUES (3, 'second stream')",
    )


@scenario(
    "failover",
    "The server comes back with another id and a log that restart, the connector without "
    "offsets: new snapshot, smaller positions.",
    Database.MARIADB,
    needs_own_server=True,
)
def failover(stage: Stage) -> None:
    assert isinstance(stage, MariaDBStage)
    stage.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    _before_snapshot(stage)
    stage.stack.connect.forget(stage.connectors[-1])
    stage.restart(server_id=2)
    stage.run("UPDATE orders SET state = 'unwatched' WHERE id = 2")
    stage.stack.connect.resume(stage.connectors[-1])
    stage.complete()
    stage.complete()
    stage.run(
        "UPDATE orders SET state = 'second stream' WHERE id = 2",
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES (7, 'second stream')",
    )


def _before_snapshot(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'first snapshot'), (2, 'first snapshot'), (3, 'first "
        "snapshot')",
    )
    stage.connect()
    stage.run(
        "INSERT INTO orders VALUES (4, 'first stream'), (5, 'first stream')",
        "UPDATE orders SET state = 'first stream' WHERE id IN (1, 2)",
        "DELETE FROM orders WHERE id = 3",
        "UPDATE orders SET state = 'first stream 2' WHERE id = 2",
        "DELETE FROM orders WHERE id = 5",
    )
    stage.complete()
