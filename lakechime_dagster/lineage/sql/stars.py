"""The list of columns behind SELECT, with stars spelled out."""

from collections.abc import Callable, Iterable, Iterator

from sqlglot import exp

from lakechime_dagster.lineage.sql.relation import Origin, Relation, Scope, merged

Column = tuple[str, Origin]


def projections(several: Iterable[exp.Expr], scope: Scope, origin: Callable[[exp.Expr, Scope], Origin]) -> Relation:
    """The columns that a list gives; a star over columns that are not known is one of its own, and there may be more."""
    columns: list[Column] = []
    more, rest = "", []
    for number, one in enumerate(several):
        star = _star(one)
        if star is None:
            for name in _names(one, number):
                found = origin(one, scope)
                columns.append((name, found))
                scope.named.setdefault(name.casefold(), found)
            continue
        relations = _of_star(one, scope)
        for relation in relations:
            if relation.more:
                more = relation.more
                rest.append(relation.untold(None))
        columns += _spelled(star, relations, scope, origin, is_all=isinstance(one, exp.Star))
    return Relation(tuple(columns), more, rest=merged(rest))


def _star(one: exp.Expr) -> exp.Star | None:
    if isinstance(one, exp.Star):
        return one
    return one.this if isinstance(one, exp.Column) and isinstance(one.this, exp.Star) else None


def _names(one: exp.Expr, number: int) -> list[str]:
    """The name of a column, or those that an alias in parentheses gives to what a generator makes."""
    if isinstance(one, exp.Aliases):
        return [alias.name for alias in one.expressions]
    return [(one.output_name if not isinstance(one, exp.Literal) else "") or f"_col_{number}"]


def _of_star(one: exp.Expr, scope: Scope) -> list[Relation]:
    if isinstance(one, exp.Star):
        return scope.relations or [Relation((), "a star over nothing")]
    parts = [part.name for part in one.parts[:-1]] if isinstance(one, exp.Column) else []
    found = scope.by_alias.get(".".join(parts).casefold()) or scope.by_alias.get(parts[-1].casefold())
    if found is None:
        field = scope.column(parts)
        return [Relation((), f"the fields of {'.'.join(parts)} are not known", rest=field)]
    return [found]


def _spelled(
    star: exp.Star, relations: list[Relation], scope: Scope, origin: Callable[[exp.Expr, Scope], Origin], is_all: bool
) -> Iterator[Column]:
    left_out = {part.name.casefold() for part in star.args.get("except_") or ()}
    instead = {part.alias.casefold(): part for part in star.args.get("replace") or ()}
    renamed = {part.this.name.casefold(): part.alias for part in star.args.get("rename") or ()}
    for name, found in _all(relations, scope if is_all else None):
        key = name.casefold()
        if key in left_out:
            continue
        yield renamed.get(key, name), origin(instead[key].this, scope) if key in instead else found


def _all(relations: list[Relation], scope: Scope | None) -> Iterator[Column]:
    """All columns of relations; those that a USING made one come first, once."""
    joined = scope.joined if scope is not None else {}
    names = {name.casefold(): name for one in relations for name, _ in one.columns}
    for key, found in joined.items():
        yield names.get(key, key), found
    for one in relations:
        for name, found in one.columns:
            if name.casefold() not in joined:
                yield name, found
        if one.more:
            yield "*", one.untold(None)
