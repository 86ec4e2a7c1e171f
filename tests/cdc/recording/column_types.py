"""Scenarios of column types: what their values read as, extremes first."""

from tests.cdc.recording.scenario import SCHEMALESS, Database, scenario
from tests.cdc.recording.stage import Stage

AS_TEXT = {
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "binary.handling.mode": "hex",
    "interval.handling.mode": "string",
}
TYPES = (
    "For each column type its extremes, an ordinary value and NULL, each row once in the snapshot "
    "and once (id + 100) in the stream"
)


@scenario(
    "schemaless_types_text",
    f"{TYPES}; what can be text is text, and no message brings a schema.",
    Database.MARIADB,
    options={**AS_TEXT, **SCHEMALESS, "include.schema.changes": "true"},
)
@scenario(
    "schemaless_types_text",
    f"{TYPES}; what can be text is text, and no message brings a schema.",
    Database.POSTGRES,
    options={**AS_TEXT, **SCHEMALESS},
)
@scenario(
    "schemaless_types",
    f"{TYPES}; unsigned bigint as decimals, and no message brings a schema.",
    Database.MARIADB,
    options={
        "bigint.unsigned.handling.mode": "precise",
        **SCHEMALESS,
        "include.schema.changes": "true",
    },
)
@scenario(
    "schemaless_types",
    f"{TYPES}; no message brings a schema.",
    Database.POSTGRES,
    options=SCHEMALESS,
)
@scenario(
    "types_text",
    f"{TYPES}; what can be text is text: decimals, times (isostring), binary as hex. Unsigned "
    f"bigint as long overflows.",
    Database.MARIADB,
    options=AS_TEXT,
)
@scenario(
    "types_text",
    f"{TYPES}; what can be text is text: decimals, times (isostring), intervals, binary as hex.",
    Database.POSTGRES,
    options=AS_TEXT,
)
@scenario(
    "types",
    f"{TYPES}; unsigned bigint as decimals.",
    Database.MARIADB,
    options={"bigint.unsigned.handling.mode": "precise"},
)
@scenario("types", f"{TYPES}.", Database.POSTGRES)
def types(stage: Stage) -> None:
    tables = _postgres_types(stage) if stage.is_postgres else _mariadb_types(stage)
    stage.connect()
    stage.read_columns()
    stage.run(
        *[
            f"INSERT INTO {table} SELECT id + 100, {columns} FROM {table}"
            for table, columns in tables.items()
        ]
    )
    if stage.is_postgres:
        stage.run(
            "INSERT INTO text_keys VALUES ('ключ \" 2', '11111111-2222-3333-4444-555555555555', "
            "2.50, 'streamed')"
        )
        stage.run(
            "UPDATE text_keys SET value = 'updated'", "DELETE FROM text_keys WHERE name = 'key 1'"
        )
    else:
        stage.run(
            "INSERT INTO wide_keys VALUES (18446744073709551614, 'streamed'), (2, 'streamed')"
        )
        stage.run(
            "UPDATE wide_keys SET value = 'updated' WHERE id > 1",
            "DELETE FROM wide_keys WHERE id = 18446744073709551615",
        )
        stage.run(
            "INSERT INTO moment_keys VALUES (X'00FF10', '2024-02-29', '2024-02-29 "
            "01:02:03.456789', 'streamed')"
        )
        stage.run("UPDATE moment_keys SET value = 'updated'")


