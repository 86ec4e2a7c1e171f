"""The column lineage of texts of SQL."""

import logging
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, reduce
from hashlib import blake2b
from typing import Any

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect, Dialects
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify_columns import qualify_columns
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.schema import MappingSchema
from sqlglot.tokenizer_core import Token

from lakechime_dagster.errors import InvalidValueError, shown
from lakechime_dagster.lineage.columns import (
    CONSTANT,
    READ,
    ColumnLineage,
    ColumnRef,
    Kind,
    Names,
    Source,
    Statement,
    Taking,
    Value,
    after,
    joined,
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


MAX_CHARACTERS = 1_000_000
MAX_TOKENS = 100_000
EXECUTED = (
    "is a template, of which it is not known what ran; send the executed SQL, from the log of the "
    "engine"
)
_TEMPLATES = ("{{", "{%", "[[")
_LITERALS = frozenset(
    kind
    for name in (
        "STRING",
        "NUMBER",
        "BIT_STRING",
        "HEX_STRING",
        "BYTE_STRING",
        "NATIONAL_STRING",
        "RAW_STRING",
        "HEREDOC_STRING",
    )
    if (kind := getattr(TokenType, name, None)) is not None
) | frozenset({TokenType.UNICODE_STRING})
# it shows the text, literals and all
logging.getLogger("sqlglot").addFilter(lambda record: "unsupported syntax" not in record.msg)


def checked_dialect(dialect: object) -> str:
    """The name of an engine's SQL as sqlglot says it.

    Raises:
        InvalidValueError: naming those that there are.
    """
    if not isinstance(dialect, str) or dialect.lower() not in _dialects():
        raise InvalidValueError(
            "dialect", dialect, f"is not known; use one of {', '.join(sorted(_dialects()))}"
        )
    return dialect.lower()


@cache
def _dialects() -> frozenset[str]:
    return frozenset(
        one.value
        for one in Dialects
        if one.value and one.value not in ("prql", "dax", "tableau", "solr")
    )


def check_text(sql: object, dialect: str) -> None:
    """Refuse a text that is not read.

    Raises:
        InvalidValueError: too long, a template, or cut off. No part of the text is in the message:
            its literals are personal.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidValueError(
            "sql",
            None if not isinstance(sql, str) else "",
            "is empty; send the text of a statement",
        )
    if len(sql) > MAX_CHARACTERS:
        raise InvalidValueError(
            "sql",
            f"of {len(sql):,} characters",
            f"is too long; at most {MAX_CHARACTERS:,} are read",
        )
    try:
        found = Dialect.get_or_raise(dialect).tokenize(sql)
    except SqlglotError:
        raise InvalidValueError(
            "sql",
            f"of {len(sql):,} characters",
            "is cut off, or not of this dialect; send all of it",
        ) from None
    if len(found) > MAX_TOKENS:
        raise InvalidValueError(
            "sql", f"of {len(found):,} words", f"is too long; at most {MAX_TOKENS:,} are read"
        )
    _check_template(found, sql)


def _check_template(found: list[Token], sql: str) -> None:
    """A brace or bracket doubled outside of literals is a template's, but for arrays of arrays,
    which close as they opened.
    """
    if not any(mark in sql for mark in _TEMPLATES):
        return
    plain = "".join(
        " " if token.token_type in _LITERALS else sql[token.start : token.end + 1]
        for token in found
    )
    literal = any(
        token.token_type in _LITERALS and re.search(r"\{\{.*\}\}|\{%.*%\}", token.text, re.DOTALL)
        for token in found
    )
    if literal or "{{" in plain or "{%" in plain or re.search(r"\[\[(?=\s*[A-Za-z]\w*\s)", plain):
        raise InvalidValueError("sql", f"of {len(sql):,} characters", EXECUTED)


def parsed(sql: str, dialect: str) -> list[exp.Expr]:
    """The statements of a text.

    Raises:
        InvalidValueError: where it does not parse, by line and column, or is nested too deeply.
    """
    try:
        return [one for one in sqlglot.parse(sql, dialect=dialect) if one is not None]
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        position = (
            f"at line {details[0].get('line')}, column {details[0].get('col')}"
            if details[0].get("line")
            else "somewhere"
        )
        remedy = (
            f"does not parse as {dialect} {position}; send the executed SQL whole, with the dialect "
            f"of its engine"
        )
        raise InvalidValueError("sql", f"of {len(sql):,} characters", remedy) from None
    except RecursionError:
        raise too_deep(sql) from None


def too_deep(sql: str) -> InvalidValueError:
    return InvalidValueError(
        "sql",
        f"of {len(sql):,} characters",
        "is nested too deeply to be read; name a part of it in a WITH",
    )


# may run anything
_OPAQUE_VERBS = frozenset(
    {"CALL", "EXECUTE", "EXEC", "BEGIN", "DECLARE", "DO", "IF", "WHILE", "FOR", "LOOP", "REPEAT"}
)
_WITH_BODY = re.compile(r"\b(PROC|PROCEDURE|TRIGGER|VIEW)\b", re.IGNORECASE)
_VERBS = frozenset(
    {"BEGIN", "DELETE", "ELSE", "END", "IF", "INSERT", "MERGE", "SELECT", "UPDATE", "WHILE"}
)


def statements_of_sql(
    sql: str, dialect: str, schema: SqlSchema, namespace: str = ""
) -> tuple[Statement, ...]:
    """What each statement of a text says of columns, in their order; one that moves no values is
    left out.

    A query that writes nothing has the target `READ` and its columns by position. Tables that the
    schema does not know are `namespace/name`, by default with the name of the dialect. Nothing is
    empty silently: a column has sources, or is a constant, or says why it is not known.

    A temporary table is the sum of the statements that wrote it, and what reads it has their
    sources. One that nothing reads is a query that writes nothing.

    Raises:
        InvalidValueError: the text is too long, a template, no SQL of this dialect, or may run
            anything.
    """
    dialect = checked_dialect(dialect)
    check_text(sql, dialect)
    return read_statements(parsed(sql, dialect), sql, schema, dialect, namespace or dialect)


def read_statements(
    several: list[exp.Expr], sql: str, schema: SqlSchema, dialect: str, namespace: str
) -> tuple[Statement, ...]:
    """The same of statements that are parsed."""
    script = _Script(schema, dialect, namespace)
    try:
        for node in several:
            _check(node)
            script.run(node)
    except RecursionError:
        raise too_deep(sql) from None
    return tuple(script.found + script.unread())


class _Script:
    """Statements one after the other in one session; `found` is what those say that write no
    temporary table.

    Of a temporary table, or a view of the session, it is kept what its columns derive from; what
    reads it has their sources. A view is read as what it names is by then.
    """

    def __init__(self, schema: SqlSchema, dialect: str, namespace: str) -> None:
        self.found: list[Statement] = []
        self._schema, self._dialect, self._namespace = schema, dialect, namespace
        self._made: dict[str, Statement] = {}  # by what has it as its target
        self._read: set[str] = set()

    def run(self, node: exp.Expr) -> None:
        """What a statement says, with the temporary tables as they are when it comes."""
        columns = {
            target.removeprefix(TEMPORARY): names if "*" not in names else None
            for target, made in self._made.items()
            if (names := [one.column for one in made.columns]) is not None
        }
        made = _temporary(node)
        key = "" if made is None else key_of(made)
        tables = Tables(self._schema, self._dialect, self._namespace, columns)
        if isinstance(node, exp.Drop):
            for table in node.find_all(exp.Table):
                self._forget(TEMPORARY + key_of(table))
            return
        several = _statements(tables.fold(node), tables)
        if not key:
            self._keep(node, [self._through(one) for one in several])
            return
        target = TEMPORARY + folded(key)
        several = [replace(one, target=target) for one in several] or [
            _declared(node, tables, target)
        ]
        if isinstance(node, exp.Cache) or str(node.args.get("kind")).upper() == "VIEW":
            (one,) = several
            own = {target} & set(one.inputs)  # what had its name before
            self._made[target] = self._through(one, own) if own else one
            return
        several = [self._through(one) for one in several]
        if node.args.get("exists"):
            several = [replace(one, replaces=False) for one in several]
        else:
            self._forget(target)
        self._keep(node, several)

    def unread(self) -> list[Statement]:
        """What was made for the session and is read by nothing in it: who sends the script reads
        what that is made of.
        """
        rest = [one for target, one in self._made.items() if target not in self._read]
        found = [replace(self._through(one), target=READ, replaces=False) for one in rest]
        return [one for one in found if one.inputs]

    def _keep(self, node: exp.Expr, several: Sequence[Statement]) -> None:
        for one in several:
            if one.target.startswith(TEMPORARY):
                before = self._made.get(one.target)
                if before is None and _temporary(node) is None:
                    before = _not_made_here(one.target)
                self._made[one.target] = one if before is None else before.added(one)
                continue
            self.found.append(one)
            if isinstance(node, exp.Create | exp.Select) and one.target != READ and one.columns:
                made = {one.target: [column.column for column in one.columns]}
                self._schema = SqlSchema({**self._schema.tables, **made}, self._schema.names)

    def _forget(self, target: str) -> None:
        self._made.pop(target, None)
        self._read.discard(target)

    def _through(self, one: Statement, only: Collection[str] | None = None) -> Statement:
        """A statement whose sources in temporary tables are those that these have, or in some of
        them only.
        """
        within = [
            name
            for name in one.inputs
            if name.startswith(TEMPORARY) and (only is None or name in only)
        ]
        if not within:
            return one
        made = {
            name: self._through(self._made[name])
            if only is None and name in self._made
            else self._made.get(name) or _not_made_here(name)
            for name in within
        }
        self._read.update(made)
        columns = tuple(
            _sourced(column.sources, made, column.opaque).lineage(column.column)
            for column in one.columns
        )
        indirect = _sourced(one.indirect, made, one.unknown)
        return replace(
            one,
            columns=columns,
            indirect=(
                *indirect.sources,
                *(source for each in made.values() for source in each.indirect),
            ),
            inputs=(
                *(name for name in one.inputs if name not in made),
                *(name for each in made.values() for name in each.inputs),
            ),
            unknown=(*indirect.opaque, *(why for each in made.values() for why in each.unknown)),
        )


def _sourced(
    sources: Iterable[Source], made: Mapping[str, Statement], reasons: Iterable[str]
) -> Value:
    """What sources derive from, of which some are in temporary tables."""
    return together(
        [
            Value(opaque=frozenset(reasons)),
            *(
                _column_of(made[source.ref.table], source.ref.column).then(
                    source.kind, source.is_masking
                )
                if source.ref.table in made
                else Value(frozenset((source,)))
                for source in sources
            ),
        ]
    )


def _column_of(made: Statement, column: str | None) -> Value:
    """What a column of a temporary table derives from, or all of them; what may be any has all that
    may be in it.
    """
    several = {
        folded(one.column): Value(frozenset(one.sources), frozenset(one.opaque))
        for one in made.columns
    }
    rest = several.get("*", CONSTANT)
    if column is None:
        return together(several.values())
    return several.get(folded(column), CONSTANT) | rest


def _not_made_here(target: str) -> Statement:
    reason = f"temporary table {target.removeprefix(TEMPORARY)} is not made here"
    return Statement(target=target, columns=(ColumnLineage(column="*", opaque=(reason,)),))


def _declared(node: exp.Expr, tables: Tables, target: str) -> Statement:
    """A temporary table that is declared with its columns, or like another one, and has no rows."""
    listed = [tables.spelled[one.name] for one in node.find_all(exp.ColumnDef)]
    like = node.find(exp.LikeProperty)
    if like is not None and isinstance(like.this, exp.Table):
        listed += tables.columns(tables.name(like.this)) or ()
    columns = [ColumnLineage(column=name) for name in listed] or [
        ColumnLineage(column="*", opaque=("its columns are not known",))
    ]
    return Statement(target=target, columns=tuple(columns), replaces=True)


def _temporary(node: exp.Expr) -> exp.Table | None:
    """What is made for the session alone."""
    if isinstance(node, exp.Cache):
        return (
            node.this if node.args.get("expression") and isinstance(node.this, exp.Table) else None
        )
    into = node.args.get("into") if isinstance(node, exp.Select) else None
    if into is not None and isinstance(into.this, exp.Table):
        return into.this if into.args.get("temporary") or is_temporary(into.this) else None
    if not isinstance(node, exp.Create) or str(node.args.get("kind")).upper() not in MADE:
        return None
    properties = node.args.get("properties")
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    is_made = isinstance(table, exp.Table) and (
        is_temporary(table) or (properties and properties.find(exp.TemporaryProperty))
    )
    return table if is_made else None


MADE = ("TABLE", "VIEW")


def _statements(node: exp.Expr, tables: Tables) -> list[Statement]:
    if isinstance(node, exp.Query | exp.Values):
        into = node.args.get("into")
        target = tables.target(into.this) if into is not None and into.this is not None else READ
        if into is not None:
            node.set("into", None)
        return [_of_query(target, node, tables, replaces=target != READ)]
    if isinstance(node, exp.Insert):
        return [_inserted(node, tables)]
    if isinstance(node, exp.MultitableInserts):
        return [_inserted_of(one, node.args["source"], tables) for one in node.expressions]
    if isinstance(node, exp.Create | exp.Cache):
        clone = node.args.get("clone")
        query = clone.this if clone is not None else node.args.get("expression")
        is_made = isinstance(node, exp.Cache) or str(node.args.get("kind")).upper() in MADE
        return (
            [_made_of(node.this, query, tables)]
            if is_made and isinstance(query, exp.Query | exp.Table)
            else []
        )
    if isinstance(node, exp.Alter) and isinstance(
        query := next(iter(node.args.get("actions") or ()), None), exp.Query
    ):
        return [_made_of(node.this, query, tables)]
    if isinstance(node, exp.Merge):
        return [_merged(node, tables)]
    if isinstance(node, exp.Update | exp.Delete):
        return _changed(node, tables)
    if isinstance(node, exp.Copy | exp.LoadData) and isinstance(node.this, exp.Table | exp.Schema):
        reason = f"{node.key.upper()} reads files"
        return [Statement(target=tables.target(node.this), unknown=(reason,))]
    return []


def _of_query(
    target: str,
    query: exp.Expr,
    tables: Tables,
    names: Sequence[str] | None = None,
    *,
    replaces: bool = False,
    unknown: Iterable[str] = (),
    looked_up: Collection[str] = (),
) -> Statement:
    """What a query gives, as a statement.

    Args:
        target: What is written.
        query: The query.
        tables: The tables that there are.
        names: Those of the target's columns by position, if they are not those of the query.
        replaces: No row of the target stays.
        unknown: What is not known besides.
        looked_up: Tables of which rows are only looked up, which makes them no inputs.
    """
    read = Query(tables, query)
    relation = read.relation()
    columns, reasons = list(relation.columns), [*unknown]
    if names is not None and relation.rest is not None:
        columns = [(name, relation.all()) for name in names]
    elif names is not None:
        if len(columns) > len(names):
            reasons.append(f"{len(columns)} columns for {len(names)} of {_shown(target)}")
        columns = list(zip(names, (value for _, value in columns), strict=False))
    own = {folded(name): name for name in tables.columns(target) or ()} if target else {}
    if names is None and relation.rest is not None and own and not replaces:
        columns = [(name, relation.column(name)) for name in own]
    kept = "" if target.startswith(TEMPORARY) else target  # which the sources of a row are not of
    lineage = []
    for name, value in columns:
        spelled = own.get(folded(name)) or tables.spelled.get(name, name)
        itself = Source(ColumnRef(kept, spelled), Kind.IDENTITY)
        lineage.append(replace(value, sources=value.sources - {itself}).lineage(spelled))
    used = {source.ref.table for one in lineage for source in one.sources}
    return Statement(
        target=target,
        columns=joined(lineage) if target else tuple(lineage),
        indirect=tuple(one for one in relation.decides.sources if one.ref.table != kept),
        inputs=tuple((read.inputs - ({*looked_up} if kept else set())) | used),
        replaces=replaces,
        unknown=(*relation.decides.opaque, *reasons),
    )


def _shown(target: str) -> str:
    return target.removeprefix(TEMPORARY)


def _made_of(target: exp.Expr, query: exp.Expr, tables: Tables) -> Statement:
    """A table or view that is what a query gives."""
    names = [one.name for one in target.expressions] if isinstance(target, exp.Schema) else None
    return _of_query(tables.target(target), query, tables, names, replaces=True)


def _inserted(node: exp.Insert, tables: Tables) -> Statement:
    """INSERT in all forms."""
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    target, query = tables.target(node.this), node.expression
    if not isinstance(query, exp.Query | exp.Values | exp.Table):
        return Statement(target=target)
    if node.args.get("with_"):
        query.set("with_", node.args["with_"])
    clause = table.args.get("partition") or node.args.get("partition")
    parts = clause.expressions if isinstance(clause, exp.Partition) else []
    fixed = [one.this.name for one in parts if isinstance(one, exp.EQ)]
    dynamic = [one.name for one in parts if not isinstance(one, exp.EQ)]
    listed = (
        [one.name for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
    )
    known, unknown = tables.columns(target), []
    names: list[str] | None = None
    # a directory has the columns of the query
    if not node.args.get("by_name") and (isinstance(table, exp.Table) or listed):
        left = [one for one in known or () if folded(one) not in (*fixed, *dynamic)]
        names = listed or ([*left, *dynamic] if known else None)
        if names is None:
            unknown.append(
                f"the columns of {_shown(target)} are not known; those of the query are taken for them"
            )
    found = _of_query(
        target,
        query,
        tables,
        names,
        replaces=bool(node.args.get("overwrite")) and not parts,
        unknown=unknown,
    )
    found = replace(
        found,
        columns=joined(
            [*found.columns, *(ColumnLineage(column=tables.spelled[one]) for one in fixed)]
        ),
    )
    conflict = node.args.get("conflict")
    return (
        found
        if conflict is None
        else found.joined(_on_conflict(conflict, table, query, found, tables))
    )


def _on_conflict(
    conflict: exp.OnConflict, table: exp.Table, query: exp.Expr, found: Statement, tables: Tables
) -> Statement:
    """What is assigned where the row is there already; `excluded` is the row that was to be
    inserted.
    """
    columns = [exp.to_identifier(folded(one.column)) for one in found.columns]
    given = exp.Subquery(
        this=query.copy() if isinstance(query, exp.Query) else exp.select("*").from_(query.copy()),
        alias=exp.TableAlias(this=exp.to_identifier("excluded"), columns=columns),
    )
    on = [
        exp.column(key.name, "excluded").eq(exp.column(key.name, "excluded"))
        for key in conflict.args.get("conflict_keys") or ()
    ]
    into = table.copy()
    several = [
        (name, value) for _, name, value in _assigned(conflict.expressions, {table.alias_or_name})
    ]
    select = _select([value for _, value in several], [into])
    select = select.join(given, on=exp.and_(*on) if on else None)
    return _of_query(
        found.target, select, tables, [name for name, _ in several], looked_up=[found.target]
    )


def _inserted_of(one: exp.Expr, source: exp.Expr, tables: Tables) -> Statement:
    """`FROM … INSERT … INSERT …`, of which each INSERT has a SELECT of its own; what INSERT ALL
    does with its query is unknown.
    """
    if isinstance(one, exp.Insert) and isinstance(one.expression, exp.Select):
        one.expression.set("from_", exp.From(this=source.copy()))
        return _inserted(one, tables)
    into = one.this if isinstance(one, exp.ConditionalInsert) else one
    found = _of_query(tables.target(into.this), source, tables)
    return replace(found, columns=(), unknown=(*found.unknown, "INSERT ALL is not followed"))


Assigned = tuple[str, str, exp.Expr]
"""The alias before a column that is assigned, or "", the column, and the value."""


def _assigned(several: Iterable[exp.Expr], aliases: Collection[str]) -> Iterator[Assigned]:
    """What `column = value`, or `(column, …) = (value, …)`, gives each column."""
    for one in several:
        if not isinstance(one, exp.EQ):
            continue
        columns, values = [one.this], [one.expression]
        if isinstance(one.this, exp.Tuple | exp.Paren):
            columns = one.this.expressions or [one.this.this]
            values = _each_of(one.expression, len(columns))
        for column, value in zip(columns, values, strict=False):
            is_path = isinstance(column, exp.Column | exp.Dot)
            parts = [part.name for part in column.parts] if is_path else [column.name]
            at = next(
                (at for at in range(len(parts) - 1, 0, -1) if ".".join(parts[:at]) in aliases), 0
            )
            yield ".".join(parts[:at]), parts[at], value


def _each_of(node: exp.Expr, width: int) -> list[exp.Expr]:
    """Each of several values, which a list or a query gives."""
    if isinstance(node, exp.Tuple):
        return node.expressions
    query = node.unnest()
    if not isinstance(query, exp.Select) or len(query.expressions) != width:
        return [node] * width
    return [exp.Subquery(this=query.select(one.copy(), append=False)) for one in query.expressions]


def _select(values: Iterable[exp.Expr], relations: Iterable[exp.Expr]) -> exp.Select:
    """A query of values over relations."""
    first, *others = relations
    columns = [exp.alias_(one.copy(), f"_col_{at}") for at, one in enumerate(values)]
    query = exp.Select(expressions=columns or [exp.alias_(exp.Literal.number(1), "one")])
    query.set("from_", exp.From(this=first.copy()))
    for one in others:
        query = query.join(one.copy(), join_type="cross", copy=False)
    return query


def _relations(node: exp.Expr) -> Iterator[exp.Expr]:
    """A relation behind FROM, and those that are joined to it."""
    yield node
    for join in node.args.get("joins") or ():
        yield from _relations(join.this)


def _changed(node: exp.Update | exp.Delete, tables: Tables) -> list[Statement]:
    """UPDATE and DELETE, as a query of what is assigned.

    A name before FROM may be an alias that stands behind it, as in T-SQL, and a join may have
    several targets, as in MySQL.
    """
    others, named = node.args.get("from_"), node.args.get("tables") or [node.this]
    behind = [*([others.this] if others else []), *(node.args.get("using") or ())]
    if node.args.get("tables"):
        behind.insert(0, node.this)
    elif node.args.get("using") and node.this.args.get("joins"):
        named = [*_relations(node.this)]
    relations = {one.alias_or_name: one for each in behind for one in _relations(each)}
    relations |= {
        tables.written(one): one
        for one in [*relations.values()]
        if isinstance(one, exp.Table) and not one.alias
    }
    several: dict[str, exp.Expr] = {}
    for one in named:
        key = one.alias or tables.written(one)
        if key not in relations:
            behind.insert(0, one)
            relations |= {each.alias_or_name: each for each in _relations(one)}
            key = one.alias_or_name
        several[key] = relations[key]
    given = {cte.alias for cte in node.find_all(exp.CTE)}
    targets = {
        alias: READ if tables.written(one) in given else tables.target(one)
        for alias, one in (relations if node.this.args.get("joins") else several).items()
    }
    unknown = ["the target is not a table"] if READ in targets.values() else []
    written: dict[str, list[tuple[str, exp.Expr]]] = {}
    if isinstance(node, exp.Delete):
        written = {targets[alias]: [] for alias in several}
    else:
        for alias, column, value in _assigned(node.expressions, relations.keys()):
            target = targets.get(alias) or _owner(column, {*targets.values()}, tables)
            if target == READ and not unknown:
                unknown.append(f"column {shown(column)} may be of several tables")
            written.setdefault(target, []).append((column, value))
    found = []
    for target, columns in written.items():
        query = _select([value for _, value in columns], behind)
        query.set("where", node.args.get("where"))
        query.set("with_", node.args.get("with_"))
        names = [name for name, _ in columns] or None
        one = _of_query(target, query.copy(), tables, names, unknown=unknown, looked_up=[*written])
        found.append(one if columns else replace(one, columns=()))
    return found


def _owner(column: str, targets: Collection[str], tables: Tables) -> str:
    """The target that has a column; none where it may be any."""
    having = [one for one in targets if column in map(folded, tables.columns(one) or (column,))]
    return having[0] if len(having) == 1 else READ


def _merged(node: exp.Merge, tables: Tables) -> Statement:
    """All clauses whole, each a query of what it assigns; that a row of the target is looked up
    makes it no input.
    """
    target, source = tables.target(node.this), node.args["using"]
    both = _select([], [source]).join(node.this.copy(), on=node.args.get("on"))
    clauses = [(both, list[str]())]
    for when in node.args["whens"].expressions:
        condition = when.args.get("condition")
        if condition is not None:
            clauses.append((both.where(condition), []))
        clauses += _clause(when, node, source, both, tables)
    found = []
    for query, names in clauses:
        if node.args.get("with_"):
            query.set("with_", node.args["with_"].copy())
        one = _of_query(target, query, tables, names or None, looked_up=[target])
        found.append(one if names or _stars(query) else replace(one, columns=()))
    return reduce(Statement.joined, found)


def _stars(query: exp.Select) -> bool:
    return any(one.is_star for one in query.expressions)


def _clause(
    when: exp.When, node: exp.Merge, source: exp.Expr, both: exp.Select, tables: Tables
) -> Iterator[tuple[exp.Select, list[str]]]:
    then = when.args["then"]
    values: Sequence[exp.Expr] = ()
    names: list[str] = []
    if isinstance(then, exp.Update):
        aliases = {node.this.alias_or_name, tables.written(node.this)}
        pairs = [(name, value) for _, name, value in _assigned(then.expressions, aliases)]
        names, values = [name for name, _ in pairs], [value for _, value in pairs]
        relations, is_all = both, any(isinstance(one, exp.Star) for one in then.expressions)
        if when.args.get("source"):
            relations = _select([], [node.this])
    elif isinstance(then, exp.Insert):
        given = then.expression
        values = given.expressions if isinstance(given, exp.Tuple) else [given] if given else []
        listed = then.this.expressions if isinstance(then.this, exp.Tuple | exp.Schema) else ()
        names = [one.name for one in listed] or [*(tables.columns(tables.target(node.this)) or ())]
        names = names or [f"_col_{at}" for at in range(len(values))]
        relations = _select([], [source])
        is_all = isinstance(then.this, exp.Star) or (then.this is None and given is None)
    else:
        return  # DELETE, DO CONSTANT
    if is_all:
        yield _select([], [source]).select("*", append=False), []
    else:
        columns = _select(values, [source]).expressions
        yield relations.select(*columns, append=False), names[: len(values)]


def _check(node: exp.Expr) -> None:
    """Refuse what may run any statement, such as a procedure, a block or a condition.

    Raises:
        InvalidValueError: as it says.
    """
    if isinstance(node, exp.Execute | exp.Block | exp.IfBlock | exp.WhileBlock):
        raise _refused(node.key.upper())
    if isinstance(node, exp.Create) and str(node.args.get("kind")).upper() in ("PROCEDURE", "PROC"):
        raise _refused("CREATE PROCEDURE")
    if isinstance(node, exp.Command):
        word, rest = str(node.this).upper(), str(node.args.get("expression") or "")
        has_body = word in ("CREATE", "ALTER") and _WITH_BODY.search(rest[:200])
        if word in _OPAQUE_VERBS or word == "END" or has_body:
            raise _refused(word)
    _check_aliases(node)


def _check_aliases(node: exp.Expr) -> None:
    """Refuses a text whose statements ran into each other, so that a verb is taken for an alias."""
    for alias in node.find_all(exp.TableAlias, exp.Alias):
        name = alias.this if isinstance(alias, exp.TableAlias) else alias.args.get("alias")
        if (
            isinstance(name, exp.Identifier)
            and not name.args.get("quoted")
            and name.name.upper() in _VERBS
        ):
            raise InvalidValueError(
                "sql",
                name.name.upper(),
                "begins no statement here; end each statement with a semicolon",
            )


def _refused(what: str) -> InvalidValueError:
    return InvalidValueError("sql", what, "may run any statement; send those that it runs")


REMEMBERED = 10_000  # statements, the last ones that were met


class SqlReader:
    """What statements say, with the columns of tables as they are known at one moment; for one
    thread at a time.
    """

    def __init__(self, schema: SqlSchema) -> None:
        self.schema = schema
        self._known: OrderedDict[str, tuple[Statement, ...]] = OrderedDict()

    def read(
        self, sql: str | Sequence[str], dialect: str, namespace: str = ""
    ) -> tuple[str, tuple[Statement, ...]]:
        """A digest of a text, or of several of one session, and what `statements_of_sql` says of
        it.

        Raises:
            InvalidValueError: as that does.
        """
        dialect = checked_dialect(dialect)
        texts = [sql] if isinstance(sql, str) else list(sql)
        key = blake2b(
            "\0".join((dialect, namespace, *texts)).encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()
        if (found := self._known.get(key)) is None:
            for text in texts:
                check_text(text, dialect)
            several = [one for text in texts for one in parsed(text, dialect)]
            found = self._known[key] = read_statements(
                several, "".join(texts), self.schema, dialect, namespace or dialect
            )
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return key, found
