"""The columns that a query of SQL returns, their origins, and what decides on its rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sqlglot import exp

from lakechime_dagster.errors import shown
from lakechime_dagster.lineage.columns import (
    CONSTANT,
    READ,
    ColumnRef,
    Kind,
    Names,
    Source,
    Taking,
    Value,
    after,
    outside,
    together,
)
from lakechime_dagster.tables.names import folded


def opaque(*reasons: str) -> Value:
    return Value(opaque=frozenset(reasons))


@dataclass(frozen=True)
class Relation:
    """Columns in their order, by the names that they were written with.

    Attributes:
        more: Why there may be columns that are unknown; empty where these are all.
        table: Whose they are, where it is a table: an unknown column of it can be named all the
            same.
        rest: What an unknown column derives from, besides.
        temporary: The temporary table that it is, by what a statement that writes it has as its
            target.
    """

    columns: tuple[tuple[str, Value], ...]
    more: str = ""
    table: str = ""
    rest: Value = CONSTANT
    temporary: str = ""

    @property
    def target(self) -> str:
        """What a statement writes that names it behind FROM; empty where it is a query."""
        return self.table or self.temporary

    @cached_property
    def _by_name(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for name, origin in reversed(self.columns):  # of two of one name the first is meant
            found[folded(name)] = origin
        return found

    def column(self, name: str) -> Value | None:
        """What a known column derives from; None where there is none of that name."""
        return self._by_name.get(folded(name))

    def unknown_column(self, name: str | None) -> Value:
        """What an unknown column, or with None all of them, derives from, if there is one."""
        ref = ColumnRef(self.table, name)
        known = Value(frozenset({Source(ref, Kind.IDENTITY)})) if self.table else CONSTANT
        return known | self.rest | opaque(self.more)

    def all(self) -> Value:
        """What all its columns derive from."""
        return together(
            [
                *(origin for _, origin in self.columns),
                *([self.unknown_column(None)] if self.more else []),
            ]
        )

    def renamed(self, names: Iterable[str]) -> "Relation":
        """The same with other names for its first columns."""
        given = list(names)
        if not given:
            return self
        if self.more:
            every = self.all()
            return Relation(tuple((name, every) for name in given), self.more, rest=every)
        kept = [name for name, _ in self.columns[len(given) :]]
        return Relation(
            tuple(zip([*given, *kept], (origin for _, origin in self.columns), strict=False))
        )


@dataclass
class Scope:
    """The relations that names mean where an expression stands, and those of the queries around it.

    Attributes:
        ctes: Common table expressions and what is temporary, each read when it is named first.
        relations: In the order of FROM.
        by_alias: The same by what columns are prefixed with.
        joined: Columns that a USING made one of several.
        named: Columns of this query's own list that stand before, by which SQL of some engines may
            go on.
        windows: What the named windows go by.
    """

    ctes: "Ctes"
    outer: "Scope | None" = None
    relations: list[Relation] = field(default_factory=list)
    by_alias: dict[str, Relation] = field(default_factory=dict)
    joined: dict[str, Value] = field(default_factory=dict)
    named: dict[str, Value] = field(default_factory=dict)
    windows: dict[str, Value] = field(default_factory=dict)

    def add(self, relation: Relation, *aliases: str) -> None:
        """One more relation; of two with the same alias the first keeps it."""
        self.relations.append(relation)
        for alias in aliases:
            self.by_alias.setdefault(folded(alias), relation)

    def column(self, parts: list[str]) -> Value:
        """What a column derives from, by the parts of its name as written: `alias.column`,
        `column`, `column.field` and the like.
        """
        level: Scope | None = self
        # of which the column may be one, though it is found further out
        passed: list[Relation] = []
        while level is not None:
            found = level._of_alias(parts)
            if found is not None:
                return found
            found = level._of_name(parts)
            if found is not None:
                return found | opaque(*(one.more for one in passed))
            passed += [one for one in level.relations if one.more]
            level = level.outer
        if passed:
            return passed[0].unknown_column(parts[-1]) | opaque(*(one.more for one in passed))
        return opaque(f"column {shown('.'.join(parts))} is in none of the tables")

    def _of_alias(self, parts: list[str]) -> Value | None:
        """`alias.column`, with what stands before an alias, or behind a column, left out."""
        for at in range(1, len(parts)):
            relation = self.by_alias.get(folded(".".join(parts[:at]))) or self.by_alias.get(
                folded(parts[at - 1])
            )
            if relation is None:
                continue
            origin = relation.column(parts[at])
            if origin is None:
                reason = f"column {shown(parts[at])} is not in {parts[at - 1]}"
                origin = relation.unknown_column(parts[at]) if relation.more else opaque(reason)
            return origin if at + 1 == len(parts) else origin.then(Kind.TRANSFORMATION)
        return None

    def _of_name(self, parts: list[str]) -> Value | None:
        """`column`, or a field of one."""
        name = folded(parts[0])
        origin = self.joined.get(name)
        if origin is None:
            origins = [found for one in self.relations if (found := one.column(name)) is not None]
            if len(origins) > 1:
                origin = together(origins) | opaque(
                    f"column {shown(parts[0])} may be of several tables"
                )
            else:
                origin = origins[0] if origins else self.named.get(name)
        return origin if origin is None or len(parts) == 1 else origin.then(Kind.TRANSFORMATION)


@dataclass(frozen=True)
class SqlSchema:
    """The columns of tables, in their order; made once and asked by every statement.

    A table of the lake whose columns are not known is in `names` and not in `tables`.
    """

    tables: Mapping[str, Sequence[str]]
    names: Names = field(default_factory=Names)
    _relations: dict[str, Relation] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.names.with_tables(self.tables))

    def relation(self, written: str, namespace: str) -> Relation:
        """The table that SQL calls so; where its columns are unknown they may be any."""
        name = self.names.of(written)
        table = name or f"{namespace}/{written}"
        found = self._relations.get(table)
        if found is None:
            found = _relation(table, self.tables.get(table), is_known=name is not None)
            if name is not None:  # others would be kept without end
                self._relations[table] = found
        return found

    def columns(self, table: str) -> Sequence[str] | None:
        """The columns of a table, or None where they are not known."""
        return self.tables.get(table)

    def with_table(self, name: str, columns: Iterable[str]) -> "SqlSchema":
        """The same with one more table, as one that a script has made."""
        return SqlSchema({**self.tables, name: tuple(columns)}, self.names)


def _relation(table: str, columns: Sequence[str] | None, is_known: bool) -> Relation:
    if columns is not None:
        of = tuple(
            (name, Value(frozenset({Source(ColumnRef(table, name), Kind.IDENTITY)})))
            for name in columns
        )
        return Relation(of, table=table)
    reason = f"the columns of {table} are not known" if is_known else f"table {table} is not known"
    return Relation((), reason, table)


Column = tuple[str, Value]


def projections(
    several: Iterable[exp.Expr], scope: Scope, origin: Callable[[exp.Expr, Scope], Value]
) -> Relation:
    """The columns that a list gives; a star over columns that are not known is one of its own, and
    there may be more.
    """
    columns: list[Column] = []
    more, rest = "", []
    for number, one in enumerate(several):
        star = _star(one)
        if star is not None and not star.args.get("ilike"):
            relations = _of_star(one, scope)
            columns += _spelled(star, relations, scope, origin, is_all=isinstance(one, exp.Star))
        elif star is not None or _chooses(one):
            every = together(found for _, found in everything(scope.relations, scope.joined))
            relations = [Relation((), "which columns it chooses is not followed", rest=every)]
            columns.append(("*", relations[0].unknown_column(None)))
        else:
            relations = []
            for name in _names(one, number):
                found = origin(one, scope)
                columns.append((name, found))
                scope.named.setdefault(folded(name), found)
        for relation in relations:
            if relation.more:
                more = relation.more
                rest.append(relation.unknown_column(None))
    return Relation(tuple(columns), more, rest=together(rest))


def everything(relations: Iterable[Relation], joined: dict[str, Value]) -> Iterator[Column]:
    """All columns of relations; those that a USING made one come first, once."""
    several = list(relations)
    names = {folded(name): name for one in several for name, _ in one.columns}
    for key, found in joined.items():
        yield names.get(key, key), found
    for one in several:
        for name, found in one.columns:
            if folded(name) not in joined:
                yield name, found
        if one.more:
            yield "*", one.unknown_column(None)


def _star(one: exp.Expr) -> exp.Star | None:
    if isinstance(one, exp.Star):
        return one
    return one.this if isinstance(one, exp.Column) and isinstance(one.this, exp.Star) else None


def _chooses(one: exp.Expr) -> bool:
    """Whether a projection is several columns that a pattern chooses: COLUMNS(…), or `* LIKE …`."""
    return (isinstance(one, exp.Like | exp.ILike) and _star(one.this) is not None) or one.find(
        exp.Columns
    ) is not None


def _names(one: exp.Expr, number: int) -> list[str]:
    """The name of a column, or those that an alias in parentheses gives to what a generator
    makes.
    """
    if isinstance(one, exp.Aliases):
        return [alias.name for alias in one.expressions]
    return [(one.output_name if not isinstance(one, exp.Literal) else "") or f"_col_{number}"]


def _of_star(one: exp.Expr, scope: Scope) -> list[Relation]:
    if isinstance(one, exp.Star):
        return scope.relations or [Relation((), "a star over nothing")]
    parts = [part.name for part in one.parts[:-1]] if isinstance(one, exp.Column) else []
    found = scope.by_alias.get(folded(".".join(parts))) or scope.by_alias.get(folded(parts[-1]))
    if found is None:
        field = scope.column(parts)
        return [Relation((), f"the fields of {'.'.join(parts)} are not known", rest=field)]
    return [found]


def _spelled(
    star: exp.Star,
    relations: list[Relation],
    scope: Scope,
    origin: Callable[[exp.Expr, Scope], Value],
    is_all: bool,
) -> Iterator[Column]:
    left_out = {folded(part.name) for part in star.args.get("except_") or ()}
    instead = {folded(part.alias): part for part in star.args.get("replace") or ()}
    renamed = {folded(part.this.name): part.alias for part in star.args.get("rename") or ()}
    listed = tuple(everything(relations, scope.joined if is_all else {}))
    for name, found in listed:
        key = folded(name)
        if key in left_out:
            continue
        yield renamed.get(key, name), origin(instead[key].this, scope) if key in instead else found


Ask = Callable[[exp.Expr, Scope], tuple[Relation, Value]]
"""What a query inside an expression gives, with the scope around it, and what decides about its
rows.
"""

SAME: Taking = (Kind.IDENTITY, False)
MASKING_FUNCTIONS = frozenset(
    {
        "hash",
        "xxhash64",
        "crc32",
        "mask",
        "sha1",
        "sha",
        "sha256",
        "sha512",
        "md5",
        "approx_count_distinct",
    }
)
_MASKING = (
    exp.Count,
    exp.CountIf,
    exp.ApproxDistinct,
    exp.MD5,
    exp.MD5Digest,
    exp.SHA,
    exp.SHA2,
    exp.SHA1Digest,
    exp.SHA2Digest,
)
_OF_ANOTHER_ROW = (exp.Lag, exp.Lead)
_PASSED_ON = (
    exp.Alias,
    exp.Paren,
    exp.Distinct,
    exp.Tuple,
    exp.Filter,
    exp.Window,
    exp.IgnoreNulls,
    exp.RespectNulls,
    exp.Order,
)


def origin_of(node: exp.Expr, scope: Scope, ask: Ask) -> Value:
    """What an expression derives from.

    A condition that chooses among values is CONDITIONAL, what a window goes by WINDOW. A function
    that is not known gives its arguments, and if it has none the reason why it is unknown.
    """
    found: list[Value] = []
    waiting: list[tuple[exp.Expr, Taking]] = [(node, SAME)]
    while waiting:  # not by recursion, as a generated condition may have thousands of parts
        one, taking = waiting.pop()
        if isinstance(one, exp.Column):
            found.append(scope.column([part.name for part in one.parts]).then(*taking))
        elif isinstance(one, exp.Query):
            relation, deciding = ask(one, scope)
            found.append((relation.all() | deciding).then(*taking))
        elif isinstance(one, exp.Exists):  # its columns show nothing but that there are rows
            relation, deciding = ask(one.this, scope)
            found.append(
                (Value(opaque=relation.all().opaque) | deciding).then(
                    *after((Kind.CONDITIONAL, False), taking)
                )
            )
        elif isinstance(one, exp.Columns):
            found.append(
                together(origin for _, origin in everything(scope.relations, scope.joined)).then(
                    *taking
                )
            )
        else:
            if isinstance(one, exp.Anonymous) and not any(one.find_all(exp.Column, exp.Query)):
                found.append(opaque(f"function {one.name}() is not known"))
            if isinstance(one, exp.Window):
                found.append(window(one, scope, ask).then(*taking))
            waiting.extend((part, after(how, taking)) for part, how in _parts(one))
    return together(found)


def window(one: exp.Window, scope: Scope, ask: Ask) -> Value:
    """By what a window groups and sorts, itself or by its name."""
    order = one.args.get("order")
    parts = [
        *(one.args.get("partition_by") or ()),
        *(by.this for by in (order.expressions if order else ())),
    ]
    name = one.alias or (one.this.name if isinstance(one.this, exp.Identifier) else "")
    named = scope.windows.get(folded(name))
    return together(
        [
            *(origin_of(part, scope, ask).then(Kind.WINDOW) for part in parts),
            *([named] if named is not None else []),
        ]
    )


def _parts(one: exp.Expr) -> Iterator[tuple[exp.Expr, Taking]]:
    """The parts of an expression, and how the value of each takes part in it."""
    condition: Taking = (Kind.CONDITIONAL, False)
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
    elif isinstance(
        one, exp.ArgMax | exp.ArgMin
    ):  # the value of one column in the row where another has its largest or least
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
            yield part, _taking(one)


def _taking(one: exp.Expr) -> Taking:
    if isinstance(one, _PASSED_ON):
        return SAME
    masking = isinstance(one, _MASKING) or (
        isinstance(one, exp.Anonymous) and one.name.lower() in MASKING_FUNCTIONS
    )
    aggregates = isinstance(one, exp.AggFunc) and not isinstance(one, _OF_ANOTHER_ROW)
    return Kind.AGGREGATION if aggregates else Kind.TRANSFORMATION, masking


MAX_ROUNDS = (
    8  # of a recursive query; each adds what one more row back gives, and kinds only ever grow
)


@dataclass
class Reading:
    """What is found while a statement is read: its inputs, what decides about its rows, and what is
    unknown.

    `temporary` are the columns of temporary tables by their keys, or None where they are not known.
    """

    schema: SqlSchema
    namespace: str
    temporary: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    inputs: set[str] = field(default_factory=set)
    indirect: set[Source] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def decides(self, origin: Value, kind: Kind) -> None:
        """This says which rows there are, in whatever way it does so inside of an expression."""
        self.indirect |= {Source(source.ref, kind) for source in origin.sources}
        self.unknown |= origin.opaque

    def origin(self, node: exp.Expr, scope: Scope) -> Value:
        return origin_of(node, scope, self.inside)

    def inside(self, node: exp.Expr, scope: Scope) -> tuple[Relation, Value]:
        """What a query inside of an expression gives, and what decides about its rows: that is a
        matter of the expression alone.
        """
        own = self.apart()
        relation = relation_of(node, own, scope.ctes, scope)
        self.inputs |= own.inputs
        return relation, Value(frozenset(own.indirect), frozenset(own.unknown))

    def apart(self) -> "Reading":
        """For a part of which what is found is not yet found for the whole."""
        return Reading(self.schema, self.namespace, self.temporary)

    def add(self, part: "Reading") -> None:
        """What was found for a part is found for the whole."""
        self.inputs |= part.inputs
        self.indirect |= part.indirect
        self.unknown |= part.unknown

    def table(self, node: exp.Table, ctes: "Ctes") -> Relation:
        """The relation that a name stands for: a common table expression, a temporary table, or a
        table.
        """
        key = key_of(node)
        if key in ctes:
            return ctes[key](self)
        if is_temporary(node):
            return Relation(
                (), f"temporary table {shown(key)} is not made here", temporary=TEMPORARY + key
            )
        return self.schema.relation(written(node), self.namespace)

    def target(self, node: exp.Expr) -> str:
        """The name of the table that is written; the one of a query that only reads where it is no
        table.
        """
        table = node.this if isinstance(node, exp.Schema) else node
        if isinstance(table, exp.Table) and (
            is_temporary(table) or key_of(table) in self.temporary
        ):
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
"""Before the key of a temporary table, where a statement has a target: no target of a statement
that is reported.
"""


def written(table: exp.Table) -> str:
    """The name of a table as it is written."""
    return ".".join(part.name for part in table.parts)


def is_temporary(table: exp.Table) -> bool:
    """Whether its name alone says that a table is temporary, as `#name` and `@name` of T-SQL do."""
    name = table.this
    return isinstance(name, exp.Parameter) or (
        isinstance(name, exp.Identifier)
        and bool(name.args.get("temporary") or name.args.get("global_"))
    )


def key_of(table: exp.Table) -> str:
    """By what a common table expression or a temporary table is known: no name with several parts
    is one of a single part.
    """
    if not is_temporary(table):
        return "\0".join(folded(part.name) for part in table.parts)
    mark = (
        "@"
        if isinstance(table.this, exp.Parameter)
        else "##"
        if table.this.args.get("global_")
        else "#"
    )
    return mark + folded(table.this.name)


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


def relation_of(
    query: exp.Expr, reading: Reading, ctes: Ctes, outer: Scope | None = None
) -> Relation:
    """The columns of a query, in their order."""
    within = with_ctes(query, reading, ctes, outer)
    if isinstance(query, exp.Select):
        return _select(query, reading, Scope(within, outer))
    if isinstance(query, exp.SetOperation):
        return _sorted(query, _set_operation(query, reading, within, outer), reading, within)
    if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query):
        return _sorted(query, relation_of(query.this, reading, within, outer), reading, within)
    scope = Scope(within, outer)
    from_clause(query, scope, reading)  # TABLE t, VALUES …, a join in parentheses
    return _sorted(query, whole(scope), reading, within)


def _select(query: exp.Select, reading: Reading, scope: Scope) -> Relation:
    from_clause(query, scope, reading)
    for one in query.args.get("windows") or ():
        scope.windows[folded(one.this.name)] = window(one, scope, reading.inside)
    if query.args.get("where"):
        reading.decides(reading.origin(query.args["where"].this, scope), Kind.FILTER)
    relation = projections(query.expressions, scope, reading.origin)
    names = {folded(name): origin for name, origin in relation.columns}
    _group(query, relation, reading, scope)
    for clause in ("having", "qualify", "connect"):
        if query.args.get(clause):
            parts = query.args[clause].iter_expressions()
            reading.decides(together(reading.origin(part, scope) for part in parts), Kind.FILTER)
    for clause in ("order", "sort", "cluster"):
        if query.args.get(clause):
            by = _queries_listed(
                query.args[clause].expressions,
                relation,
                reading,
                replace(scope, joined={**scope.joined, **names}),
            )
            reading.decides(by, Kind.SORT)
    distinct = query.args.get("distinct")
    if distinct:
        on = distinct.args.get("on")
        reading.decides(
            _queries_listed(on.expressions or [on], relation, reading, scope)
            if on
            else relation.all(),
            Kind.GROUP_BY,
        )
    return relation


def _group(query: exp.Select, relation: Relation, reading: Reading, scope: Scope) -> None:
    group = query.args.get("group")
    if not group:
        return
    if group.args.get("all"):
        plain = [one for one in query.expressions if not one.find(exp.AggFunc)]
        reading.decides(
            together(reading.origin(one, scope) for one in plain if not one.is_star), Kind.GROUP_BY
        )
        return
    several = list(group.expressions)
    for kind in ("rollup", "cube", "grouping_sets"):
        for one in group.args.get(kind) or ():
            several += one.expressions
    reading.decides(_queries_listed(several, relation, reading, scope), Kind.GROUP_BY)


def _queries_listed(
    several: Iterable[exp.Expr], relation: Relation, reading: Reading, scope: Scope
) -> Value:
    """What a list of GROUP BY or ORDER BY goes by, where a number is a column's position."""
    found: list[Value] = []
    for one in several:
        node = one.this if isinstance(one, exp.Ordered) else one
        if (
            isinstance(node, exp.Literal)
            and not node.is_string
            and node.name.isdigit()
            and 0 < int(node.name) <= len(relation.columns)
        ):
            found.append(relation.columns[int(node.name) - 1][1])
        elif not isinstance(node, exp.Literal):
            found.append(reading.origin(node, scope))
    return together(found)


