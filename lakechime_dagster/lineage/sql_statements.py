"""From a text of SQL to the column lineage of each of its statements."""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b

import sqlglot
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
from lakechime_dagster.lineage.sql_queries import (
    TEMPORARY,
    Ctes,
    Named,
    Reading,
    Relation,
    Scope,
    SqlSchema,
    from_clause,
    is_temporary,
    keeping,
    key_of,
    relation_of,
    with_ctes,
    written,
)
from lakechime_dagster.tables.names import folded


def read_only(query: exp.Expr, reading: Reading, ctes: Ctes) -> Statement:
    """A query that writes nothing: its columns by position, whatever their names; into a table if
    it says so.
    """
    relation = relation_of(query, reading, ctes)
    into = query.args.get("into")
    if into is not None and into.this is not None:
        return statement(reading.target(into.this), relation.columns, reading, replaces=True)
    return statement(READ, relation.columns, reading)


def created(node: exp.Create, reading: Reading, ctes: Ctes) -> Statement | None:
    """A table or view made of a query, or of another table; None where nothing is made of
    anything.
    """
    clone = node.args.get("clone")
    query = clone.this if clone is not None else node.args.get("expression")
    if str(node.args.get("kind")).upper() not in ("TABLE", "VIEW") or not isinstance(
        query, exp.Query | exp.Table
    ):
        return None
    return made_of(node.this, query, reading, ctes)


def made_of(target: exp.Expr, query: exp.Expr, reading: Reading, ctes: Ctes) -> Statement:
    """A table or view that is what a query gives."""
    names = [one.name for one in target.expressions] if isinstance(target, exp.Schema) else []
    relation = relation_of(query, reading, ctes).renamed(names)
    return statement(reading.target(target), relation.columns, reading, replaces=True)


