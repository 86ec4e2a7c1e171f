"""The columns that a query gives, and what decides which rows there are."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from lakechime_dagster.lineage.columns import Kind, Source
from lakechime_dagster.lineage.sql.expressions import origin_of, window
from lakechime_dagster.lineage.sql.relation import NOTHING, Origin, Relation, Scope, merged, opaque
from lakechime_dagster.lineage.sql.schema import SqlSchema
from lakechime_dagster.lineage.sql.stars import projections

MAX_ROUNDS = 8  # of a recursive query; each adds what one more step back gives, and kinds only ever grow


@dataclass
class Reading:
    """What is found while a statement is read: its inputs, what decides about its rows, and what could not be told.

    `from_clause` makes what stands behind FROM known to a scope; it is handed in because it reads queries in turn.
    """

    schema: SqlSchema
    namespace: str
    from_clause: "Callable[[exp.Expr, Scope, Reading], None]"
    inputs: set[str] = field(default_factory=set)
    indirect: set[Source] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def decides(self, origin: Origin, kind: Kind) -> None:
        """This says which rows there are, in whatever way it does so inside of an expression."""
        self.indirect |= {Source(source.ref, kind) for source in origin.sources}
        self.unknown |= origin.opaque

    def origin(self, node: exp.Expr, scope: Scope) -> Origin:
        return origin_of(node, scope, self.relation_inside)

    def relation_inside(self, node: exp.Expr, scope: Scope) -> Relation:
        """What a query inside of an expression, or behind FROM, gives."""
        return relation_of(node, self, scope.ctes, scope)


Ctes = Mapping[str, Callable[[], Relation]]


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
    return _sorted(query, _together(scope), reading, within)


def _select(query: exp.Select, reading: Reading, scope: Scope) -> Relation:
    reading.from_clause(query, scope, reading)
    for one in query.args.get("windows") or ():
        scope.windows[one.this.name.casefold()] = window(one, scope, reading.relation_inside)
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
        within[cte.alias.casefold()] = once(_cte(cte, reading, dict(within), outer, is_recursive=bool(with_.args.get("recursive"))))
    return within


def _cte(cte: exp.CTE, reading: Reading, ctes: Ctes, outer: Scope | None, is_recursive: bool) -> Callable[[], Relation]:
    names = [column.name for column in (cte.args["alias"].args.get("columns") or ())]
    body = cte.this

    def read() -> Relation:
        if not is_recursive or not isinstance(body, exp.SetOperation):
            return relation_of(body, reading, ctes, outer).renamed(names)
        relation = relation_of(body.this, reading, ctes, outer).renamed(names)
        for _ in range(MAX_ROUNDS):
            known = relation
            within = {**ctes, cte.alias.casefold(): lambda known=known: known}
            relation = by_position(known, relation_of(body.expression, reading, within, outer))
            if relation == known:
                break
        return relation

    return read


def once(read: Callable[[], Relation]) -> Callable[[], Relation]:
    kept: list[Relation] = []

    def again() -> Relation:
        if not kept:
            kept.append(read())
        return kept[0]

    return again


def _together(scope: Scope) -> Relation:
    """All columns of a scope as one relation."""
    if len(scope.relations) == 1:
        return scope.relations[0]
    more = next((one.more for one in scope.relations if one.more), "")
    rest = merged(one.untold(None) for one in scope.relations if one.more)
    return Relation(tuple(column for one in scope.relations for column in one.columns), more, rest=rest)