def _sorted(query: exp.Expr, relation: Relation, reading: Reading, ctes: Ctes) -> Relation:
    """The same columns; what they are sorted by decides about rows."""
    if query.args.get("order"):
        scope = Scope(ctes)
        scope.add(relation)
        reading.decides(
            _queries_listed(query.args["order"].expressions, relation, reading, scope), Kind.SORT
        )
    return relation


def _set_operation(
    query: exp.SetOperation, reading: Reading, ctes: Ctes, outer: Scope | None
) -> Relation:
    """By position, or by name where it says so; what EXCEPT and INTERSECT look up decides about
    rows.
    """
    chain: list[exp.SetOperation] = []
    first: exp.Expr = query
    while isinstance(first, exp.SetOperation) and (
        first is query or not (first.args.get("with_") or first.args.get("order"))
    ):
        chain.append(first)
        first = first.this
    relation = relation_of(first, reading, ctes, outer)
    for one in reversed(chain):
        other = relation_of(one.expression, reading, ctes, outer)
        if not isinstance(one, exp.Union):
            reading.decides(together([relation.all(), other.all()]), Kind.JOIN)
            continue
        relation = (
            _by_name(relation, other) if one.args.get("by_name") else by_position(relation, other)
        )
        if one.args.get("distinct"):
            reading.decides(relation.all(), Kind.GROUP_BY)
    return relation


