"""From a text of SQL to the column lineage of each of its statements."""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect, Dialects
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import READ, ColumnLineage, Statement
from lakechime_dagster.lineage.sql_queries import TEMPORARY, Ctes, Named, Reading, is_temporary, keeping, key_of, relation_of
from lakechime_dagster.lineage.sql_relations import Origin, Relation, SqlSchema, merged
from lakechime_dagster.lineage.sql_sources import from_clause
from lakechime_dagster.lineage.sql_writes import changed, created, inserted, made_of, merge_of, read_only, several_inserted, statement

MAX_CHARACTERS = 1_000_000
MAX_TOKENS = 100_000
EXECUTED = "is a template, of which it is not known what ran; send the executed SQL, from the log of the engine"
_TEMPLATES = ("{{", "{%", "[[")
_LITERALS = frozenset(
    kind
    for name in ("STRING", "NUMBER", "BIT_STRING", "HEX_STRING", "BYTE_STRING", "NATIONAL_STRING", "RAW_STRING", "HEREDOC_STRING")
    if (kind := getattr(TokenType, name, None)) is not None
) | frozenset({TokenType.UNICODE_STRING})
_LISTS = frozenset({TokenType.GROUP_BY, TokenType.ORDER_BY})
_IN_LISTS = frozenset({TokenType.COMMA, TokenType.ASC, TokenType.DESC, TokenType.NUMBER, TokenType.VAR, TokenType.DOT})
_NAMED_BY = frozenset({TokenType.ALIAS, TokenType.FROM, TokenType.JOIN, TokenType.INTO, TokenType.TABLE})
_SPELLED = frozenset({TokenType.PIVOT, TokenType.UNPIVOT})

logging.getLogger("sqlglot").addFilter(lambda record: "unsupported syntax" not in record.msg)  # it shows the text, literals and all


def checked_dialect(dialect: object) -> str:
    """The name of an engine's SQL as sqlglot says it.

    Raises:
        InvalidValueError: naming those that there are.
    """
    if not isinstance(dialect, str) or dialect.lower() not in _dialects():
        raise InvalidValueError("dialect", dialect, f"is not known; use one of {', '.join(sorted(_dialects()))}")
    return dialect.lower()


@cache
def _dialects() -> frozenset[str]:
    return frozenset(one.value for one in Dialects if one.value and one.value not in ("prql", "dax", "tableau", "solr"))


def tokens_of(sql: object, dialect: str) -> list[Token]:
    """The words of a text.

    Raises:
        InvalidValueError: too long, a template, or cut off. No part of the text is in the message: its literals are personal.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidValueError("sql", None if not isinstance(sql, str) else "", "is empty; send the text of a statement")
    if len(sql) > MAX_CHARACTERS:
        raise InvalidValueError("sql", f"of {len(sql):,} characters", f"is too long; at most {MAX_CHARACTERS:,} are read")
    try:
        found = Dialect.get_or_raise(dialect).tokenize(sql)
    except SqlglotError:
        raise InvalidValueError("sql", f"of {len(sql):,} characters", "is cut off, or not of this dialect; send all of it") from None
    if len(found) > MAX_TOKENS:
        raise InvalidValueError("sql", f"of {len(found):,} words", f"is too long; at most {MAX_TOKENS:,} are read")
    _check_template(found, sql)
    return found


def _check_template(found: list[Token], sql: str) -> None:
    """A brace or bracket doubled outside of literals is a template's, but for arrays of arrays, which close as they opened."""
    if not any(mark in sql for mark in _TEMPLATES):
        return
    plain = "".join(" " if token.token_type in _LITERALS else sql[token.start : token.end + 1] for token in found)
    literal = any(token.token_type in _LITERALS and re.search(r"\{\{.*\}\}|\{%.*%\}", token.text, re.DOTALL) for token in found)
    if literal or "{{" in plain or "{%" in plain or re.search(r"\[\[(?=\s*[A-Za-z]\w*\s)", plain):
        raise InvalidValueError("sql", f"of {len(sql):,} characters", EXECUTED)


