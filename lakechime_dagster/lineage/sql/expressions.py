"""What the value of an expression came from, and how."""

from collections.abc import Callable, Iterator

from sqlglot import exp

from lakechime_dagster.lineage.columns import Kind, Step, after
from lakechime_dagster.lineage.sql.relation import Origin, Relation, Scope, merged, opaque
from lakechime_dagster.lineage.sql.stars import chosen_columns

Ask = Callable[[exp.Expr, Scope], tuple[Relation, Origin]]
"""What a query inside an expression gives, with the scope around it, and what decides about its rows."""

SAME: Step = (Kind.IDENTITY, False)
MASKING_FUNCTIONS = frozenset({"hash", "xxhash64", "crc32", "mask", "sha1", "sha", "sha256", "sha512", "md5", "approx_count_distinct"})
_MASKING = (exp.Count, exp.CountIf, exp.ApproxDistinct, exp.MD5, exp.MD5Digest, exp.SHA, exp.SHA2, exp.SHA1Digest, exp.SHA2Digest)
_OF_ANOTHER_ROW = (exp.Lag, exp.Lead)
_PASSED_ON = (exp.Alias, exp.Paren, exp.Distinct, exp.Tuple, exp.Filter, exp.Window, exp.IgnoreNulls, exp.RespectNulls, exp.Order)


def origin_of(node: exp.Expr, scope: Scope, ask: Ask) -> Origin:
    """What an expression came from.

    A condition that chooses among values is CONDITIONAL, what a window goes by WINDOW. A function that is not known gives its
    arguments, and if it has none the reason that it cannot be told.
    """
    found: list[Origin] = []
    waiting: list[tuple[exp.Expr, Step]] = [(node, SAME)]
    while waiting:  # not by recursion, as a generated condition may have thousands of parts
        one, step = waiting.pop()
        if isinstance(one, exp.Column):
            found.append(scope.column([part.name for part in one.parts]).then(*step))
        elif isinstance(one, exp.Query):
            relation, deciding = ask(one, scope)
            found.append((relation.all() | deciding).then(*step))
        elif isinstance(one, exp.Exists):  # its columns tell nothing but that there are rows
            relation, deciding = ask(one.this, scope)
            found.append((Origin(opaque=relation.all().opaque) | deciding).then(*after((Kind.CONDITIONAL, False), step)))
        elif isinstance(one, exp.Columns):
            chosen = scope.chosen if scope.chosen is not None else chosen_columns(one, scope).all()
            found.append(chosen.then(*step))
        else:
            if isinstance(one, exp.Anonymous) and not any(one.find_all(exp.Column, exp.Query)):
                found.append(opaque(f"function {one.name}() is not known"))
            if isinstance(one, exp.Window):
                found.append(window(one, scope, ask).then(*step))
            waiting.extend((part, after(how, step)) for part, how in _parts(one))
    return merged(found)


def window(one: exp.Window, scope: Scope, ask: Ask) -> Origin:
    """By what a window groups and sorts, itself or by its name."""
    order = one.args.get("order")
    parts = [*(one.args.get("partition_by") or ()), *(by.this for by in (order.expressions if order else ()))]
    name = one.alias or (one.this.name if isinstance(one.this, exp.Identifier) else "")
    named = scope.windows.get(name.casefold())
    return merged([*(origin_of(part, scope, ask).then(Kind.WINDOW) for part in parts), *([named] if named is not None else [])])


def _parts(one: exp.Expr) -> Iterator[tuple[exp.Expr, Step]]:
    """The parts of an expression, and how the value of each takes part in it."""
    condition: Step = (Kind.CONDITIONAL, False)
    if isinstance(one, exp.Case):
        for branch in one.args["ifs"]:
            yield branch.this, condition
            yield branch.args["true"], SAME
        if one.this:
            yield one.this, condition
        if one.args.get("default"):
            yield one.args["default"], SAME
    elif isinstance(one, exp.If | exp.Nvl2):
        yield one.this, condition
        for name in ("true", "false"):
            if one.args.get(name):
                yield one.args[name], SAME
    elif isinstance(one, exp.Nullif):
        yield one.this, SAME
        yield one.this, condition
        yield one.expression, condition
    elif isinstance(one, exp.Coalesce):  # whether one is null decides which of them gives the value
        for part in one.iter_expressions():
            yield part, SAME
            yield part, condition
    elif isinstance(one, exp.Filter):
        yield one.this, SAME
        yield one.expression, (Kind.FILTER, False)
    elif isinstance(one, exp.ArgMax | exp.ArgMin):  # the value of one column in the row where another has its largest or least
        yield one.this, (Kind.AGGREGATION, False)
        yield one.expression, condition
    elif isinstance(one, exp.Window):
        if not isinstance(one.this, exp.Identifier):
            yield one.this, SAME
    elif isinstance(one, exp.Grouping | exp.GroupingId):
        for part in one.iter_expressions():
            yield part, (Kind.GROUP_BY, False)
    elif isinstance(one, exp.Order):
        if one.this:
            yield one.this, SAME
        for part in one.expressions:
            yield part, (Kind.SORT, False)
    else:
        for part in one.iter_expressions():
            yield part, _step(one)


def _step(one: exp.Expr) -> Step:
    if isinstance(one, _PASSED_ON):
        return SAME
    masking = isinstance(one, _MASKING) or (isinstance(one, exp.Anonymous) and one.name.lower() in MASKING_FUNCTIONS)
    aggregates = isinstance(one, exp.AggFunc) and not isinstance(one, _OF_ANOTHER_ROW)
    return Kind.AGGREGATION if aggregates else Kind.TRANSFORMATION, masking
