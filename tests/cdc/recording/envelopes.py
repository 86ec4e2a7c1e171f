"""Scenarios of what messages are wrapped in and stand between: converters, transformations,
partitions, messages that are no row.
"""

from tests.cdc.recording.changes import basics
from tests.cdc.recording.scenario import SCHEMALESS, Database, scenario
from tests.cdc.recording.stage import Stage
from tests.support.processes import await_found

# With fields added, the transformation builds rows again and by its own default puts a column's
# default in the place of NULL.
REWRITTEN = {
    "transforms.flatten.delete.tombstone.handling.mode": "rewrite",
    "transforms.flatten.replace.null.with.default": "false",
}
FLAT = {
    "transforms": "flatten",
    "transforms.flatten.type": "io.debezium.transforms.ExtractNewRecordState",
}


@scenario(
    "schemaless",
    "The converter writes no schema: types must come from elsewhere.",
    options={**SCHEMALESS, "include.schema.changes": "true"},
)
def schemaless(stage: Stage) -> None:
    basics(stage)


@scenario(
    "partitions",
    "A topic of three partitions: key changes leave their delete in one partition and their create "
    "in another.",
    options={
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
    },
)
def partitions(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four'), (5, 'five'), "
        "(6, 'six')",
    )
    stage.connect()
    stage.run(
        "UPDATE orders SET state = 'updated' WHERE id > 3",
        "DELETE FROM orders WHERE id = 6",
        "INSERT INTO orders VALUES (6, 'again')",
    )
    stage.run_as_one(
        "UPDATE orders SET id = 100 WHERE id = 1",
        "UPDATE orders SET id = 1 WHERE id = 2",
        "UPDATE orders SET id = 2 WHERE id = 100",
    )
    stage.run(
        "UPDATE orders SET id = id + 10 WHERE id IN (3, 4, 5)",
        "UPDATE orders SET id = 3 WHERE id = 13",
    )
    stage.run(
        "INSERT INTO orders VALUES (4, 'new four'), (7, 'seven')",
        "DELETE FROM orders WHERE id = 14",
    )


@scenario(
    "flattened",
    "ExtractNewRecordState with op, table and position added and deletes rewritten to rows with "
    "__deleted.",
    Database.MARIADB,
    options={
        **FLAT,
        **REWRITTEN,
        "transforms.flatten.add.fields": "op,table,source.ts_ms,file,pos,row",
    },
)
@scenario(
    "flattened",
    "ExtractNewRecordState with op, table and position added and deletes rewritten to rows with "
    "__deleted.",
    Database.POSTGRES,
    options={
        **FLAT,
        **REWRITTEN,
        "transforms.flatten.add.fields": "op,table,source.ts_ms,lsn,sequence",
    },
)
@scenario(
    "flattened_defaults",
    "ExtractNewRecordState as it comes: the row alone, a delete is a bare tombstone; no operation, "
    "no position.",
    options=FLAT,
)
def flattened(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE stock (id INT PRIMARY KEY, level INT DEFAULT 7)",
        "INSERT INTO stock VALUES (1, NULL), (2, 2)",
    )
    basics(stage)
    stage.run(
        "INSERT INTO stock VALUES (3, NULL)",
        "UPDATE stock SET level = NULL WHERE id = 2",
        "DELETE FROM stock WHERE id = 1",
    )
    stage.run("UPDATE orders SET id = 40 WHERE id = 4")


@scenario(
    "control",
    "All that is no row: heartbeats, transaction boundaries, schema changes and, on PostgreSQL, "
    "logical messages in and out of a"
    " transaction; the transactions that write to shop.sentinel are the recorder's.",
    options={
        "heartbeat.interval.ms": "1000",
        "provide.transaction.metadata": "true",
        "include.schema.changes": "true",
    },
)
def control(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
        "CREATE TABLE order_lines (order_id INT, line INT, PRIMARY KEY (order_id, line))",
        "INSERT INTO orders VALUES (1, 'snapshot')",
    )
    stage.connect()
    stage.run_as_one(
        "INSERT INTO orders VALUES (2, 'new')",
        "INSERT INTO order_lines VALUES (2, 1), (2, 2)",
        "UPDATE orders SET state = 'paid' WHERE id = 2",
    )
    stage.run_as_one("UPDATE orders SET id = 3 WHERE id = 2")
    stage.run(
        "CREATE TABLE later (id INT PRIMARY KEY)",
        "INSERT INTO later VALUES (1)",
        "ALTER TABLE later ADD COLUMN v INT",
    )
    stage.run("INSERT INTO later VALUES (2, 2)")
    if stage.is_postgres:
        stage.run("SELECT pg_logical_emit_message(false, 'audit', 'outside')")
        stage.run_as_one(
            "SELECT pg_logical_emit_message(true, 'audit', 'inside')",
            "INSERT INTO orders VALUES (4, 'with message')",
        )
    else:
        stage.run(
            "CREATE TABLE remade (id INT PRIMARY KEY, v INT)",
            "INSERT INTO remade VALUES (1, 1)",
            "DROP TABLE remade",
        )
        stage.run(
            "CREATE TABLE remade (id INT PRIMARY KEY, w VARCHAR(5))",
            "INSERT INTO remade VALUES (2, 'w')",
        )
    topic = f"__debezium-heartbeat.{stage.prefix}"
    await_found(
        lambda: stage.broker.has(topic, lambda _: True), "a heartbeat", 30, stage.expect_health
    )