def _mariadb_types(stage: Stage) -> dict[str, str]:
    stage.run(
        "CREATE TABLE numbers (id INT PRIMARY KEY, t TINYINT, t1 TINYINT(1), s SMALLINT, m "
        "MEDIUMINT, i INT, b BIGINT, tu TINYINT UNSIGNED,"
        " su SMALLINT UNSIGNED, mu MEDIUMINT UNSIGNED, iu INT UNSIGNED, bu BIGINT UNSIGNED, d "
        "DECIMAL(10,2), d0 DECIMAL(20,0),"
        " d38 DECIMAL(38,10), d65 DECIMAL(65,30), f FLOAT, g DOUBLE, b1 BIT(1), b10 BIT(10), b64 "
        "BIT(64))",
        "INSERT INTO numbers VALUES"
        " (1, 127, 1, 32767, 8388607, 2147483647, 9223372036854775807, 255, 65535, 16777215, "
        "4294967295, 18446744073709551615, 99999999.99,"
        " 99999999999999999999, 9999999999999999999999999999.9999999999,"
        " 99999999999999999999999999999999999.999999999999999999999999999999,"
        " 3.4028e38, 1.7976931348623157e308, b'1', b'1111111111', "
        "b'1000000000000000000000000000000000000000000000000000000000000001'),"
        " (2, -128, 0, -32768, -8388608, -2147483648, -9223372036854775808, 0, 0, 0, 0, 0, "
        "-99999999.99, -99999999999999999999,"
        " -9999999999999999999999999999.9999999999, -0.000000000000000000000000000001, -3.4028e38, "
        "-1.7976931348623157e308, b'0', b'0',"
        " b'0'),"
        " (3, 1, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.01, 1, 0.0000000001, 1.5, 0.1, 0.1, b'1', "
        "b'0100000011', b'1010'),"
        " (4, -1, -1, -1, -1, -1, -1, 128, 32768, 8388608, 2147483648, 9223372036854775808, -1.28, "
        "128, -0.5, 0, 16777217, 1e-300, b'0',"
        " b'1', b'1111111100000000')",
        "INSERT INTO numbers (id) VALUES (5)",
        "CREATE TABLE moments (id INT PRIMARY KEY, d DATE, t TIME, t3 TIME(3), t6 TIME(6), dt "
        "DATETIME, dt3 DATETIME(3), dt6 DATETIME(6),"
        " ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, ts6 TIMESTAMP(6) NULL, y YEAR)",
        "INSERT INTO moments VALUES"
        " (1, '2024-02-29', '01:02:03', '01:02:03.456', '01:02:03.456789', '2024-02-29 01:02:03', "
        "'2024-02-29 01:02:03.456',"
        " '2024-02-29 01:02:03.456789', '2024-02-29 01:02:03', '2024-02-29 01:02:03.456', "
        "'2024-02-29 01:02:03.456789', 2024),"
        " (2, '1000-01-01', '-838:59:59', '-838:59:59', '-838:59:59', '1000-01-01 00:00:00', "
        "'1000-01-01 00:00:00', '1000-01-01 00:00:00',"
        " '1970-01-01 00:00:01', '1970-01-01 00:00:01', '1970-01-01 00:00:01', 1901),"
        " (3, '9999-12-31', '838:59:59', '838:59:59.999', '838:59:59.999999', '9999-12-31 "
        "23:59:59', '9999-12-31 23:59:59.999',"
        " '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07', '2038-01-19 03:14:07.999', "
        "'2038-01-19 03:14:07.999999', 2155),"
        " (4, '1969-12-31', '00:00:00', '-00:00:00.001', '-00:00:00.000001', '1969-12-31 "
        "23:59:59', '1969-12-31 23:59:59.999',"
        " '1969-12-31 23:59:59.999999', '2024-10-27 01:30:00', '2024-03-31 02:30:00.5', "
        "'2024-03-31 02:30:00.000001', 1970)",
        "INSERT INTO moments (id) VALUES (5)",
        "CREATE TABLE texts (id INT PRIMARY KEY, c CHAR(5), v VARCHAR(50), l VARCHAR(20) CHARACTER "
        "SET latin1, tt TINYTEXT, tx TEXT,"
        " j JSON, e ENUM('small', 'with, comma', 'größe'), s SET('a', 'b', 'c'), bi BINARY(4), vb "
        "VARBINARY(10), bl BLOB)",
        "INSERT INTO texts VALUES"
        " (1, 'abc  ', 'ünï 💡 日本 \\\\ \"q\"', 'café', 'line\\none', REPEAT('long ', 50), '{\"a\": "
        '[1, 2.50, null], "ü": "💡"}\','
        " 'größe', 'a,c', X'00FF', X'DEADBEEF', X'000102FF'),"
        " (2, '', '', '', '', '', '[]', 'small', '', X'', X'', X''),"
        " (3, '💡', 'NULL', 'null', '\\\\N', '\\t\\r\\n', 'null', 'with, comma', 'a,b,c', "
        "X'01020304', X'30', 'text in a blob')",
        "INSERT INTO texts (id) VALUES (4)",
        "CREATE TABLE zero_dates (id INT PRIMARY KEY, d DATE, dt DATETIME, d_required DATE NOT "
        "NULL, dt_required DATETIME NOT NULL)",
        "INSERT INTO zero_dates VALUES (1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00', "
        "'0000-00-00 00:00:00')",
        "CREATE TABLE wide_keys (id BIGINT UNSIGNED PRIMARY KEY, value VARCHAR(20))",
        "INSERT INTO wide_keys VALUES (18446744073709551615, 'snapshot'), (1, 'snapshot')",
        "CREATE TABLE moment_keys (b BINARY(4), d DATE, dt DATETIME(6), value VARCHAR(20), PRIMARY "
        "KEY (b, d, dt))",
        "INSERT INTO moment_keys VALUES (X'00FF', '1969-12-31', '1969-12-31 23:59:59.999999', "
        "'snapshot')",
    )
    return {
        "numbers": "t, t1, s, m, i, b, tu, su, mu, iu, bu, d, d0, d38, d65, f, g, b1, b10, b64",
        "moments": "d, t, t3, t6, dt, dt3, dt6, ts, ts3, ts6, y",
        "texts": "c, v, l, tt, tx, j, e, s, bi, vb, bl",
        "zero_dates": "d, dt, d_required, dt_required",
    }


