"""What a SQL statement writes: which columns of its target get which values."""

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from lakechime_dagster.errors import shown
from lakechime_dagster.lineage.columns import READ, ColumnLineage, ColumnRef, Kind, Source, Statement, joined
from lakechime_dagster.lineage.sql_queries import TEMPORARY, Ctes, Reading, relation_of, with_ctes, written
from lakechime_dagster.lineage.sql_relations import NOTHING, Origin, Relation, Scope


def read_only(query: exp.Expr, reading: Reading, ctes: Ctes) -> Statement:
    """A query that writes nothing: its columns by position, whatever their names; into a table if it says so."""
    relation = relation_of(query, reading, ctes)
    into = query.args.get("into")
    if into is not None and into.this is not None:
        return statement(reading.target(into.this), relation.columns, reading, replaces=True)
    return statement(READ, relation.columns, reading)


def created(node: exp.Create, reading: Reading, ctes: Ctes) -> Statement | None:
    """A table or view made of a query, or of another table; None where nothing is made of anything."""
    clone = node.args.get("clone")
    query = clone.this if clone is not None else node.args.get("expression")
    if str(node.args.get("kind")).upper() not in ("TABLE", "VIEW") or not isinstance(query, exp.Query | exp.Table):
        return None
    return made_of(node.this, query, reading, ctes)


def made_of(target: exp.Expr, query: exp.Expr, reading: Reading, ctes: Ctes) -> Statement:
    """A table or view that is what a query gives."""
    names = [one.name for one in target.expressions] if isinstance(target, exp.Schema) else []
    relation = relation_of(query, reading, ctes).renamed(names)
    return statement(reading.target(target), relation.columns, reading, replaces=True)


