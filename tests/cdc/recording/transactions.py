"""A scenario of transactions and what the connector's topic of them reports: how many changes each
had, by table.
"""

from tests.cdc.recording.scenario import scenario
from tests.cdc.recording.stage import Stage
from tests.support.processes import await_found

ROWS = 400  # of a transaction that is long enough for Connect to be killed amid it


@scenario(
    "transactions",
    "The connector's topic of transactions: of several tables, of one that it leaves out, key "
    "changes, deletions, a rollback, a truncation"
    " that skipped.operations leaves out, schema changes; a topic of three partitions. Connect is "
    "killed amid a transaction, and"
    " sends messages again.",
    options={
        "provide.transaction.metadata": "true",
        "table.exclude.list": "shop.secrets",
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
        # each message is a request of its own, which takes its time
        "producer.override.batch.size": "1",
    },
)
def transactions(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
        "CREATE TABLE visits (id INT PRIMARY KEY, page VARCHAR(20))",
        "CREATE TABLE secrets (id INT PRIMARY KEY, word VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'snapshot'), (2, 'snapshot')",
    )
    stage.connect()
    stage.run_as_one(
        "INSERT INTO orders VALUES (3, 'new'), (4, 'new')",
        "INSERT INTO secrets VALUES (1, 'sesame')",
        "INSERT INTO visits VALUES (1, 'home'), (2, 'cart')",
        "UPDATE orders SET state = 'paid' WHERE id = 3",
        "DELETE FROM orders WHERE id = 4",
    )
    stage.run_as_one(
        "UPDATE orders SET id = id + 10 WHERE id < 3", "DELETE FROM orders WHERE id = 11"
    )
    stage.run(
        "INSERT INTO secrets VALUES (2, 'alone')", "UPDATE orders SET state = 'alone' WHERE id = 3"
    )
    stage.run("BEGIN", "UPDATE orders SET state = 'never'", "ROLLBACK")
    stage.run("ALTER TABLE visits ADD COLUMN note VARCHAR(20)")
    stage.run_as_one(
        "INSERT INTO orders VALUES (5, 'with a visit')", "INSERT INTO visits VALUES (3, 'end', 'n')"
    )
    if stage.is_postgres:
        stage.run_as_one(
            "INSERT INTO visits VALUES (4, 'cut off', '')",
            "TRUNCATE TABLE visits",
            "INSERT INTO visits VALUES (5, 'kept', '')",
        )
    else:
        stage.run("TRUNCATE TABLE visits", "INSERT INTO visits VALUES (5, 'kept', '')")
    stage.complete()
    numbers = range(100, 100 + ROWS)
    known = stage.broker.size(stage.topic("orders"))
    stage.run_as_one(*[f"INSERT INTO orders VALUES ({number}, 'many')" for number in numbers])
    enough = known + ROWS // 2
    await_found(
        lambda: stage.broker.size(stage.topic("orders")) > enough, "most of many", 60, pause=0.002
    )
    stage.restart_connect()
    stage.complete()
    stage.run_as_one(
        "UPDATE orders SET state = 'after' WHERE id IN (3, 5)",
        "INSERT INTO visits VALUES (6, 'after', '')",
    )
    stage.run("DROP TABLE secrets")
