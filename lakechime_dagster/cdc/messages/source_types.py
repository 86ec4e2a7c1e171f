"""The types of the lake that hold what columns of a business database hold, as tools write it whose messages bring no schema."""

import re
from collections.abc import Iterator, Mapping

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.ddl import parsed
from lakechime_dagster.cdc.messages.findings import Finding, Weight
from lakechime_dagster.cdc.schemas.drift import widened
from lakechime_dagster.cdc.schemas.values import MAX_PRECISION

_WIDTH, _UNSIGNED = r"(?:\(\d+\))?", r" unsigned(?: zerofill)?"
_UNSIGNED_BIGINT = "decimal(20,0)"
_MYSQL = {
    rf"tinyint{_WIDTH}": "tinyint",
    rf"tinyint{_WIDTH}{_UNSIGNED}|smallint{_WIDTH}|year{_WIDTH}": "smallint",
    rf"smallint{_WIDTH}{_UNSIGNED}|mediumint{_WIDTH}(?:{_UNSIGNED})?|int{_WIDTH}": "int",
    rf"int{_WIDTH}{_UNSIGNED}|bigint{_WIDTH}": "bigint",
    rf"bigint{_WIDTH}{_UNSIGNED}": _UNSIGNED_BIGINT,
    r"float\b.*": "float",
    r"double\b.*": "double",
    r"bit\(1\)": "boolean",
    r"(?:var)?char\(\d+\)|(?:tiny|medium|long)?text|json|enum\(.*\)|time\b.*": "string",
    r"(?:var)?binary\(\d+\)|(?:tiny|medium|long)?blob": "binary",
    r"date": "date",
    r"datetime\b.*": "timestamp_ntz",
    r"timestamp\b.*": "timestamp",
}
_POSTGRES = {
    r"smallint": "smallint",
    r"integer": "int",
    r"bigint|oid": "bigint",
    r"real": "float",
    r"double precision": "double",
    r"boolean|bit\(1\)": "boolean",
    r"character(?: varying)?(?:\(\d+\))?|text|citext|name|enum|jsonb?|uuid|time(?:\(\d\))? without time zone": "string",
    r"bytea": "binary",
    r"date": "date",
    r"timestamp(?:\(\d\))? without time zone": "timestamp_ntz",
    r"timestamp(?:\(\d\))? with time zone": "timestamp",
}
_TYPES: Mapping[Dialect, Mapping[str, str]] = {Dialect.MYSQL: _MYSQL, Dialect.POSTGRES: _POSTGRES}
_DECIMAL = re.compile(rf"(?:decimal|numeric)(?:\((\d+),(-?\d+)\))?(?:{_UNSIGNED})?")


def lake_type(dialect: Dialect, source_type: str) -> str | None:
    """The narrowest type that holds the values of a column exactly; None where none does, or tools write such values differently.

    PostgreSQL's NaN of a numeric and its endless dates are values of no decimal and no date, and are refused as they come.

    Args:
        dialect: The database's.
        source_type: The type in the database's words, as `canonical` takes it.
    """
    kind = source_type.lower()
    if decimal := _DECIMAL.fullmatch(kind):
        precision, scale = (int(part or -1) for part in decimal.groups())
        return f"decimal({precision},{scale})" if 0 <= scale <= precision <= MAX_PRECISION else "string"
    return next((ddl for pattern, ddl in _TYPES[dialect].items() if re.fullmatch(pattern, kind, re.DOTALL)), None)


def check_types(dialect: Dialect, columns: Mapping[str, str], declared: Mapping[str, str]) -> Iterator[Finding]:
    """What of the columns of a database's table, as it is now, the declared types do not hold.

    Args:
        dialect: The database's.
        columns: Their types in the database's words.
        declared: The types in the lake.
    """
    remedy = "declare what `lakechime cdc plan --types` writes, or what is wider"
    if missing := [name for name in columns if name not in declared]:
        problem = f"{', '.join(missing)} of the database's table have no type in types={{…}}: messages with them cannot be read"
        yield Finding(Weight.ERROR, "types", problem, remedy)
    told = [f"{name} is {ddl} here and {columns[name]} there" for name, ddl in declared.items() if name in columns]
    fitting = [_holds(ddl, lake_type(dialect, columns[name])) for name, ddl in declared.items() if name in columns]
    if narrow := [text for text, is_held in zip(told, fitting, strict=True) if not is_held]:
        yield Finding(Weight.WARNING, "types", f"{', '.join(narrow)}: values that are none of the type here are refused", remedy)


def check_unsigned(columns: Mapping[str, str], told: Mapping[str, str]) -> Iterator[Finding]:
    """Columns of MySQL's that hold greater numbers than the type with which Debezium's messages bring them.

    Args:
        columns: The types in the database's words.
        told: The types that the messages bring, in the lake's.
    """
    unsigned = [name for name, kind in columns.items() if lake_type(Dialect.MYSQL, kind) == _UNSIGNED_BIGINT]
    if names := [name for name in unsigned if told.get(name) == "bigint"]:
        problem = f"{', '.join(names)} are BIGINT UNSIGNED and arrive as BIGINT: numbers from 2^63 on become negative ones"
        remedy = "set `bigint.unsigned.handling.mode=precise` in the connector, or `column.propagate.source.type=.*`"
        yield Finding(Weight.WARNING, "unsigned", problem, remedy)


def _holds(declared: str, wanted: str | None) -> bool:
    """Whether a type holds what tools write of another's values; text holds all, and a date is no moment as they write it."""
    try:
        known = str(parsed(declared))
        return known in ("string", wanted) or (wanted not in (None, "date") and widened(known, wanted) == known)
    except ValueError:
        return False
