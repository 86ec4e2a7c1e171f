"""Which SQL may be kept up to date by which refresh mode; what may not is refused, naming the clause.

`rows` needs SQL that treats each changed row by itself; `affected_keys` groups that can be found from the changed
rows; `partitions` partitions that depend on the same partitions of their inputs. `full` takes any query.
"""

import re
from collections.abc import Iterable

from sqlglot import exp

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.sql import DIALECT, cte_of, dotted, is_table, leaves, output_columns
from lakechime_dagster.lake.tables import RefreshMode

AGGREGATES = frozenset({"mean", "std", "try_sum", "try_avg", "some", "every", "histogram_numeric", "count_min_sketch", "product"})
AGGREGATE_SKETCH = re.compile(r"\w+_agg(_\w+)?")  # bitmap_or_agg, kll_sketch_agg_bigint
UNSTABLE = frozenset({"rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle", "reflect", "try_reflect", "java_method",
                      "now", "current_timestamp", "localtimestamp", "current_date", "curdate", "getdate", "current_time",
                      "current_user", "session_user", "user", "monotonically_increasing_id", "spark_partition_id",
                      "input_file_name", "input_file_block_start", "input_file_block_length"})  # fmt: skip
WITHOUT_PARENTHESES = frozenset({"current_time", "localtimestamp"})  # functions that sqlglot takes for columns if they are called so
WITHOUT_ROWS = frozenset({"SEMI", "ANTI"})  # joins that give no columns of their right side


def check_increment(table: str, query: exp.Query, mode: RefreshMode, changing: Iterable[str], keys: tuple[str, ...]) -> None:
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
        raise DeclarationError(table, f"refresh={str(mode)!r}", f"cannot keep {problem} up to date; use {alternatives(mode)}")
    columns = output_columns(query)
    missing = [key for key in keys if columns is not None and key.lower() not in {column.lower() for column in columns}]
    if missing:
        raise DeclarationError(table, "keys", f"{missing[0]!r} is no column of the SQL; it gives {', '.join(columns or ())}")


def _unstable(query: exp.Query) -> str | None:
    for node in query.walk():
        if not UNSTABLE.isdisjoint(function_names(node)) or _is_bare_call(node):
            return f"{cut(node)}, which is another value on each run,"
    return None


def _is_bare_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and not node.table and not node.this.quoted and node.name.lower() in WITHOUT_PARENTHESES


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
            return f"the window {cut(node)}"
        if is_aggregate(node):
            return f"the aggregate {cut(node)}"
        if isinstance(node, exp.TableSample | exp.Pivot):
            return "TABLESAMPLE" if isinstance(node, exp.TableSample) else "PIVOT"
    return _join_problem(select, changing) or subquery_problem(select, changing)


def _join_problem(select: exp.Select, changing: frozenset[str]) -> str | None:
    parts = from_parts(select)
    several = [dotted(leaf) for part, _ in parts for leaf in leaves(part) if dotted(leaf) in changing]
    unions = any(isinstance(part, exp.Subquery) and isinstance(part.this, exp.Union) for part, _ in parts)
    sides = [part for part, _ in parts if reads_any(part, changing)]
    if len(sides) > 1 or (len(several) > 1 and not unions and len(parts) > 1):
        return f"the JOIN of two changing inputs, {' and '.join(dict.fromkeys(several))},"
    for index, (part, join) in enumerate(parts):
        if join is None:
            continue
        side = f"{join.side} {join.kind}".strip()
        left = any(reads_any(earlier, changing) for earlier, _ in parts[:index])
        right = reads_any(part, changing)
        if (right and (join.side in ("LEFT", "FULL") or join.kind in WITHOUT_ROWS)) or (left and join.side in ("RIGHT", "FULL")):
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
    """The nodes of a SELECT without those of the queries nested in it (which themselves are given)."""
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
    """Whether a node folds rows: an aggregate function that sqlglot knows, or one of Spark's that it does not."""
    if isinstance(node.parent, exp.Window):
        return False
    if isinstance(node, exp.Any):
        return not isinstance(node.parent, exp.Like | exp.ILike)
    return isinstance(node, exp.AggFunc) or any(name in AGGREGATES or AGGREGATE_SKETCH.fullmatch(name) for name in function_names(node))


def function_names(node: exp.Expr) -> tuple[str, ...]:
    """The names by which SQL calls the function of a node, in lower case; none for what is no call."""
    if isinstance(node, exp.Anonymous):
        return (node.name.lower(),)
    return tuple(name.lower() for name in node.sql_names()) if isinstance(node, exp.Func) else ()


def reads_any(node: exp.Expr, tables: frozenset[str]) -> bool:
    """Whether any of these tables is read below a node."""
    return any(dotted(leaf) in tables for leaf in leaves(node))


def group_terms(select: exp.Select) -> list[exp.Expr]:
    """The terms of GROUP BY: ordinals and aliases of the select list replaced by what they mean; ALL spelled out."""
    group = select.args["group"]
    projections = select.selects
    if group.args.get("all"):
        return [projection.unalias() for projection in projections if not any(is_aggregate(node) for node in projection.walk())]
    named = {projection.alias.lower(): projection.unalias() for projection in projections if isinstance(projection, exp.Alias)}
    terms = []
    for term in group.expressions:
        meant = named.get(term.name.lower()) if isinstance(term, exp.Column) and not term.table else None
        if isinstance(term, exp.Literal) and term.is_int and 1 <= int(term.name) <= len(projections):
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
    others = [str(other) for other in (RefreshMode.AFFECTED_KEYS, RefreshMode.PARTITIONS, RefreshMode.FULL) if other is not mode]
    return " or ".join((", ".join(others[:-1]), others[-1])) if len(others) > 1 else others[0]


def cut(node: exp.Expr) -> str:
    """The text of a clause, as an error message shows it."""
    text = node.sql(DIALECT)
    return text if len(text) <= 60 else f"{text[:59]}…"
