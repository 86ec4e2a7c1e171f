"""What stands behind FROM: tables, queries, joins, PIVOT and UNPIVOT."""

from dataclasses import dataclass

from sqlglot import exp

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.sql_queries import Reading, is_temporary, relation_of, together, written
from lakechime_dagster.lineage.sql_relations import NOTHING, Origin, Relation, Scope, merged


def pivoted(pivot: exp.Pivot, relation: Relation, scope: Scope, reading: Reading) -> Relation:
    """The columns behind PIVOT or UNPIVOT."""
    inner = Scope(scope.ctes, scope.outer)
    inner.add(relation, pivot.parent.alias_or_name if pivot.parent else "")
    return _unpivot(pivot, relation, inner, reading) if pivot.args.get("unpivot") else _pivot(pivot, relation, inner, reading)


def _pivot(pivot: exp.Pivot, relation: Relation, scope: Scope, reading: Reading) -> Relation:
    """What is neither aggregated nor pivoted is grouped by; the others are the aggregates where the pivoted value is one."""
    fields = [field.this for field in pivot.args.get("fields") or () if isinstance(field, exp.In)]
    value = merged(reading.origin(one, scope) for one in pivot.expressions)
    chosen = merged(reading.origin(one, scope).then(Kind.CONDITIONAL) for one in fields)
    used = {column.name.casefold() for one in (*pivot.expressions, *fields) for column in one.find_all(exp.Column)}
    grouped = [(name, origin) for name, origin in relation.columns if name.casefold() not in used]
    reading.decides(merged(origin for _, origin in grouped), Kind.GROUP_BY)
    names = [one.name for one in pivot.args.get("columns") or ()]
    more = relation.more or ("" if names else "the columns of PIVOT are not known")
    return Relation((*grouped, *((name, value | chosen) for name in names)), more, rest=relation.rest | value | chosen)


def _unpivot(pivot: exp.Pivot, relation: Relation, scope: Scope, reading: Reading) -> Relation:
    """The listed columns are the values of one; which of them it was is a constant."""
    columns: dict[str, Origin] = {}
    used: set[str] = set()
    for field in pivot.args.get("fields") or ():
        if not isinstance(field, exp.In):
            continue
        listed = field.expressions
        used |= {column.name.casefold() for one in listed for column in one.find_all(exp.Column)}
        columns[field.this.name] = NOTHING
        value = merged(reading.origin(one, scope) for one in listed)
        for one in pivot.expressions:
            for name in one.find_all(exp.Identifier):
                columns[name.name] = columns.get(name.name, NOTHING) | value
    kept = [(name, origin) for name, origin in relation.columns if name.casefold() not in used]
    return Relation((*kept, *columns.items()), relation.more, rest=relation.rest)


_MADE_BY = {"explode": ["col"], "posexplode": ["pos", "col"], "explodeouter": ["col"], "posexplodeouter": ["pos", "col"]}


def from_clause(query: exp.Expr, scope: Scope, reading: Reading) -> None:
    """What a query names behind FROM becomes known to a scope."""
    if not isinstance(query, exp.Select):
        _add(query, scope, reading)
        return
    if query.args.get("from_"):
        _add(query.args["from_"].this, scope, reading)
    conditions = [_join(join, scope, reading) for join in query.args.get("joins") or ()]
    for lateral in query.args.get("laterals") or ():
        _add(lateral, scope, reading)
    for condition in conditions:  # which may name what a LATERAL VIEW gives
        _decide(condition, scope, reading)
    if query.args.get("match"):
        every = merged(one.all() for one in scope.relations)
        reason = "MATCH_RECOGNIZE is not followed"
        scope.relations, scope.by_alias = [Relation((), reason, rest=every)], {}
        reading.unknown.add(reason)


def _add(node: exp.Expr, scope: Scope, reading: Reading) -> None:
    named = _read(node, scope, reading)
    if named is not None:
        relation, aliases = named.relation, named.aliases
        for pivot in node.args.get("pivots") or ():
            relation = pivoted(pivot, relation, scope, reading)
            aliases = (pivot.alias,) if pivot.alias else aliases
        scope.add(relation.renamed(_columns(node)), *aliases)
    for lateral in node.args.get("laterals") or ():
        _add(lateral, scope, reading)
    for join in node.args.get("joins") or ():
        _decide(_join(join, scope, reading), scope, reading)


def _decide(condition: exp.Expr | None, scope: Scope, reading: Reading) -> None:
    if condition is not None:
        reading.decides(reading.origin(condition, scope), Kind.JOIN)


@dataclass(frozen=True)
class _Named:
    relation: Relation
    aliases: tuple[str, ...]


def _read(node: exp.Expr, scope: Scope, reading: Reading) -> _Named | None:
    alias = (node.alias,) if node.alias else ()
    if isinstance(node, exp.Table):
        return _table(node, scope, reading)
    if isinstance(node, exp.Subquery) and _is_joined(node):
        inner = Scope(scope.ctes, scope.outer)  # tables and joins in parentheses
        _add(node.this, inner, reading)
        if alias:
            return _Named(together(inner), alias)
        for relation in inner.relations:
            scope.relations.append(relation)
        scope.by_alias.update(inner.by_alias)
        scope.joined.update(inner.joined)
        return None
    if isinstance(node, exp.Query):
        query, outside = _bare(node) if isinstance(node, exp.Subquery) else node, Scope(scope.ctes, scope.outer)
        return _Named(relation_of(query, reading, scope.ctes, outside), alias)
    if isinstance(node, exp.Lateral):
        return _lateral(node, scope, reading)
    if isinstance(node, exp.Unnest):
        return _unnest(node, scope, reading)
    if isinstance(node, exp.Values):
        return _Named(_values(node, scope, reading), alias)
    return _Named(_function(node, scope, reading), alias)


