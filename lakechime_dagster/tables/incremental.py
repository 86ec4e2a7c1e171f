"""Which SQL each refresh mode can keep up to date; other SQL is refused with the clause that
prevents it.
"""

import re
from collections.abc import Iterable, Iterator

from sqlglot import exp

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.sql import DIALECT, cte_of, dotted, is_table, leaves, output_columns
from lakechime_dagster.tables.tables import RefreshMode

AGGREGATES = frozenset(
    {
        "mean",
        "std",
        "try_sum",
        "try_avg",
        "some",
        "every",
        "histogram_numeric",
        "count_min_sketch",
        "product",
    }
)
AGGREGATE_SKETCH = re.compile(r"\w+_agg(_\w+)?")  # bitmap_or_agg, kll_sketch_agg_bigint
UNSTABLE = frozenset(
    {
        "rand",
        "random",
        "randn",
        "randstr",
        "uniform",
        "uuid",
        "shuffle",
        "reflect",
        "try_reflect",
        "java_method",
        "now",
        "current_timestamp",
        "localtimestamp",
        "current_date",
        "curdate",
        "getdate",
        "current_time",
        "current_user",
        "session_user",
        "user",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
    }
)
# functions that sqlglot takes for columns if they are called so
WITHOUT_PARENTHESES = frozenset({"current_time", "localtimestamp"})
WITHOUT_ROWS = frozenset({"SEMI", "ANTI"})  # joins that give no columns of their right side


def check_increment(
    table: str, query: exp.Query, mode: RefreshMode, changing: Iterable[str], keys: tuple[str, ...]
) -> None:
    """Refuse SQL that this refresh mode would not keep equal to a full recomputation.

    Raises:
        DeclarationError: naming the clause and what to do instead.
    """
    changed = frozenset(changing)
    problem = None
    if mode is not RefreshMode.FULL:
        problem = _unstable(query)
    if mode is RefreshMode.ROWS:
        problem = problem or _row_wise_problem(query, changed)
    if problem:
        raise DeclarationError(
            table,
            f"refresh={str(mode)!r}",
            f"cannot keep {problem} up to date; use {alternatives(mode)}",
        )
    columns = output_columns(query)
    missing = [
        key
        for key in keys
        if columns is not None and key.lower() not in {column.lower() for column in columns}
    ]
    if missing:
        raise DeclarationError(
            table,
            "keys",
            f"{missing[0]!r} is no column of the SQL; it gives {', '.join(columns or ())}",
        )


def _unstable(query: exp.Query) -> str | None:
    for node in query.walk():
        if not UNSTABLE.isdisjoint(function_names(node)) or _is_bare_call(node):
            return f"{shortened(node)}, which is another value on each run,"
    return None


def _is_bare_call(node: exp.Expr) -> bool:
    return (
        isinstance(node, exp.Column)
        and not node.table
        and not node.this.quoted
        and node.name.lower() in WITHOUT_PARENTHESES
    )


def _row_wise_problem(query: exp.Query, changing: frozenset[str]) -> str | None:
    """The first clause over a changing input that does not treat rows one by one."""
    for node in query.find_all(exp.SetOperation, exp.With):
        if not reads_any(node, changing):
            continue
        if isinstance(node, exp.With):
            if node.args.get("recursive"):
                return "a recursive WITH"
        elif not isinstance(node, exp.Union):
            return node.key.upper()
        elif node.args["distinct"]:
            return "UNION (DISTINCT)"
        elif node.args.get("limit") or node.args.get("offset"):
            return "LIMIT"
    for select in query.find_all(exp.Select):
        if reads_any(select, changing):
            problem = _select_problem(select, changing)
            if problem:
                return problem
    return None


