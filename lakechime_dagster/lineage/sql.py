"""The column lineage of texts of SQL."""

import logging
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, reduce
from hashlib import blake2b

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect, Dialects
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token

from lakechime_dagster.errors import InvalidValueError, shown
from lakechime_dagster.lineage.columns import (
    CONSTANT,
    READ,
    ColumnLineage,
    ColumnRef,
    Kind,
    Source,
    Statement,
    Value,
    joined,
    together,
)
from lakechime_dagster.lineage.sql_query import (
    TEMPORARY,
    Query,
    SqlSchema,
    Tables,
    is_temporary,
    key_of,
)
from lakechime_dagster.tables.names import folded

MAX_CHARACTERS = 1_000_000
MAX_TOKENS = 100_000
EXECUTED = (
    "is a template, of which it is not known what ran; send the executed SQL, from the log of the "
    "engine"
)
_TEMPLATES = ("{{", "{%", "[[")
_LITERALS = frozenset(
    kind
    for name in (
        "STRING",
        "NUMBER",
        "BIT_STRING",
        "HEX_STRING",
        "BYTE_STRING",
        "NATIONAL_STRING",
        "RAW_STRING",
        "HEREDOC_STRING",
    )
    if (kind := getattr(TokenType, name, None)) is not None
) | frozenset({TokenType.UNICODE_STRING})
# it shows the text, literals and all
logging.getLogger("sqlglot").addFilter(lambda record: "unsupported syntax" not in record.msg)


def checked_dialect(dialect: object) -> str:
    """The name of an engine's SQL as sqlglot says it.

    Raises:
        InvalidValueError: naming those that there are.
    """
    if not isinstance(dialect, str) or dialect.lower() not in _dialects():
        raise InvalidValueError(
            "dialect", dialect, f"is not known; use one of {', '.join(sorted(_dialects()))}"
        )
    return dialect.lower()


@cache
def _dialects() -> frozenset[str]:
    return frozenset(
        one.value
        for one in Dialects
        if one.value and one.value not in ("prql", "dax", "tableau", "solr")
    )


def parsed(sql: object, dialect: str) -> list[exp.Expr]:
    """The statements of a text.

    Raises:
        InvalidValueError: it is too long, a template or cut off, does not parse, by line and
            column, or is nested too deeply. No part of the text is in the message: its literals are
            personal.
    """
    sql, reading = _checked(sql), Dialect.get_or_raise(dialect)
    try:
        words = reading.tokenize(sql)
    except SqlglotError:
        raise InvalidValueError(
            "sql",
            f"of {len(sql):,} characters",
            "is cut off, or not of this dialect; send all of it",
        ) from None
    if len(words) > MAX_TOKENS:
        raise InvalidValueError(
            "sql", f"of {len(words):,} words", f"is too long; at most {MAX_TOKENS:,} are read"
        )
    _check_template(words, sql)
    try:
        return [one for one in reading.parser().parse(words, sql) if one is not None]
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        position = (
            f"at line {details[0].get('line')}, column {details[0].get('col')}"
            if details[0].get("line")
            else "somewhere"
        )
        remedy = (
            f"does not parse as {dialect} {position}; send the executed SQL whole, with the dialect "
            f"of its engine"
        )
        raise InvalidValueError("sql", f"of {len(sql):,} characters", remedy) from None
    except RecursionError:
        raise too_deep(sql) from None


def _checked(sql: object) -> str:
    """A text that is there, and not too long."""
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidValueError(
            "sql",
            None if not isinstance(sql, str) else "",
            "is empty; send the text of a statement",
        )
    if len(sql) > MAX_CHARACTERS:
        raise InvalidValueError(
            "sql",
            f"of {len(sql):,} characters",
            f"is too long; at most {MAX_CHARACTERS:,} are read",
        )
    return sql


def _check_template(found: list[Token], sql: str) -> None:
    """A brace or bracket doubled outside of literals is a template's, but for arrays of arrays,
    which close as they opened.
    """
    if not any(mark in sql for mark in _TEMPLATES):
        return
    plain = "".join(
        " " if token.token_type in _LITERALS else sql[token.start : token.end + 1]
        for token in found
    )
    literal = any(
        token.token_type in _LITERALS and re.search(r"\{\{.*\}\}|\{%.*%\}", token.text, re.DOTALL)
        for token in found
    )
    if literal or "{{" in plain or "{%" in plain or re.search(r"\[\[(?=\s*[A-Za-z]\w*\s)", plain):
        raise InvalidValueError("sql", f"of {len(sql):,} characters", EXECUTED)


