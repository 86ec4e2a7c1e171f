"""What a statement writes: which columns of its target its query, or its assignments, give."""

from collections.abc import Iterable, Sequence

from sqlglot import exp

from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Kind, Source, joined
from lakechime_dagster.lineage.record import READ, Statement
from lakechime_dagster.lineage.sql.queries import Ctes, Reading, relation_of, with_ctes
from lakechime_dagster.lineage.sql.relation import NOTHING, Origin, Relation, Scope


def read_only(query: exp.Expr, reading: Reading, ctes: Ctes) -> Statement:
    """A query that writes nothing: its columns by position, whatever their names; into a table if it says so."""
    relation = relation_of(query, reading, ctes)
    into = query.args.get("into")
    if into is not None and into.this is not None:
        return statement(target_of(into.this, reading), relation.columns, reading, replaces=True)
    return statement(READ, relation.columns, reading)


def created(node: exp.Create, reading: Reading, ctes: Ctes) -> Statement | None:
    """A table or view made of a query, or of another table; None where nothing is made of anything."""
    names = [one.name for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
    clone = node.args.get("clone")
    query = clone.this if clone is not None else node.args.get("expression")
    if str(node.args.get("kind")).upper() not in ("TABLE", "VIEW") or not isinstance(query, exp.Query | exp.Table):
        return None
    relation = relation_of(query, reading, ctes).renamed(names)
    return statement(target_of(node.this, reading), relation.columns, reading, replaces=True)


def inserted(node: exp.Insert, reading: Reading, ctes: Ctes, query: Relation | None = None) -> Statement:
    """INSERT in all forms; `query` is what stands before it where several inserts share it."""
    written = node.this.this if isinstance(node.this, exp.Schema) else node.this
    target = target_of(node.this, reading)
    if node.expression is not None and isinstance(node.expression, exp.Query | exp.Values | exp.Table | exp.Subquery):
        relation = relation_of(node.expression, reading, with_ctes(node, reading, ctes))
    else:
        relation = query or Relation(())
    listed = [one.name for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
    fixed, dynamic = _partition(node, written)
    known = reading.schema.columns(target)
    if node.args.get("by_name"):
        columns = relation.columns
    else:
        left = [name for name in known or () if name.casefold() not in fixed and name.casefold() not in dynamic]
        columns = _by_position(listed or ([*left, *dynamic.values()] if known else None), relation, reading, target)
    columns = (*columns, *((name, NOTHING) for name in fixed.values()))
    found = statement(target, columns, reading, replaces=bool(node.args.get("overwrite")) and not fixed and not dynamic)
    conflict = node.args.get("conflict")
    return found if conflict is None else _on_conflict(conflict, found, target, relation, [name for name, _ in columns], reading)


def several_inserted(node: exp.MultitableInserts, reading: Reading, ctes: Ctes) -> list[Statement]:
    """One query into several tables; a condition decides about rows of all of them."""
    source = node.args["source"]
    scope = Scope(with_ctes(node, reading, ctes))
    if isinstance(source, exp.Query):
        scope.add(relation_of(source, reading, scope.ctes), source.alias_or_name)
    else:
        reading.from_clause(source, scope, reading)
    found: list[Statement] = []
    for one in node.expressions:
        insert = one.this if isinstance(one, exp.ConditionalInsert) else one
        if isinstance(one, exp.ConditionalInsert) and one.expression is not None:
            reading.decides(reading.origin(one.expression, scope), Kind.FILTER)
        if isinstance(insert.expression, exp.Select) and not insert.expression.args.get("from_"):
            insert.expression.set("from_", exp.From(this=source.copy()))  # FROM stands before, for all
        values = insert.expression
        if isinstance(values, exp.Values):
            rows = [part for row in values.expressions for part in (row.expressions or [row])]
            relation = Relation(tuple((part.alias_or_name, reading.origin(part, scope)) for part in rows))
            insert.set("expression", None)
        else:
            relation = scope.relations[0]
        found.append(inserted(insert, reading, ctes, relation))
    return [statement_with(one, reading) for one in found]


def changed(node: exp.Update | exp.Delete, reading: Reading, ctes: Ctes) -> Statement:
    """UPDATE and DELETE: the assigned columns, and what decides about rows besides the target itself."""
    target = target_of(node.this, reading)
    scope = Scope(with_ctes(node, reading, ctes))
    add_target(node.this, target, scope, reading)
    for clause in ("from_", "using"):
        others = node.args.get(clause)
        for one in [others.this] if isinstance(others, exp.From) else others or []:
            reading.from_clause(one, scope, reading)
    for join in node.this.args.get("joins") or ():
        reading.from_clause(join.this, scope, reading)
        if join.args.get("on"):
            reading.decides(reading.origin(join.args["on"], scope), Kind.JOIN)
    if node.args.get("where"):
        reading.decides(reading.origin(node.args["where"].this, scope), Kind.FILTER)
    assigned = assignments(node.expressions, scope, reading) if isinstance(node, exp.Update) else []
    return statement(target, assigned, reading)


def assignments(several: Iterable[exp.Expr], scope: Scope, reading: Reading) -> list[tuple[str, Origin]]:
    """What `column = value` gives each column."""
    return [
        (one.this.name, reading.origin(one.expression, scope))
        for one in several
        if isinstance(one, exp.EQ) and isinstance(one.this, exp.Column | exp.Identifier | exp.Dot)
    ]


def statement(target: str, columns: Iterable[tuple[str, Origin]], reading: Reading, replaces: bool = False) -> Statement:
    """What was found, as a statement; columns of a table are named as it names them, and never by themselves."""
    own = {name.casefold(): name for name in reading.schema.columns(target) or ()} if target else {}
    told = [_lineage(own.get(name.casefold(), name), origin, target) for name, origin in columns]
    return Statement(
        target=target,
        columns=joined(told) if target else tuple(told),
        indirect=tuple(one for one in reading.indirect if one.ref.table != target),
        inputs=tuple(reading.inputs),
        replaces=replaces,
        unknown=tuple(reading.unknown),
    )


def statement_with(one: Statement, reading: Reading) -> Statement:
    """The same with all that was found by the end."""
    return statement(one.target, (), reading, one.replaces).added(Statement(target=one.target, columns=one.columns))


def target_of(node: exp.Expr, reading: Reading) -> str:
    """The name of the table that is written."""
    table = node.this if isinstance(node, exp.Schema) else node
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        reading.unknown.add("the target is not a table")
        return f"{reading.namespace}/({table.key})"
    return reading.schema.relation(".".join(part.name for part in table.parts), reading.namespace).table


def add_target(node: exp.Expr, target: str, scope: Scope, reading: Reading) -> None:
    table = node.this if isinstance(node, exp.Schema) else node
    written = ".".join(part.name for part in table.parts) if isinstance(table, exp.Table) else target
    relation = reading.schema.relation(written, reading.namespace)
    scope.add(relation, *((node.alias,) if node.alias else (written, table.name)))


def _lineage(name: str, origin: Origin, target: str) -> ColumnLineage:
    kept = Source(ColumnRef(target, name), Kind.IDENTITY)
    return ColumnLineage(column=name, sources=tuple(origin.sources - {kept}), opaque=tuple(origin.opaque))


def _by_position(names: Sequence[str] | None, relation: Relation, reading: Reading, target: str) -> tuple[tuple[str, Origin], ...]:
    if names is None:
        reading.unknown.add(f"the columns of {target} are not known; those of the query are taken for them")
        return relation.columns
    if relation.more:
        return tuple((name, relation.all()) for name in names)
    found = tuple(zip(names, (origin for _, origin in relation.columns), strict=False))
    if len(relation.columns) > len(names):
        reading.unknown.add(f"{len(relation.columns)} columns for {len(names)} of {target}")
    return found


def _partition(node: exp.Insert, table: exp.Expr) -> tuple[dict[str, str], dict[str, str]]:
    """The columns of a PARTITION clause: with a value, and without."""
    clause = table.args.get("partition") or node.args.get("partition")
    parts = clause.expressions if isinstance(clause, exp.Partition) else []
    fixed = [one.this.name for one in parts if isinstance(one, exp.EQ)]
    dynamic = [one.name for one in parts if not isinstance(one, exp.EQ)]
    return {name.casefold(): name for name in fixed}, {name.casefold(): name for name in dynamic}


def _on_conflict(
    conflict: exp.OnConflict, found: Statement, target: str, given: Relation, names: Sequence[str], reading: Reading
) -> Statement:
    """What is assigned where the row is there already; `excluded` is the row that was to be inserted."""
    scope = Scope({})
    scope.add(reading.schema.relation(target, reading.namespace), target, target.rpartition(".")[2])
    scope.by_alias["excluded"] = given.renamed(names)
    for key in conflict.args.get("conflict_keys") or ():
        reading.decides(scope.by_alias["excluded"].column(key.name) or NOTHING, Kind.JOIN)
    assigned = assignments(conflict.expressions, scope, reading)
    more = statement(target, assigned, reading)
    return found.added(more)
