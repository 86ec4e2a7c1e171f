"""The list of columns behind SELECT, with stars and COLUMNS(…) spelled out."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from sqlglot import exp

from lakechime_dagster.lineage.sql.relation import Origin, Relation, Scope, merged

Column = tuple[str, Origin]
MAX_REPEATS = 5  # in a pattern for names: of more, or of repeated groups, matching may take without end


def projections(several: Iterable[exp.Expr], scope: Scope, origin: Callable[[exp.Expr, Scope], Origin]) -> Relation:
    """The columns that a list gives; a star over columns that are not known is one of its own, and there may be more."""
    columns: list[Column] = []
    more, rest = "", []
    for number, one in enumerate(several):
        star, several_columns = _star(one), _spelled_out(one)
        if star is not None:
            relations = _of_star(one, scope)
            columns += _spelled(star, relations, scope, origin, is_all=isinstance(one, exp.Star))
        elif several_columns is not None:
            chosen = chosen_columns(several_columns, scope, origin)
            relations = [chosen]
            for name, found in _listed(chosen):
                if one is several_columns:
                    columns.append((name, found))
                else:
                    columns.append((_names(one, len(columns))[0], origin(one, replace(scope, chosen=found))))
        else:
            relations = []
            for name in _names(one, number):
                found = origin(one, scope)
                columns.append((name, found))
                scope.named.setdefault(name.casefold(), found)
        for relation in relations:
            if relation.more:
                more = relation.more
                rest.append(relation.untold(None))
    return Relation(tuple(columns), more, rest=merged(rest))


def chosen_columns(one: exp.Expr, scope: Scope, origin: Callable[[exp.Expr, Scope], Origin] | None = None) -> Relation:
    """The columns that COLUMNS(…) stands for, or `* LIKE …`; all of them, which is said, where it is not followed which they are."""
    what = one.this
    star = _star(what) if isinstance(what, exp.Expr) else None
    relations = _of_star(what, scope) if isinstance(what, exp.Star | exp.Column) and star is not None else scope.relations
    if isinstance(one, exp.Columns) and star is not None and origin is not None:
        found = tuple(_spelled(star, relations, scope, origin, is_all=isinstance(what, exp.Star)))
    else:
        found = tuple(everything(relations, scope.joined))
    known = tuple(column for column in found if column[0] != "*")
    more = next((relation.more for relation in relations if relation.more), "")
    rest = merged(relation.untold(None) for relation in relations if relation.more)
    chosen = _chosen(one, known)
    if chosen is None:
        reason = "the columns of COLUMNS() are not followed"
        return Relation((), reason, rest=merged([*(origin for _, origin in known), rest]))
    return Relation(chosen, more, rest=rest)


def everything(relations: Iterable[Relation], joined: dict[str, Origin]) -> Iterator[Column]:
    """All columns of relations; those that a USING made one come first, once."""
    several = list(relations)
    names = {name.casefold(): name for one in several for name, _ in one.columns}
    for key, found in joined.items():
        yield names.get(key, key), found
    for one in several:
        for name, found in one.columns:
            if name.casefold() not in joined:
                yield name, found
        if one.more:
            yield "*", one.untold(None)


def _star(one: exp.Expr) -> exp.Star | None:
    if isinstance(one, exp.Star):
        return one
    return one.this if isinstance(one, exp.Column) and isinstance(one.this, exp.Star) else None


def _spelled_out(one: exp.Expr) -> exp.Expr | None:
    """What of a projection makes several of it: COLUMNS(…), unless its columns are arguments together, or `* LIKE …`."""
    if isinstance(one, exp.Like | exp.ILike) and _star(one.this) is not None:
        return one
    found = None if isinstance(one, exp.Query) else next(iter(one.find_all(exp.Columns)), None)
    return None if found is None or (found.args.get("unpack") and found is not one) else found


def _listed(chosen: Relation) -> Iterator[Column]:
    yield from chosen.columns
    if chosen.more:
        yield "*", chosen.untold(None)


def _chosen(one: exp.Expr, known: tuple[Column, ...]) -> tuple[Column, ...] | None:
    """Those of the columns whose names are meant; None where that is not followed."""
    what = one.this
    if isinstance(one, exp.Like | exp.ILike):
        return _matching(one.expression, known, is_like=True, ignores_case=isinstance(one, exp.ILike))
    if isinstance(what, exp.Star) or _star(what) is not None:
        return known
    if isinstance(what, exp.Array) and all(isinstance(part, exp.Literal) for part in what.expressions):
        wanted = [part.name.casefold() for part in what.expressions]
        return tuple(column for name in wanted for column in known if column[0].casefold() == name)
    return _matching(what, known)


def _matching(
    pattern: exp.Expr | None, known: tuple[Column, ...], *, is_like: bool = False, ignores_case: bool = False
) -> tuple[Column, ...] | None:
    """The columns whose names have a part that a pattern matches, or that LIKE matches whole."""
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return None
    text = re.escape(pattern.name).replace("%", ".*").replace("_", ".") if is_like else pattern.name
    if len(re.findall(r"[*+?{]", text)) > MAX_REPEATS or re.search(r"\)[*+?{]", text):
        return None
    try:
        found = re.compile(text, re.IGNORECASE if ignores_case else 0)
    except re.error:
        return None
    return tuple(column for column in known if (found.fullmatch if is_like else found.search)(column[0]))


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
    listed = tuple(everything(relations, scope.joined if is_all else {}))
    like = star.args.get("ilike")
    matching = None if like is None else _matching(like, listed, is_like=True, ignores_case=True)
    for name, found in listed if matching is None else matching:
        key = name.casefold()
        if key in left_out:
            continue
        yield renamed.get(key, name), origin(instead[key].this, scope) if key in instead else found
