"""How statements are written down for tests, and the tables that their SQL is about."""

from lakechime_dagster.lineage.columns import Names, Statement
from lakechime_dagster.lineage.sql import statements_of_sql
from lakechime_dagster.lineage.sql_query import SqlSchema

TABLES = {
    "shop.orders": ("id", "customer", "amount", "items"),
    "shop.customers": ("id", "name"),
    "gold.days": ("day", "total"),
}
SHORT = {"t": "transformation", "agg": "aggregation"}


def make_schema(**aliases: str) -> SqlSchema:
    """The tables of a small shop; an alias that ends with `_` means all names below."""
    return SqlSchema(
        TABLES, Names(aliases={said.replace("_", ".*"): meant for said, meant in aliases.items()})
    )


def reported(sql: str, dialect: str = "spark", schema: SqlSchema | None = None) -> list[str]:
    """Each statement in one line."""
    return [line(one) for one in statements_of_sql(sql, dialect, schema or make_schema())]


def line(one: Statement) -> str:
    """`target: column = kind source + …, column = !reason | kind source` with what decides about
    rows at the end.
    """
    columns = []
    for column in one.columns:
        parts = [
            f"{source.kind} {source.ref}{' masked' if source.is_masking else ''}"
            for source in column.sources
        ]
        columns.append(
            f"{column.column} = "
            f"{' + '.join([*parts, *(f'!{reason}' for reason in column.opaque)]) or 'constant'}"
        )
    rows = ", ".join(f"{source.kind} {source.ref}" for source in one.indirect)
    unknown = "".join(f" !{reason}" for reason in one.unknown)
    return f"{one.target or 'read'}: {', '.join(columns)}{f' | {rows}' if rows else ''}{unknown}"
