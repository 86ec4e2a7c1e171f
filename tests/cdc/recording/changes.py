"""Scenarios of what changes rows: inserts, updates, deletes, truncates, and transactions that
overlap.
"""

from tests.cdc.recording.scenario import Database, scenario
from tests.cdc.recording.stage import Stage
from tests.support.processes import await_found


@scenario(
    "basics",
    "Snapshot rows, then inserts, updates, deletes and re-inserts, also several of one key in one "
    "transaction.",
)
def basics(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer VARCHAR(40), amount DECIMAL(10,2), "
        "note TEXT)",
        "CREATE TABLE order_lines (order_id BIGINT, sku VARCHAR(20), quantity INT NOT NULL, "
        "PRIMARY KEY (order_id, sku))",
        "INSERT INTO orders VALUES (1, 'Ada', 10.00, NULL), (2, 'Grace', 20.50, 'ünï 💡 "
        "\"quoted\"'), (3, 'Edsger', -0.01, '')",
        "INSERT INTO order_lines VALUES (1, 'apple', 3), (1, 'pear', 1), (2, 'apple', 2)",
    )
    stage.connect()
    stage.read_columns()
    stage.run(
        "INSERT INTO orders VALUES (4, 'Barbara', 40.00, 'streamed')",
        "UPDATE orders SET amount = 11.00, note = 'updated' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    stage.run_as_one(
        "DELETE FROM orders WHERE id = 3",
        "INSERT INTO orders VALUES (3, 'Edsger again', 30.00, 're-inserted')",
        "UPDATE orders SET amount = 31.00 WHERE id = 3",
    )
    stage.run_as_one(
        "INSERT INTO orders VALUES (5, 'Nobody', 50.00, 'born and gone')",
        "UPDATE orders SET amount = 51.00 WHERE id = 5",
        "DELETE FROM orders WHERE id = 5",
    )
    stage.run(
        "UPDATE orders SET amount = amount + 1",
        "INSERT INTO orders VALUES (6, 'Six', 6, NULL), (7, 'Seven', 7, NULL), (8, 'Eight', 8, "
        "NULL)",
        "DELETE FROM orders WHERE id IN (6, 7)",
        "INSERT INTO orders VALUES (6, 'Six again', 6.60, NULL)",
        "UPDATE order_lines SET quantity = quantity * 10 WHERE order_id = 1",
        "DELETE FROM order_lines WHERE order_id = 2",
    )


@scenario(
    "key_change",
    "Primary keys change: one, a swap over a third value in one transaction, there and back, a "
    "part of a compound key; PostgreSQL also"
    " swaps in one statement, where the delete of a key comes after the create of the same key"
    " (ranks: who applies message by message loses rows).",
)
def key_change(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE accounts (id INT PRIMARY KEY, name VARCHAR(20), balance DECIMAL(10,2))",
        "CREATE TABLE seats (venue INT, seat INT, guest VARCHAR(20), PRIMARY KEY (venue, seat))",
        "INSERT INTO accounts VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3), (4, 'four', 4)",
        "INSERT INTO seats VALUES (1, 1, 'Ada'), (1, 2, 'Grace')",
    )
    if stage.is_postgres:
        stage.run(
            "CREATE TABLE ranks (id INT, name VARCHAR(20), PRIMARY KEY (id) DEFERRABLE INITIALLY "
            "DEFERRED)",
            "ALTER TABLE ranks REPLICA IDENTITY FULL",
            "INSERT INTO ranks VALUES (1, 'one'), (2, 'two'), (11, 'eleven'), (12, 'twelve'), (13, "
            "'thirteen')",
        )
    stage.connect()
    stage.run("UPDATE accounts SET id = 30, balance = 30 WHERE id = 3")
    stage.run_as_one(
        "UPDATE accounts SET id = 100 WHERE id = 1",
        "UPDATE accounts SET id = 1 WHERE id = 2",
        "UPDATE accounts SET id = 2 WHERE id = 100",
    )
    stage.run_as_one(
        "UPDATE accounts SET id = 31 WHERE id = 30", "UPDATE accounts SET id = 30 WHERE id = 31"
    )
    stage.run_as_one(
        "UPDATE accounts SET id = 5 WHERE id = 4", "INSERT INTO accounts VALUES (4, 'new four', 44)"
    )
    stage.run(
        "UPDATE accounts SET id = id + 1000 WHERE id IN (4, 5)",
        "UPDATE seats SET venue = 2, guest = 'Ada moved' WHERE venue = 1 AND seat = 1",
        "INSERT INTO seats VALUES (1, 1, 'Barbara')",
    )
    if stage.is_postgres:
        stage.run(
            "UPDATE ranks SET id = 3 - id WHERE id IN (1, 2)",
            "UPDATE ranks SET id = CASE id WHEN 13 THEN 11 ELSE id + 1 END WHERE id > 10",
        )
    else:
        stage.run("UPDATE accounts SET id = id + 1 WHERE id > 1000 ORDER BY id DESC")


