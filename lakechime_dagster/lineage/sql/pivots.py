"""PIVOT and UNPIVOT: rows that become columns, and columns that become rows."""

from sqlglot import exp

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.sql.queries import Reading
from lakechime_dagster.lineage.sql.relation import NOTHING, Origin, Relation, Scope, merged


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