def too_deep(sql: str) -> InvalidValueError:
    return InvalidValueError(
        "sql",
        f"of {len(sql):,} characters",
        "is nested too deeply to be read; name a part of it in a WITH",
    )


# may run anything
_OPAQUE_VERBS = frozenset(
    {"CALL", "EXECUTE", "EXEC", "BEGIN", "DECLARE", "DO", "IF", "WHILE", "FOR", "LOOP", "REPEAT"}
)
_WITH_BODY = re.compile(r"\b(PROC|PROCEDURE|TRIGGER|VIEW)\b", re.IGNORECASE)
_VERBS = frozenset(
    {"BEGIN", "DELETE", "ELSE", "END", "IF", "INSERT", "MERGE", "SELECT", "UPDATE", "WHILE"}
)


def statements_of_sql(
    sql: str, dialect: str, schema: SqlSchema, namespace: str = ""
) -> tuple[Statement, ...]:
    """What each statement of a text says of columns, in their order; one that moves no values is
    left out.

    A query that writes nothing has the target `READ` and its columns by position. Tables that the
    schema does not know are `namespace/name`, by default with the name of the dialect. Nothing is
    empty silently: a column has sources, or is a constant, or says why it is not known.

    A temporary table is the sum of the statements that wrote it, and what reads it has their
    sources. One that nothing reads is a query that writes nothing.

    Raises:
        InvalidValueError: the text is too long, a template, no SQL of this dialect, or may run
            anything.
    """
    dialect = checked_dialect(dialect)
    return read_statements(parsed(sql, dialect), sql, schema, dialect, namespace or dialect)


def read_statements(
    several: list[exp.Expr], sql: str, schema: SqlSchema, dialect: str, namespace: str
) -> tuple[Statement, ...]:
    """The same of statements that are parsed."""
    script = _Script(schema, dialect, namespace)
    try:
        for node in several:
            _check(node)
            script.run(node)
    except RecursionError:
        raise too_deep(sql) from None
    return tuple(script.found + script.unread())


class _Script:
    """Statements one after the other in one session; `found` is what those say that write no
    temporary table.

    Of a temporary table, or a view of the session, it is kept what its columns derive from; what
    reads it has their sources. A view is read as what it names is by then.
    """

    def __init__(self, schema: SqlSchema, dialect: str, namespace: str) -> None:
        self.found: list[Statement] = []
        self._schema, self._dialect, self._namespace = schema, dialect, namespace
        self._made: dict[str, Statement] = {}  # by what has it as its target
        self._read: set[str] = set()

    def run(self, node: exp.Expr) -> None:
        """What a statement says, with the temporary tables as they are when it comes."""
        columns = {
            target.removeprefix(TEMPORARY): names if "*" not in names else None
            for target, made in self._made.items()
            if (names := [one.column for one in made.columns]) is not None
        }
        made = _temporary(node)
        key = "" if made is None else key_of(made)
        tables = Tables(self._schema, self._dialect, self._namespace, columns)
        if isinstance(node, exp.Drop):
            for table in node.find_all(exp.Table):
                self._forget(TEMPORARY + key_of(table))
            return
        several = _statements(tables.fold(node), tables)
        if not key:
            self._keep(node, [self._through(one) for one in several])
            return
        target = TEMPORARY + folded(key)
        several = [replace(one, target=target) for one in several] or [
            _declared(node, tables, target)
        ]
        if isinstance(node, exp.Cache) or str(node.args.get("kind")).upper() == "VIEW":
            (one,) = several
            own = {target} & set(one.inputs)  # what had its name before
            self._made[target] = self._through(one, own) if own else one
            return
        several = [self._through(one) for one in several]
        if node.args.get("exists"):
            several = [replace(one, replaces=False) for one in several]
        else:
            self._forget(target)
        self._keep(node, several)

    def unread(self) -> list[Statement]:
        """What was made for the session and is read by nothing in it: who sends the script reads
        what that is made of.
        """
        rest = [one for target, one in self._made.items() if target not in self._read]
        found = [replace(self._through(one), target=READ, replaces=False) for one in rest]
        return [one for one in found if one.inputs]

    def _keep(self, node: exp.Expr, several: Sequence[Statement]) -> None:
        for one in several:
            if one.target.startswith(TEMPORARY):
                before = self._made.get(one.target)
                if before is None and _temporary(node) is None:
                    before = _not_made_here(one.target)
                self._made[one.target] = one if before is None else before.added(one)
                continue
            self.found.append(one)
            if isinstance(node, exp.Create | exp.Select) and one.target != READ and one.columns:
                made = {one.target: [column.column for column in one.columns]}
                self._schema = SqlSchema({**self._schema.tables, **made}, self._schema.names)

    def _forget(self, target: str) -> None:
        self._made.pop(target, None)
        self._read.discard(target)

    def _through(self, one: Statement, only: Collection[str] | None = None) -> Statement:
        """A statement whose sources in temporary tables are those that these have, or in some of
        them only.
        """
        within = [
            name
            for name in one.inputs
            if name.startswith(TEMPORARY) and (only is None or name in only)
        ]
        if not within:
            return one
        made = {
            name: self._through(self._made[name])
            if only is None and name in self._made
            else self._made.get(name) or _not_made_here(name)
            for name in within
        }
        self._read.update(made)
        columns = tuple(
            _sourced(column.sources, made, column.opaque).lineage(column.column)
            for column in one.columns
        )
        indirect = _sourced(one.indirect, made, one.unknown)
        return replace(
            one,
            columns=columns,
            indirect=(
                *indirect.sources,
                *(source for each in made.values() for source in each.indirect),
            ),
            inputs=(
                *(name for name in one.inputs if name not in made),
                *(name for each in made.values() for name in each.inputs),
            ),
            unknown=(*indirect.opaque, *(why for each in made.values() for why in each.unknown)),
        )