def _select_problem(select: exp.Select, changing: frozenset[str]) -> str | None:
    for clause in ("distinct", "group", "having", "qualify", "limit", "offset"):
        if select.args.get(clause):
            return "GROUP BY" if clause == "group" else clause.upper()
    for node in own_nodes(select):
        if isinstance(node, exp.Window):
            return f"the window {shortened(node)}"
        if is_aggregate(node):
            return f"the aggregate {shortened(node)}"
        if isinstance(node, exp.TableSample | exp.Pivot):
            return "TABLESAMPLE" if isinstance(node, exp.TableSample) else "PIVOT"
    return _join_problem(select, changing) or subquery_problem(select, changing)


def _join_problem(select: exp.Select, changing: frozenset[str]) -> str | None:
    parts = from_parts(select)
    several = [
        dotted(leaf) for part, _ in parts for leaf in leaves(part) if dotted(leaf) in changing
    ]
    unions = any(
        isinstance(part, exp.Subquery) and isinstance(part.this, exp.Union) for part, _ in parts
    )
    sides = [part for part, _ in parts if reads_any(part, changing)]
    if len(sides) > 1 or (len(several) > 1 and not unions and len(parts) > 1):
        return f"the JOIN of two changing inputs, {' and '.join(dict.fromkeys(several))},"
    for index, (part, join) in enumerate(parts):
        if join is None:
            continue
        side = f"{join.side} {join.kind}".strip()
        left = any(reads_any(earlier, changing) for earlier, _ in parts[:index])
        right = reads_any(part, changing)
        if (right and (join.side in ("LEFT", "FULL") or join.kind in WITHOUT_ROWS)) or (
            left and join.side in ("RIGHT", "FULL")
        ):
            return f"the {side} JOIN with a changing input on the side that may be missing"
    return None


def subquery_problem(select: exp.Select, changing: frozenset[str]) -> str | None:
    """A subquery over a changing input outside of FROM, or None."""
    sources = {id(part) for part, _ in from_parts(select)}
    for node in own_nodes(select):
        if isinstance(node, exp.Query) and id(node) not in sources and reads_any(node, changing):
            return "a subquery over a changing input"
    return None


def from_parts(select: exp.Select) -> list[tuple[exp.Expr, exp.Join | None]]:
    """The inputs of FROM and of the joins, in order; the first has no join."""
    first = select.args.get("from_")
    joins = select.args.get("joins") or []
    parts: list[tuple[exp.Expr, exp.Join | None]] = [(first.this, None)] if first else []
    return parts + [(join.this, join) for join in joins]


