"""Spark SQL as a declaration: one query, the tables that it reads, and the columns that it gives."""

from collections.abc import Iterator, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakechime_dagster.errors import DeclarationError, shown

DIALECT = "spark"


def parse_query(table: str, sql: object) -> exp.Query:
    """The one query of a SQL text.

    Raises:
        DeclarationError: for text that is no query, or one that reads what the lake cannot pin.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise DeclarationError(table, "sql", "is empty; write one SELECT")
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect=DIALECT) if statement is not None]
    except SqlglotError as error:
        raise DeclarationError(table, "sql", f"is not Spark SQL: {_where(error)}") from None
    if len(statements) != 1:
        raise DeclarationError(table, "sql", f"holds {len(statements)} statements; write one SELECT")
    query = statements[0]
    if not isinstance(query, exp.Query):
        raise DeclarationError(table, "sql", f"is a {query.key.upper()} statement; write one SELECT, the table is written from it")
    for named in query.find_all(exp.Table):
        if named.args.get("version") or named.args.get("when"):
            raise DeclarationError(table, "sql", f"{named.name} AS OF: inputs are pinned by the run; remove the clause")
        if "/" in named.name:
            raise DeclarationError(table, "sql", f"reads the path {shown(named.name)}; declare it as a SourceTable with location=")
    return query


def tables_of(query: exp.Expr) -> tuple[str, ...]:
    """The names of the tables that a query reads, each once, in the order of the text; CTEs are not tables."""
    return tuple(dict.fromkeys(dotted(leaf) for leaf in leaves(query)))


def leaves(node: exp.Expr) -> Iterator[exp.Table]:
    """The references to real tables below a node, where it names a CTE those inside of it."""
    for table in node.find_all(exp.Table, bfs=False):
        if not is_table(table):
            continue
        cte = cte_of(table)
        if cte is None:
            yield table
        elif not _inside(table, cte):
            yield from leaves(cte)


def is_table(table: exp.Table) -> bool:
    """Whether this names a table, rather than calling a function such as range(10)."""
    return isinstance(table.this, exp.Identifier)


def dotted(table: exp.Table) -> str:
    """The full name of a table as the SQL writes it."""
    return ".".join(part.name for part in table.parts)


def cte_of(table: exp.Table) -> exp.CTE | None:
    """The common table expression that a name means where it stands, or None for a real table."""
    if table.args.get("db"):
        return None
    child: exp.Expr = table
    parent = child.parent
    while parent is not None:
        visible: list[exp.Expr] = []
        if isinstance(parent, exp.With):
            siblings = parent.expressions
            visible = siblings if parent.args.get("recursive") else siblings[: siblings.index(child)]
        elif isinstance(with_ := parent.args.get("with_"), exp.With) and with_ is not child:
            visible = with_.expressions
        for cte in reversed(visible):
            if isinstance(cte, exp.CTE) and cte.alias.lower() == table.name.lower():
                return cte
        child, parent = parent, parent.parent
    return None


def output_columns(query: exp.Query) -> tuple[str, ...] | None:
    """The names of the query's columns, or None where a star hides them."""
    if any(projection.is_star for projection in query.selects):
        return None
    return tuple(projection.alias_or_name for projection in query.selects)


def with_views(sql: str, views: Mapping[str, str]) -> str:
    """The same query over other names: each table that `views` maps is read from the view of that name.

    An alias by which the text addresses a table's columns stays valid.
    """
    query = sqlglot.parse_one(sql, dialect=DIALECT)
    for table in list(query.find_all(exp.Table)):
        view = views.get(dotted(table)) if is_table(table) and cte_of(table) is None else None
        if view is None:
            continue
        replacement = exp.to_table(f"`{view}`", dialect=DIALECT)
        for name, value in table.args.items():
            if name not in ("this", "db", "catalog"):
                replacement.set(name, value.copy() if isinstance(value, exp.Expr) else value)
        if not replacement.args.get("alias"):
            replacement.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        _shorten_columns(query, table)
        table.replace(replacement)
    return query.sql(dialect=DIALECT)


def _shorten_columns(query: exp.Expr, table: exp.Table) -> None:
    """Columns written as schema.table.column keep only table.column."""
    for column in query.find_all(exp.Column):
        if column.args.get("db") and column.table == table.name and column.text("db") == table.db:
            column.set("db", None)
            column.set("catalog", None)


def _inside(node: exp.Expr, other: exp.Expr) -> bool:
    ancestor: exp.Expr | None = node
    while ancestor is not None and ancestor is not other:
        ancestor = ancestor.parent
    return ancestor is other


def _where(error: SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return str(error).splitlines()[0]
    first = details[0]
    return f"line {first.get('line')}, column {first.get('col')}: {first.get('description')} near {shown(first.get('highlight'))}"