def by_position(left: Relation, right: Relation) -> Relation:
    """Both, with the names of the left."""
    more = left.more or right.more
    if more:
        rest = left.all() | right.all()
        return Relation(
            tuple((name, origin | rest) for name, origin in left.columns), more, rest=rest
        )
    if len(left.columns) != len(right.columns):
        reason = opaque(f"a union of {len(left.columns)} and {len(right.columns)} columns")
        return Relation(tuple((name, origin | reason) for name, origin in left.columns))
    return Relation(
        tuple(
            (name, one | other)
            for (name, one), (_, other) in zip(left.columns, right.columns, strict=True)
        )
    )


def _by_name(left: Relation, right: Relation) -> Relation:
    more = left.more or right.more
    columns = [(name, origin | (right.column(name) or CONSTANT)) for name, origin in left.columns]
    columns += [(name, origin) for name, origin in right.columns if left.column(name) is None]
    return Relation(tuple(columns), more, rest=left.rest | right.rest)


def with_ctes(query: exp.Expr, reading: Reading, ctes: Ctes, outer: Scope | None = None) -> Ctes:
    """The common table expressions that a query may name, each read when it is named first."""
    with_ = query.args.get("with_")
    if not with_:
        return ctes
    within = dict(ctes)
    for cte in with_.expressions:
        within[folded(cte.alias)] = keeping(
            _cte(cte, dict(within), outer, is_recursive=bool(with_.args.get("recursive")))
        )
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
            within = {**ctes, folded(cte.alias): lambda _, known=known: known}
            relation = by_position(known, relation_of(body.expression, reading, within, outer))
            if relation == known:
                break
        return relation

    return read