@scenario(
    "truncate",
    "Tables are truncated mid-stream (skipped.operations=none): op t with a null key between rows "
    "before and after.",
    options={"skipped.operations": "none"},
)
def truncate(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE staging (id INT PRIMARY KEY, value VARCHAR(20))",
        "CREATE TABLE staging_two (id INT PRIMARY KEY, value VARCHAR(20))",
        "INSERT INTO staging VALUES (1, 'snapshot'), (2, 'snapshot')",
        "INSERT INTO staging_two VALUES (1, 'snapshot')",
    )
    stage.connect()
    stage.run(
        "INSERT INTO staging VALUES (3, 'before')",
        "UPDATE staging SET value = 'changed before' WHERE id = 1",
    )
    stage.run(
        *["TRUNCATE TABLE staging, staging_two"]
        if stage.is_postgres
        else ["TRUNCATE TABLE staging", "TRUNCATE TABLE staging_two"]
    )
    stage.run(
        "INSERT INTO staging VALUES (1, 'after'), (4, 'after')",
        "INSERT INTO staging_two VALUES (9, 'after')",
    )
    if stage.is_postgres:
        stage.run_as_one(
            "INSERT INTO staging_two VALUES (10, 'cut off')",
            "TRUNCATE TABLE staging_two",
            "INSERT INTO staging_two VALUES (11, 'kept')",
        )
    stage.run("UPDATE staging SET value = 'changed after' WHERE id = 4")


@scenario(
    "keyless",
    "Tables without a primary key: equal rows twice, of which one is deleted; the key is null, or "
    "that of a unique"
    " index where there is one.",
)
def keyless(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE visits (visitor INT, page VARCHAR(20))",
        "CREATE TABLE appended (visitor INT, page VARCHAR(20))",
        "CREATE TABLE coded (code VARCHAR(10) NOT NULL, value INT, CONSTRAINT coded_code UNIQUE "
        "(code))",
    )
    if stage.is_postgres:
        stage.run(
            "ALTER TABLE visits REPLICA IDENTITY FULL",
            "ALTER TABLE coded REPLICA IDENTITY USING INDEX coded_code",
        )
    stage.run(
        "INSERT INTO visits VALUES (1, 'home'), (1, 'home'), (2, NULL)",
        "INSERT INTO coded VALUES ('a', 1), ('b', 2)",
    )
    stage.connect()
    stage.run(
        "INSERT INTO visits VALUES (3, 'cart'), (3, 'cart'), (3, 'cart')",
        "INSERT INTO appended VALUES (1, 'home'), (1, 'home')",
        "UPDATE visits SET page = 'end' WHERE visitor = 2",
        "DELETE FROM visits WHERE ctid = (SELECT min(ctid) FROM visits WHERE visitor = 3)"
        if stage.is_postgres
        else "DELETE FROM visits WHERE visitor = 3 LIMIT 1",
        "DELETE FROM visits WHERE visitor = 1",
        "INSERT INTO visits VALUES (1, 'home')",
        "UPDATE coded SET value = 10 WHERE code = 'a'",
        "UPDATE coded SET code = 'c' WHERE code = 'b'",
        "DELETE FROM coded WHERE code = 'a'",
    )