def _postgres_types(stage: Stage) -> dict[str, str]:
    stage.run(
        "CREATE TYPE size AS ENUM ('small', 'with, comma', 'größe')",
        "CREATE TABLE numbers (id INT PRIMARY KEY, s SMALLINT, i INT, b BIGINT, d NUMERIC(10,2), "
        "d38 NUMERIC(38,10), n NUMERIC, r REAL,"
        " f DOUBLE PRECISION, flag BOOLEAN, b1 BIT(1), b10 BIT(10), b64 BIT(64), bv BIT "
        "VARYING(12))",
        "INSERT INTO numbers VALUES"
        " (1, 32767, 2147483647, 9223372036854775807, 99999999.99, "
        "9999999999999999999999999999.9999999999,"
        " 123456789012345678901234567890123456789012345678901234567890.123456789, 3.4028e38, "
        "1.7976931348623157e308, true, B'1',"
        " B'1111111111', B'1000000000000000000000000000000000000000000000000000000000000001', "
        "B'111100001111'),"
        " (2, -32768, -2147483648, -9223372036854775808, -99999999.99, "
        "-9999999999999999999999999999.9999999999, -0.000000000000000000001,"
        " -3.4028e38, -1.7976931348623157e308, false, B'0', B'0000000000', repeat('0', "
        "64)::bit(64), B''),"
        " (3, 1, 1, 1, 0.01, 0.0000000001, 1.50, 0.1, 0.1, true, B'1', B'0100000011', repeat('10', "
        "32)::bit(64), B'1'),"
        " (4, -1, -1, -1, -1.28, -0.5, 0, 16777217, 1e-300, false, B'0', B'0000000001', "
        "repeat('1', 64)::bit(64), B'0001'),"
        " (5, 0, 0, 0, 0, 0, 1e20, 0, 0, true, B'1', B'1000000000', repeat('01', 32)::bit(64), "
        "B'100000000000')",
        "INSERT INTO numbers (id) VALUES (6)",
        "CREATE TABLE not_numbers (id INT PRIMARY KEY, d NUMERIC(10,2), n NUMERIC, r REAL, f "
        "DOUBLE PRECISION)",
        "INSERT INTO not_numbers VALUES (1, 'NaN', 'NaN', 'NaN', 'NaN'), (2, 0, 0, 'Infinity', "
        "'Infinity'),"
        " (3, 0, 0, '-Infinity', '-Infinity')",
        "CREATE TABLE moments (id INT PRIMARY KEY, d DATE, t TIME, t3 TIME(3), tz TIMETZ, ts "
        "TIMESTAMP, ts3 TIMESTAMP(3), tsz TIMESTAMPTZ,"
        " iv INTERVAL)",
        "INSERT INTO moments VALUES"
        " (1, '2024-02-29', '01:02:03.456789', '01:02:03.456', '01:02:03.456789+02:00', "
        "'2024-02-29 01:02:03.456789',"
        " '2024-02-29 01:02:03.456', '2024-02-29 01:02:03.456789+02:00', '1 year 2 months 3 days "
        "04:05:06.789'),"
        " (2, '0001-01-01', '00:00:00', '00:00:00', '00:00:00+00', '0001-01-01 00:00:00', "
        "'0001-01-01 00:00:00', '0001-01-01 00:00:00+00',"
        " '-1 day'),"
        " (3, '9999-12-31', '23:59:59.999999', '23:59:59.999', '23:59:59.999999-12', '9999-12-31 "
        "23:59:59.999999',"
        " '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.999999+00', '178000000 years'),"
        " (4, '1969-12-31', '12:00:00', '12:00:00', '12:00:00+14', '1969-12-31 23:59:59.999999', "
        "'1969-12-31 23:59:59.999',"
        " '1969-12-31 23:59:59.999999+00', '-00:00:00.000001')",
        "INSERT INTO moments (id) VALUES (5)",
        "CREATE TABLE endless (id INT PRIMARY KEY, d DATE, ts TIMESTAMP, tsz TIMESTAMPTZ)",
        "INSERT INTO endless VALUES (1, 'infinity', 'infinity', 'infinity'), (2, '-infinity', "
        "'-infinity', '-infinity')",
        "CREATE TABLE texts (id INT PRIMARY KEY, c CHAR(5), v VARCHAR(50), tx TEXT, j JSON, jb "
        "JSONB, u UUID, e size, by BYTEA, ip INET,"
        " net CIDR, mac MACADDR, span INT4RANGE, ta TEXT[], ia INT[], ba BIGINT[], ua UUID[], na "
        "NUMERIC(10,2)[], fa BOOLEAN[])",
        "INSERT INTO texts VALUES"
        " (1, 'abc', 'ünï 💡 日本 \\ \"q\"', repeat('long ', 50), '{\"a\": [1, 2.50, null],  \"a\": "
        '"💡"}\','
        ' \'{"b": [1, 2.50], "a": "💡"}\','
        " 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'größe', '\\xdeadbeef00', '10.1.2.3', "
        "'10.1.0.0/16', '08:00:2b:01:02:03', '[1,5)',"
        " ARRAY['a', 'b,c', NULL, '\"q\"', '', '💡'], ARRAY[1, NULL, -2147483648], "
        "ARRAY[9223372036854775807],"
        " ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11']::uuid[], ARRAY[1.50, -0.01, NULL], "
        "ARRAY[true, false, NULL]),"
        " (2, '', '', '', '[]', '[]', '00000000-0000-0000-0000-000000000000', 'small', '', '::1', "
        "'::/0', '00:00:00:00:00:00', 'empty',"
        " '{}',"
        " '{}', '{}', '{}', '{}', '{}'),"
        " (3, '💡', 'NULL', E'\\t\\r\\n', 'null', 'null', 'ffffffff-ffff-ffff-ffff-ffffffffffff', "
        "'with, comma', '\\x00', '10.1.2.3/8',"
        " '2001:db8::/32', 'ff:ff:ff:ff:ff:ff', '(,)', ARRAY['NULL'], ARRAY[0], ARRAY[0], "
        "ARRAY[NULL]::uuid[], ARRAY[0], ARRAY[true])",
        "INSERT INTO texts (id) VALUES (4)",
        "CREATE TABLE text_keys (name TEXT, u UUID, n NUMERIC(10,2), value TEXT, PRIMARY KEY "
        "(name, u, n))",
        "INSERT INTO text_keys VALUES ('key 1', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', -1.5, "
        "'snapshot')",
    )
    return {
        "numbers": "s, i, b, d, d38, n, r, f, flag, b1, b10, b64, bv",
        "not_numbers": "d, n, r, f",
        "moments": "d, t, t3, tz, ts, ts3, tsz, iv",
        "endless": "d, ts, tsz",
        "texts": "c, v, tx, j, jb, u, e, by, ip, net, mac, span, ta, ia, ba, ua, na, fa",
    }
