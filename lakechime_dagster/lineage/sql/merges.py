"""MERGE: what each of its clauses assigns, and by what rows are matched."""

from sqlglot import exp

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.record import Statement
from lakechime_dagster.lineage.sql.queries import Ctes, Reading, with_ctes
from lakechime_dagster.lineage.sql.relation import Origin, Relation, Scope
from lakechime_dagster.lineage.sql.writes import add_target, assigned, statement


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