def fingerprint(tokens: list[Token], dialect: str) -> str:
    """By what a statement is known again: its words without the values of literals, as far as these do not name columns.

    A digest, so that even a value that stands as a name, in a text of another dialect than is said, is kept nowhere.
    """
    spelled = any(token.token_type in _SPELLED for token in tokens)  # there literals become names of columns
    parts = [dialect]
    lists: list[bool] = [False]  # at each depth of parentheses, whether numbers are places of columns
    among: list[bool] = [False]  # likewise, whether this is behind IN
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.L_PAREN:
            lists.append(False)
            among.append(before is TokenType.IN)
        elif kind is TokenType.R_PAREN:
            lists, among = lists[:-1] or [False], among[:-1] or [False]
        elif kind in _LISTS:
            lists[-1] = True
        elif kind not in _IN_LISTS:
            lists[-1] = lists[-1] and not _ends_list(token)
        if kind not in _LITERALS or spelled or before in _NAMED_BY or (kind is TokenType.NUMBER and lists[-1]):
            parts.append(token.text if kind not in _LITERALS else f"={token.text}")
        elif among[-1] and parts[-2:] == ["?", ","]:
            parts.pop()  # one more of a list of any length
        else:
            parts.append("?")
        before = kind
    return blake2b("\x00".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _ends_list(token: Token) -> bool:
    return token.text.upper() in {"HAVING", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "QUALIFY", "WINDOW", "OFFSET", "FETCH", "SELECT", ";"}


def parsed(sql: str, dialect: str) -> list[exp.Expr]:
    """The statements of a text.

    Raises:
        InvalidValueError: where it does not parse, by line and column, or is nested too deeply.
    """
    try:
        return [one for one in sqlglot.parse(sql, dialect=dialect) if one is not None]
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        place = f"at line {details[0].get('line')}, column {details[0].get('col')}" if details[0].get("line") else "somewhere"
        remedy = f"does not parse as {dialect} {place}; send the executed SQL whole, with the dialect of its engine"
        raise InvalidValueError("sql", f"of {len(sql):,} characters", remedy) from None
    except RecursionError:
        raise too_deep(sql) from None


def too_deep(sql: str) -> InvalidValueError:
    return InvalidValueError("sql", f"of {len(sql):,} characters", "is nested too deeply to be read; name a part of it in a WITH")


_UNTOLD = frozenset({"CALL", "EXECUTE", "EXEC", "BEGIN", "DECLARE", "DO", "IF", "WHILE", "FOR", "LOOP", "REPEAT"})  # may run anything
_WITH_BODY = re.compile(r"\b(PROC|PROCEDURE|TRIGGER|VIEW)\b", re.IGNORECASE)
_VERBS = frozenset({"BEGIN", "DELETE", "ELSE", "END", "IF", "INSERT", "MERGE", "SELECT", "UPDATE", "WHILE"})
_SETTINGS = frozenset({"ANSI_NULLS", "ANSI_WARNINGS", "NOCOUNT", "QUOTED_IDENTIFIER", "XACT_ABORT"})
"""What T-SQL sets at the head of a procedure, of which the parser leaves the name."""


def statements_of_sql(sql: str, dialect: str, schema: SqlSchema, namespace: str = "") -> tuple[Statement, ...]:
    """What each statement of a text says of columns, in their order; one that moves no values is left out.

    A query that writes nothing has the target `READ` and its columns by position. Tables that the schema does not know are
    `namespace/name`, by default with the name of the dialect. Nothing is empty silently: a column has sources, or is a
    constant, or says why it is not known.

    A temporary table is the sum of the statements that wrote it, and what reads it has their sources. One that nothing reads is
    a query that writes nothing. Of a procedure the statements in its body are told, as it would run them.

    Raises:
        InvalidValueError: the text is too long, a template, no SQL of this dialect, or may run anything.
    """
    dialect = checked_dialect(dialect)
    tokens_of(sql, dialect)
    return read_statements(parsed(sql, dialect), sql, schema, namespace or dialect)


def read_statements(several: list[exp.Expr], sql: str, schema: SqlSchema, namespace: str) -> tuple[Statement, ...]:
    """The same of statements that are parsed."""
    script = _Script(schema, namespace)
    try:
        for node in several:
            for one, is_run in _plain(node):
                script.run(one, is_run)
    except RecursionError:
        raise too_deep(sql) from None
    return tuple(script.found + script.unread())


class _Script:
    """Statements one after the other in one session; `found` is what those say that write no temporary table."""

    def __init__(self, schema: SqlSchema, namespace: str) -> None:
        self.found: list[Statement] = []
        self._schema = schema
        self._namespace = namespace
        self._tables: dict[str, Statement] = {}  # temporary ones, by their keys
        self._views: dict[str, Callable[[Ctes], Named]] = {}
        self._read: set[str] = set()

    def run(self, node: exp.Expr, is_run: bool) -> None:
        """What a statement says, with the temporary tables as they are when it comes; one that may not be run replaces nothing."""
        if isinstance(node, exp.Drop):
            for table in node.find_all(exp.Table) if is_run else ():
                self._forget(key_of(table))
            return
        columns = {key: [one.column for one in made.columns if one.column != "*"] or None for key, made in self._tables.items()}
        reading, ctes = Reading(self._schema, self._namespace, from_clause, columns), self._ctes()
        made = _temporary(node)
        if made is None:
            self._keep(node, _statements(node, reading, ctes), is_run)
            return
        table = made.this if isinstance(made, exp.Schema) else made
        key = key_of(table)
        query = node.args.get("expression")
        if isinstance(query, exp.Query) and (isinstance(node, exp.Cache) or str(node.args.get("kind")).upper() == "VIEW"):
            names = [one.name for one in made.expressions] if isinstance(made, exp.Schema) else []
            view = _view(query, names, key, ctes.get(key))
            self._forget(key)
            self._views[key] = view
            return
        told = _statements(node, Reading(self._schema, self._namespace, from_clause, {**columns, key: None}), ctes)
        replaces = is_run and not node.args.get("exists")
        if replaces:
            self._forget(key)
        self._keep(node, told or [_declared(node, made, reading, key)], replaces)

    def unread(self) -> list[Statement]:
        """What was made for the session and is read by nothing in it: who sends the script reads what that is made of."""
        ctes = self._ctes()
        found = []
        for key in ctes.keys() - self._read:
            reading = Reading(self._schema, self._namespace, from_clause)
            found.append(statement(READ, ctes[key](reading).columns, reading))
        return [one for one in found if one.inputs]

    def _keep(self, node: exp.Expr, told: Sequence[Statement], is_run: bool) -> None:
        for each in told:
            one = each if is_run else replace(each, replaces=False)
            if one.target.startswith(TEMPORARY):
                key = one.target.removeprefix(TEMPORARY)
                self._tables[key] = self._tables[key].added(one) if key in self._tables else _unless_made_here(one, node)
                continue
            self.found.append(one)
            if isinstance(node, exp.Create | exp.Select) and one.target != READ and one.columns:
                self._schema = self._schema.with_table(one.target, [column.column for column in one.columns])

    def _forget(self, key: str) -> None:
        self._tables.pop(key, None)
        self._views.pop(key, None)
        self._read.discard(key)

    def _ctes(self) -> Ctes:
        """What is temporary, to be read like a common table expression; a view reads what it names as that is by now."""
        found: dict[str, Named] = {key: self._noted(key, _rows(key, made)) for key, made in self._tables.items()}
        for key, view in self._views.items():
            found[key] = self._noted(key, keeping(view(found)))
        return found

    def _noted(self, key: str, read: Named) -> Named:
        def noted(reading: Reading) -> Relation:
            self._read.add(key)
            return read(reading)

        return noted


def _rows(key: str, made: Statement) -> Named:
    """What reading a temporary table gives: its columns, with the sources of all that was written to it."""
    columns = tuple((one.column, Origin(frozenset(one.sources), frozenset(one.opaque))) for one in made.columns)
    more = "; ".join(reason for one in made.columns if one.column == "*" for reason in one.opaque)
    rest = merged(origin for name, origin in columns if name == "*")

    def read(reading: Reading) -> Relation:
        reading.inputs |= set(made.inputs)
        reading.indirect |= set(made.indirect)
        reading.unknown |= set(made.unknown)
        known = tuple((name, origin | rest) for name, origin in columns if name != "*")
        return Relation(known, more, rest=rest, temporary=TEMPORARY + key)

    return read


def _view(query: exp.Expr, names: list[str], key: str, before: Named | None) -> Callable[[Ctes], Named]:
    """A view of the session; what it names by its own name is what had that before."""

    def with_others(ctes: Ctes) -> Named:
        def read(reading: Reading) -> Relation:
            others = {name: other for name, other in ctes.items() if name != key}
            within = others if before is None else {**others, key: before}
            return relation_of(query, reading, within).renamed(names)

        return read

    return with_others


def _declared(node: exp.Expr, made: exp.Expr, reading: Reading, key: str) -> Statement:
    """A temporary table that is declared with its columns, or like another one, and has no rows."""
    listed = [one.name for one in made.expressions if isinstance(one, exp.ColumnDef)] if isinstance(made, exp.Schema) else []
    like = next(iter(node.find_all(exp.LikeProperty)), None)
    if like is not None and isinstance(like.this, exp.Table):
        listed += [name for name, _ in reading.table(like.this, {}).columns]
    columns = [ColumnLineage(column=name) for name in listed] or [ColumnLineage(column="*", opaque=("its columns are not known",))]
    return Statement(target=TEMPORARY + key, columns=tuple(columns), replaces=True)


def _unless_made_here(one: Statement, node: exp.Expr) -> Statement:
    """What is known of a temporary table when it is written first: where it was not made by that, there may be more in it."""
    if _temporary(node) is not None:
        return one
    reason = f"temporary table {one.target.removeprefix(TEMPORARY)} is not made here"
    return Statement(target=one.target, columns=(ColumnLineage(column="*", opaque=(reason,)),)).added(one)


def _temporary(node: exp.Expr) -> exp.Table | exp.Schema | None:
    """What is made for the session alone, with its columns if they are declared."""
    if isinstance(node, exp.Cache):
        return node.this if node.args.get("expression") and isinstance(node.this, exp.Table) else None
    if isinstance(node, exp.DeclareItem):
        return exp.Schema(this=exp.Table(this=node.this[0]), expressions=node.args["kind"].expressions)
    if isinstance(node, exp.Select):
        into = node.args.get("into")
        if into is None or not isinstance(into.this, exp.Table):
            return None
        return into.this if into.args.get("temporary") or is_temporary(into.this) else None
    if not isinstance(node, exp.Create) or str(node.args.get("kind")).upper() not in ("TABLE", "VIEW"):
        return None
    properties = node.args.get("properties")
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    is_made = isinstance(table, exp.Table) and (is_temporary(table) or (properties and properties.find(exp.TemporaryProperty)))
    return node.this if is_made else None


def _plain(node: exp.Expr, is_run: bool = True) -> Iterator[tuple[exp.Expr, bool]]:
    """The statements in a block, in their order, and of each whether it is run whatever holds.

    Raises:
        InvalidValueError: something in it is no statement that is understood.
    """
    _check_command(node)
    if isinstance(node, exp.Create) and str(node.args.get("kind")).upper() in ("PROCEDURE", "PROC"):
        body = node.args.get("expression")
        if not isinstance(body, exp.Block):
            raise _untold("CREATE PROCEDURE")
        yield from _plain(body, is_run)
    elif isinstance(node, exp.Block):
        for one in node.expressions:
            if isinstance(one, exp.Column) and one.name.upper() in _SETTINGS:
                continue
            if not isinstance(one, _STATEMENTS):
                raise _untold("a block of statements")
            yield from _plain(one, is_run)
    elif isinstance(node, exp.IfBlock | exp.WhileBlock):
        _check_aliases(node.this)
        for part in (node.args.get(name) for name in ("true", "false", "body")):
            if isinstance(part, exp.Expr):
                yield from _plain(part, is_run=False)
    elif isinstance(node, exp.Declare):
        for one in node.expressions:
            if isinstance(one, exp.DeclareItem) and isinstance(one.args.get("kind"), exp.Schema):
                yield one, is_run
    else:
        _check_aliases(node)
        yield node, is_run


def _check_command(node: exp.Expr) -> None:
    """Refuses what may run any statement."""
    if isinstance(node, exp.Execute):
        raise _untold("EXECUTE")
    if isinstance(node, exp.Command):
        word, rest = str(node.this).upper(), str(node.args.get("expression") or "")
        has_body = word in ("CREATE", "ALTER") and _WITH_BODY.search(rest[:200])
        goes_on = word == "END" and rest.replace(";", " ").upper().split() != ["END"] * len(rest.split())
        if word in _UNTOLD or has_body or goes_on:
            raise _untold(word)


def _check_aliases(node: exp.Expr) -> None:
    """Refuses a text whose statements ran into each other, so that a verb is taken for an alias."""
    for alias in node.find_all(exp.TableAlias, exp.Alias):
        name = alias.this if isinstance(alias, exp.TableAlias) else alias.args.get("alias")
        if isinstance(name, exp.Identifier) and not name.args.get("quoted") and name.name.upper() in _VERBS:
            raise InvalidValueError("sql", name.name.upper(), "begins no statement here; end each statement with a semicolon")


def _untold(what: str) -> InvalidValueError:
    return InvalidValueError("sql", what, "may run any statement; send those that it runs")


_STATEMENTS = (
    exp.Query,
    exp.Insert,
    exp.MultitableInserts,
    exp.Create,
    exp.Merge,
    exp.Update,
    exp.Delete,
    exp.Drop,
    exp.TruncateTable,
    exp.Declare,
    exp.Set,
    exp.Command,
    exp.Block,
    exp.IfBlock,
    exp.WhileBlock,
    exp.Return,
    exp.EndStatement,
    exp.Transaction,
    exp.Commit,
    exp.Rollback,
)
"""What may stand in a block."""


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
    if isinstance(node, exp.Alter) and isinstance(query := next(iter(node.args.get("actions") or ()), None), exp.Query):
        return [made_of(node.this, query, reading, ctes)]
    if isinstance(node, exp.Merge):
        return [merge_of(node, reading, ctes)]
    if isinstance(node, exp.Update | exp.Delete):
        return changed(node, reading, ctes)
    if isinstance(node, exp.Copy | exp.LoadData) and isinstance(node.this, exp.Table | exp.Schema):
        reading.unknown.add(f"{node.key.upper()} reads files")
        return [statement(reading.target(node.this), (), reading)]
    return []


REMEMBERED = 10_000  # statements, the last ones that were met


class SqlReader:
    """What statements say, with the columns of tables as they are known at one moment; for one thread at a time."""

    def __init__(self, schema: SqlSchema) -> None:
        self.schema = schema
        self.parses = 0
        self._known: OrderedDict[tuple[str, str], tuple[Statement, ...]] = OrderedDict()

    def read(self, sql: str | Sequence[str], dialect: str, namespace: str = "") -> tuple[str, tuple[Statement, ...]]:
        """The fingerprint of a text, or of several of one session, and what `statements_of_sql` says of it.

        Raises:
            InvalidValueError: as that does.
        """
        dialect = checked_dialect(dialect)
        texts = [sql] if isinstance(sql, str) else list(sql)
        known_as = "\0".join(fingerprint(tokens_of(text, dialect), dialect) for text in texts)
        key = (known_as, namespace)
        found = self._known.get(key)
        if found is None:
            self.parses += 1
            found = self._known[key] = read_statements(
                [one for text in texts for one in parsed(text, dialect)], "".join(texts), self.schema, namespace or dialect
            )
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return known_as, found