def inserted(node: exp.Insert, reading: Reading, ctes: Ctes, query: Relation | None = None) -> Statement:
    """INSERT in all forms; `query` is what stands before it where several inserts share it."""
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    target = reading.target(node.this)
    if node.expression is not None and isinstance(node.expression, exp.Query | exp.Values | exp.Table | exp.Subquery):
        relation = relation_of(node.expression, reading, with_ctes(node, reading, ctes))
    else:
        relation = query or Relation(())
    listed = [one.name for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
    fixed, dynamic = _partition(node, table)
    known = reading.columns(target)
    if node.args.get("by_name") or (not isinstance(table, exp.Table) and not listed):  # a directory has the columns of the query
        columns = relation.columns
    else:
        left = [name for name in known or () if name.casefold() not in fixed and name.casefold() not in dynamic]
        columns = _by_position(listed or ([*left, *dynamic.values()] if known else None), relation, reading, target)
    columns = (*columns, *((name, NOTHING) for name in fixed.values()))
    found = statement(target, columns, reading, replaces=bool(node.args.get("overwrite")) and not fixed and not dynamic)
    conflict = node.args.get("conflict")
    return found if conflict is None else _on_conflict(conflict, node.this, found, relation.renamed(name for name, _ in columns), reading)


def several_inserted(node: exp.MultitableInserts, reading: Reading, ctes: Ctes) -> list[Statement]:
    """One query into several tables; a condition decides about rows of all of them, but for what a SELECT of its own has."""
    source = node.args["source"]
    scope = Scope(with_ctes(node, reading, ctes))
    if isinstance(source, exp.Query):
        scope.add(relation_of(source, reading, scope.ctes), source.alias_or_name)
    else:
        reading.from_clause(source, scope, reading)
    inserts: list[tuple[exp.Insert, Relation]] = []
    for one in node.expressions:
        insert = one.this if isinstance(one, exp.ConditionalInsert) else one
        if isinstance(one, exp.ConditionalInsert) and one.expression is not None:
            reading.decides(reading.origin(one.expression, scope), Kind.FILTER)
        if isinstance(insert.expression, exp.Select) and not insert.expression.args.get("from_"):
            insert.expression.set("from_", exp.From(this=source.copy()))  # FROM stands before, for all
        relation = scope.relations[0]
        values = insert.expression
        if isinstance(values, exp.Values):
            rows = [part for row in values.expressions for part in (row.expressions or [row])]
            relation = Relation(tuple((part.alias_or_name, reading.origin(part, scope)) for part in rows))
            insert.set("expression", None)
        inserts.append((insert, relation))
    found: list[Statement] = []
    for insert, relation in inserts:
        own = reading.apart()
        own.add(reading)
        found.append(inserted(insert, own, scope.ctes, relation))
    return found


def changed(node: exp.Update | exp.Delete, reading: Reading, ctes: Ctes) -> list[Statement]:
    """UPDATE and DELETE: the assigned columns, and what decides about rows besides the target itself.

    A name before FROM may be an alias that stands behind it, as in T-SQL, and a join may have several targets, as in MySQL.
    """
    scope = Scope(with_ctes(node, reading, ctes))
    several = _targets(node, scope, reading)
    reading.inputs -= {one.target for one in several}
    if node.args.get("where"):
        reading.decides(reading.origin(node.args["where"].this, scope), Kind.FILTER)
    if isinstance(node, exp.Delete):
        return [statement(_base(one, None, reading)[0], (), reading) for one in several]
    is_join = bool(node.this.args.get("joins"))
    written: dict[str, list[tuple[str, Origin]]] = {}
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
    names = {name.casefold() for one in behind for name in _names(one)}
    own = [one for one in named if one is not node.this or node.this not in behind]
    for one in own:
        if one.alias or written(one).casefold() not in names:
            add_target(one, scope, reading)
    for one in behind:
        reading.from_clause(one, scope, reading)
    return [scope.by_alias[(one.alias or written(one)).casefold()] for one in named]


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


def _assigned(column: exp.Expr, scope: Scope, several: Sequence[Relation]) -> tuple[Relation | None, str]:
    """The relation and the column that `name = …`, `alias.name = …` or `name.field = …` assigns; no relation where it may be any."""
    parts = [part.name for part in column.parts] if isinstance(column, exp.Column | exp.Dot) else [column.name]
    for at in range(1, len(parts)):
        relation = scope.by_alias.get(".".join(parts[:at]).casefold())
        if relation is not None:
            return relation, parts[at]
    having = [one for one in several if one.column(parts[0]) is not None] if len(several) > 1 else several
    is_sure = len(having) == 1 and (len(several) == 1 or not any(one.more for one in several))
    return (having[0] if is_sure else None), parts[0]


def _base(relation: Relation, column: str | None, reading: Reading) -> tuple[str, str]:
    """The table below what is written, and its column, as a query of one table can be written; of any other it is not known."""
    if relation.target:
        return relation.target, column or ""
    origin = relation.all() if column is None else relation.column(column) or NOTHING
    refs = {source.ref for source in origin.sources if source.kind is Kind.IDENTITY}
    tables = {ref.table for ref in refs}
    if len(tables) == 1 and (column is None or (len(refs) == 1 and not origin.opaque)):
        (table,) = tables
        reading.inputs.discard(table)
        return table, "" if column is None else next(iter(refs)).column or column
    reading.unknown.add("the target is not a table")
    return READ, column or ""


def assignments(several: Iterable[exp.Expr], scope: Scope, reading: Reading) -> list[tuple[exp.Expr, Origin]]:
    """What `column = value`, or `(column, …) = (value, …)`, gives each column."""
    found: list[tuple[exp.Expr, Origin]] = []
    for one in several:
        if isinstance(one, exp.EQ) and isinstance(one.this, exp.Column | exp.Identifier | exp.Dot):
            found.append((one.this, reading.origin(one.expression, scope)))
        elif isinstance(one, exp.EQ) and isinstance(one.this, exp.Tuple | exp.Paren):
            columns = one.this.expressions or [one.this.this]
            found += zip(columns, _values(one.expression, len(columns), scope, reading), strict=False)
    return found


def _values(node: exp.Expr, width: int, scope: Scope, reading: Reading) -> list[Origin]:
    """What each of several values comes from, which a list or a query gives."""
    if isinstance(node, exp.Tuple):
        return [reading.origin(one, scope) for one in node.expressions]
    if not isinstance(node, exp.Query):
        return [reading.origin(node, scope)] * width
    relation, deciding = reading.inside(node, scope)
    if relation.more:
        return [relation.all() | deciding] * width
    return [origin | deciding for _, origin in relation.columns]


def assigned(several: Iterable[exp.Expr], scope: Scope, target: Relation, reading: Reading) -> list[tuple[str, Origin]]:
    """What is assigned to each column of the only target, by its name."""
    return [(_assigned(column, scope, [target])[1], origin) for column, origin in assignments(several, scope, reading)]


def statement(target: str, columns: Iterable[tuple[str, Origin]], reading: Reading, replaces: bool = False) -> Statement:
    """What was found, as a statement; columns of a table are named as it names them, and never by themselves."""
    own = {name.casefold(): name for name in reading.columns(target) or ()} if target else {}
    told = [_lineage(own.get(name.casefold(), name), origin, target) for name, origin in columns]
    return Statement(
        target=target,
        columns=joined(told) if target else tuple(told),
        indirect=tuple(one for one in reading.indirect if one.ref.table != target),
        inputs=tuple(reading.inputs | {source.ref.table for one in told for source in one.sources}),
        replaces=replaces,
        unknown=tuple(reading.unknown),
    )


def add_target(node: exp.Expr, scope: Scope, reading: Reading) -> Relation:
    """Makes the table that is written known to a scope: that a row of it is looked up makes it no input."""
    table = node.this if isinstance(node, exp.Schema) else node
    relation = reading.table(table, scope.ctes) if isinstance(table, exp.Table) else Relation((), "the target is not a table")
    names = (written(table), table.name) if isinstance(table, exp.Table) else ()
    scope.add(relation, *((node.alias,) if node.alias else names))
    return relation


def _lineage(name: str, origin: Origin, target: str) -> ColumnLineage:
    kept = Source(ColumnRef(target, name), Kind.IDENTITY)
    return ColumnLineage(column=name, sources=tuple(origin.sources - {kept}), opaque=tuple(origin.opaque))


def _by_position(names: Sequence[str] | None, relation: Relation, reading: Reading, target: str) -> tuple[tuple[str, Origin], ...]:
    if names is None:
        table = target.removeprefix(TEMPORARY)
        reading.unknown.add(f"the columns of {table} are not known; those of the query are taken for them")
        return relation.columns
    if relation.more:
        return tuple((name, relation.all()) for name in names)
    found = tuple(zip(names, (origin for _, origin in relation.columns), strict=False))
    if len(relation.columns) > len(names):
        reading.unknown.add(f"{len(relation.columns)} columns for {len(names)} of {target.removeprefix(TEMPORARY)}")
    return found


def _partition(node: exp.Insert, table: exp.Expr) -> tuple[dict[str, str], dict[str, str]]:
    """The columns of a PARTITION clause: with a value, and without."""
    clause = table.args.get("partition") or node.args.get("partition")
    parts = clause.expressions if isinstance(clause, exp.Partition) else []
    fixed = [one.this.name for one in parts if isinstance(one, exp.EQ)]
    dynamic = [one.name for one in parts if not isinstance(one, exp.EQ)]
    return {name.casefold(): name for name in fixed}, {name.casefold(): name for name in dynamic}


def _on_conflict(conflict: exp.OnConflict, node: exp.Expr, found: Statement, given: Relation, reading: Reading) -> Statement:
    """What is assigned where the row is there already; `excluded` is the row that was to be inserted."""
    scope = Scope({})
    target = add_target(node, scope, reading)
    scope.by_alias["excluded"] = given
    for key in conflict.args.get("conflict_keys") or ():
        reading.decides(given.column(key.name) or NOTHING, Kind.JOIN)
    return found.added(statement(found.target, assigned(conflict.expressions, scope, target, reading), reading))


def merge_of(node: exp.Merge, reading: Reading, ctes: Ctes) -> Statement:
    """All clauses together; that a row of the target is looked up makes it no input."""
    target = reading.target(node.this)
    scope = Scope(with_ctes(node, reading, ctes))
    reading.from_clause(node.args["using"], scope, reading)
    source = scope.relations[0]
    add_target(node.this, scope, reading)
    if node.args.get("on"):
        reading.decides(reading.origin(node.args["on"], scope), Kind.JOIN)
    columns: list[tuple[str, Origin]] = []
    for when in node.args["whens"].expressions:
        if when.args.get("condition"):
            reading.decides(reading.origin(when.args["condition"], scope), Kind.FILTER)
        columns += _clause(when, source, scope, reading, target)
    return statement(target, columns, reading)


def _clause(when: exp.When, source: Relation, scope: Scope, reading: Reading, target: str) -> list[tuple[str, Origin]]:
    then = when.args["then"]
    if isinstance(then, exp.Update):
        if any(isinstance(one, exp.Star) for one in then.expressions):
            return _all(source, reading, target)
        into = scope.relations[-1]
        of_target = Scope(scope.ctes, relations=[into], by_alias=scope.by_alias) if when.args.get("source") else scope
        return assigned(then.expressions, of_target, into, reading)
    if isinstance(then, exp.Insert):
        if isinstance(then.this, exp.Star) or (then.this is None and then.expression is None):
            return _all(source, reading, target)
        values = then.expression.expressions if isinstance(then.expression, exp.Tuple) else [then.expression]
        names = [one.name for one in then.this.expressions] if isinstance(then.this, exp.Tuple | exp.Schema) else []
        names = names or list(reading.columns(target) or [f"_col_{at}" for at in range(len(values))])
        given = Scope(scope.ctes, relations=[source], by_alias=scope.by_alias)
        return [(name, reading.origin(value, given)) for name, value in zip(names, values, strict=False) if value is not None]
    return []  # DELETE, DO NOTHING


def _all(source: Relation, reading: Reading, target: str) -> list[tuple[str, Origin]]:
    """`*`: the columns of the source by their names; all of the target's where it is not known which there are."""
    if not source.more:
        return list(source.columns)
    names = reading.columns(target) or [name for name, _ in source.columns]
    return [(name, source.column(name) or source.untold(name)) for name in names]
