"""From a text of SQL to what each of its statements says of columns."""

from collections.abc import Callable, Mapping
from functools import reduce

from sqlglot import exp

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.record import Statement
from lakechime_dagster.lineage.sql.merges import merge_of
from lakechime_dagster.lineage.sql.queries import Ctes, Reading, once, relation_of
from lakechime_dagster.lineage.sql.relation import Relation
from lakechime_dagster.lineage.sql.schema import SqlSchema
from lakechime_dagster.lineage.sql.sources import from_clause
from lakechime_dagster.lineage.sql.text import checked_dialect, parsed, tokens_of, too_deep
from lakechime_dagster.lineage.sql.writes import changed, created, inserted, read_only, several_inserted, statement, target_of

_UNTOLD = frozenset({"CALL", "EXECUTE", "EXEC", "BEGIN", "DECLARE"})  # which may run anything


def statements_of_sql(sql: str, dialect: str, schema: SqlSchema, namespace: str = "") -> tuple[Statement, ...]:
    """What each statement of a text says of columns, in their order; one that moves no values is left out.

    A query that writes nothing has the target `READ` and its columns by position. Tables that the schema does not know are
    `namespace/name`, by default with the name of the dialect. Nothing is empty silently: a column has sources, or is a
    constant, or says why it is not known.

    Raises:
        InvalidValueError: the text is too long, a template, no SQL of this dialect, or may run anything.
    """
    dialect = checked_dialect(dialect)
    tokens_of(sql, dialect)
    return read_statements(parsed(sql, dialect), sql, schema, namespace or dialect)


def read_statements(several: list[exp.Expr], sql: str, schema: SqlSchema, namespace: str) -> tuple[Statement, ...]:
    """The same of statements that are parsed."""
    found: list[Statement] = []
    temporary: dict[str, exp.Expr] = {}
    try:
        for node in several:
            reading = Reading(schema, namespace, from_clause)
            ctes = _readable(temporary, reading)
            name = _temporary(node)
            if name:
                temporary[name.casefold()] = node.args["expression"]
                continue
            told = _statements(node, reading, ctes)
            found += told
            if isinstance(node, exp.Create) and told and told[0].columns:
                schema = schema.with_table(told[0].target, [one.column for one in told[0].columns])
    except RecursionError:
        raise too_deep(sql) from None
    return tuple(found)


def _statements(node: exp.Expr, reading: Reading, ctes: Ctes) -> list[Statement]:
    if isinstance(node, exp.Query | exp.Values):
        return [read_only(node, reading, ctes)]
    if isinstance(node, exp.Insert):
        return [inserted(node, reading, ctes)]
    if isinstance(node, exp.MultitableInserts):
        return several_inserted(node, reading, ctes)
    if isinstance(node, exp.Create):
        made = created(node, reading, ctes)
        return [made] if made is not None else []
    if isinstance(node, exp.Merge):
        return [merge_of(node, reading, ctes)]
    if isinstance(node, exp.Update | exp.Delete):
        return [changed(node, reading, ctes)]
    if isinstance(node, exp.Copy | exp.LoadData) and isinstance(node.this, exp.Table | exp.Schema):
        reading.unknown.add(f"{node.key.upper()} reads files")
        return [statement(target_of(node.this, reading), (), reading)]
    if isinstance(node, exp.Command) and str(node.this).upper() in _UNTOLD:
        raise InvalidValueError("sql", str(node.this).upper(), "may run any statement; send those that it runs")
    return []


def _temporary(node: exp.Expr) -> str:
    """The name of a view or table of the session alone."""
    if isinstance(node, exp.Cache) and node.args.get("expression"):
        return node.this.name
    properties = node.args.get("properties")
    made = isinstance(node, exp.Create) and isinstance(node.args.get("expression"), exp.Query)
    table = node.this.find(exp.Table) if made and properties and properties.find(exp.TemporaryProperty) else None
    return table.name if table is not None else ""


def _readable(temporary: Mapping[str, exp.Expr], reading: Reading) -> Ctes:
    """What was made for the session, to be read like a common table expression; each can name those before it."""

    def more(ctes: dict[str, Callable[[], Relation]], one: tuple[str, exp.Expr]) -> dict[str, Callable[[], Relation]]:
        name, query = one
        return {**ctes, name: once(lambda: relation_of(query, reading, ctes))}

    return reduce(more, temporary.items(), {})