def _sourced(
    sources: Iterable[Source], made: Mapping[str, Statement], reasons: Iterable[str]
) -> Value:
    """What sources derive from, of which some are in temporary tables."""
    return together(
        [
            Value(opaque=frozenset(reasons)),
            *(
                _column_of(made[source.ref.table], source.ref.column).then(
                    source.kind, source.is_masking
                )
                if source.ref.table in made
                else Value(frozenset((source,)))
                for source in sources
            ),
        ]
    )


def _column_of(made: Statement, column: str | None) -> Value:
    """What a column of a temporary table derives from, or all of them; what may be any has all that
    may be in it.
    """
    several = {
        folded(one.column): Value(frozenset(one.sources), frozenset(one.opaque))
        for one in made.columns
    }
    rest = several.get("*", CONSTANT)
    if column is None:
        return together(several.values())
    return several.get(folded(column), CONSTANT) | rest


def _not_made_here(target: str) -> Statement:
    reason = f"temporary table {target.removeprefix(TEMPORARY)} is not made here"
    return Statement(target=target, columns=(ColumnLineage(column="*", opaque=(reason,)),))


def _declared(node: exp.Expr, tables: Tables, target: str) -> Statement:
    """A temporary table that is declared with its columns, or like another one, and has no rows."""
    listed = [tables.spelled[one.name] for one in node.find_all(exp.ColumnDef)]
    like = node.find(exp.LikeProperty)
    if like is not None and isinstance(like.this, exp.Table):
        listed += tables.columns(tables.name(like.this)) or ()
    columns = [ColumnLineage(column=name) for name in listed] or [
        ColumnLineage(column="*", opaque=("its columns are not known",))
    ]
    return Statement(target=target, columns=tuple(columns), replaces=True)


def _temporary(node: exp.Expr) -> exp.Table | None:
    """What is made for the session alone."""
    if isinstance(node, exp.Cache):
        return (
            node.this if node.args.get("expression") and isinstance(node.this, exp.Table) else None
        )
    into = node.args.get("into") if isinstance(node, exp.Select) else None
    if into is not None and isinstance(into.this, exp.Table):
        return into.this if into.args.get("temporary") or is_temporary(into.this) else None
    if not isinstance(node, exp.Create) or str(node.args.get("kind")).upper() not in MADE:
        return None
    properties = node.args.get("properties")
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    is_made = isinstance(table, exp.Table) and (
        is_temporary(table) or (properties and properties.find(exp.TemporaryProperty))
    )
    return table if is_made else None


