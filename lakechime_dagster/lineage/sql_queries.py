"""The columns that a query returns, their origins, and what decides on its rows."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from lakechime_dagster.errors import shown
from lakechime_dagster.lineage.columns import READ, Kind, Source, Step, after, outside
from lakechime_dagster.lineage.sql_relations import NOTHING, Origin, Relation, Scope, SqlSchema, merged, opaque

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
            by = _queries_listed(query.args[clause].expressions, relation, reading, replace(scope, joined={**scope.joined, **names}))
            reading.decides(by, Kind.SORT)
    distinct = query.args.get("distinct")
    if distinct:
        on = distinct.args.get("on")
        reading.decides(_queries_listed(on.expressions or [on], relation, reading, scope) if on else relation.all(), Kind.GROUP_BY)
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
    reading.decides(_queries_listed(several, relation, reading, scope), Kind.GROUP_BY)


def _queries_listed(several: Iterable[exp.Expr], relation: Relation, reading: Reading, scope: Scope) -> Origin:
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
        reading.decides(_queries_listed(query.args["order"].expressions, relation, reading, scope), Kind.SORT)
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
