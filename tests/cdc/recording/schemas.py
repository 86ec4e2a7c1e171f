"""Scenarios of schemas: columns with defaults, and columns that change while rows stream."""

from tests.cdc.recording.scenario import SCHEMALESS, scenario
from tests.cdc.recording.stage import Stage


@scenario(
    "defaults_replaced",
    "As defaults, with the converter's own replace.null.with.default=true: a NULL cannot be reported "
    "from the default.",
    options={
        "key.converter.replace.null.with.default": "true",
        "value.converter.replace.null.with.default": "true",
    },
)
@scenario(
    "defaults",
    "NULL in columns that have a default, and a column added with a default that old rows get "
    "without an event.",
)
def defaults(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE stock (id INT PRIMARY KEY, level INT DEFAULT 7, name VARCHAR(20) DEFAULT "
        "'none', flag INT NOT NULL DEFAULT 1,"
        " price DECIMAL(10,2) DEFAULT 9.90)",
        "INSERT INTO stock VALUES (1, NULL, NULL, 2, NULL)",
        "INSERT INTO stock (id) VALUES (2)",
    )
    stage.connect()
    stage.run(
        "INSERT INTO stock VALUES (3, NULL, NULL, 0, NULL)",
        "INSERT INTO stock (id) VALUES (4)",
        "UPDATE stock SET level = NULL, price = NULL WHERE id = 2",
        "ALTER TABLE stock ADD COLUMN n INT NOT NULL DEFAULT 5",
        "INSERT INTO stock (id) VALUES (5)",
        "INSERT INTO stock VALUES (6, NULL, NULL, 6, NULL, 6)",
        "UPDATE stock SET level = 1 WHERE id IN (1, 3)",
        "DELETE FROM stock WHERE id = 4",
    )


@scenario(
    "schemaless_drift",
    "As scale_change, without schemas in the messages: its columns are reported by the topic of schema "
    "changes, or read between.",
    options={"include.schema.changes": "true", **SCHEMALESS},
)
@scenario(
    "scale_change",
    "A decimal's scale and an integer's width change mid-stream, columns are added, renamed and "
    "dropped.",
    options={"include.schema.changes": "true"},
)
def scale_change(stage: Stage) -> None:
    tables = ("prices", "untouched")
    for table in tables:
        stage.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, amount DECIMAL(10,2), title VARCHAR(10), "
            f"count INT, gone VARCHAR(10))",
            f"INSERT INTO {table} VALUES (1, 1.50, 'one', 1, 'x')",
        )
    stage.connect()
    stage.read_columns()
    stage.run(
        "INSERT INTO prices VALUES (2, 2.25, 'two', 2, 'y')",
        "UPDATE prices SET amount = 1.75 WHERE id = 1",
    )
    stage.read_columns()
    change = "ALTER COLUMN {} TYPE {}" if stage.is_postgres else "MODIFY {} {}"
    for table in tables:
        stage.run(f"ALTER TABLE {table} {change.format('amount', 'DECIMAL(12,4)')}")
    stage.read_columns()
    stage.run(
        "INSERT INTO prices VALUES (3, 3.1234, 'three', 3, 'z')",
        "UPDATE prices SET amount = 1.75 WHERE id = 1",
    )
    stage.read_columns()
    for table in tables:
        stage.run(
            f"ALTER TABLE {table} {change.format('count', 'BIGINT')}",
            f"ALTER TABLE {table} ADD COLUMN note VARCHAR(10)",
            f"ALTER TABLE {table} RENAME COLUMN title TO label",
            f"ALTER TABLE {table} DROP COLUMN gone",
        )
    stage.read_columns()
    stage.run(
        "INSERT INTO prices VALUES (4, 4.4444, 'four', 9223372036854775807, 'new')",
        "UPDATE prices SET note = 'touched' WHERE id < 4",
        "DELETE FROM prices WHERE id = 3",
    )
