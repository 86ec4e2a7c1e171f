"""Understands the SQL of a declared table: its inputs, its columns, its grouping."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import SqlglotError, TokenError
from sqlglot.parser import Parser

from lakechime_dagster.errors import DeclarationError, shown

DIALECT = "spark"
DIALECTS = (DIALECT, "databricks")  # the second knows paths into variants, `doc:a[0]`, which Spark 4 has as well
KEYWORD = re.compile(r"[A-Za-z_\s]+")
QUERY_STARTS = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES, TokenType.TABLE, TokenType.L_PAREN}
NAME_TOKENS = {TokenType.IDENTIFIER, *Parser.ID_VAR_TOKENS} - {TokenType.LATERAL, TokenType.VALUES}
SET_OPERATIONS = {TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT}
BEFORE_TABLE = {None, TokenType.L_PAREN, TokenType.ALL, TokenType.DISTINCT, *SET_OPERATIONS}  # TABLE x as a query
CLAUSES_AFTER_FROM = {
    TokenType.SELECT,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ORDER_BY,
    TokenType.SORT_BY,
    TokenType.CLUSTER_BY,
    TokenType.DISTRIBUTE_BY,
    TokenType.WINDOW,
    TokenType.LIMIT,
    TokenType.OFFSET,
    TokenType.PIPE_GT,
    *SET_OPERATIONS,
}


@dataclass(frozen=True)
class Unparsed:
    """A query that only Spark can parse: the tables that its text names, and why it is not understood."""

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
        has_pipes = any(token.token_type is TokenType.PIPE_GT for token in sqlglot.tokenize(sql, dialect=DIALECT))
    except SqlglotError as error:
        return _unparsed(table, sql, _where(error))
    if has_pipes:
        return _unparsed(table, sql, "the parser makes other queries of pipes, |>")
    if len(statements) != 1:
        raise DeclarationError(table, "sql", f"holds {len(statements)} statements; write one SELECT")
    query = statements[0]
    if not isinstance(query, exp.Query):
        raise DeclarationError(table, "sql", f"is a {query.key.upper()} statement; write one SELECT, the table is written from it")
    for named in query.find_all(exp.Table):
        if any(isinstance(part, exp.Anonymous) and part.name.upper() == "IDENTIFIER" for part in named.parts):
            raise _computed_name(table)
        if named.args.get("version") or named.args.get("when"):
            raise DeclarationError(table, "sql", f"{named.name} AS OF: inputs are pinned by the run; remove the clause")
        if "/" in named.name:
            raise DeclarationError(table, "sql", f"reads the path {shown(named.name)}; declare it as a SourceTable with location=")
    return query


def parsed(sql: str, into: type[exp.Expr] | None = None) -> list[exp.Expr]:
    """The statements of a text, or what else it is, for understanding only: what is generated of them may mean something else.

    Raises:
        SqlglotError: for text that the parser does not know, though Spark may.
    """
    first: SqlglotError | None = None
    for dialect in DIALECTS:
        try:
            found = Dialect.get_or_raise(dialect).parse_into(into, sql) if into else sqlglot.parse(sql, dialect=dialect)
            return [statement for statement in found if statement is not None]
        except SqlglotError as error:
            first = first or error
        except (AttributeError, IndexError, RecursionError, TypeError, ValueError) as error:  # faults of the parser itself
            first = first or SqlglotError(f"{type(error).__name__}: {error}")
    assert first is not None
    raise first


def normalized(sql: str) -> str:
    """The text without what says nothing: comments, layout, and the case of keywords."""
    try:
        tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    except TokenError:
        return sql
    said = ""
    for before, one in zip([None, *tokens], tokens, strict=False):
        quotes_itself = before is not None and before.token_type is one.token_type is TokenType.STRING and before.end + 1 == one.start
        said += ("" if quotes_itself else "\n") + _said(one.token_type, sql[one.start : one.end + 1])  # 'O''Brien' is one string
    return said


def with_named(query: exp.Query | Unparsed, sql: str, names: Iterable[str]) -> exp.Query | Unparsed:
    """The query with those of the named tables that stand in its text and were not found there: it is not understood then."""
    tables = tables_of(query)
    found = [name for name in names if name not in tables and name.rpartition(".")[2].lower() in sql.lower()]
    if not found:
        return query
    return Unparsed((*tables, *found), query.why if isinstance(query, Unparsed) else f"only reads= finds {found[0]} in it")


def tables_of(query: exp.Expr | Unparsed) -> tuple[str, ...]:
    """The names of the tables that a query reads, each once, in the order of the text; CTEs are not tables."""
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
    """Whether this names a table, rather than calling a function such as range(10) or giving a hint such as BROADCAST(x)."""
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


def _computed_name(table: str) -> DeclarationError:
    return DeclarationError(table, "sql", "names a table by IDENTIFIER(…), which hides the input from the lake; write the table's own name")


def _unparsed(table: str, sql: str, why: str) -> Unparsed:
    try:
        tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    except TokenError:
        raise DeclarationError(table, "sql", f"is not Spark SQL: {why}") from None
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens or tokens[0].token_type not in QUERY_STARTS:
        raise DeclarationError(table, "sql", f"is not Spark SQL: {why}")
    several = 1 + sum(token.token_type is TokenType.SEMICOLON for token in tokens)
    if several > 1:
        raise DeclarationError(table, "sql", f"holds {several} statements; write one SELECT")
    return Unparsed(_named_tables(table, tokens), why)


def _said(kind: TokenType, text: str) -> str:
    is_keyword = KEYWORD.fullmatch(text) and kind not in (TokenType.VAR, TokenType.IDENTIFIER)
    return " ".join(text.upper().split()) if is_keyword else text


@dataclass
class _Level:
    """What is known between two parentheses: whether a SELECT is under way, in its FROM, and a table may be named next."""

    is_query: bool = False
    is_from: bool = False
    expects: bool = False


def _named_tables(table: str, tokens: Sequence[Token]) -> tuple[str, ...]:
    """The names that stand where a query reads tables, each once: after FROM, JOIN and the commas between; those of CTEs left out."""
    levels = [_Level(is_query=True)]
    found: list[str] = []
    ctes: set[str] = set()
    place = 0
    while place < len(tokens):
        kind, level = tokens[place].token_type, levels[-1]
        if kind is TokenType.L_PAREN:
            levels.append(_Level(is_from=level.expects, expects=level.expects))
            level.expects = False
        elif kind is TokenType.R_PAREN:
            if len(levels) > 1:
                levels.pop()
        elif _begins_relation(tokens, place, level.is_query):
            level.is_from = level.expects = True
        elif kind is TokenType.COMMA:
            level.expects = level.is_from
            if place and tokens[place - 1].token_type is TokenType.R_PAREN:  # of a CTE before this one, perhaps
                ctes |= _cte_named(tokens, place + 1)
        elif kind is TokenType.WITH:
            ctes |= _cte_named(tokens, place + 2 if _is_word(tokens, place + 1, "RECURSIVE") else place + 1)
        elif kind in CLAUSES_AFTER_FROM or (kind is TokenType.LATERAL and _is_word(tokens, place + 1, "VIEW")):
            level.is_query |= kind is TokenType.SELECT
            level.is_from = level.expects = False
        elif level.expects and kind in NAME_TOKENS:
            end = place + 1
            while end + 1 < len(tokens) and tokens[end].token_type is TokenType.DOT:
                end += 2
            level.expects = False
            parts = [token.text for token in tokens[place:end:2]]
            if end >= len(tokens) or tokens[end].token_type is not TokenType.L_PAREN:  # else it calls a function
                found.append(".".join(parts))
            elif parts[-1].upper() == "IDENTIFIER":
                raise _computed_name(table)
            place = end
            continue
        elif kind is not TokenType.LATERAL:
            level.expects = False
        place += 1
    return tuple(dict.fromkeys(name for name in found if name.lower() not in ctes))


def _begins_relation(tokens: Sequence[Token], place: int, is_query: bool) -> bool:
    """Whether a table follows: behind JOIN, FROM of a query, which that in EXTRACT(day FROM at) is not, or TABLE as a query."""
    kind, before = tokens[place].token_type, tokens[place - 1].token_type if place else None
    if kind is TokenType.FROM:
        begins_query = before is TokenType.L_PAREN  # (FROM a.x |> WHERE …)
        return begins_query or (is_query and before is not TokenType.DISTINCT)  # IS DISTINCT FROM
    return kind is TokenType.JOIN or (kind is TokenType.TABLE and before in BEFORE_TABLE)


def _cte_named(tokens: Sequence[Token], place: int) -> set[str]:
    """The name of a CTE that is defined here, in lower case; none where something else stands."""
    follows = {TokenType.ALIAS, TokenType.L_PAREN}
    is_name = place + 1 < len(tokens) and tokens[place].token_type in NAME_TOKENS and tokens[place + 1].token_type in follows
    return {tokens[place].text.lower()} if is_name else set()


def _is_word(tokens: Sequence[Token], place: int, word: str) -> bool:
    return place < len(tokens) and tokens[place].text.upper() == word
