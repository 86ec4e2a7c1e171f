"""The columns that a query gives, and what decides which rows there are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from lakechime_dagster.errors import shown
from lakechime_dagster.lineage.columns import Kind, Source
from lakechime_dagster.lineage.names import outside
from lakechime_dagster.lineage.record import READ
from lakechime_dagster.lineage.sql.expressions import origin_of, window
from lakechime_dagster.lineage.sql.relation import NOTHING, Origin, Relation, Scope, merged, opaque
from lakechime_dagster.lineage.sql.schema import SqlSchema
from lakechime_dagster.lineage.sql.stars import everything, projections

MAX_ROUNDS = 8  # of a recursive query; each adds what one more step back gives, and kinds only ever grow


@dataclass
class Reading:
    """What is found while a statement is read: its inputs, what decides about its rows, and what could not be told.

    `from_clause` makes what stands behind FROM known to a scope; it is handed in because it reads queries in turn. `temporary`
    are the columns of temporary tables by their keys, or None where they are not known.
    """

    schema: SqlSchema
    namespace: str
    from_clause: "Callable[[exp.Expr, Scope, Reading], None]"
    temporary: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    inputs: set[str] = field(default_factory=set)
    indirect: set[Source] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def decides(self, origin: Origin, kind: Kind) -> None:
        """This says which rows there are, in whatever way it does so inside of an expression."""
        self.indirect |= {Source(source.ref, kind) for source in origin.sources}
        self.unknown |= origin.opaque

    def origin(self, node: exp.Expr, scope: Scope) -> Origin:
        return origin_of(node, scope, self.inside)

    def inside(self, node: exp.Expr, scope: Scope) -> tuple[Relation, Origin]:
        """What a query inside of an expression gives, and what decides about its rows: that is a matter of the expression alone."""
        own = self.apart()
        relation = relation_of(node, own, scope.ctes, scope)
        self.inputs |= own.inputs
        return relation, Origin(frozenset(own.indirect), frozenset(own.unknown))

    def apart(self) -> "Reading":
        """For a part of which what is found is not yet found for the whole."""
        return Reading(self.schema, self.namespace, self.from_clause, self.temporary)

    def add(self, part: "Reading") -> None:
        """What was found for a part is found for the whole."""
        self.inputs |= part.inputs
        self.indirect |= part.indirect
        self.unknown |= part.unknown

    def table(self, node: exp.Table, ctes: "Ctes") -> Relation:
        """The relation that a name stands for: a common table expression, a temporary table, or a table."""
        key = key_of(node)
        if key in ctes:
            return ctes[key](self)
        if is_temporary(node):
            return Relation((), f"temporary table {shown(key)} is not made here", temporary=TEMPORARY + key)
        return self.schema.relation(written(node), self.namespace)

    def target(self, node: exp.Expr) -> str:
        """The name of the table that is written; the one of a query that only reads where it is no table."""
        table = node.this if isinstance(node, exp.Schema) else node
        if isinstance(table, exp.Table) and (is_temporary(table) or key_of(table) in self.temporary):
            return TEMPORARY + key_of(table)
        if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
            return self.schema.relation(written(table), self.namespace).table
        if isinstance(table, exp.Directory) and isinstance(table.this, exp.Literal):
            return self.schema.names.at(table.this.name) or outside(table.this.name)
        self.unknown.add("the target is not a table")
        return READ

    def columns(self, target: str) -> Sequence[str] | None:
        """The columns of a table that is written, or None where they are not known."""
        if target.startswith(TEMPORARY):
            return self.temporary.get(target.removeprefix(TEMPORARY))
        return self.schema.columns(target)


Named = Callable[[Reading], Relation]
Ctes = Mapping[str, Named]
TEMPORARY = "(temporary)/"
"""Before the key of a temporary table, where a statement has a target: no target of a statement that is told."""


def written(table: exp.Table) -> str:
    """The name of a table as it is written."""
    return ".".join(part.name for part in table.parts)


def is_temporary(table: exp.Table) -> bool:
    """Whether its name alone says that a table is temporary, as `#name` and `@name` of T-SQL do."""
    name = table.this
    return isinstance(name, exp.Parameter) or (
        isinstance(name, exp.Identifier) and bool(name.args.get("temporary") or name.args.get("global_"))
    )


def key_of(table: exp.Table) -> str:
    """By what a common table expression or a temporary table is known: no name with several parts is one of a single part."""
    if not is_temporary(table):
        return "\0".join(part.name.casefold() for part in table.parts)
    mark = "@" if isinstance(table.this, exp.Parameter) else "##" if table.this.args.get("global_") else "#"
    return mark + table.this.name.casefold()


def keeping(read: Named) -> Named:
    """Reads it when it is named first; what decides about its rows counts wherever it is named."""
    kept: list[tuple[Relation, Reading]] = []

    def again(reading: Reading) -> Relation:
        if not kept:
            own = reading.apart()
            kept.append((read(own), own))
        relation, found = kept[0]
        reading.add(found)
        return relation

    return again


def relation_of(query: exp.Expr, reading: Reading, ctes: Ctes, outer: Scope | None = None) -> Relation:
    """The columns of a query, in their order."""
    within = with_ctes(query, reading, ctes, outer)
    if isinstance(query, exp.Select):
        return _select(query, reading, Scope(within, outer))
    if isinstance(query, exp.SetOperation):
        return _sorted(query, _set_operation(query, reading, within, outer), reading, within)
    if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query):
        return _sorted(query, relation_of(query.this, reading, within, outer), reading, within)
    scope = Scope(within, outer)
    reading.from_clause(query, scope, reading)  # TABLE t, VALUES …, a join in parentheses
    return _sorted(query, together(scope), reading, within)


def _select(query: exp.Select, reading: Reading, scope: Scope) -> Relation:
    reading.from_clause(query, scope, reading)
    for one in query.args.get("windows") or ():
        scope.windows[one.this.name.casefold()] = window(one, scope, reading.inside)
    if query.args.get("where"):
        reading.decides(reading.origin(query.args["where"].this, scope), Kind.FILTER)
    relation = projections(query.expressions, scope, reading.origin)
    names = {name.casefold(): origin for name, origin in relation.columns}
    _group(query, relation, reading, scope)
    for clause in ("having", "qualify", "connect"):
        if query.args.get(clause):
            parts = query.args[clause].iter_expressions()
            reading.decides(merged(reading.origin(part, scope) for part in parts), Kind.FILTER)
    for clause in ("order", "sort", "cluster"):
        if query.args.get(clause):
            by = _listed(query.args[clause].expressions, relation, reading, replace(scope, joined={**scope.joined, **names}))
            reading.decides(by, Kind.SORT)
    distinct = query.args.get("distinct")
    if distinct:
        on = distinct.args.get("on")
        reading.decides(_listed(on.expressions or [on], relation, reading, scope) if on else relation.all(), Kind.GROUP_BY)
    return relation


def _group(query: exp.Select, relation: Relation, reading: Reading, scope: Scope) -> None:
    group = query.args.get("group")
    if not group:
        return
    if group.args.get("all"):
        plain = [one for one in query.expressions if not one.find(exp.AggFunc)]
        reading.decides(merged(reading.origin(one, scope) for one in plain if not one.is_star), Kind.GROUP_BY)
        return
    several = list(group.expressions)
    for kind in ("rollup", "cube", "grouping_sets"):
        for one in group.args.get(kind) or ():
            several += one.expressions
    reading.decides(_listed(several, relation, reading, scope), Kind.GROUP_BY)


def _listed(several: Iterable[exp.Expr], relation: Relation, reading: Reading, scope: Scope) -> Origin:
    """What a list of GROUP BY or ORDER BY goes by, where a number is a column's place."""
    found: list[Origin] = []
    for one in several:
        node = one.this if isinstance(one, exp.Ordered) else one
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and 0 < int(node.name) <= len(relation.columns):
            found.append(relation.columns[int(node.name) - 1][1])
        elif not isinstance(node, exp.Literal):
            found.append(reading.origin(node, scope))
    return merged(found)