def whole(scope: Scope) -> Relation:
    """All columns of a scope as one relation."""
    if len(scope.relations) == 1:
        return scope.relations[0]
    more = next((one.more for one in scope.relations if one.more), "")
    rest = together(one.unknown_column(None) for one in scope.relations if one.more)
    return Relation(
        tuple(column for column in everything(scope.relations, scope.joined) if column[0] != "*"),
        more,
        rest=rest,
    )


def pivoted(pivot: exp.Pivot, relation: Relation, scope: Scope, reading: Reading) -> Relation:
    """The columns behind PIVOT or UNPIVOT: what it does not name is kept, and what it makes is of
    all that it names.

    PIVOT groups by what it keeps. Which of the columns an UNPIVOT took is a constant.
    """
    inner = Scope(scope.ctes, scope.outer)
    inner.add(relation, pivot.parent.alias_or_name if pivot.parent else "")
    listings = [one for one in pivot.args.get("fields") or () if isinstance(one, exp.In)]
    chosen = [one.this for one in listings]
    named = (
        [part for one in listings for part in one.expressions]
        if pivot.args.get("unpivot")
        else [*pivot.expressions, *chosen]
    )
    used = {folded(column.name) for one in named for column in one.find_all(exp.Column)}
    kept = [(name, origin) for name, origin in relation.columns if folded(name) not in used]
    if pivot.args.get("unpivot"):
        value = together(reading.origin(one, inner) for one in named)
        values = [
            (name.name, value) for one in pivot.expressions for name in one.find_all(exp.Identifier)
        ]
        return Relation(
            (*kept, *((one.name, CONSTANT) for one in chosen), *values),
            relation.more,
            rest=relation.rest,
        )
    value = together(reading.origin(one, inner) for one in pivot.expressions)
    value |= together(reading.origin(one, inner).then(Kind.CONDITIONAL) for one in chosen)
    reading.decides(together(origin for _, origin in kept), Kind.GROUP_BY)
    names = [one.name for one in pivot.args.get("columns") or ()]
    more = relation.more or ("" if names else "the columns of PIVOT are not known")
    return Relation((*kept, *((name, value) for name in names)), more, rest=relation.rest | value)