def own_nodes(select: exp.Select) -> Iterable[exp.Expr]:
    """The nodes of a SELECT without those of the queries nested in it (which themselves are
    given).
    """
    stack: list[exp.Expr] = [select]
    while stack:
        node = stack.pop()
        for child in node.iter_expressions():
            if isinstance(child, exp.With):
                continue
            yield child
            if not isinstance(child, exp.Query):
                stack.append(child)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node folds rows: an aggregate function that sqlglot knows, or one of Spark's that
    it does not.
    """
    if isinstance(node.parent, exp.Window):
        return False
    if isinstance(node, exp.Any):
        return not isinstance(node.parent, exp.Like | exp.ILike)
    return isinstance(node, exp.AggFunc) or any(
        name in AGGREGATES or AGGREGATE_SKETCH.fullmatch(name) for name in function_names(node)
    )


def function_names(node: exp.Expr) -> tuple[str, ...]:
    """The names by which SQL calls the function of a node, in lower case; none for what is no
    call.
    """
    if isinstance(node, exp.Anonymous):
        return (node.name.lower(),)
    return tuple(name.lower() for name in node.sql_names()) if isinstance(node, exp.Func) else ()


def reads_any(node: exp.Expr, tables: frozenset[str]) -> bool:
    """Whether any of these tables is read below a node."""
    return any(dotted(leaf) in tables for leaf in leaves(node))


def group_terms(select: exp.Select) -> list[exp.Expr]:
    """The terms of GROUP BY: ordinals and aliases of the select list replaced by what they mean;
    ALL spelled out.
    """
    group = select.args["group"]
    projections = select.selects
    if group.args.get("all"):
        return [
            projection.unalias()
            for projection in projections
            if not any(is_aggregate(node) for node in projection.walk())
        ]
    named = {
        projection.alias.lower(): projection.unalias()
        for projection in projections
        if isinstance(projection, exp.Alias)
    }
    terms = []
    for term in group.expressions:
        meant = (
            named.get(term.name.lower())
            if isinstance(term, exp.Column) and not term.table
            else None
        )
        if (
            isinstance(term, exp.Literal)
            and term.is_int
            and 1 <= int(term.name) <= len(projections)
        ):
            terms.append(projections[int(term.name) - 1].unalias())
        elif meant is not None and not _mentions(meant, term.name):
            terms.append(meant)
        else:
            terms.append(term)
    return terms


def is_plain_source(part: exp.Expr) -> bool:
    """Whether a part of FROM is a table itself, rather than a query or a CTE."""
    return isinstance(part, exp.Table) and is_table(part) and cte_of(part) is None


def _mentions(node: exp.Expr, column: str) -> bool:
    return any(found.name.lower() == column.lower() for found in node.find_all(exp.Column))


def alternatives(mode: RefreshMode) -> str:
    """The refresh modes to use instead of one that cannot be."""
    others = [
        str(other)
        for other in (RefreshMode.AFFECTED_KEYS, RefreshMode.PARTITIONS, RefreshMode.FULL)
        if other is not mode
    ]
    return " or ".join((", ".join(others[:-1]), others[-1])) if len(others) > 1 else others[0]


def shortened(node: exp.Expr) -> str:
    """The text of a clause, as an error message shows it."""
    text = node.sql(DIALECT)
    return text if len(text) <= 60 else f"{text[:59]}…"


ColumnOf = tuple[str, str]  # the alias of an input, and its column, in lower case
# key → column as the query writes it, in lower case → column of one input that gives it
KeyColumns = dict[str, dict[str, str]]


def group_key_columns(
    table: str, query: exp.Query, keys: tuple[str, ...], changing: Iterable[str]
) -> dict[str, KeyColumns]:
    """Per changing input and key, which columns of that input alone give the key (`keys_over`).

    Raises:
        DeclarationError: when a changed row does not determine its groups.
    """
    changed = frozenset(changing)
    try:
        select = _checked_select(query, changed)
        terms = _key_terms(select, keys)
        return {
            dotted(part): keys_over(select, terms, part)
            for part in _changing_parts(select, changed)
        }
    except ValueError as problem:
        field = f"refresh={str(RefreshMode.AFFECTED_KEYS)!r}"
        raise DeclarationError(table, field, f"{problem}; or use partitions or full") from None


def _checked_select(query: exp.Query, changed: frozenset[str]) -> exp.Select:
    if not isinstance(query, exp.Select):
        raise ValueError(
            f"needs one SELECT … GROUP BY, and this is a {query.key.upper()}: write it as one"
        )
    if not query.args.get("group"):
        raise ValueError("needs GROUP BY the keys: add it")
    for name, shown in (("limit", "LIMIT"), ("offset", "OFFSET"), ("qualify", "QUALIFY")):
        if query.args.get(name):
            raise ValueError(f"cannot keep {shown} up to date: remove it")
    if any(isinstance(node, exp.Window) for node in own_nodes(query)):
        raise ValueError(
            "cannot keep a window over groups up to date: compute it in a table of its own"
        )
    if any(
        isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets)
        for node in query.args["group"].walk()
    ):
        raise ValueError(
            "cannot keep ROLLUP, CUBE or GROUPING SETS up to date: group by plain terms"
        )
    unclear = next(
        (
            node
            for node in own_nodes(query)
            if isinstance(node, exp.TableSample | exp.Pivot | exp.Lateral)
        ),
        None,
    )
    if unclear is not None:
        raise ValueError(
            f"cannot find the groups touched through {shortened(unclear).strip()}: compute it in a "
            f"table of its own"
        )
    problem = subquery_problem(query, changed)
    if problem:
        raise ValueError(f"cannot find the groups touched through {problem}: write it as a join")
    return query


def _changing_parts(select: exp.Select, changed: frozenset[str]) -> Iterator[exp.Table]:
    seen: set[str] = set()
    for part, _ in from_parts(select):
        if not reads_any(part, changed):
            continue
        if not isinstance(part, exp.Table) or not is_plain_source(part):
            raise ValueError(
                f"cannot look through the query {part.alias_or_name!r} to a changing input: name "
                f"the table in FROM itself"
            )
        if dotted(part) in seen:
            raise ValueError(
                f"cannot keep a join of {dotted(part)} with itself up to date: read one side as a "
                f"snapshot of another table"
            )
        seen.add(dotted(part))
        yield part


def _key_terms(select: exp.Select, keys: tuple[str, ...]) -> dict[str, exp.Expr]:
    """The expression of each key in the select list; they must be exactly the terms of GROUP BY."""
    given = {
        projection.alias_or_name.lower(): projection.unalias() for projection in select.selects
    }
    missing = [key for key in keys if key.lower() not in given]
    if missing:
        raise ValueError(f"the key {missing[0]!r} is no column of the SQL: select it")
    terms = {key: given[key.lower()] for key in keys}
    grouped = {bare(select, term): term for term in group_terms(select)}
    by_key = {bare(select, term): key for key, term in terms.items()}
    extra = [term.sql(DIALECT) for text, term in grouped.items() if text not in by_key]
    lost = [key for text, key in by_key.items() if text not in grouped]
    if extra or lost:
        problem = (
            f"groups by {extra[0]}, which is no key"
            if extra
            else f"does not group by the key {lost[0]!r}"
        )
        raise ValueError(f"{problem}: GROUP BY and keys must be the same columns")
    return terms


def keys_over(select: exp.Select, terms: dict[str, exp.Expr], part: exp.Expr) -> KeyColumns:
    """For each term, by which column of one input of the SELECT each column that it mentions is
    given.

    Equal columns of a join stand for each other. The term itself is Spark's to read, from the text
    of the query.

    Raises:
        ValueError: for a term that this input does not determine.
    """
    alias = part.alias_or_name.lower()
    equal = _equal_columns(select)
    optional = _optional_aliases(select)
    found = {}
    for key, term in terms.items():
        found[key] = {}
        for column in term.find_all(exp.Column):
            home = home_of(select, column)
            if home[0] in optional:
                raise ValueError(
                    f"{key!r} comes from {home[0]!r}, which an outer join may leave empty: take "
                    f"the other side's"
                )
            own = (
                column.name
                if home[0] == alias
                else next((name for other, name in equal.get(home, ()) if other == alias), None)
            )
            if own is None:
                name = dotted(part) if isinstance(part, exp.Table) else alias
                raise ValueError(
                    f"a change of {name} does not determine {key!r}: read {name} as a snapshot, or "
                    f"join by the key"
                )
            found[key][".".join(part.name for part in column.parts).lower()] = own
    return found


def bare(select: exp.Select, term: exp.Expr) -> exp.Expr:
    """A term with every column written as alias.column, for comparing."""
    copy = exp.Paren(this=term.copy())
    for column in list(copy.find_all(exp.Column)):
        alias, name = home_of(select, column)
        column.replace(exp.column(name, table=alias))
    return copy


def home_of(select: exp.Select, column: exp.Column) -> ColumnOf:
    parts = from_parts(select)
    if column.table:
        return column.table.lower(), column.name.lower()
    if len(parts) == 1:
        return parts[0][0].alias_or_name.lower(), column.name.lower()
    for _, join in parts:
        if join is not None and any(
            name.name.lower() == column.name.lower() for name in join.args.get("using") or ()
        ):
            return parts[0][0].alias_or_name.lower(), column.name.lower()
    raise ValueError(
        f"the column {column.name!r} may be of either side of the join: write it as "
        f"alias.{column.name}"
    )


def _optional_aliases(select: exp.Select) -> frozenset[str]:
    """The inputs whose columns an outer join may leave null."""
    optional: set[str] = set()
    earlier: list[str] = []
    for part, join in from_parts(select):
        alias = part.alias_or_name.lower()
        if join is not None and join.side in ("LEFT", "FULL") and join.kind not in ("SEMI", "ANTI"):
            optional.add(alias)
        if join is not None and join.side in ("RIGHT", "FULL"):
            optional.update(earlier)
        earlier.append(alias)
    return frozenset(optional)


def _equal_columns(select: exp.Select) -> dict[ColumnOf, list[ColumnOf]]:
    """Which columns the joins set equal, all of a class for each of its members."""
    groups: list[set[ColumnOf]] = []
    first = from_parts(select)[0][0].alias_or_name.lower()
    for part, join in from_parts(select):
        if join is None:
            continue
        pairs = [
            ((first, name.name.lower()), (part.alias_or_name.lower(), name.name.lower()))
            for name in join.args.get("using") or ()
        ]
        condition = join.args.get("on")
        for term in condition.flatten() if isinstance(condition, exp.And) else [condition]:
            if (
                isinstance(term, exp.EQ)
                and isinstance(term.this, exp.Column)
                and isinstance(term.expression, exp.Column)
            ):
                pairs.append((home_of(select, term.this), home_of(select, term.expression)))
        for pair in pairs:
            touching = [group for group in groups if group & set(pair)]
            groups = [group for group in groups if group not in touching] + [
                set(pair).union(*touching)
            ]
    return {column: sorted(group) for group in groups for column in group}


Positions = dict[str, int]  # partition column → where it stands in the list of a SELECT


def check_partition_local(
    table: str, query: exp.Query, columns: tuple[str, ...], changing: Iterable[str]
) -> None:
    """Refuse SQL in which a changed partition of an input touches target partitions of other
    values.

    Queries nested in FROM, and common table expressions, must hold to the same.

    Raises:
        DeclarationError: naming the clause and what to do instead.
    """
    try:
        _check(query, columns, frozenset(changing))
    except ValueError as problem:
        remedy = f"use {alternatives(RefreshMode.PARTITIONS)}"
        raise DeclarationError(
            table, f"refresh={str(RefreshMode.PARTITIONS)!r}", f"{problem}; {remedy}"
        ) from None


def _check(
    query: exp.Expr,
    columns: tuple[str, ...],
    changed: frozenset[str],
    positions: Positions | None = None,
) -> None:
    """Check one query; in a set operation, whose branches are bound by position, `positions` are
    the positions of the columns.
    """
    if not reads_any(query, changed):
        return
    for clause in ("limit", "offset"):
        if query.args.get(clause):
            raise ValueError(f"cannot keep {clause.upper()} up to date")
    if isinstance(query, exp.Subquery):
        _check(query.this, columns, changed, positions)
    elif isinstance(query, exp.SetOperation):
        positions = positions or _positions(query, columns)
        _check(query.this, columns, changed, positions)
        _check(query.expression, columns, changed, positions)
    elif isinstance(query, exp.Select):
        _check_select(query, columns, changed, positions)
    else:
        raise ValueError(f"cannot look through {shortened(query)}")


def _positions(query: exp.SetOperation, columns: tuple[str, ...]) -> Positions:
    """Where the first branch, which names the columns of all, has the partition columns."""
    given = [projection.alias_or_name.lower() for projection in _written_out(query.left)]
    missing = [column for column in columns if column.lower() not in given]
    if missing:
        raise ValueError(
            f"the partition column {missing[0]!r} is no column of the SQL in "
            f"{shortened(query.left)}: select it"
        )
    return {column: given.index(column.lower()) for column in columns}


def _written_out(branch: exp.Query) -> list[exp.Expr]:
    """The columns of a branch of a set operation, none of them behind a star."""
    if branch.is_star:
        raise ValueError(
            f"cannot know which columns {shortened(branch)} brings to the UNION: name them"
        )
    return branch.selects


def _check_select(
    select: exp.Select,
    columns: tuple[str, ...],
    changed: frozenset[str],
    positions: Positions | None,
) -> None:
    terms = _terms(select, columns) if positions is None else _terms_at(select, positions)
    if any(
        isinstance(node, exp.TableSample | exp.Pivot | exp.Lateral) for node in own_nodes(select)
    ):
        raise ValueError("cannot look through TABLESAMPLE, PIVOT or LATERAL")
    problem = subquery_problem(select, changed)
    if problem:
        raise ValueError(
            f"cannot keep {problem} up to date: write it as a join by the partition columns"
        )
    for part, _ in from_parts(select):
        if not reads_any(part, changed):
            continue
        _check_nested(part, columns, changed)
        for column, given in keys_over(select, terms, part).items():
            term, own = terms[column], {name.lower() for name in given.values()}
            if not isinstance(term, exp.Column) or own != {column.lower()}:
                raise ValueError(
                    f"takes the partition column {column!r} from {shortened(term)}, and not from "
                    f"the inputs' column of the same name"
                )
    _check_scopes(select, terms)


def _check_nested(part: exp.Expr, columns: tuple[str, ...], changed: frozenset[str]) -> None:
    if isinstance(part, exp.Table) and is_table(part):
        cte = cte_of(part)
        if cte is not None:
            if isinstance(cte.parent, exp.With) and cte.parent.args.get("recursive"):
                raise ValueError("cannot keep a recursive WITH up to date")
            _check(cte.this, columns, changed)
    else:
        _check(part, columns, changed)


def _check_scopes(select: exp.Select, terms: dict[str, exp.Expr]) -> None:
    """Rows must be folded within partitions only: by GROUP BY and by windows alike."""
    by_text = {bare(select, term): column for column, term in terms.items()}
    if select.args.get("group"):
        grouped = {bare(select, term) for term in group_terms(select)}
        outside = [column for text, column in by_text.items() if text not in grouped]
        if outside:
            raise ValueError(
                f"cannot keep GROUP BY without the partition column {outside[0]!r} up to date"
            )
    for node in own_nodes(select):
        if isinstance(node, exp.Window):
            within = {bare(select, term) for term in node.args.get("partition_by") or ()}
            if any(text not in within for text in by_text):
                raise ValueError(
                    f"cannot keep the window {shortened(node)} over more than one partition up to "
                    f"date"
                )


def _terms_at(select: exp.Select, positions: Positions) -> dict[str, exp.Expr]:
    """What gives each partition column in a branch of a set operation."""
    given = _written_out(select)
    if len(given) <= max(positions.values()):
        raise ValueError(
            f"has fewer columns in {shortened(select)} than in the first query of the UNION"
        )
    return {column: given[position].unalias() for column, position in positions.items()}


def _terms(select: exp.Select, columns: tuple[str, ...]) -> dict[str, exp.Expr]:
    """What gives each partition column; behind a star it is the input's column of that name."""
    given = {
        projection.alias_or_name.lower(): projection.unalias() for projection in select.selects
    }
    starred = next((projection for projection in select.selects if projection.is_star), None)
    terms = {}
    for column in columns:
        if column.lower() in given:
            terms[column] = given[column.lower()]
        elif starred is not None:
            qualifier = starred.table if isinstance(starred, exp.Column) else None
            terms[column] = exp.column(column, table=qualifier or None)
        else:
            nested = "" if select.parent is None else f" in {select.sql(DIALECT)[:40]}…"
            raise ValueError(
                f"the partition column {column!r} is no column of the SQL{nested}: select it"
            )
    return terms