def _sorted(query: exp.Expr, relation: Relation, reading: Reading, ctes: Ctes) -> Relation:
    """The same columns; what they are sorted by decides about rows."""
    if query.args.get("order"):
        scope = Scope(ctes)
        scope.add(relation)
        reading.decides(_listed(query.args["order"].expressions, relation, reading, scope), Kind.SORT)
    return relation


def _set_operation(query: exp.SetOperation, reading: Reading, ctes: Ctes, outer: Scope | None) -> Relation:
    """By position, or by name where it says so; what EXCEPT and INTERSECT look up decides about rows."""
    chain: list[exp.SetOperation] = []
    first: exp.Expr = query
    while isinstance(first, exp.SetOperation) and (first is query or not (first.args.get("with_") or first.args.get("order"))):
        chain.append(first)
        first = first.this
    relation = relation_of(first, reading, ctes, outer)
    for one in reversed(chain):
        other = relation_of(one.expression, reading, ctes, outer)
        if not isinstance(one, exp.Union):
            reading.decides(merged([relation.all(), other.all()]), Kind.JOIN)
            continue
        relation = _by_name(relation, other) if one.args.get("by_name") else by_position(relation, other)
        if one.args.get("distinct"):
            reading.decides(relation.all(), Kind.GROUP_BY)
    return relation