@scenario(
    "toast",
    "Updates that leave big values unchanged, which the log then lacks: placeholders under REPLICA "
    "IDENTITY DEFAULT, none under FULL.",
    Database.POSTGRES,
)
def toast(stage: Stage) -> None:
    big = (
        "repeat('{0}', 2100)",
        "convert_to(repeat('{0}', 2100), 'UTF8')",
        "array_fill('{0}'::text, ARRAY[500])",
        "(SELECT array_agg(n) FROM generate_series(1, 550) n)",
        "array_fill(md5('{0}')::uuid, ARRAY[140])",
    )
    tables = ("documents", "documents_full")
    for table in tables:
        stage.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, state TEXT, body TEXT, data BYTEA, tags "
            f"TEXT[], numbers INT[], ids UUID[])",
            *[
                f"ALTER TABLE {table} ALTER {column} SET STORAGE EXTERNAL"
                for column in ("body", "data", "tags", "numbers", "ids")
            ],
            *[
                f"INSERT INTO {table} SELECT {key}, 'snapshot', {', '.join(big).format('s')}"
                for key in (1, 2)
            ],
        )
    stage.run("ALTER TABLE documents_full REPLICA IDENTITY FULL")
    stage.connect()
    for table in tables:
        stage.run(
            f"INSERT INTO {table} SELECT 3, 'streamed', {', '.join(big).format('t')}",
            f"INSERT INTO {table} VALUES (4, 'small', 'b', 'd', '{{t}}', '{{1}}', '{{}}')",
            f"UPDATE {table} SET state = 'seen'",
            f"UPDATE {table} SET body = 'short now' WHERE id = 1",
        )
        stage.run_as_one(
            f"UPDATE {table} SET numbers = NULL WHERE id = 3",
            f"UPDATE {table} SET state = 'seen twice' WHERE id = 3",
        )
        stage.run(
            f"UPDATE {table} SET id = 20 WHERE id = 2",
            f"UPDATE {table} SET state = 'moved' WHERE id = 20",
            f"UPDATE {table} SET data = NULL, tags = NULL, numbers = NULL, ids = NULL WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 4",
        )


@scenario(
    "interleaved",
    "A long transaction and one that commits meanwhile touch the same and neighbouring rows; the "
    "long one comes later with older changes.",
    options={"provide.transaction.metadata": "true"},
)
def interleaved(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE accounts (id INT PRIMARY KEY, owner VARCHAR(20), balance DECIMAL(10,2))",
        "INSERT INTO accounts VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3), (4, 'four', 4)",
    )
    stage.connect()
    long, short = stage.session(), stage.session()
    long.run(
        "BEGIN",
        "UPDATE accounts SET balance = 100, owner = 'long' WHERE id = 1",
        "INSERT INTO accounts VALUES (6, 'long', 6)",
    )
    short.run(
        "BEGIN",
        "UPDATE accounts SET balance = 200, owner = 'short' WHERE id = 2",
        "DELETE FROM accounts WHERE id = 4",
    )
    long.run("UPDATE accounts SET balance = 300, owner = 'long' WHERE id = 3")
    _await_another_second(stage)
    short.run("INSERT INTO accounts VALUES (5, 'short', 5)", "COMMIT")
    stage.run("UPDATE accounts SET balance = 201, owner = 'alone' WHERE id = 2")
    _await_another_second(stage)
    long.run(
        "UPDATE accounts SET balance = balance + 1000, owner = 'long' WHERE id = 2",
        "INSERT INTO accounts VALUES (4, 'long again', 44)",
        "UPDATE accounts SET balance = 500, owner = 'long' WHERE id = 5",
        "COMMIT",
    )
    undone = stage.session()
    undone.run("BEGIN", "UPDATE accounts SET owner = 'never'", "ROLLBACK")
    stage.run("UPDATE accounts SET balance = 101, owner = 'alone' WHERE id = 1")


def _await_another_second(stage: Stage) -> None:
    """Until the database's clock shows another second, the unit of MariaDB's log."""
    clock = "SELECT EXTRACT(SECOND FROM CURRENT_TIMESTAMP(0))"
    before = stage.run(clock)
    await_found(lambda: stage.run(clock) != before, "another second", 10)