def _bare(node: exp.Subquery) -> exp.Expr:
    """The query in parentheses, unless the parentheses sort or name something themselves."""
    return node if node.args.get("order") or node.args.get("with_") else node.this


def _is_joined(node: exp.Subquery) -> bool:
    """Whether parentheses behind FROM hold tables and joins, and no query of their own."""
    inner = node.this
    if not isinstance(inner, exp.Query):
        return True
    has_more = any(inner.args.get(part) for part in ("alias", "joins", "laterals", "pivots"))
    return isinstance(inner, exp.Subquery) and (has_more or _is_joined(inner))


def _table(node: exp.Table, scope: Scope, reading: Reading) -> _Named:
    if not isinstance(node.this, exp.Identifier) and not is_temporary(node):
        return _Named(_function(node.this, scope, reading), (node.alias,) if node.alias else ())
    relation = reading.table(node, scope.ctes)
    if relation.table:
        reading.inputs.add(relation.table)
    return _Named(relation, (node.alias,) if node.alias else (written(node), node.name))


def _function(node: exp.Expr, scope: Scope, reading: Reading) -> Relation:
    """A function that gives rows: its columns are not known, but come from its arguments."""
    inner = node.expressions[0] if isinstance(node, exp.Anonymous) and node.name.lower() == "table" and node.expressions else node
    name = inner.name if isinstance(inner, exp.Anonymous) else inner.key
    names = _MADE_BY.get(name.lower().replace("_", ""))
    taken = merged(reading.origin(part, scope) for part in inner.iter_expressions()).then(Kind.TRANSFORMATION)
    if names is not None:
        return Relation(tuple((one, taken) for one in names))
    reason = f"table function {name.lower()}() is not followed"
    reading.unknown.add(reason)
    return Relation((), reason, rest=taken)


def _lateral(node: exp.Lateral, scope: Scope, reading: Reading) -> _Named:
    alias = (node.alias,) if node.alias else ()
    this = node.this
    if isinstance(this, exp.Subquery):
        return _Named(relation_of(this.this, reading, scope.ctes, Scope(scope.ctes, scope)), alias)
    if isinstance(this, exp.Unnest):
        return _Named(_unnest(this, scope, reading).relation, alias)
    names = _columns(node)
    if not names:
        return _Named(_function(this, scope, reading), alias)
    taken = merged(reading.origin(part, scope) for part in this.iter_expressions()).then(Kind.TRANSFORMATION)
    return _Named(Relation(tuple((name, taken) for name in names)), alias)


def _unnest(node: exp.Unnest, scope: Scope, reading: Reading) -> _Named:
    """Each array gives one column, or several where its elements are rows."""
    taken = [reading.origin(part, scope).then(Kind.TRANSFORMATION) for part in node.expressions]
    offset = node.args.get("offset")
    place = [(offset.name if isinstance(offset, exp.Identifier) else "offset", NOTHING)] if offset else []
    names = _columns(node)
    if len(names) == len(taken):
        columns = list(zip(names, taken, strict=True))
    else:
        columns = [(name, merged(taken)) for name in names or ([node.alias] if node.alias else [])]
    more = "" if names else "the columns of UNNEST are not known"
    return _Named(Relation((*columns, *place), more, rest=merged(taken)), (node.alias,) if node.alias else ())


def _values(node: exp.Values, scope: Scope, reading: Reading) -> Relation:
    rows = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
    width = max((len(row) for row in rows), default=0)
    places: list[list[Origin]] = [[] for _ in range(width)]
    for row in rows:
        for at, value in enumerate(row):
            if not isinstance(value, exp.Literal):
                places[at].append(reading.origin(value, scope))
    return Relation(tuple((f"col{at + 1}", merged(origins)) for at, origins in enumerate(places)))


def _join(join: exp.Join, scope: Scope, reading: Reading) -> exp.Expr | None:
    """One more relation; gives the condition, which is not read yet."""
    side, kind = join.side.upper(), join.kind.upper()
    before, aliases = list(scope.relations), dict(scope.by_alias)
    _add(join.this, scope, reading)
    added = scope.relations[len(before) :]
    condition = join.args.get("on")
    using = [part.name for part in join.args.get("using") or ()]
    if join.method.upper() == "NATURAL":
        using = _common(before, added, reading)
    for name in using:
        left = scope.joined.get(name.casefold()) or _column(before, name)
        right = _column(added, name)
        reading.decides(left | right, Kind.JOIN)
        both = (left | right) | (left | right).then(Kind.CONDITIONAL)  # as COALESCE of them
        scope.joined[name.casefold()] = both if side == "FULL" else right if side == "RIGHT" else left
    if kind in ("SEMI", "ANTI"):  # only asks whether there are rows
        _decide(condition, scope, reading)
        scope.relations, scope.by_alias = before, aliases
        return None
    return condition


def _common(left: list[Relation], right: list[Relation], reading: Reading) -> list[str]:
    untold = next((one.more for one in (*left, *right) if one.more), "")
    if untold:
        reading.unknown.add(f"a NATURAL JOIN, and {untold}")
    names = [name for one in left for name, _ in one.columns]
    return [name for name in dict.fromkeys(names) if any(one.column(name) is not None for one in right)]


def _column(several: list[Relation], name: str) -> Origin:
    found = [origin for one in several if (origin := one.column(name)) is not None]
    return found[0] if found else merged(one.untold(name) for one in several if one.more)


def _columns(node: exp.Expr) -> list[str]:
    """The names that an alias gives to columns."""
    alias = node.args.get("alias")
    return [column.name for column in (alias.args.get("columns") or ())] if isinstance(alias, exp.TableAlias) else []
