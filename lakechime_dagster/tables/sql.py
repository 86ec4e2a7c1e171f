"""Understands the SQL of a declared table: its inputs, its columns, its grouping."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import Dialect, TokenType, exp
from sqlglot.errors import SqlglotError, TokenError

from lakechime_dagster.errors import DeclarationError, shown

DIALECT = "spark"
# the second knows paths into variants, `doc:a[0]`, which Spark 4 has as well
DIALECTS = (DIALECT, "databricks")
KEYWORD = re.compile(r"[A-Za-z_\s]+")
# of two or more parts, and no call
NAME = re.compile(r"\s*((?:`[^`]+`|\w+)(?:\s*\.\s*(?:`[^`]+`|\w+\b))+)(?!\s*[.(])")
QUERY_STARTS = (
    TokenType.SELECT,
    TokenType.WITH,
    TokenType.FROM,
    TokenType.TABLE,
    TokenType.L_PAREN,
)


@dataclass(frozen=True)
class Unparsed:
    """A query that only Spark can parse: its tables as far as they are known, and why it is not
    understood.
    """

    tables: tuple[str, ...]
    why: str


def parse_query(table: str, sql: object) -> exp.Query | Unparsed:
    """The one query of a SQL text, as far as it is understood.

    Raises:
        DeclarationError: for text that is no query, or one that reads what the lake cannot pin.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise DeclarationError(table, "sql", "is empty; write one SELECT")
    try:
        statements = parsed(sql)
        has_pipes = any(
            token.token_type is TokenType.PIPE_GT
            for token in sqlglot.tokenize(sql, dialect=DIALECT)
        )
    except SqlglotError as error:
        return Unparsed(_named_tables(sql), _where(error))
    if has_pipes:
        return Unparsed(_named_tables(sql), "the parser makes other queries of pipes, |>")
    if len(statements) != 1:
        raise DeclarationError(
            table, "sql", f"holds {len(statements)} statements; write one SELECT"
        )
    query = statements[0]
    if not isinstance(query, exp.Query):
        raise DeclarationError(
            table,
            "sql",
            f"is a {query.key.upper()} statement; write one SELECT, the table is written from it",
        )
    for named in query.find_all(exp.Table):
        if any(
            isinstance(part, exp.Anonymous) and part.name.upper() == "IDENTIFIER"
            for part in named.parts
        ):
            problem = (
                "names a table by IDENTIFIER(…), which hides the input from the lake; write the "
                "table's own name"
            )
            raise DeclarationError(table, "sql", problem)
        if named.args.get("version") or named.args.get("when"):
            raise DeclarationError(
                table, "sql", f"{named.name} AS OF: inputs are pinned by the run; remove the clause"
            )
        if "/" in named.name:
            raise DeclarationError(
                table,
                "sql",
                f"reads the path {shown(named.name)}; declare it as a SourceTable with location=",
            )
    return query


def parsed(sql: str, into: type[exp.Expr] | None = None) -> list[exp.Expr]:
    """The statements of a text, or what else it is, for understanding only: what is generated of
    them may mean something else.

    Raises:
        SqlglotError: for text that the parser does not know, though Spark may.
    """
    first: SqlglotError | None = None
    for dialect in DIALECTS:
        try:
            found = (
                Dialect.get_or_raise(dialect).parse_into(into, sql)
                if into
                else sqlglot.parse(sql, dialect=dialect)
            )
            return [statement for statement in found if statement is not None]
        except SqlglotError as error:
            first = first or error
        except (
            AttributeError,
            IndexError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:  # faults of the parser itself
            first = first or SqlglotError(f"{type(error).__name__}: {error}")
    assert first is not None
    raise first


def normalized(sql: str) -> str:
    """The text without comments, layout, and the case of keywords, which change no meaning."""
    try:
        tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    except TokenError:
        return sql
    text = ""
    for before, one in zip([None, *tokens], tokens, strict=False):
        quotes_itself = (
            before is not None
            and before.token_type is one.token_type is TokenType.STRING
            and before.end + 1 == one.start
        )
        # 'O''Brien' is one string
        text += ("" if quotes_itself else "\n") + _normalized(
            one.token_type, sql[one.start : one.end + 1]
        )
    return text


def with_named(query: exp.Query | Unparsed, sql: str, names: Iterable[str]) -> exp.Query | Unparsed:
    """The query with those of the named tables that its text mentions and that were not found in
    it: then it is not understood.
    """
    tables = tables_of(query)
    found = [
        name
        for name in names
        if name not in tables and name.rpartition(".")[2].lower() in sql.lower()
    ]
    if not found:
        return query
    return Unparsed(
        (*tables, *found),
        query.why if isinstance(query, Unparsed) else f"only reads= finds {found[0]} in it",
    )


def tables_of(query: exp.Expr | Unparsed) -> tuple[str, ...]:
    """The names of the tables that a query reads, each once, in the order of the text; CTEs are not
    tables.
    """
    if isinstance(query, Unparsed):
        return query.tables
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
    """Whether this names a table, rather than calling a function such as range(10) or giving a hint
    such as BROADCAST(x).
    """
    return isinstance(table.this, exp.Identifier) and table.find_ancestor(exp.Hint) is None


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
            visible = (
                siblings if parent.args.get("recursive") else siblings[: siblings.index(child)]
            )
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
    return (
        f"line {first.get('line')}, column {first.get('col')}: {first.get('description')} near "
        f"{shown(first.get('highlight'))}"
    )


def _named_tables(sql: str) -> tuple[str, ...]:
    """The tables of a text that only Spark can parse, by FROM, JOIN and TABLE: the names of two or
    more parts behind them.
    """
    try:
        tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    except TokenError:
        return ()
    found: list[str] = []
    are_queries = [True]  # what the parentheses around a token hold
    for before, one, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        kind = one.token_type
        if kind is TokenType.L_PAREN:
            are_queries.append(after is not None and after.token_type in QUERY_STARTS)
        elif kind is TokenType.R_PAREN:
            are_queries = are_queries[:-1] or [True]
        is_distinct_from = before is not None and before.token_type is TokenType.DISTINCT
        # nor is that of extract(day FROM at) one
        begins = kind is TokenType.FROM and are_queries[-1] and not is_distinct_from
        if (begins or kind in (TokenType.JOIN, TokenType.TABLE)) and (
            name := NAME.match(sql, one.end + 1)
        ):
            found.append(re.sub(r"[`\s]", "", name[1]))
    return tuple(dict.fromkeys(found))


def _normalized(kind: TokenType, text: str) -> str:
    is_keyword = KEYWORD.fullmatch(text) and kind not in (TokenType.VAR, TokenType.IDENTIFIER)
    return " ".join(text.upper().split()) if is_keyword else text
