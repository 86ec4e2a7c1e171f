"""A scenario of values that their texts may confuse: blanks, zeros, NUL, signs, what is written
alike and is not.
"""

from tests.cdc.recording.column_types import TYPES
from tests.cdc.recording.scenario import Database, scenario
from tests.cdc.recording.stage import Stage


@scenario(
    "edges",
    f"Values that texts confuse. {TYPES}.",
    Database.MARIADB,
    options={"bigint.unsigned.handling.mode": "precise"},
)
@scenario("edges", f"Values that texts confuse. {TYPES}.", Database.POSTGRES)
def edges(stage: Stage) -> None:
    tables = _postgres_edges(stage) if stage.is_postgres else _mariadb_edges(stage)
    stage.connect()
    stage.run(
        *[
            f"INSERT INTO {table} SELECT id + 100, {columns} FROM {table}"
            for table, columns in tables.items()
        ]
    )


def _mariadb_edges(stage: Stage) -> dict[str, str]:
    stage.run(
        "CREATE TABLE edges (id INT PRIMARY KEY, v VARCHAR(20), w VARCHAR(20), c CHAR(6), l "
        "VARCHAR(10) CHARACTER SET latin1,"
        " lb TEXT COLLATE utf8mb4_bin, vb VARBINARY(10), z INT(8) ZEROFILL, dz DECIMAL(8,3) "
        "ZEROFILL, d DECIMAL(10,3), d0 DECIMAL(10,0),"
        " f DOUBLE, u UUID, e ENUM('', 'ö', 'x ') CHARACTER SET latin1, s SET('a', 'ö'), y YEAR)",
        "INSERT INTO edges VALUES"
        " (1, 'a', '', 'a', 'é', 'a', X'00', 7, 1.5, 100, 100, 0, "
        "'00000000-0000-0000-0000-0000000000ff', '', '', 1902),"
        " (2, 'a ', 'a', 'a  ', 'é ', 'a ', X'0000', 0, 0, 100.1, 0, -0e0, "
        "'ffffffff-0000-0000-0000-0000000000ff', 'ö', 'a', 1901),"
        " (3, '', 'a', '', '', 'n', X'', 12345678, 12345.678, 0.1, -10, 1e22, NULL, 'x ', 'ö', "
        "2155),"
        " (4, '1:an', NULL, ' a', 'ÿ', CONCAT('a', CHAR(0), 'b'), X'6100', 10, 10, -0.010, 1, "
        "5e-324, NULL, NULL, 'a,ö', NULL),"
        " (5, NULL, '1:an', 'é', NULL, 'e\u0301', NULL, NULL, NULL, NULL, NULL, "
        "123456789.123456789, NULL, NULL, NULL, NULL),"
        " (6, 'n', 'n', NULL, NULL, CHAR(0), NULL, NULL, NULL, NULL, NULL, 0.1, NULL, NULL, NULL, "
        "NULL)",
        "CREATE TABLE names (name VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, value INT)",
        "INSERT INTO names VALUES ('a', 1), ('B', 2), ('b', 3), ('Z', 4), ('ä', 5), ('z', 6), "
        "('💡', 7), ('～', 8), ('', 9), ('n', 10)",
        "CREATE TABLE pairs (shard SMALLINT, id BIGINT UNSIGNED, value VARCHAR(20), PRIMARY KEY "
        "(shard, id))",
        "INSERT INTO pairs VALUES (-1, 1, 'a'), (-1, 18446744073709551615, 'b'), (2, 0, 'c'), (2, "
        "9223372036854775807, 'd'),"
        " (2, 9223372036854775808, 'e'), (10, 5, 'f')",
    )
    return {"edges": "v, w, c, l, lb, vb, z, dz, d, d0, f, u, e, s, y"}


def _postgres_edges(stage: Stage) -> dict[str, str]:
    stage.run(
        "CREATE TYPE mood AS ENUM ('', 'ö', 'x ')",
        "CREATE TABLE edges (id INT PRIMARY KEY, v VARCHAR(20), w TEXT, c CHAR(6), by BYTEA, d "
        "NUMERIC(10,3), d0 NUMERIC(10,0), n NUMERIC,"
        " f DOUBLE PRECISION, r REAL, e mood, t6 TIME(6), t TIME, tz TIMETZ, ts TIMESTAMP, tsz "
        "TIMESTAMPTZ, day DATE)",
        "INSERT INTO edges VALUES"
        " (1, 'a', '', 'a', '\\x00', 100, 100, 100.00, 0, 0, '', '00:00:00.1', '24:00:00', "
        "'00:00:00.1+01', '1970-01-01',"
        " '1970-01-01 00:00:00Z', '1970-01-01'),"
        " (2, 'a ', 'a', 'a  ', '\\x0000', 100.1, 0, 0.00, '-0', '-0', 'ö', '00:00:00.000001', "
        "'00:00:00', '23:59:59.999999-12',"
        " '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999999Z', '1969-12-31'),"
        " (3, '', 'a', '', '\\x', 0.1, -10, -1e10, 1e22, 16777216, 'x ', NULL, NULL, NULL, "
        "'2024-03-10 02:30:00',"
        " '2024-11-03 01:30:00-05', '0001-01-03'),"
        " (4, '1:an', NULL, ' a', '\\x6100', -0.010, 1, 1.10, 5e-324, 1e-45, NULL, NULL, NULL, "
        "NULL, NULL, NULL, NULL),"
        " (5, NULL, '1:an', 'é', NULL, NULL, NULL, NULL, 'NaN', 'NaN', NULL, NULL, NULL, NULL, "
        "NULL, NULL, NULL),"
        " (6, 'n', 'n', NULL, NULL, NULL, NULL, NULL, '-Infinity', 'Infinity', NULL, NULL, NULL, "
        "NULL, NULL, NULL, NULL)",
        "CREATE TABLE names (name TEXT PRIMARY KEY, value INT)",
        "INSERT INTO names VALUES ('a', 1), ('B', 2), ('b', 3), ('Z', 4), ('ä', 5), ('z', 6), "
        "('💡', 7), ('～', 8), ('', 9), ('n', 10)",
        "CREATE TABLE pairs (shard SMALLINT, id NUMERIC(20,0), value TEXT, PRIMARY KEY (shard, id))",
        "INSERT INTO pairs VALUES (-1, 1, 'a'), (-1, 18446744073709551615, 'b'), (2, 0, 'c'), (2, "
        "9223372036854775807, 'd'),"
        " (2, 9223372036854775808, 'e'), (10, 5, 'f')",
        "CREATE TABLE uuids (id UUID PRIMARY KEY, value BYTEA)",
        "INSERT INTO uuids VALUES ('ffffffff-0000-0000-0000-000000000000', '\\x01'), "
        "('0fffffff-0000-0000-0000-000000000000', '\\x02'),"
        " ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\\x03')",
        "CREATE TABLE moments_as_keys (at TIMESTAMPTZ PRIMARY KEY, value INT)",
        "INSERT INTO moments_as_keys VALUES ('1969-12-31 23:59:59.999999Z', 1), ('2024-01-01Z', "
        "2), ('infinity', 3)",
    )
    return {"edges": "v, w, c, by, d, d0, n, f, r, e, t6, t, tz, ts, tsz, day"}
