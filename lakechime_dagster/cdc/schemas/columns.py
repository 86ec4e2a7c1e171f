"""The columns of a row in a message."""

from base64 import b64encode
from collections.abc import Mapping
from datetime import date
from typing import Any

from lakechime_dagster.cdc.schemas.connect import ConnectSchema
from lakechime_dagster.cdc.schemas.values import AS_WRITTEN, InexactNumberError, ValueType, unavailable, value_type

_NO_VALUE = (ValueError, TypeError, KeyError, ArithmeticError, AttributeError)  # what is raised for a value that is not of its type
_NO_TIME = (1970, 1, 1, 0, 0, 0)


class Columns:
    """How the columns of one schema are read. A column of a type that the lake has none for is text, as its values are written.

    Attributes:
        types: Of each column, in the order of the schema.
        ddl: The same in Spark's words.
        defaults: The values of those that have a constant default, as far as a schema tells: of a time that each row gets by
            itself it tells the beginning of 1970.
    """

    def __init__(self, schema: ConnectSchema, placeholder: str) -> None:
        self.types = {name: _type_of(inner) for name, inner in schema.fields}
        self.ddl = {name: known.ddl for name, known in self.types.items()}
        self.defaults = {name: value for name, inner in schema.fields if (value := _default_of(self.types[name], inner)) is not None}
        self._unavailable = {name: _absent(self.types[name], inner, placeholder) for name, inner in schema.fields}
        self._known = {name: (known.decode, self._unavailable[name]) for name, known in self.types.items()}

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the columns that the row carries: one that the database did not send is not among them.

        Raises:
            ValueError: The schema does not know a column, or a value is not of its type; the message begins with the column.
        """
        found: dict[str, Any] = {}
        try:
            for name, value in row.items():
                decode, absent = self._known[name]
                if value is None:
                    found[name] = None
                elif value not in absent:
                    found[name] = decode(value)
        except _NO_VALUE:
            return self._read_singly(row)
        return found

    def _read_singly(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The same with an error that names the column."""
        found: dict[str, Any] = {}
        for name, value in row.items():
            if name not in self.types:
                raise ValueError(f"{name}: the schema of the message has no such column")
            if value is None:
                found[name] = None
            elif value not in self._unavailable[name]:
                found[name] = decoded(name, self.types[name], value)
        return found


def _type_of(schema: ConnectSchema) -> ValueType:
    try:
        return value_type(schema)
    except (ValueError, KeyError):
        return AS_WRITTEN


def _absent(known: ValueType, schema: ConnectSchema, placeholder: str) -> tuple[Any, ...]:
    """What stands for a value that the message does not carry."""
    if known is AS_WRITTEN:
        return placeholder, b64encode(placeholder.encode()).decode()
    return (unavailable(schema, placeholder),)


def _default_of(known: ValueType, schema: ConnectSchema) -> Any:
    """The constant default of a column; None where it has none."""
    try:
        found = None if schema.default is None else known.decode(schema.default)
    except (*_NO_VALUE, InexactNumberError):
        return None
    return None if isinstance(found, date) and found.timetuple()[:6] == _NO_TIME else found


def decoded(name: str, known: ValueType, value: Any) -> Any:
    """A value as its type reads it.

    Raises:
        ValueError: It is none; the message begins with the name.
    """
    try:
        return known.decode(value)
    except _NO_VALUE as problem:
        raise ValueError(f"{name}: {repr(value)[:80]} is no {known.ddl}: {problem}") from problem