_MADE_BY = {
    "explode": ["col"],
    "posexplode": ["pos", "col"],
    "explodeouter": ["col"],
    "posexplodeouter": ["pos", "col"],
}


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
        every = together(one.all() for one in scope.relations)
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
            return _Named(whole(inner), alias)
        for relation in inner.relations:
            scope.relations.append(relation)
        scope.by_alias.update(inner.by_alias)
        scope.joined.update(inner.joined)
        return None
    if isinstance(node, exp.Query):
        query, outside = (
            _bare(node) if isinstance(node, exp.Subquery) else node,
            Scope(scope.ctes, scope.outer),
        )
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
    inner = (
        node.expressions[0]
        if isinstance(node, exp.Anonymous) and node.name.lower() == "table" and node.expressions
        else node
    )
    name = inner.name if isinstance(inner, exp.Anonymous) else inner.key
    names = _MADE_BY.get(name.lower().replace("_", ""))
    taken = together(reading.origin(part, scope) for part in inner.iter_expressions()).then(
        Kind.TRANSFORMATION
    )
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
    taken = together(reading.origin(part, scope) for part in this.iter_expressions()).then(
        Kind.TRANSFORMATION
    )
    return _Named(Relation(tuple((name, taken) for name in names)), alias)


def _unnest(node: exp.Unnest, scope: Scope, reading: Reading) -> _Named:
    """Each array gives one column, or several where its elements are rows."""
    taken = [reading.origin(part, scope).then(Kind.TRANSFORMATION) for part in node.expressions]
    offset = node.args.get("offset")
    level = (
        [(offset.name if isinstance(offset, exp.Identifier) else "offset", CONSTANT)]
        if offset
        else []
    )
    names = _columns(node)
    if len(names) == len(taken):
        columns = list(zip(names, taken, strict=True))
    else:
        columns = [
            (name, together(taken)) for name in names or ([node.alias] if node.alias else [])
        ]
    more = "" if names else "the columns of UNNEST are not known"
    return _Named(
        Relation((*columns, *level), more, rest=together(taken)),
        (node.alias,) if node.alias else (),
    )


