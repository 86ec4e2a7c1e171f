"""Of statements of a database's schema is known which do to rows what no message tells."""

import json
from typing import Any

import pytest

from lakechime_dagster.cdc.comparing.untold import untold, untold_change
from tests.cdc.captures import captures

TABLE = "shop.orders"


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE orders MODIFY amount DECIMAL(12,4)", "changes column amount"),
        ("ALTER TABLE `shop`.`orders` CHANGE COLUMN a b BIGINT", "changes column a"),
        ("ALTER TABLE orders RENAME COLUMN title TO label", "renames column title"),
        ("ALTER TABLE orders ADD COLUMN c BIGINT NOT NULL DEFAULT (id + 1)", "adds column c, whose values are computed"),
        ("ALTER TABLE orders ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP", "adds column c, whose values are computed"),
        ("ALTER TABLE orders ADD COLUMN c INT GENERATED ALWAYS AS (a + b) STORED", "adds column c, whose values are computed"),
        ("ALTER TABLE orders ADD COLUMN c INT NOT NULL", "adds column c, which may not be null and has no default"),
        ("ALTER TABLE orders DROP PARTITION p", "may change rows: ALTER TABLE orders DROP PARTITION p"),
        ("ALTER TABLE orders TRUNCATE PARTITION old", "may change rows: ALTER TABLE orders TRUNCATE PARTITION old"),
        ("ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE t", "may change rows: ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE t"),
        ("ALTER TABLE orders RENAME TO sold", "renames the table"),
        ("RENAME TABLE orders TO sold", "may change rows: RENAME TABLE orders TO sold"),
        ("DROP TABLE orders", "drops the table"),
        ("ALTER TABLE orders CONVERT\n TO CHARACTER SET utf8mb4", "may change rows: ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4"),
        ("((", "may change rows: (("),
    ],
)
def test_what_rows_have_afterwards_that_no_message_tells_is_named(statement: str, what: str) -> None:
    assert untold(statement) == (what,)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE orders (id INT PRIMARY KEY)",
        "CREATE INDEX i ON orders (customer)",
        "TRUNCATE TABLE orders",  # of which a message tells
        "ALTER TABLE orders ADD COLUMN c INT",
        "ALTER TABLE orders ADD COLUMN c INT NULL",
        "ALTER TABLE orders ADD COLUMN c INT NOT NULL DEFAULT 5",  # which schemas tell
        "ALTER TABLE orders ADD COLUMN c INT NOT NULL DEFAULT -5 AFTER id, ALGORITHM=INSTANT",
        "ALTER TABLE orders ADD COLUMN d DATE NOT NULL DEFAULT '2024-01-01' COMMENT 'since'",
        "ALTER TABLE orders ALTER COLUMN c SET DEFAULT 6",
        "ALTER TABLE orders DROP COLUMN c, ADD INDEX i (customer), DROP INDEX j",
        "ALTER TABLE orders ENGINE=InnoDB",
    ],
)
def test_what_changes_no_row_or_tells_of_all_that_it_changes_is_left_out(statement: str) -> None:
    assert untold(statement) == ()


def test_each_part_of_a_statement_counts() -> None:
    statement = "ALTER TABLE orders ADD COLUMN a INT, RENAME COLUMN b TO c, MODIFY d BIGINT, DROP COLUMN e"
    assert untold(statement) == ("renames column b", "changes column d")


def test_a_long_statement_is_shortened() -> None:
    (what,) = untold(f"ALTER TABLE orders FROBNICATE {'x' * 500}")
    assert (len(what), what[-1]) == (len("may change rows: ") + 120, "…")


def schema_changes(name: str) -> list[dict[str, Any]]:
    """What a connector said of schemas in a recorded capture."""
    (capture,) = [one for one in captures() if one.name == name]
    values = [json.loads(one.value) for one in capture.records if one.value is not None and b'"tableChanges"' in one.value]
    return [value.get("payload", value) for value in values]


def test_what_real_schema_changes_of_a_table_did_is_told_with_its_place_and_time() -> None:
    found = [one for payload in schema_changes("mariadb-scale_change") if (one := untold_change(payload, "shop.untouched"))]
    assert [one.what for one in found] == [("changes column amount",), ("changes column count",), ("renames column title",)]
    assert sorted(found, key=lambda one: one.position) == found
    assert all(one.at_ms is not None and one.at_ms > 1_600_000_000_000 for one in found)


def test_a_table_that_was_dropped_and_made_anew_lost_its_rows_untold() -> None:
    found = [one for payload in schema_changes("mariadb-control") if (one := untold_change(payload, "shop.remade"))]
    assert [one.what for one in found] == [("drops the table",)]


def test_what_a_snapshot_tells_of_schemas_did_nothing_to_rows() -> None:
    dropped = [payload for payload in schema_changes("mariadb-control") if payload["ddl"] == "DROP TABLE IF EXISTS `shop`.`orders`"]
    assert dropped
    assert [untold_change(payload, TABLE) for payload in dropped] == [None] * len(dropped)


@pytest.mark.parametrize("broken", [{}, {"source": None, "ddl": "x", "tableChanges": []}, {"source": {}, "ddl": "x", "tableChanges": [1]}])
def test_what_is_no_schema_change_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is no schema change of Debezium"):
        untold_change(broken, TABLE)
