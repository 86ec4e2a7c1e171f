"""Columns that a table makes by itself of others when rows are written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakechime_dagster.lineage.columns import ColumnLineage, Kind
from lakechime_dagster.lineage.record import Statement

EXPRESSION = "delta.generationExpression"


def generated_columns(schema: str) -> dict[str, tuple[str, ...]]:
    """Of a Delta table's schema, as its log has it, each generated column with the columns that it is made of.

    One whose expression is not understood is made of all others.
    """
    fields = json.loads(schema)["fields"]
    names = [field["name"] for field in fields]
    return {
        field["name"]: _columns_in(field["metadata"][EXPRESSION], [name for name in names if name != field["name"]])
        for field in fields
        if EXPRESSION in field.get("metadata", {})
    }


def column_names(schema: str) -> list[str]:
    """The columns of a Delta table's schema."""
    return [str(field["name"]) for field in json.loads(schema)["fields"]]


def _columns_in(expression: str, others: Sequence[str]) -> tuple[str, ...]:
    try:
        parsed = sqlglot.parse_one(expression, dialect="spark")
    except SqlglotError:
        return tuple(others)
    used = {(column.parts[0].name).casefold() for column in parsed.find_all(exp.Column)}
    return tuple(name for name in others if name.casefold() in used)


def with_generated(statement: Statement, generated: Mapping[str, tuple[str, ...]]) -> Statement:
    """A statement with those columns that its target makes of the ones it assigns; not every plan tells them.

    Args:
        statement: What a plan told.
        generated: The target's generated columns, each with those that it is made of.
    """
    by_name = {one.column: one for one in statement.columns}
    made = [
        ColumnLineage(
            column=name,
            sources=tuple(source.then(Kind.TRANSFORMATION) for column in used for source in column.sources),
            opaque=tuple(reason for column in used for reason in column.opaque),
            foreign=tuple(code for column in used for code in column.foreign),
        )
        for name, sources in generated.items()
        if name not in by_name and (used := [by_name[source] for source in sources if source in by_name])
    ]
    return replace(statement, columns=(*statement.columns, *made)) if made else statement