def _values(node: exp.Values, scope: Scope, reading: Reading) -> Relation:
    rows = [
        list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in node.expressions
    ]
    width = max((len(row) for row in rows), default=0)
    values_at: list[list[Value]] = [[] for _ in range(width)]
    for row in rows:
        for at, value in enumerate(row):
            if not isinstance(value, exp.Literal):
                values_at[at].append(reading.origin(value, scope))
    return Relation(
        tuple((f"col{at + 1}", together(origins)) for at, origins in enumerate(values_at))
    )


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
        left = scope.joined.get(folded(name)) or _column(before, name)
        right = _column(added, name)
        reading.decides(left | right, Kind.JOIN)
        both = (left | right) | (left | right).then(Kind.CONDITIONAL)  # as COALESCE of them
        scope.joined[folded(name)] = both if side == "FULL" else right if side == "RIGHT" else left
    if kind in ("SEMI", "ANTI"):  # only asks whether there are rows
        _decide(condition, scope, reading)
        scope.relations, scope.by_alias = before, aliases
        return None
    return condition


def _common(left: list[Relation], right: list[Relation], reading: Reading) -> list[str]:
    unknown = next((one.more for one in (*left, *right) if one.more), "")
    if unknown:
        reading.unknown.add(f"a NATURAL JOIN, and {unknown}")
    names = [name for one in left for name, _ in one.columns]
    return [
        name for name in dict.fromkeys(names) if any(one.column(name) is not None for one in right)
    ]


def _column(several: list[Relation], name: str) -> Value:
    found = [origin for one in several if (origin := one.column(name)) is not None]
    return found[0] if found else together(one.unknown_column(name) for one in several if one.more)


def _columns(node: exp.Expr) -> list[str]:
    """The names that an alias gives to columns."""
    alias = node.args.get("alias")
    return (
        [column.name for column in (alias.args.get("columns") or ())]
        if isinstance(alias, exp.TableAlias)
        else []
    )