def by_position(left: Relation, right: Relation) -> Relation:
    """Both, with the names of the left."""
    more = left.more or right.more
    if more:
        rest = left.all() | right.all()
        return Relation(tuple((name, origin | rest) for name, origin in left.columns), more, rest=rest)
    if len(left.columns) != len(right.columns):
        reason = opaque(f"a union of {len(left.columns)} and {len(right.columns)} columns")
        return Relation(tuple((name, origin | reason) for name, origin in left.columns))
    return Relation(tuple((name, one | other) for (name, one), (_, other) in zip(left.columns, right.columns, strict=True)))


def _by_name(left: Relation, right: Relation) -> Relation:
    more = left.more or right.more
    columns = [(name, origin | (right.column(name) or NOTHING)) for name, origin in left.columns]
    columns += [(name, origin) for name, origin in right.columns if left.column(name) is None]
    return Relation(tuple(columns), more, rest=left.rest | right.rest)


def with_ctes(query: exp.Expr, reading: Reading, ctes: Ctes, outer: Scope | None = None) -> Ctes:
    """The common table expressions that a query may name, each read when it is named first."""
    with_ = query.args.get("with_")
    if not with_:
        return ctes
    within = dict(ctes)
    for cte in with_.expressions:
        within[cte.alias.casefold()] = keeping(_cte(cte, dict(within), outer, is_recursive=bool(with_.args.get("recursive"))))
    return within


def _cte(cte: exp.CTE, ctes: Ctes, outer: Scope | None, is_recursive: bool) -> Named:
    names = [column.name for column in (cte.args["alias"].args.get("columns") or ())]
    body = cte.this

    def read(reading: Reading) -> Relation:
        if not is_recursive or not isinstance(body, exp.SetOperation):
            return relation_of(body, reading, ctes, outer).renamed(names)
        relation = relation_of(body.this, reading, ctes, outer).renamed(names)
        for _ in range(MAX_ROUNDS):
            known = relation
            within = {**ctes, cte.alias.casefold(): lambda _, known=known: known}
            relation = by_position(known, relation_of(body.expression, reading, within, outer))
            if relation == known:
                break
        return relation

    return read


def together(scope: Scope) -> Relation:
    """All columns of a scope as one relation."""
    if len(scope.relations) == 1:
        return scope.relations[0]
    more = next((one.more for one in scope.relations if one.more), "")
    rest = merged(one.untold(None) for one in scope.relations if one.more)
    return Relation(tuple(column for column in everything(scope.relations, scope.joined) if column[0] != "*"), more, rest=rest)
