"""Which SQL may be refreshed by partitions: a target partition must follow from the same partitions of changing inputs."""

from collections.abc import Iterable

from sqlglot import exp

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.groups import bare, keys_over
from lakechime_dagster.lake.increments import alternatives, cut, from_parts, group_terms, own_nodes, reads_any, subquery_problem
from lakechime_dagster.lake.sql import DIALECT, cte_of, is_table
from lakechime_dagster.lake.tables import RefreshMode

Places = dict[str, int]  # partition column → where it stands in the list of a SELECT


def check_partition_local(table: str, query: exp.Query, columns: tuple[str, ...], changing: Iterable[str]) -> None:
    """Refuse SQL in which a changed partition of an input touches target partitions of other values.

    Queries nested in FROM, and common table expressions, must hold to the same.

    Raises:
        DeclarationError: naming the clause and what to do instead.
    """
    try:
        _check(query, columns, frozenset(changing))
    except ValueError as problem:
        remedy = f"use {alternatives(RefreshMode.PARTITIONS)}"
        raise DeclarationError(table, f"refresh={str(RefreshMode.PARTITIONS)!r}", f"{problem}; {remedy}") from None


def _check(query: exp.Expr, columns: tuple[str, ...], changed: frozenset[str], places: Places | None = None) -> None:
    """Check one query; in a set operation, whose branches are bound by position, `places` says where the columns stand."""
    if not reads_any(query, changed):
        return
    for clause in ("limit", "offset"):
        if query.args.get(clause):
            raise ValueError(f"cannot keep {clause.upper()} up to date")
    if isinstance(query, exp.Subquery):
        _check(query.this, columns, changed, places)
    elif isinstance(query, exp.SetOperation):
        places = places or _places(query, columns)
        _check(query.this, columns, changed, places)
        _check(query.expression, columns, changed, places)
    elif isinstance(query, exp.Select):
        _check_select(query, columns, changed, places)
    else:
        raise ValueError(f"cannot look through {cut(query)}")


def _places(query: exp.SetOperation, columns: tuple[str, ...]) -> Places:
    """Where the first branch, which names the columns of all, has the partition columns."""
    given = [projection.alias_or_name.lower() for projection in _written_out(query.left)]
    missing = [column for column in columns if column.lower() not in given]
    if missing:
        raise ValueError(f"the partition column {missing[0]!r} is no column of the SQL in {cut(query.left)}: select it")
    return {column: given.index(column.lower()) for column in columns}


def _written_out(branch: exp.Query) -> list[exp.Expr]:
    """The columns of a branch of a set operation, none of them behind a star."""
    if branch.is_star:
        raise ValueError(f"cannot tell which columns {cut(branch)} brings to the UNION: name them")
    return branch.selects


def _check_select(select: exp.Select, columns: tuple[str, ...], changed: frozenset[str], places: Places | None) -> None:
    terms = _terms(select, columns) if places is None else _terms_at(select, places)
    if any(isinstance(node, exp.TableSample | exp.Pivot | exp.Lateral) for node in own_nodes(select)):
        raise ValueError("cannot look through TABLESAMPLE, PIVOT or LATERAL")
    problem = subquery_problem(select, changed)
    if problem:
        raise ValueError(f"cannot keep {problem} up to date: write it as a join by the partition columns")
    for part, _ in from_parts(select):
        if not reads_any(part, changed):
            continue
        _check_nested(part, columns, changed)
        for column, given in keys_over(select, terms, part).items():
            term, own = terms[column], {name.lower() for name in given.values()}
            if not isinstance(term, exp.Column) or own != {column.lower()}:
                raise ValueError(
                    f"takes the partition column {column!r} from {cut(term)}, and not from the inputs' column of the same name"
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
            raise ValueError(f"cannot keep GROUP BY without the partition column {outside[0]!r} up to date")
    for node in own_nodes(select):
        if isinstance(node, exp.Window):
            within = {bare(select, term) for term in node.args.get("partition_by") or ()}
            if any(text not in within for text in by_text):
                raise ValueError(f"cannot keep the window {cut(node)} over more than one partition up to date")


def _terms_at(select: exp.Select, places: Places) -> dict[str, exp.Expr]:
    """What gives each partition column in a branch of a set operation."""
    given = _written_out(select)
    if len(given) <= max(places.values()):
        raise ValueError(f"has fewer columns in {cut(select)} than in the first query of the UNION")
    return {column: given[place].unalias() for column, place in places.items()}


def _terms(select: exp.Select, columns: tuple[str, ...]) -> dict[str, exp.Expr]:
    """What gives each partition column; behind a star it is the input's column of that name."""
    given = {projection.alias_or_name.lower(): projection.unalias() for projection in select.selects}
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
            raise ValueError(f"the partition column {column!r} is no column of the SQL{nested}: select it")
    return terms
