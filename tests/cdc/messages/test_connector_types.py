"""The types of the lake for columns of databases: those of real tables, and each as exact as a
comparison asks.
"""

import json

import pytest

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.database_types import lake_type
from tests.cdc.checksums import FILE

MARIADB = {
    "tinyint": ["tinyint(1)", "tinyint(4)"],
    "smallint": ["smallint(6)", "tinyint(3) unsigned", "year(4)"],
    "int": ["int(11)", "mediumint(8) unsigned", "mediumint(9)", "smallint(5) unsigned"],
    "bigint": ["bigint(20)", "int(10) unsigned", "int(8) unsigned zerofill"],
    "decimal(20,0)": ["bigint(20) unsigned", "decimal(20,0)"],
    "decimal(10,0)": ["decimal(10,0)"],
    "decimal(10,2)": ["decimal(10,2)"],
    "decimal(10,3)": ["decimal(10,3)"],
    "decimal(38,10)": ["decimal(38,10)"],
    "decimal(8,3)": ["decimal(8,3) unsigned zerofill"],
    "float": ["float"],
    "double": ["double"],
    "boolean": ["bit(1)"],
    "string": [
        "char(5)",
        "char(6)",
        "decimal(65,30)",
        "enum('','ö','x')",
        "enum('small','with, comma','größe')",
        "longtext",
        "text",
        "time",
        "time(3)",
        "time(6)",
        "tinytext",
        "varchar(10)",
        "varchar(20)",
        "varchar(50)",
    ],
    "binary": ["binary(4)", "blob", "varbinary(10)"],
    "date": ["date"],
    "timestamp_ntz": ["datetime", "datetime(3)", "datetime(6)"],
    "timestamp": ["timestamp", "timestamp(3)", "timestamp(6)"],
    None: ["bit(10)", "bit(64)", "set('a','b','c')", "set('a','ö')", "uuid"],
}
POSTGRES = {
    "smallint": ["smallint"],
    "int": ["integer"],
    "bigint": ["bigint"],
    "decimal(10,0)": ["numeric(10,0)"],
    "decimal(10,2)": ["numeric(10,2)"],
    "decimal(10,3)": ["numeric(10,3)"],
    "decimal(20,0)": ["numeric(20,0)"],
    "decimal(38,10)": ["numeric(38,10)"],
    "float": ["real"],
    "double": ["double precision"],
    "boolean": ["bit(1)", "boolean"],
    "string": [
        "character varying(20)",
        "character varying(50)",
        "character(5)",
        "character(6)",
        "enum",
        "json",
        "jsonb",
        "numeric",
        "text",
        "time without time zone",
        "time(3) without time zone",
        "time(6) without time zone",
        "uuid",
    ],
    "binary": ["bytea"],
    "date": ["date"],
    "timestamp_ntz": ["timestamp without time zone", "timestamp(3) without time zone"],
    "timestamp": ["timestamp with time zone"],
    None: [
        "bigint[]",
        "bit varying(12)",
        "bit(10)",
        "bit(64)",
        "boolean[]",
        "cidr",
        "inet",
        "int4range",
        "integer[]",
        "interval",
        "macaddr",
        "numeric(10,2)[]",
        "text[]",
        "time with time zone",
        "uuid[]",
    ],
}


@pytest.mark.parametrize(
    ("database", "dialect", "expected"),
    [("mariadb", Dialect.MYSQL, MARIADB), ("postgres", Dialect.POSTGRES, POSTGRES)],
)
def test_the_columns_of_real_tables_have_these_types(
    database: str, dialect: Dialect, expected: dict[str | None, list[str]]
) -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8")).items()
    kinds = {
        kind
        for table, reported in recorded
        if table.startswith(database)
        for kind in reported["types"].values()
    }
    found: dict[str | None, list[str]] = {}
    for kind in sorted(kinds):
        found.setdefault(lake_type(dialect, kind), []).append(kind)
    assert found == expected


@pytest.mark.parametrize(
    ("dialect", "kind", "ddl"),
    [
        (Dialect.MYSQL, "INT", "int"),  # MySQL 8 reports no width
        (Dialect.MYSQL, "bigint unsigned", "decimal(20,0)"),
        (Dialect.MYSQL, "float(7,4) unsigned", "float"),
        (Dialect.MYSQL, "datetime /* mariadb-5.3 */", "timestamp_ntz"),
        (Dialect.MYSQL, "decimal(39,0)", "string"),
        (Dialect.MYSQL, "json", "string"),
        (Dialect.MYSQL, "enum('a)\nb')", "string"),
        (Dialect.MYSQL, "varchar(9) /*M!100301 COMPRESSED*/", None),
        (Dialect.MYSQL, "point", None),
        (Dialect.MYSQL, "inet6", None),
        (Dialect.MYSQL, "integers", None),
        (Dialect.POSTGRES, "numeric(5,-2)", "string"),
        (Dialect.POSTGRES, "numeric(3,5)", "string"),
        (Dialect.POSTGRES, "character varying", "string"),
        (Dialect.POSTGRES, "money", None),
        (Dialect.POSTGRES, "text[]", None),
    ],
)
def test_a_type_is_never_guessed(dialect: Dialect, kind: str, ddl: str | None) -> None:
    assert lake_type(dialect, kind) == ddl