MADE = ("TABLE", "VIEW")


def _statements(node: exp.Expr, tables: Tables) -> list[Statement]:
    if isinstance(node, exp.Query | exp.Values):
        into = node.args.get("into")
        target = tables.target(into.this) if into is not None and into.this is not None else READ
        if into is not None:
            node.set("into", None)
        return [_of_query(target, node, tables, replaces=target != READ)]
    if isinstance(node, exp.Insert):
        return [_inserted(node, tables)]
    if isinstance(node, exp.MultitableInserts):
        return [_inserted_of(one, node.args["source"], tables) for one in node.expressions]
    if isinstance(node, exp.Create | exp.Cache):
        clone = node.args.get("clone")
        query = clone.this if clone is not None else node.args.get("expression")
        is_made = isinstance(node, exp.Cache) or str(node.args.get("kind")).upper() in MADE
        return (
            [_made_of(node.this, query, tables)]
            if is_made and isinstance(query, exp.Query | exp.Table)
            else []
        )
    if isinstance(node, exp.Alter) and isinstance(
        query := next(iter(node.args.get("actions") or ()), None), exp.Query
    ):
        return [_made_of(node.this, query, tables)]
    if isinstance(node, exp.Merge):
        return [_merged(node, tables)]
    if isinstance(node, exp.Update | exp.Delete):
        return _changed(node, tables)
    if isinstance(node, exp.Copy | exp.LoadData) and isinstance(node.this, exp.Table | exp.Schema):
        reason = f"{node.key.upper()} reads files"
        return [Statement(target=tables.target(node.this), unknown=(reason,))]
    return []


def _of_query(
    target: str,
    query: exp.Expr,
    tables: Tables,
    names: Sequence[str] | None = None,
    *,
    replaces: bool = False,
    unknown: Iterable[str] = (),
    looked_up: Collection[str] = (),
) -> Statement:
    """What a query gives, as a statement.

    Args:
        target: What is written.
        query: The query.
        tables: The tables that there are.
        names: Those of the target's columns by position, if they are not those of the query.
        replaces: No row of the target stays.
        unknown: What is not known besides.
        looked_up: Tables of which rows are only looked up, which makes them no inputs.
    """
    read = Query(tables, query)
    relation = read.relation()
    columns, reasons = list(relation.columns), [*unknown]
    if names is not None and relation.rest is not None:
        columns = [(name, relation.all()) for name in names]
    elif names is not None:
        if len(columns) > len(names):
            reasons.append(f"{len(columns)} columns for {len(names)} of {_shown(target)}")
        columns = list(zip(names, (value for _, value in columns), strict=False))
    own = {folded(name): name for name in tables.columns(target) or ()} if target else {}
    if names is None and relation.rest is not None and own and not replaces:
        columns = [(name, relation.column(name)) for name in own]
    kept = "" if target.startswith(TEMPORARY) else target  # which the sources of a row are not of
    lineage = []
    for name, value in columns:
        spelled = own.get(folded(name)) or tables.spelled.get(name, name)
        itself = Source(ColumnRef(kept, spelled), Kind.IDENTITY)
        lineage.append(replace(value, sources=value.sources - {itself}).lineage(spelled))
    used = {source.ref.table for one in lineage for source in one.sources}
    return Statement(
        target=target,
        columns=joined(lineage) if target else tuple(lineage),
        indirect=tuple(one for one in relation.decides.sources if one.ref.table != kept),
        inputs=tuple((read.inputs - ({*looked_up} if kept else set())) | used),
        replaces=replaces,
        unknown=(*relation.decides.opaque, *reasons),
    )


def _shown(target: str) -> str:
    return target.removeprefix(TEMPORARY)


def _made_of(target: exp.Expr, query: exp.Expr, tables: Tables) -> Statement:
    """A table or view that is what a query gives."""
    names = [one.name for one in target.expressions] if isinstance(target, exp.Schema) else None
    return _of_query(tables.target(target), query, tables, names, replaces=True)


