"""The columns of a database's table at a place of its log: as a connector's topic of schema changes tells them, or a reading."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.meaning.wire import order_of, order_text
from lakechime_dagster.cdc.order import Order
from lakechime_dagster.cdc.position import position_of
from lakechime_dagster.cdc.remembering.state import Role, StateRow

_NAME = re.compile(r'"((?:[^"]|"")*)"')
_TOLD, _READ = "told", "read"


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """The columns of a table.

    Attributes:
        table: Its name with that of its database, in PostgreSQL its schema, as messages have them.
        order: The place of the log, and of several changes at one place which came later.
        columns: By name the type in the database's words, in the table's order.
        dialect: The database's.
        is_told: By the log itself: they hold from that place on. Otherwise they were read there.
    """

    table: str
    order: Order
    columns: Mapping[str, str]
    dialect: Dialect
    is_told: bool

    @property
    def row(self) -> StateRow:
        """How it is remembered."""
        columns = orjson.dumps(dict(self.columns)).decode()
        op = _TOLD if self.is_told else _READ
        return StateRow(Role.SCHEMA.value, None, self.table, order_text(self.order), op=op, columns=columns, snapshot=self.dialect.value)

    @classmethod
    def of_row(cls, row: StateRow) -> "TableSchema":
        """The one that a row remembers."""
        columns, dialect = orjson.loads(row.columns or "{}"), Dialect(row.snapshot)
        return cls(table=row.source, order=order_of(row.order), columns=columns, dialect=dialect, is_told=row.op == _TOLD)


def schemas_of(payload: Mapping[str, Any], coordinate: Order) -> list[TableSchema]:
    """What a message of a connector's topic of schema changes tells of tables, after Debezium's documentation of that topic.

    Raises:
        ValueError: It is none, or tells no place of the log.
    """
    try:
        position = position_of(payload["source"])
        found = [(change["id"], change["table"]["columns"]) for change in payload["tableChanges"] or () if change.get("table")]
        columns = [(table_named(name), {one["name"]: _words(one) for one in told}) for name, told in found]
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"{repr(dict(payload))[:200]} is no schema change of Debezium: {problem!r}") from problem
    if not position:
        raise ValueError(f"{repr(dict(payload))[:200]} names no position in the database's log")
    order = coordinate._replace(position=position)
    return [TableSchema(table=name, order=order, columns=told, dialect=Dialect.MYSQL, is_told=True) for name, told in columns]


def table_named(name: str) -> str:
    """The name of a table with that of its database, of `"shop"."orders"`."""
    return ".".join(part.replace('""', '"') for part in _NAME.findall(name)[-2:])


def _words(column: Mapping[str, Any]) -> str:
    """The type of a column as `information_schema` has it: `decimal(10,2)`, `int(10) unsigned`."""
    word, *rest = str(column["typeName"]).lower().split(" ")
    length, scale = column.get("length"), column.get("scale")
    size = "" if length is None or column.get("enumValues") else f"({length})" if scale is None else f"({length},{scale})"
    return " ".join([word + size, *rest])


def needed(schemas: Iterable[TableSchema]) -> list[TableSchema]:
    """Those that say more than their neighbours: of readings that agree, one after another, the first and the last."""
    tables: dict[str, list[TableSchema]] = {}
    for one in sorted(schemas, key=lambda schema: schema.order):
        known = tables.setdefault(one.table, [])
        if len(known) > 1 and all(not each.is_told and each.columns == one.columns for each in (*known[-2:], one)):
            known.pop()
        known.append(one)
    return [one for known in tables.values() for one in known]


def fresh(told: Iterable[TableSchema], known: Iterable[TableSchema]) -> list[TableSchema]:
    """Those that say something else than what was known of their place: a connector that begins anew tells its tables again."""
    before = list(known)
    found: list[TableSchema] = []
    for one in sorted(told, key=lambda schema: schema.order):
        earlier = [each for each in before if each.table == one.table and each.order <= one.order]
        newest = max(earlier, key=lambda each: each.order, default=None)
        if newest is None or not newest.is_told or dict(newest.columns) != dict(one.columns):
            before.append(one)
            found.append(one)
    return found