def inserted(node: exp.Insert, reading: Reading, ctes: Ctes) -> Statement:
    """INSERT in all forms."""
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    target = reading.target(node.this)
    if node.expression is not None and isinstance(
        node.expression, exp.Query | exp.Values | exp.Table | exp.Subquery
    ):
        relation = relation_of(node.expression, reading, with_ctes(node, reading, ctes))
    else:
        relation = Relation(())
    listed = (
        [one.name for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
    )
    fixed, dynamic = _partition(node, table)
    known = reading.columns(target)
    # a directory has the columns of the query
    if node.args.get("by_name") or (not isinstance(table, exp.Table) and not listed):
        columns = relation.columns
    else:
        left = [
            name
            for name in known or ()
            if folded(name) not in fixed and folded(name) not in dynamic
        ]
        columns = _by_position(
            listed or ([*left, *dynamic.values()] if known else None), relation, reading, target
        )
    columns = (*columns, *((name, CONSTANT) for name in fixed.values()))
    found = statement(
        target,
        columns,
        reading,
        replaces=bool(node.args.get("overwrite")) and not fixed and not dynamic,
    )
    conflict = node.args.get("conflict")
    return (
        found
        if conflict is None
        else _on_conflict(
            conflict, node.this, found, relation.renamed(name for name, _ in columns), reading
        )
    )


def several_inserted(node: exp.MultitableInserts, reading: Reading, ctes: Ctes) -> list[Statement]:
    """`FROM … INSERT … INSERT …`, of which each INSERT has a SELECT of its own; what INSERT ALL
    does with its query is unknown.
    """
    within, source, found = with_ctes(node, reading, ctes), node.args["source"], list[Statement]()
    for one in node.expressions:
        insert, own = one.this if isinstance(one, exp.ConditionalInsert) else one, reading.apart()
        if (
            insert is one
            and isinstance(insert.expression, exp.Select)
            and not insert.expression.args.get("from_")
        ):
            insert.expression.set("from_", exp.From(this=source.copy()))
            found.append(inserted(insert, own, within))
        else:
            relation_of(source, own, within)  # which notes what it reads
            own.unknown.add("INSERT ALL is not followed")
            found.append(statement(own.target(insert.this), (), own))
    return found


def changed(node: exp.Update | exp.Delete, reading: Reading, ctes: Ctes) -> list[Statement]:
    """UPDATE and DELETE: the assigned columns, and what decides about rows besides the target
    itself.

    A name before FROM may be an alias that stands behind it, as in T-SQL, and a join may have
    several targets, as in MySQL.
    """
    scope = Scope(with_ctes(node, reading, ctes))
    several = _targets(node, scope, reading)
    reading.inputs -= {one.target for one in several}
    if node.args.get("where"):
        reading.decides(reading.origin(node.args["where"].this, scope), Kind.FILTER)
    if isinstance(node, exp.Delete):
        return [statement(_base(one, None, reading)[0], (), reading) for one in several]
    is_join = bool(node.this.args.get("joins"))
    written: dict[str, list[tuple[str, Value]]] = {}
    for column, origin in assignments(node.expressions, scope, reading):
        relation, name = _assigned(column, scope, scope.relations if is_join else several)
        target, name = (READ, name) if relation is None else _base(relation, name, reading)
        if relation is None:
            reading.unknown.add(f"column {shown(name)} may be of several tables")
        written.setdefault(target, []).append((name, origin))
    reading.inputs -= written.keys()
    return [statement(target, columns, reading) for target, columns in written.items()]


def _targets(node: exp.Update | exp.Delete, scope: Scope, reading: Reading) -> list[Relation]:
    """Reads what stands behind FROM and USING; gives the relations that are written."""
    others, using = node.args.get("from_"), node.args.get("using") or []
    behind = [*([others.this] if others else []), *using]
    named = node.args.get("tables") or [node.this]
    if node.args.get("tables") or (node.this.args.get("joins") and not using):
        behind.insert(0, node.this)
    elif using:
        named = [node.this, *(join.this for join in node.this.args.get("joins") or ())]
    names = {folded(name) for one in behind for name in _names(one)}
    own = [one for one in named if one is not node.this or node.this not in behind]
    for one in own:
        if one.alias or folded(written(one)) not in names:
            add_target(one, scope, reading)
    for one in behind:
        from_clause(one, scope, reading)
    return [scope.by_alias[folded(one.alias or written(one))] for one in named]


def _names(behind: exp.Expr) -> Iterator[str]:
    """By what the relations behind FROM can be named."""
    if behind.alias:
        yield behind.alias
    elif isinstance(behind, exp.Table):
        yield from (written(behind), behind.name)
    elif isinstance(behind, exp.Subquery):
        yield from _names(behind.this)
    for join in behind.args.get("joins") or ():
        yield from _names(join.this)


def _assigned(
    column: exp.Expr, scope: Scope, several: Sequence[Relation]
) -> tuple[Relation | None, str]:
    """The relation and the column that `name = …`, `alias.name = …` or `name.field = …` assigns; no
    relation where it may be any.
    """
    parts = (
        [part.name for part in column.parts]
        if isinstance(column, exp.Column | exp.Dot)
        else [column.name]
    )
    for at in range(1, len(parts)):
        relation = scope.by_alias.get(folded(".".join(parts[:at])))
        if relation is not None:
            return relation, parts[at]
    having = (
        [one for one in several if one.column(parts[0]) is not None]
        if len(several) > 1
        else several
    )
    is_sure = len(having) == 1 and (len(several) == 1 or not any(one.more for one in several))
    return (having[0] if is_sure else None), parts[0]


def _base(relation: Relation, column: str | None, reading: Reading) -> tuple[str, str]:
    """The table that is written, and its column; of a query it is not known."""
    if relation.target:
        return relation.target, column or ""
    reading.unknown.add("the target is not a table")
    return READ, column or ""


def assignments(
    several: Iterable[exp.Expr], scope: Scope, reading: Reading
) -> list[tuple[exp.Expr, Value]]:
    """What `column = value`, or `(column, …) = (value, …)`, gives each column."""
    found: list[tuple[exp.Expr, Value]] = []
    for one in several:
        if isinstance(one, exp.EQ) and isinstance(one.this, exp.Column | exp.Identifier | exp.Dot):
            found.append((one.this, reading.origin(one.expression, scope)))
        elif isinstance(one, exp.EQ) and isinstance(one.this, exp.Tuple | exp.Paren):
            columns = one.this.expressions or [one.this.this]
            found += zip(
                columns, _values(one.expression, len(columns), scope, reading), strict=False
            )
    return found


def _values(node: exp.Expr, width: int, scope: Scope, reading: Reading) -> list[Value]:
    """What each of several values comes from, which a list or a query gives."""
    if isinstance(node, exp.Tuple):
        return [reading.origin(one, scope) for one in node.expressions]
    if not isinstance(node, exp.Query):
        return [reading.origin(node, scope)] * width
    relation, deciding = reading.inside(node, scope)
    if relation.more:
        return [relation.all() | deciding] * width
    return [origin | deciding for _, origin in relation.columns]


def assigned(
    several: Iterable[exp.Expr], scope: Scope, target: Relation, reading: Reading
) -> list[tuple[str, Value]]:
    """What is assigned to each column of the only target, by its name."""
    return [
        (_assigned(column, scope, [target])[1], origin)
        for column, origin in assignments(several, scope, reading)
    ]


def statement(
    target: str, columns: Iterable[tuple[str, Value]], reading: Reading, replaces: bool = False
) -> Statement:
    """What was found, as a statement; columns of a table are named as it names them, and never by
    themselves.
    """
    own = {folded(name): name for name in reading.columns(target) or ()} if target else {}
    several = [_lineage(own.get(folded(name), name), origin, target) for name, origin in columns]
    return Statement(
        target=target,
        columns=joined(several) if target else tuple(several),
        indirect=tuple(one for one in reading.indirect if one.ref.table != target),
        inputs=tuple(
            reading.inputs | {source.ref.table for one in several for source in one.sources}
        ),
        replaces=replaces,
        unknown=tuple(reading.unknown),
    )


def add_target(node: exp.Expr, scope: Scope, reading: Reading) -> Relation:
    """Makes the table that is written known to a scope: that a row of it is looked up makes it no
    input.
    """
    table = node.this if isinstance(node, exp.Schema) else node
    relation = (
        reading.table(table, scope.ctes)
        if isinstance(table, exp.Table)
        else Relation((), "the target is not a table")
    )
    names = (written(table), table.name) if isinstance(table, exp.Table) else ()
    scope.add(relation, *((node.alias,) if node.alias else names))
    return relation


def _lineage(name: str, origin: Value, target: str) -> ColumnLineage:
    kept = Source(ColumnRef(target, name), Kind.IDENTITY)
    return ColumnLineage(
        column=name, sources=tuple(origin.sources - {kept}), opaque=tuple(origin.opaque)
    )


def _by_position(
    names: Sequence[str] | None, relation: Relation, reading: Reading, target: str
) -> tuple[tuple[str, Value], ...]:
    if names is None:
        table = target.removeprefix(TEMPORARY)
        reading.unknown.add(
            f"the columns of {table} are not known; those of the query are taken for them"
        )
        return relation.columns
    if relation.more:
        return tuple((name, relation.all()) for name in names)
    found = tuple(zip(names, (origin for _, origin in relation.columns), strict=False))
    if len(relation.columns) > len(names):
        reading.unknown.add(
            f"{len(relation.columns)} columns for {len(names)} of {target.removeprefix(TEMPORARY)}"
        )
    return found


def _partition(node: exp.Insert, table: exp.Expr) -> tuple[dict[str, str], dict[str, str]]:
    """The columns of a PARTITION clause: with a value, and without."""
    clause = table.args.get("partition") or node.args.get("partition")
    parts = clause.expressions if isinstance(clause, exp.Partition) else []
    fixed = [one.this.name for one in parts if isinstance(one, exp.EQ)]
    dynamic = [one.name for one in parts if not isinstance(one, exp.EQ)]
    return {folded(name): name for name in fixed}, {folded(name): name for name in dynamic}


def _on_conflict(
    conflict: exp.OnConflict, node: exp.Expr, found: Statement, given: Relation, reading: Reading
) -> Statement:
    """What is assigned where the row is there already; `excluded` is the row that was to be
    inserted.
    """
    scope = Scope({})
    target = add_target(node, scope, reading)
    scope.by_alias["excluded"] = given
    for key in conflict.args.get("conflict_keys") or ():
        reading.decides(given.column(key.name) or CONSTANT, Kind.JOIN)
    return found.added(
        statement(found.target, assigned(conflict.expressions, scope, target, reading), reading)
    )


def merge_of(node: exp.Merge, reading: Reading, ctes: Ctes) -> Statement:
    """All clauses whole; that a row of the target is looked up makes it no input."""
    target = reading.target(node.this)
    scope = Scope(with_ctes(node, reading, ctes))
    from_clause(node.args["using"], scope, reading)
    source = scope.relations[0]
    add_target(node.this, scope, reading)
    if node.args.get("on"):
        reading.decides(reading.origin(node.args["on"], scope), Kind.JOIN)
    columns: list[tuple[str, Value]] = []
    for when in node.args["whens"].expressions:
        if when.args.get("condition"):
            reading.decides(reading.origin(when.args["condition"], scope), Kind.FILTER)
        columns += _clause(when, source, scope, reading, target)
    return statement(target, columns, reading)


def _clause(
    when: exp.When, source: Relation, scope: Scope, reading: Reading, target: str
) -> list[tuple[str, Value]]:
    then = when.args["then"]
    if isinstance(then, exp.Update):
        if any(isinstance(one, exp.Star) for one in then.expressions):
            return _all(source, reading, target)
        into = scope.relations[-1]
        of_target = (
            Scope(scope.ctes, relations=[into], by_alias=scope.by_alias)
            if when.args.get("source")
            else scope
        )
        return assigned(then.expressions, of_target, into, reading)
    if isinstance(then, exp.Insert):
        if isinstance(then.this, exp.Star) or (then.this is None and then.expression is None):
            return _all(source, reading, target)
        values = (
            then.expression.expressions
            if isinstance(then.expression, exp.Tuple)
            else [then.expression]
        )
        names = (
            [one.name for one in then.this.expressions]
            if isinstance(then.this, exp.Tuple | exp.Schema)
            else []
        )
        names = names or list(
            reading.columns(target) or [f"_col_{at}" for at in range(len(values))]
        )
        given = Scope(scope.ctes, relations=[source], by_alias=scope.by_alias)
        return [
            (name, reading.origin(value, given))
            for name, value in zip(names, values, strict=False)
            if value is not None
        ]
    return []  # DELETE, DO CONSTANT


def _all(source: Relation, reading: Reading, target: str) -> list[tuple[str, Value]]:
    """`*`: the columns of the source by their names; all of the target's where it is not known
    which there are.
    """
    if not source.more:
        return list(source.columns)
    names = reading.columns(target) or [name for name, _ in source.columns]
    return [(name, source.column(name) or source.unknown_column(name)) for name in names]


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


def check_text(sql: object, dialect: str) -> None:
    """Refuse a text that is not read.

    Raises:
        InvalidValueError: too long, a template, or cut off. No part of the text is in the message:
            its literals are personal.
    """
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
    try:
        found = Dialect.get_or_raise(dialect).tokenize(sql)
    except SqlglotError:
        raise InvalidValueError(
            "sql",
            f"of {len(sql):,} characters",
            "is cut off, or not of this dialect; send all of it",
        ) from None
    if len(found) > MAX_TOKENS:
        raise InvalidValueError(
            "sql", f"of {len(found):,} words", f"is too long; at most {MAX_TOKENS:,} are read"
        )
    _check_template(found, sql)


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


def parsed(sql: str, dialect: str) -> list[exp.Expr]:
    """The statements of a text.

    Raises:
        InvalidValueError: where it does not parse, by line and column, or is nested too deeply.
    """
    try:
        return [one for one in sqlglot.parse(sql, dialect=dialect) if one is not None]
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
    check_text(sql, dialect)
    return read_statements(parsed(sql, dialect), sql, schema, namespace or dialect)


def read_statements(
    several: list[exp.Expr], sql: str, schema: SqlSchema, namespace: str
) -> tuple[Statement, ...]:
    """The same of statements that are parsed."""
    script = _Script(schema, namespace)
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
    """

    def __init__(self, schema: SqlSchema, namespace: str) -> None:
        self.found: list[Statement] = []
        self._schema = schema
        self._namespace = namespace
        self._tables: dict[str, Statement] = {}  # temporary ones, by their keys
        self._views: dict[str, Callable[[Ctes], Named]] = {}
        self._read: set[str] = set()

    def run(self, node: exp.Expr) -> None:
        """What a statement says, with the temporary tables as they are when it comes."""
        if isinstance(node, exp.Drop):
            for table in node.find_all(exp.Table):
                self._forget(key_of(table))
            return
        columns = {
            key: [one.column for one in made.columns if one.column != "*"] or None
            for key, made in self._tables.items()
        }
        reading, ctes = Reading(self._schema, self._namespace, columns), self._ctes()
        made = _temporary(node)
        if made is None:
            self._keep(node, _statements(node, reading, ctes))
            return
        table = made.this if isinstance(made, exp.Schema) else made
        key = key_of(table)
        query = node.args.get("expression")
        if isinstance(query, exp.Query) and (
            isinstance(node, exp.Cache) or str(node.args.get("kind")).upper() == "VIEW"
        ):
            names = [one.name for one in made.expressions] if isinstance(made, exp.Schema) else []
            view = _view(query, names, key, ctes.get(key))
            self._forget(key)
            self._views[key] = view
            return
        several = _statements(
            node, Reading(self._schema, self._namespace, {**columns, key: None}), ctes
        )
        several = several or [_declared(node, made, reading, key)]
        if node.args.get("exists"):
            several = [replace(one, replaces=False) for one in several]
        else:
            self._forget(key)
        self._keep(node, several)

    def unread(self) -> list[Statement]:
        """What was made for the session and is read by nothing in it: who sends the script reads
        what that is made of.
        """
        ctes = self._ctes()
        found = []
        for key in ctes.keys() - self._read:
            reading = Reading(self._schema, self._namespace)
            found.append(statement(READ, ctes[key](reading).columns, reading))
        return [one for one in found if one.inputs]

    def _keep(self, node: exp.Expr, several: Sequence[Statement]) -> None:
        for one in several:
            if one.target.startswith(TEMPORARY):
                key = one.target.removeprefix(TEMPORARY)
                self._tables[key] = (
                    self._tables[key].added(one)
                    if key in self._tables
                    else _unless_made_here(one, node)
                )
                continue
            self.found.append(one)
            if isinstance(node, exp.Create | exp.Select) and one.target != READ and one.columns:
                self._schema = self._schema.with_table(
                    one.target, [column.column for column in one.columns]
                )

    def _forget(self, key: str) -> None:
        self._tables.pop(key, None)
        self._views.pop(key, None)
        self._read.discard(key)

    def _ctes(self) -> Ctes:
        """What is temporary, to be read like a common table expression; a view reads what it names
        as that is by now.
        """
        found: dict[str, Named] = {
            key: self._noted(key, _rows(key, made)) for key, made in self._tables.items()
        }
        for key, view in self._views.items():
            found[key] = self._noted(key, keeping(view(found)))
        return found

    def _noted(self, key: str, read: Named) -> Named:
        def noted(reading: Reading) -> Relation:
            self._read.add(key)
            return read(reading)

        return noted


def _rows(key: str, made: Statement) -> Named:
    """What reading a temporary table gives: its columns, with the sources of all that was written
    to it.
    """
    columns = tuple(
        (one.column, Value(frozenset(one.sources), frozenset(one.opaque))) for one in made.columns
    )
    more = "; ".join(reason for one in made.columns if one.column == "*" for reason in one.opaque)
    rest = together(origin for name, origin in columns if name == "*")

    def read(reading: Reading) -> Relation:
        reading.inputs |= set(made.inputs)
        reading.indirect |= set(made.indirect)
        reading.unknown |= set(made.unknown)
        known = tuple((name, origin | rest) for name, origin in columns if name != "*")
        return Relation(known, more, rest=rest, temporary=TEMPORARY + key)

    return read


def _view(
    query: exp.Expr, names: list[str], key: str, before: Named | None
) -> Callable[[Ctes], Named]:
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
    listed = (
        [one.name for one in made.expressions if isinstance(one, exp.ColumnDef)]
        if isinstance(made, exp.Schema)
        else []
    )
    like = next(iter(node.find_all(exp.LikeProperty)), None)
    if like is not None and isinstance(like.this, exp.Table):
        listed += [name for name, _ in reading.table(like.this, {}).columns]
    columns = [ColumnLineage(column=name) for name in listed] or [
        ColumnLineage(column="*", opaque=("its columns are not known",))
    ]
    return Statement(target=TEMPORARY + key, columns=tuple(columns), replaces=True)


def _unless_made_here(one: Statement, node: exp.Expr) -> Statement:
    """What is known of a temporary table when it is written first: where it was not made by that,
    there may be more in it.
    """
    if _temporary(node) is not None:
        return one
    reason = f"temporary table {one.target.removeprefix(TEMPORARY)} is not made here"
    return Statement(
        target=one.target, columns=(ColumnLineage(column="*", opaque=(reason,)),)
    ).added(one)


def _temporary(node: exp.Expr) -> exp.Table | exp.Schema | None:
    """What is made for the session alone, with its columns if they are declared."""
    if isinstance(node, exp.Cache):
        return (
            node.this if node.args.get("expression") and isinstance(node.this, exp.Table) else None
        )
    if isinstance(node, exp.Select):
        into = node.args.get("into")
        if into is None or not isinstance(into.this, exp.Table):
            return None
        return into.this if into.args.get("temporary") or is_temporary(into.this) else None
    if not isinstance(node, exp.Create) or str(node.args.get("kind")).upper() not in (
        "TABLE",
        "VIEW",
    ):
        return None
    properties = node.args.get("properties")
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    is_made = isinstance(table, exp.Table) and (
        is_temporary(table) or (properties and properties.find(exp.TemporaryProperty))
    )
    return node.this if is_made else None


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
    if isinstance(node, exp.Alter) and isinstance(
        query := next(iter(node.args.get("actions") or ()), None), exp.Query
    ):
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
            for text in texts:
                check_text(text, dialect)
            several = [one for text in texts for one in parsed(text, dialect)]
            found = self._known[key] = read_statements(
                several, "".join(texts), self.schema, namespace or dialect
            )
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return key, found