def _inserted(node: exp.Insert, tables: Tables) -> Statement:
    """INSERT in all forms."""
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    target, query = tables.target(node.this), node.expression
    if not isinstance(query, exp.Query | exp.Values | exp.Table):
        return Statement(target=target)
    if node.args.get("with_"):
        query.set("with_", node.args["with_"])
    clause = table.args.get("partition") or node.args.get("partition")
    parts = clause.expressions if isinstance(clause, exp.Partition) else []
    fixed = [one.this.name for one in parts if isinstance(one, exp.EQ)]
    dynamic = [one.name for one in parts if not isinstance(one, exp.EQ)]
    listed = (
        [one.name for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
    )
    known, unknown = tables.columns(target), []
    names: list[str] | None = None
    # a directory has the columns of the query
    if not node.args.get("by_name") and (isinstance(table, exp.Table) or listed):
        left = [one for one in known or () if folded(one) not in (*fixed, *dynamic)]
        names = listed or ([*left, *dynamic] if known else None)
        if names is None:
            unknown.append(
                f"the columns of {_shown(target)} are not known; those of the query are taken for them"
            )
    found = _of_query(
        target,
        query,
        tables,
        names,
        replaces=bool(node.args.get("overwrite")) and not parts,
        unknown=unknown,
    )
    found = replace(
        found,
        columns=joined(
            [*found.columns, *(ColumnLineage(column=tables.spelled[one]) for one in fixed)]
        ),
    )
    conflict = node.args.get("conflict")
    return (
        found
        if conflict is None
        else found.joined(_on_conflict(conflict, table, query, found, tables))
    )


def _on_conflict(
    conflict: exp.OnConflict, table: exp.Table, query: exp.Expr, found: Statement, tables: Tables
) -> Statement:
    """What is assigned where the row is there already; `excluded` is the row that was to be
    inserted.
    """
    columns = [exp.to_identifier(folded(one.column)) for one in found.columns]
    given = exp.Subquery(
        this=query.copy() if isinstance(query, exp.Query) else exp.select("*").from_(query.copy()),
        alias=exp.TableAlias(this=exp.to_identifier("excluded"), columns=columns),
    )
    on = [
        exp.column(key.name, "excluded").eq(exp.column(key.name, "excluded"))
        for key in conflict.args.get("conflict_keys") or ()
    ]
    into = table.copy()
    several = [
        (name, value) for _, name, value in _assigned(conflict.expressions, {table.alias_or_name})
    ]
    select = _select([value for _, value in several], [into])
    select = select.join(given, on=exp.and_(*on) if on else None)
    return _of_query(
        found.target, select, tables, [name for name, _ in several], looked_up=[found.target]
    )


def _inserted_of(one: exp.Expr, source: exp.Expr, tables: Tables) -> Statement:
    """`FROM … INSERT … INSERT …`, of which each INSERT has a SELECT of its own; what INSERT ALL
    does with its query is unknown.
    """
    if isinstance(one, exp.Insert) and isinstance(one.expression, exp.Select):
        one.expression.set("from_", exp.From(this=source.copy()))
        return _inserted(one, tables)
    into = one.this if isinstance(one, exp.ConditionalInsert) else one
    found = _of_query(tables.target(into.this), source, tables)
    return replace(found, columns=(), unknown=(*found.unknown, "INSERT ALL is not followed"))


Assigned = tuple[str, str, exp.Expr]
"""The alias before a column that is assigned, or "", the column, and the value."""


def _assigned(several: Iterable[exp.Expr], aliases: Collection[str]) -> Iterator[Assigned]:
    """What `column = value`, or `(column, …) = (value, …)`, gives each column."""
    for one in several:
        if not isinstance(one, exp.EQ):
            continue
        columns, values = [one.this], [one.expression]
        if isinstance(one.this, exp.Tuple | exp.Paren):
            columns = one.this.expressions or [one.this.this]
            values = _each_of(one.expression, len(columns))
        for column, value in zip(columns, values, strict=False):
            is_path = isinstance(column, exp.Column | exp.Dot)
            parts = [part.name for part in column.parts] if is_path else [column.name]
            at = next(
                (at for at in range(len(parts) - 1, 0, -1) if ".".join(parts[:at]) in aliases), 0
            )
            yield ".".join(parts[:at]), parts[at], value


def _each_of(node: exp.Expr, width: int) -> list[exp.Expr]:
    """Each of several values, which a list or a query gives."""
    if isinstance(node, exp.Tuple):
        return node.expressions
    query = node.unnest()
    if not isinstance(query, exp.Select) or len(query.expressions) != width:
        return [node] * width
    return [exp.Subquery(this=query.select(one.copy(), append=False)) for one in query.expressions]


def _select(values: Iterable[exp.Expr], relations: Iterable[exp.Expr]) -> exp.Select:
    """A query of values over relations."""
    first, *others = relations
    columns = [exp.alias_(one.copy(), f"_col_{at}") for at, one in enumerate(values)]
    query = exp.Select(expressions=columns or [exp.alias_(exp.Literal.number(1), "one")])
    query.set("from_", exp.From(this=first.copy()))
    for one in others:
        query = query.join(one.copy(), join_type="cross", copy=False)
    return query


def _relations(node: exp.Expr) -> Iterator[exp.Expr]:
    """A relation behind FROM, and those that are joined to it."""
    yield node
    for join in node.args.get("joins") or ():
        yield from _relations(join.this)


def _changed(node: exp.Update | exp.Delete, tables: Tables) -> list[Statement]:
    """UPDATE and DELETE, as a query of what is assigned.

    A name before FROM may be an alias that stands behind it, as in T-SQL, and a join may have
    several targets, as in MySQL.
    """
    others, named = node.args.get("from_"), node.args.get("tables") or [node.this]
    behind = [*([others.this] if others else []), *(node.args.get("using") or ())]
    if node.args.get("tables"):
        behind.insert(0, node.this)
    elif node.args.get("using") and node.this.args.get("joins"):
        named = [*_relations(node.this)]
    relations = {one.alias_or_name: one for each in behind for one in _relations(each)}
    relations |= {
        tables.written(one): one
        for one in [*relations.values()]
        if isinstance(one, exp.Table) and not one.alias
    }
    several: dict[str, exp.Expr] = {}
    for one in named:
        key = one.alias or tables.written(one)
        if key not in relations:
            behind.insert(0, one)
            relations |= {each.alias_or_name: each for each in _relations(one)}
            key = one.alias_or_name
        several[key] = relations[key]
    given = {cte.alias for cte in node.find_all(exp.CTE)}
    targets = {
        alias: READ if tables.written(one) in given else tables.target(one)
        for alias, one in (relations if node.this.args.get("joins") else several).items()
    }
    unknown = ["the target is not a table"] if READ in targets.values() else []
    written: dict[str, list[tuple[str, exp.Expr]]] = {}
    if isinstance(node, exp.Delete):
        written = {targets[alias]: [] for alias in several}
    else:
        for alias, column, value in _assigned(node.expressions, relations.keys()):
            target = targets.get(alias) or _owner(column, {*targets.values()}, tables)
            if target == READ and not unknown:
                unknown.append(f"column {shown(column)} may be of several tables")
            written.setdefault(target, []).append((column, value))
    found = []
    for target, columns in written.items():
        query = _select([value for _, value in columns], behind)
        query.set("where", node.args.get("where"))
        query.set("with_", node.args.get("with_"))
        names = [name for name, _ in columns] or None
        one = _of_query(target, query.copy(), tables, names, unknown=unknown, looked_up=[*written])
        found.append(one if columns else replace(one, columns=()))
    return found


def _owner(column: str, targets: Collection[str], tables: Tables) -> str:
    """The target that has a column; none where it may be any."""
    having = [one for one in targets if column in map(folded, tables.columns(one) or (column,))]
    return having[0] if len(having) == 1 else READ


def _merged(node: exp.Merge, tables: Tables) -> Statement:
    """All clauses whole, each a query of what it assigns; that a row of the target is looked up
    makes it no input.
    """
    target, source = tables.target(node.this), node.args["using"]
    both = _select([], [source]).join(node.this.copy(), on=node.args.get("on"))
    clauses = [(both, list[str]())]
    for when in node.args["whens"].expressions:
        condition = when.args.get("condition")
        if condition is not None:
            clauses.append((both.where(condition), []))
        clauses += _clause(when, node, source, both, tables)
    found = []
    for query, names in clauses:
        if node.args.get("with_"):
            query.set("with_", node.args["with_"].copy())
        one = _of_query(target, query, tables, names or None, looked_up=[target])
        found.append(one if names or _stars(query) else replace(one, columns=()))
    return reduce(Statement.joined, found)


def _stars(query: exp.Select) -> bool:
    return any(one.is_star for one in query.expressions)


def _clause(
    when: exp.When, node: exp.Merge, source: exp.Expr, both: exp.Select, tables: Tables
) -> Iterator[tuple[exp.Select, list[str]]]:
    then = when.args["then"]
    values: Sequence[exp.Expr] = ()
    names: list[str] = []
    if isinstance(then, exp.Update):
        aliases = {node.this.alias_or_name, tables.written(node.this)}
        pairs = [(name, value) for _, name, value in _assigned(then.expressions, aliases)]
        names, values = [name for name, _ in pairs], [value for _, value in pairs]
        relations, is_all = both, any(isinstance(one, exp.Star) for one in then.expressions)
        if when.args.get("source"):
            relations = _select([], [node.this])
    elif isinstance(then, exp.Insert):
        given = then.expression
        values = given.expressions if isinstance(given, exp.Tuple) else [given] if given else []
        listed = then.this.expressions if isinstance(then.this, exp.Tuple | exp.Schema) else ()
        names = [one.name for one in listed] or [*(tables.columns(tables.target(node.this)) or ())]
        names = names or [f"_col_{at}" for at in range(len(values))]
        relations = _select([], [source])
        is_all = isinstance(then.this, exp.Star) or (then.this is None and given is None)
    else:
        return  # DELETE, DO CONSTANT
    if is_all:
        yield _select([], [source]).select("*", append=False), []
    else:
        columns = _select(values, [source]).expressions
        yield relations.select(*columns, append=False), names[: len(values)]


def _check(node: exp.Expr) -> None:
    """Refuse what may run any statement, such as a procedure, a block or a condition.

    Raises:
        InvalidValueError: as it says.
    """
    if isinstance(node, exp.Execute | exp.Block | exp.IfBlock | exp.WhileBlock):
        raise _refused(node.key.upper())
    if isinstance(node, exp.Create) and str(node.args.get("kind")).upper() in ("PROCEDURE", "PROC"):
        raise _refused("CREATE PROCEDURE")
    if isinstance(node, exp.Command):
        word, rest = str(node.this).upper(), str(node.args.get("expression") or "")
        has_body = word in ("CREATE", "ALTER") and _WITH_BODY.search(rest[:200])
        if word in _OPAQUE_VERBS or word == "END" or has_body:
            raise _refused(word)
    _check_aliases(node)


def _check_aliases(node: exp.Expr) -> None:
    """Refuses a text whose statements ran into each other, so that a verb is taken for an alias."""
    for alias in node.find_all(exp.TableAlias, exp.Alias):
        name = alias.this if isinstance(alias, exp.TableAlias) else alias.args.get("alias")
        if (
            isinstance(name, exp.Identifier)
            and not name.args.get("quoted")
            and name.name.upper() in _VERBS
        ):
            raise InvalidValueError(
                "sql",
                name.name.upper(),
                "begins no statement here; end each statement with a semicolon",
            )


def _refused(what: str) -> InvalidValueError:
    return InvalidValueError("sql", what, "may run any statement; send those that it runs")


REMEMBERED = 10_000  # statements, the last ones that were met


class SqlReader:
    """What statements say, with the columns of tables as they are known at one moment; for one
    thread at a time.
    """

    def __init__(self, schema: SqlSchema) -> None:
        self.schema = schema
        self._known: OrderedDict[str, tuple[Statement, ...]] = OrderedDict()

    def read(
        self, sql: str | Sequence[str], dialect: str, namespace: str = ""
    ) -> tuple[str, tuple[Statement, ...]]:
        """A digest of a text, or of several of one session, and what `statements_of_sql` says of
        it.

        Raises:
            InvalidValueError: as that does.
        """
        dialect = checked_dialect(dialect)
        texts = [sql] if isinstance(sql, str) else list(sql)
        key = blake2b(
            "\0".join((dialect, namespace, *texts)).encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()
        if (found := self._known.get(key)) is None:
            several = [one for text in texts for one in parsed(text, dialect)]
            found = self._known[key] = read_statements(
                several, "".join(texts), self.schema, dialect, namespace or dialect
            )
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return key, found
