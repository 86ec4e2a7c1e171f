"""What the columns of one query derive from, by sqlglot's qualified scopes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlglot import exp
from sqlglot.optimizer.qualify_columns import qualify_columns
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.schema import MappingSchema

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

TEMPORARY = "(temporary)/"
"""Before the key of a temporary table, where a statement has a target or a source."""


def opaque(reason: str) -> Value:
    return Value(opaque=frozenset((reason,)))


@dataclass(frozen=True)
class SqlSchema:
    """The columns of tables, in their order.

    A table of the lake whose columns are not known is in `names` and not in `tables`.
    """

    tables: Mapping[str, Sequence[str]]
    names: Names = field(default_factory=Names)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.names.with_tables(self.tables))


@dataclass(frozen=True)
class Relation:
    """What a query, or a table, gives: columns in their order, by their names.

    Attributes:
        rest: What a column of another name derives from; None where there is none.
        table: Whose columns the others are, if there are any.
        decides: What decides which rows there are.
    """

    columns: tuple[tuple[str, Value], ...]
    rest: Value | None = None
    table: str = ""
    decides: Value = CONSTANT

    @cached_property
    def by_name(self) -> Mapping[str, Value]:
        """What the columns derive from; of two of one name the first is meant."""
        return dict(reversed(self.columns))

    def column(self, name: str, alias: str = "") -> Value:
        """What a column derives from."""
        found = self.by_name.get(name)
        if found is not None:
            return found
        if self.rest is None:
            return opaque(f"column {shown(name)} is not in {alias}")
        return self.rest | _itself(self.table, name) if self.table else self.rest

    def all(self) -> Value:
        """What all its columns derive from."""
        values = [value for _, value in self.columns]
        if self.rest is not None:
            values.append(self.rest | _itself(self.table, None) if self.table else self.rest)
        return together(values)


def _itself(table: str, column: str | None) -> Value:
    return Value(frozenset((Source(ColumnRef(table, column), Kind.IDENTITY),)))


CHAINED = (exp.Connector, exp.Add, exp.Sub, exp.Mul, exp.Concat, exp.DPipe)


class Tables(MappingSchema):
    """The tables that a statement may name, as sqlglot asks for them; names are folded.

    `temporary` are the columns of temporary tables by their keys, or None where they are not known.
    """

    def __init__(
        self,
        schema: SqlSchema,
        dialect: str,
        namespace: str,
        temporary: Mapping[str, Sequence[str] | None],
    ) -> None:
        # names that sqlglot makes are in lower case too
        dialect = f"{dialect}, normalization_strategy=lowercase"
        super().__init__(dialect=dialect, normalize=False)
        self._schema, self._namespace, self._temporary = schema, namespace, temporary
        self.spelled: dict[str, str] = {}

    def fold(self, query: exp.Expr) -> exp.Expr:
        """The statement with names without letters' case, of which the first spelling is kept, and
        with a call for each chain of operators: sqlglot needs the square of the depth of a chain.
        """
        for one in [*query.find_all(*CHAINED)]:
            if type(one) is not type(one.parent):
                one.replace(exp.Array(expressions=[*one.flatten(unnest=False)]))
        for one in query.find_all(exp.Identifier):
            self.spelled.setdefault(folded(one.name), one.name)
            one.set("this", folded(one.name))
        return query

    def written(self, table: exp.Expr) -> str:
        """The name of a table as it is written; "" of what is none."""
        if not isinstance(table, exp.Table):
            return ""
        return ".".join(self.spelled.get(part.name, part.name) for part in table.parts)

    def name(self, table: exp.Table) -> str:
        """The name of a data set, or the key of a temporary table behind `TEMPORARY`."""
        key = key_of(table)
        if is_temporary(table) or key in self._temporary:
            return TEMPORARY + key
        written = self.written(table)
        return self._schema.names.of(written) or f"{self._namespace}/{written}"

    def columns(self, name: str) -> Sequence[str] | None:
        """The columns of a data set, or None where they are not known."""
        if name.startswith(TEMPORARY):
            return self._temporary.get(name.removeprefix(TEMPORARY))
        return self._schema.tables.get(name)

    def unknown(self, name: str) -> Value:
        """Why the columns of a data set are not known; of a temporary one, what made it says so."""
        if name.startswith(TEMPORARY):
            return CONSTANT
        is_known = name in self._schema.names.tables
        return opaque(
            f"the columns of {name} are not known" if is_known else f"table {name} is not known"
        )

    def target(self, table: exp.Expr | None) -> str:
        """The name of what is written; the one of a query that only reads where it is no table."""
        table = table.this if isinstance(table, exp.Schema) else table
        if isinstance(table, exp.Table) and (
            is_temporary(table) or isinstance(table.this, exp.Identifier)
        ):
            return self.name(table)
        if isinstance(table, exp.Directory) and isinstance(table.this, exp.Literal):
            return self._schema.names.at(table.this.name) or outside(table.this.name)
        return READ

    def column_names(self, table: Any, *args: Any, **kwargs: Any) -> list[str]:
        """The columns of a table as sqlglot asks for them; none where they are not known."""
        is_named = isinstance(table.this, exp.Identifier) or is_temporary(table)
        return [folded(one) for one in self.columns(self.name(table)) or ()] if is_named else []


def is_temporary(table: exp.Table) -> bool:
    """Whether its name alone says that a table is temporary, as `#name` and `@name` of T-SQL do."""
    name = table.this
    return isinstance(name, exp.Parameter) or (
        isinstance(name, exp.Identifier)
        and bool(name.args.get("temporary") or name.args.get("global_"))
    )


def key_of(table: exp.Table) -> str:
    """By what a temporary table is known."""
    if not is_temporary(table):
        return ".".join(folded(part.name) for part in table.parts)
    return ("@" if isinstance(table.this, exp.Parameter) else "#") + folded(table.this.name)


class Query:
    """Reads one query whose names are folded; `inputs` are the data sets that were met.

    sqlglot says which table each column is of, and what a star stands for; what it does not
    resolve is not known.
    """

    def __init__(self, tables: Tables, query: exp.Expr) -> None:
        self.inputs: set[str] = set()
        self._tables = tables
        self._known: dict[int, Relation] = {}
        if not isinstance(query, exp.Query) or isinstance(query, exp.Values):
            source = query.copy()
            if isinstance(source, exp.Values) and not source.alias:
                source.set("alias", exp.TableAlias(this=exp.to_identifier("rows_of_values")))
            query = exp.select("*").from_(source)
        self._plain = query
        try:
            qualified = qualify_tables(query.copy(), dialect=tables.dialect)
            self._qualify_only(qualified)
            qualified = qualify_columns(qualified, tables, allow_partial_qualification=True)
            self._scopes = {id(one.expression): one for one in traverse_scope(qualified)}
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001 - whatever sqlglot meets in rare SQL, its tables are known
            self._scopes = {}

    def _qualify_only(self, query: exp.Expr) -> None:
        """The columns of a subquery over one table of unknown columns are taken for that table's:
        sqlglot refuses the whole query as they may be of one around it.
        """
        for scope in traverse_scope(query):
            several = list(scope.selected_sources.items())
            if not (scope.can_be_correlated and len(several) == 1):
                continue
            ((alias, (_, source)),) = several
            if isinstance(source, exp.Table) and not self._tables.column_names(source):
                for column in scope.find_all(exp.Column):
                    if not column.table:
                        column.set("table", exp.to_identifier(alias))

    def relation(self) -> Relation:
        """What the query gives."""
        if self._scopes and not self._plain.find(exp.MatchRecognize):
            return self._relation([*self._scopes.values()][-1])
        return self._unresolved()

    def _unresolved(self) -> Relation:
        """Of a query that sqlglot does not resolve: the columns by name, made of all tables."""
        reason = "its columns could not be resolved"
        named = {cte.alias for cte in self._plain.find_all(exp.CTE)}
        found = {
            self._tables.name(one)
            for one in self._plain.find_all(exp.Table)
            if one.name not in named and isinstance(one.this, exp.Identifier)
        }
        self.inputs |= found
        value = together(_itself(one, None) for one in found) | opaque(reason)
        names = [one or f"_col_{at}" for at, one in enumerate(self._plain.named_selects)]
        return Relation(tuple((one, value) for one in names), value, decides=opaque(reason))

    def _relation(self, source: exp.Expr | Scope) -> Relation:
        key = id(source.expression if isinstance(source, Scope) else source)
        if key not in self._known:
            self._known[key] = (
                # the one that a recursive query refers to has no sources
                self._read(self._scopes.get(key, source))
                if isinstance(source, Scope)
                else self._table(source)
            )
        return self._known[key]

    def _read(self, scope: Scope) -> Relation:
        node = scope.expression
        if isinstance(node, exp.Select):
            return self._select(node, scope)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope)
        if isinstance(node, exp.Values):
            return self._values(node, scope)
        if isinstance(node, exp.UDTF):
            return self._generated(node, scope)
        inner = next(iter(scope.derived_table_scopes), None)
        if inner is None:
            return Relation((), opaque(f"{node.key.upper()} is not followed"))
        relation = self._relation(inner)
        return self._sorted(node, relation, scope)

    def _select(self, node: exp.Select, scope: Scope) -> Relation:
        decides: list[Value] = []
        for source_node, source in scope.selected_sources.values():
            decides.append(self._source(source_node, source).decides)
        for name in scope.semi_or_anti_join_tables:
            if (found := self._named(scope, name)) is not None:
                decides.append(found.decides)
        decides += self._joins(scope)
        if node.args.get("where"):
            decides.append(_decides(self._value(node.args["where"].this, scope), Kind.FILTER))
        columns: list[tuple[str, Value]] = []
        rest: Value | None = None
        for one in node.expressions:
            value = self._projected(one, scope)
            if _is_several(one):
                rest = value if rest is None else rest | value
                columns.append(("*", value))
            elif isinstance(one, exp.Aliases):
                columns += [(alias.name, value) for alias in one.expressions]
            else:
                columns.append((one.output_name or f"_col_{len(columns)}", value))
        relation = Relation(tuple(columns), rest)
        decides += self._clauses(node, relation, scope)
        return replace(relation, decides=together(decides))

    def _joins(self, scope: Scope) -> Iterator[Value]:
        for join in scope.find_all(exp.Join):
            if join.args.get("on"):
                yield _decides(self._value(join.args["on"], scope), Kind.JOIN)
            if join.args.get("using") or join.method == "NATURAL":
                yield opaque("a join by names of columns that are not known")

    def _projected(self, one: exp.Expr, scope: Scope) -> Value:
        """What a projection derives from; a star that is left is one over what is not known."""
        if not _is_several(one):
            return self._value(one, scope)
        star = one.find(exp.Column)
        table = star.table if star is not None else ""
        several = [
            self._source(node, source).all()
            for name, (node, source) in scope.selected_sources.items()
            if name == table or not table
        ]
        found = together(several)
        return found if found.opaque else found | opaque("which columns it chooses is not followed")

    def _clauses(self, node: exp.Select, relation: Relation, scope: Scope) -> Iterator[Value]:
        """What the clauses behind WHERE decide."""
        group = node.args.get("group")
        if group:
            several = list(group.iter_expressions())
            if group.args.get("all"):
                several += [one for one in node.expressions if not one.find(exp.AggFunc)]
            yield self._listed(several, relation, scope, Kind.GROUP_BY)
        for clause in ("having", "qualify", "connect"):
            if node.args.get(clause):
                parts = list(node.args[clause].iter_expressions())
                yield self._listed(parts, relation, scope, Kind.FILTER)
        distinct = node.args.get("distinct")
        if distinct:
            on = distinct.args.get("on")
            yield (
                self._listed(on.expressions or [on], relation, scope, Kind.GROUP_BY)
                if on
                else _decides(relation.all(), Kind.GROUP_BY)
            )
        yield self._sorted(node, relation, scope).decides

    def _sorted(self, node: exp.Expr, relation: Relation, scope: Scope) -> Relation:
        by = [
            one.this if isinstance(one, exp.Ordered) else one
            for clause in ("order", "sort", "cluster")
            if node.args.get(clause)
            for one in node.args[clause].expressions
        ]
        decides = self._listed(by, relation, scope, Kind.SORT)
        return replace(relation, decides=relation.decides | decides)

    def _listed(
        self, several: Iterable[exp.Expr], relation: Relation, scope: Scope, kind: Kind
    ) -> Value:
        """What a list of a clause goes by, which may name columns of the query, by position too."""
        found: list[Value] = []
        given = dict(relation.columns)
        for one in several:
            if isinstance(one, exp.Literal):
                at = int(one.name) if one.is_int else 0
                found += [relation.columns[at - 1][1]] if 0 < at <= len(relation.columns) else []
            elif isinstance(one, exp.Column) and not one.table and one.name in given:
                found.append(given[one.name])
            else:
                found.append(self._value(one, scope))
        return _decides(together(found), kind)

    def _set_operation(self, node: exp.SetOperation, scope: Scope) -> Relation:
        """By position, or by name where it says so; what EXCEPT and INTERSECT look up decides about
        rows.
        """
        chain = [scope]
        while inner := chain[-1].set_operation_scopes:
            chain.append(inner[0])
        for one in chain[:0:-1]:  # the innermost first, as there may be hundreds
            self._relation(one)
        left, right = (self._relation(one) for one in scope.set_operation_scopes)
        decides = [left.decides, right.decides]
        if not isinstance(node, exp.Union):
            decides.append(_decides(left.all() | right.all(), Kind.JOIN))
            found = left
        elif node.args.get("by_name"):
            names = dict.fromkeys(name for one in (left, right) for name, _ in one.columns)
            mine, other = dict(left.columns), dict(right.columns)
            columns = (
                (name, mine.get(name, CONSTANT) | other.get(name, CONSTANT)) for name in names
            )
            found = Relation(tuple(columns), _either(left.rest, right.rest))
        else:
            found = _by_position(left, right)
        if isinstance(node, exp.Union) and node.args.get("distinct"):
            decides.append(_decides(found.all(), Kind.GROUP_BY))
        if scope.is_cte and _refers_to_itself(scope):
            every = found.all().then(Kind.TRANSFORMATION) | opaque(
                "a recursive query is not followed"
            )
            found = replace(
                found, columns=tuple((name, one | every) for name, one in found.columns)
            )
        found = replace(found, decides=together(decides))
        return self._sorted(node, found, scope)

    def _values(self, node: exp.Values, scope: Scope) -> Relation:
        rows = [
            row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions
        ]
        columns = [
            together(self._value(one, scope) for one in several)
            for several in zip(*rows, strict=False)
        ]
        return Relation(tuple(zip(node.alias_column_names, columns, strict=False)))

    def _generated(self, node: exp.UDTF, scope: Scope) -> Relation:
        """Rows that are made of arguments: by a query, of an array, by a function."""
        if scope.subquery_scopes:
            return self._relation(scope.subquery_scopes[-1])
        parts = node.expressions if isinstance(node, exp.Unnest) else [node.this]
        values = [self._value(part, scope).then(Kind.TRANSFORMATION) for part in parts]
        names, every = node.alias_column_names, together(values)
        if len(names) != len(values):
            values = [every] * len(names)
        rest = None if names else every | opaque("the columns of a table function are not known")
        return Relation(tuple(zip(names, values, strict=True)), rest)

    def _named(self, scope: Scope, name: str) -> Relation | None:
        """The relation that columns of a scope are prefixed with, if it has one."""
        for reference, node in scope.references:
            pivots = node.args.get("pivots")
            if (pivots[-1].alias if pivots else reference) == name and reference in scope.sources:
                return self._source(node, scope.sources[reference])
        return None

    def _source(self, node: exp.Expr, source: exp.Expr | Scope) -> Relation:
        relation = self._relation(source)
        if node.args.get("pivots"):
            reason = opaque("PIVOT is not followed")
            every = relation.all().then(Kind.AGGREGATION) | reason
            return Relation((), every, decides=relation.decides | reason)
        names = node.alias_column_names if isinstance(node, exp.Table) else []
        if names and relation.rest is None:
            renamed = zip(names, (value for _, value in relation.columns), strict=False)
            return replace(relation, columns=(*renamed, *relation.columns[len(names) :]))
        return relation

    def _table(self, table: exp.Expr) -> Relation:
        if not isinstance(table, exp.Table):
            return Relation((), opaque(f"{table.key.upper()} is not followed"))
        if not isinstance(table.this, exp.Identifier) and not is_temporary(table):
            return self._function(table)
        name = self._tables.name(table)
        self.inputs.add(name)
        columns = self._tables.columns(name)
        if columns is None:
            return Relation((), self._tables.unknown(name), name)
        return Relation(tuple((folded(one), _itself(name, one)) for one in columns))

    def _function(self, table: exp.Table) -> Relation:
        """A function that gives rows: its columns are not known, but come from its arguments."""
        name = table.this.name if isinstance(table.this, exp.Anonymous) else table.this.key
        reason = opaque(f"table function {name.lower()}() is not followed")
        return Relation((), reason, decides=reason)

    def _column(self, column: exp.Column, scope: Scope) -> Value:
        """What a column derives from: of the relation that it is prefixed with, else of any in
        which it may be, itself or as the struct of which it is a field.
        """
        name, kind = column.parts[0].name, Kind.TRANSFORMATION if column.table else Kind.IDENTITY
        having: list[Relation] = []
        incomplete: list[Relation] = []
        level: Scope | None = scope
        while level is not None:
            found = self._named(level, column.table) if column.table else None
            if found is not None:
                return found.column(column.name, column.table)
            for node, source in level.selected_sources.values() if not having else ():
                one = self._source(node, source)
                if one.rest is not None:
                    incomplete.append(one)
                elif name in one.by_name:
                    having.append(one)
            level = level.parent if level.can_be_correlated or level.is_udtf else None
        several = [one.column(name).then(kind) for one in (*having, *incomplete)]
        parts = (self._tables.spelled.get(part.name, part.name) for part in column.parts)
        if not several:
            return opaque(f"column {shown('.'.join(parts))} is in none of the tables")
        doubt = opaque(f"column {shown(name)} may be of several tables")
        return together(several) | (doubt if len(several) > 1 else CONSTANT)

    def _value(self, node: exp.Expr, scope: Scope) -> Value:
        """What an expression derives from.

        A condition that chooses among values is CONDITIONAL, what a window goes by WINDOW. A
        function that is not known gives its arguments, and if it has none the reason why it is
        unknown.
        """
        found: list[Value] = []
        waiting: list[tuple[exp.Expr, Taking]] = [(node, SAME)]
        while waiting:  # not by recursion, as a generated condition may have thousands of parts
            one, taking = waiting.pop()
            if isinstance(one, exp.Column):
                found.append(self._column(one, scope).then(*taking))
            elif isinstance(one, exp.Query):
                query = self._scopes.get(id(one.unnest()))
                if query is None:
                    found.append(opaque("a query in an expression is not followed"))
                    continue
                relation = self._relation(query)
                is_looked_up = isinstance(one.parent, exp.Exists)  # only whether there are rows
                value = Value(opaque=relation.all().opaque) if is_looked_up else relation.all()
                found.append((value | relation.decides).then(*taking))
            else:
                if isinstance(one, exp.Anonymous) and not any(one.find_all(exp.Column, exp.Query)):
                    found.append(opaque(f"function {one.name}() is not known"))
                if isinstance(one, exp.Window):
                    found.append(self._window(one, scope).then(*taking))
                waiting.extend((part, after(how, taking)) for part, how in _parts(one))
        return together(found)

    def _window(self, one: exp.Window, scope: Scope) -> Value:
        """By what a window groups and sorts, itself or by its name."""
        order = one.args.get("order")
        parts = [
            *(one.args.get("partition_by") or ()),
            *(by.this for by in (order.expressions if order else ())),
        ]
        name = one.alias or (one.this.name if isinstance(one.this, exp.Identifier) else "")
        named = [
            other
            for other in scope.expression.args.get("windows") or ()
            if other is not one and name and other.this.name == name
        ]
        return together(
            [
                *(self._value(part, scope).then(Kind.WINDOW) for part in parts),
                *(self._window(other, scope) for other in named),
            ]
        )


def _is_several(one: exp.Expr) -> bool:
    """Whether a projection is columns that are not known, or that a pattern chooses."""
    inner = one.unalias()
    inner = inner.this if isinstance(inner, exp.Like | exp.ILike) else inner
    return inner.is_star or one.find(exp.Columns) is not None


def _decides(value: Value, kind: Kind) -> Value:
    """A value that says which rows there are, in whatever way it does so inside of an
    expression.
    """
    return Value(frozenset(Source(one.ref, kind) for one in value.sources), value.opaque)


def _either(left: Value | None, right: Value | None) -> Value | None:
    return left if right is None else right if left is None else left | right


def _by_position(left: Relation, right: Relation) -> Relation:
    """Both, with the names of the left."""
    rest = _either(left.rest, right.rest)
    if rest is not None:
        every = left.all() | right.all()
        return Relation(tuple((name, value | every) for name, value in left.columns), every)
    if len(left.columns) != len(right.columns):
        reason = opaque(f"a union of {len(left.columns)} and {len(right.columns)} columns")
        return Relation(tuple((name, value | reason) for name, value in left.columns))
    pairs = zip(left.columns, right.columns, strict=True)
    return Relation(tuple((name, one | other) for (name, one), (_, other) in pairs))


def _refers_to_itself(scope: Scope) -> bool:
    with_ = scope.expression.find_ancestor(exp.With)
    return bool(with_ and with_.recursive)


SAME: Taking = (Kind.IDENTITY, False)
CONDITION: Taking = (Kind.CONDITIONAL, False)
MASKING_FUNCTIONS = frozenset({"hash", "xxhash64", "crc32", "mask"})
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
    exp.Aliases,
    exp.Paren,
    exp.Distinct,
    exp.Tuple,
    exp.IgnoreNulls,
    exp.RespectNulls,
)


def _parts(one: exp.Expr) -> Iterator[tuple[exp.Expr, Taking]]:
    """The parts of an expression, and how the value of each takes part in it."""
    if isinstance(one, exp.Case):
        for branch in one.args["ifs"]:
            yield branch.this, CONDITION
            yield branch.args["true"], SAME
        if one.this:
            yield one.this, CONDITION
        if one.args.get("default"):
            yield one.args["default"], SAME
    elif isinstance(one, exp.If | exp.Nvl2):
        yield one.this, CONDITION
        yield from ((one.args[name], SAME) for name in ("true", "false") if one.args.get(name))
    elif isinstance(one, exp.Nullif):
        yield from ((one.this, SAME), (one.this, CONDITION), (one.expression, CONDITION))
    elif isinstance(one, exp.Coalesce):  # whether one is null decides which of them gives the value
        for part in one.iter_expressions():
            yield from ((part, SAME), (part, CONDITION))
    elif isinstance(one, exp.Exists):
        yield one.this, CONDITION
    elif isinstance(one, exp.Filter):
        yield from ((one.this, SAME), (one.expression, (Kind.FILTER, False)))
    elif isinstance(one, exp.ArgMax | exp.ArgMin):  # the value of one where another is largest
        yield from ((one.this, (Kind.AGGREGATION, False)), (one.expression, CONDITION))
    elif isinstance(one, exp.Window):
        if not isinstance(one.this, exp.Identifier):
            yield one.this, SAME
    elif isinstance(one, exp.Grouping | exp.GroupingId):
        yield from ((part, (Kind.GROUP_BY, False)) for part in one.iter_expressions())
    elif isinstance(one, exp.Order):
        if one.this:
            yield one.this, SAME
        yield from ((part, (Kind.SORT, False)) for part in one.expressions)
    else:
        yield from ((part, _taking(one)) for part in one.iter_expressions())


def _taking(one: exp.Expr) -> Taking:
    if isinstance(one, _PASSED_ON):
        return SAME
    is_masking = isinstance(one, _MASKING) or (
        isinstance(one, exp.Anonymous) and one.name.lower() in MASKING_FUNCTIONS
    )
    aggregates = isinstance(one, exp.AggFunc) and not isinstance(one, _OF_ANOTHER_ROW)
    return Kind.AGGREGATION if aggregates else Kind.TRANSFORMATION, is_masking
