"""How connectors write columns whose messages do not say it: the schemas that real ones put beside
the same columns.
"""

import json

import pytest

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.database_types import connect_type
from lakechime_dagster.cdc.values import SOURCE_TYPE, ConnectSchema, connect_schema, value_type
from lakechime_dagster.tables.databases import VALUE_SETTINGS, Debezium
from tests.cdc.captures import Capture
from tests.cdc.test_captures import CAPTURES, SAME

MYSQL, POSTGRES = Dialect.MYSQL, Dialect.POSTGRES


def reported(capture: Capture, table: str) -> dict[str, ConnectSchema]:
    """The columns of a table by the schemas of its messages."""
    topic = next(one for one in capture.keys if one.endswith(f".{table}"))
    raw = next(one.value for one in capture.of(topic) if one.value is not None)
    row = connect_schema(json.loads(raw)["schema"]).field("after")
    assert row is not None
    return dict(row.fields)


def meaning(schema: ConnectSchema) -> tuple[object, ...]:
    """What of a schema decides how values are read; the values that an enum allows do not, and a
    long may be known to have no sign.
    """
    parameters = {
        name: value
        for name, value in schema.parameters.items()
        if name not in ("allowed", SOURCE_TYPE)
    }
    return schema.type, schema.name, parameters, schema.items and meaning(schema.items)


@pytest.mark.parametrize("name", [name for name in CAPTURES if "schemaless" in name])
def test_each_column_is_read_as_the_schema_says_that_the_same_connector_writes(name: str) -> None:
    database, _, scenario = name.partition("-")
    same = CAPTURES[f"{database}-{SAME[scenario]}"]
    settings = {
        setting: value for setting, value in same.settings.items() if setting in VALUE_SETTINGS
    }
    first = {one.table.partition(".")[2]: one for one in reversed(CAPTURES[name].readings)}
    assert first
    for table, reading in first.items():
        known = {
            column: connect_type(reading.dialect, kind, Debezium(settings=settings))
            for column, kind in reading.columns.items()
        }
        assert {column: meaning(one) for column, one in known.items()} == {
            column: meaning(one) for column, one in reported(same, table).items()
        }


TYPES = [  # by settings that were not recorded, after the tables of Debezium's documentation
    (
        MYSQL,
        "time(6)",
        {"time.precision.mode": "connect"},
        ("int32", "org.apache.kafka.connect.data.Time"),
    ),
    (
        MYSQL,
        "datetime(6)",
        {"time.precision.mode": "connect"},
        ("int64", "org.apache.kafka.connect.data.Timestamp"),
    ),
    (
        MYSQL,
        "date",
        {"time.precision.mode": "connect"},
        ("int32", "org.apache.kafka.connect.data.Date"),
    ),
    (MYSQL, "time(3)", {"time.precision.mode": "adaptive"}, ("int32", "io.debezium.time.Time")),
    (
        POSTGRES,
        "time(3) without time zone",
        {"time.precision.mode": "adaptive_time_microseconds"},
        ("int64", "io.debezium.time.MicroTime"),
    ),
    (MYSQL, "decimal(10,2)", {"decimal.handling.mode": "double"}, ("double", None)),
    (POSTGRES, "numeric", {"decimal.handling.mode": "double"}, ("double", None)),
    (MYSQL, "bigint(20) unsigned", {}, ("int64", None)),
    (MYSQL, "int(8) unsigned zerofill", {}, ("int64", None)),
    (MYSQL, "blob", {"binary.handling.mode": "base64"}, ("string", None)),
]


@pytest.mark.parametrize(
    ("dialect", "kind", "settings", "written"),
    TYPES,
    ids=[f"{kind}-{settings}" for _, kind, settings, _ in TYPES],
)
def test_a_connectors_settings_decide_how_values_are_written(
    dialect: Dialect, kind: str, settings: dict[str, str], written: tuple[str, str | None]
) -> None:
    found = connect_type(dialect, kind, Debezium(settings=settings))
    assert (found.type, found.name) == written
    assert value_type(found)


@pytest.mark.parametrize(
    ("dialect", "kind"),
    [(MYSQL, "point"), (MYSQL, ""), (POSTGRES, "hstore"), (POSTGRES, "point[]")],
)
def test_a_type_of_which_nobody_knows_how_it_is_written_is_refused(
    dialect: Dialect, kind: str
) -> None:
    with pytest.raises(ValueError, match=r"how Debezium writes '.*' without a schema is not known"):
        connect_type(dialect, kind, Debezium())
