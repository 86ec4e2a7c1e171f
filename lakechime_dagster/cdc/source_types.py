"""The types of the lake that hold what columns of a business database hold, as tools write it whose messages bring no schema."""

import re
from collections.abc import Mapping

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.values import MAX_PRECISION

_WIDTH, _UNSIGNED = r"(?:\(\d+\))?", r" unsigned(?: zerofill)?"
_MYSQL = {
    rf"tinyint{_WIDTH}": "tinyint",
    rf"tinyint{_WIDTH}{_UNSIGNED}|smallint{_WIDTH}|year{_WIDTH}": "smallint",
    rf"smallint{_WIDTH}{_UNSIGNED}|mediumint{_WIDTH}(?:{_UNSIGNED})?|int{_WIDTH}": "int",
    rf"int{_WIDTH}{_UNSIGNED}|bigint{_WIDTH}": "bigint",
    rf"bigint{_WIDTH}{_UNSIGNED}": "decimal(20,0)",
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
