"""The columns of a type's table in the words of SQL, for people who look at them."""

from collections.abc import Mapping

from lakechime_dagster.schema.layout import Column, Holds, Layout

TECHNICAL = {"_src": "string", "_ingested_at": "timestamp", "_hash": "string", "_schema_version": "int", "_rescued": "string"}
_TYPES: Mapping[Holds, str] = {
    Holds.BOOL: "boolean",
    Holds.LONG: "bigint",
    Holds.BIGINT: "decimal(38,0)",
    Holds.FRACTION: "double",
    Holds.DOUBLE: "double",
    Holds.HUGE: "string",
    Holds.STRING: "string",
    Holds.JSON: "string",
    Holds.VARIANT: "variant",
}


def table_columns(layout: Layout) -> list[tuple[str, str]]:
    """The columns of the table of a layout with their types, the technical ones first."""
    return [*TECHNICAL.items(), *((one.name, column_type(one)) for one in layout.columns)]


def column_type(column: Column) -> str:
    """The type of a column, or of a field or an element within one."""
    if column.holds is Holds.OBJECT:
        return f"struct<{','.join(f'{one.name}:{column_type(one)}' for one in column.fields)}>"
    if column.holds is Holds.ARRAY and column.element is not None:
        return f"array<{column_type(column.element)}>"
    return _TYPES[column.holds]
