"""From a changed row to the groups that it touches: the keys of a GROUP BY over the columns of each changing input."""

from collections.abc import Iterable, Iterator

from sqlglot import exp

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.increments import cut, from_parts, group_terms, is_plain_source, own_nodes, reads_any, subquery_problem
from lakechime_dagster.lake.sql import DIALECT, dotted
from lakechime_dagster.lake.tables import RefreshMode

ColumnOf = tuple[str, str]  # the alias of an input, and its column, in lower case
KeyColumns = dict[str, dict[str, str]]  # key → column as the query writes it, in lower case → column of one input that gives it


def group_key_columns(table: str, query: exp.Query, keys: tuple[str, ...], changing: Iterable[str]) -> dict[str, KeyColumns]:
    """Per changing input and key, which columns of that input alone give the key (`keys_over`).

    Raises:
        DeclarationError: when a changed row does not tell which groups it touches.
    """
    changed = frozenset(changing)
    try:
        select = _checked_select(query, changed)
        terms = _key_terms(select, keys)
        return {dotted(part): keys_over(select, terms, part) for part in _changing_parts(select, changed)}
    except ValueError as problem:
        field = f"refresh={str(RefreshMode.AFFECTED_KEYS)!r}"
        raise DeclarationError(table, field, f"{problem}; or use partitions or full") from None


def _checked_select(query: exp.Query, changed: frozenset[str]) -> exp.Select:
    if not isinstance(query, exp.Select):
        raise ValueError(f"needs one SELECT … GROUP BY, and this is a {query.key.upper()}: write it as one")
    if not query.args.get("group"):
        raise ValueError("needs GROUP BY the keys: add it")
    for name, shown in (("limit", "LIMIT"), ("offset", "OFFSET"), ("qualify", "QUALIFY")):
        if query.args.get(name):
            raise ValueError(f"cannot keep {shown} up to date: remove it")
    if any(isinstance(node, exp.Window) for node in own_nodes(query)):
        raise ValueError("cannot keep a window over groups up to date: compute it in a table of its own")
    if any(isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets) for node in query.args["group"].walk()):
        raise ValueError("cannot keep ROLLUP, CUBE or GROUPING SETS up to date: group by plain terms")
    unclear = next((node for node in own_nodes(query) if isinstance(node, exp.TableSample | exp.Pivot | exp.Lateral)), None)
    if unclear is not None:
        raise ValueError(f"cannot find the groups touched through {cut(unclear).strip()}: compute it in a table of its own")
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
            raise ValueError(f"cannot look through the query {part.alias_or_name!r} to a changing input: name the table in FROM itself")
        if dotted(part) in seen:
            raise ValueError(f"cannot keep a join of {dotted(part)} with itself up to date: read one side as a snapshot of another table")
        seen.add(dotted(part))
        yield part


def _key_terms(select: exp.Select, keys: tuple[str, ...]) -> dict[str, exp.Expr]:
    """The expression of each key in the select list; they must be exactly the terms of GROUP BY."""
    given = {projection.alias_or_name.lower(): projection.unalias() for projection in select.selects}
    missing = [key for key in keys if key.lower() not in given]
    if missing:
        raise ValueError(f"the key {missing[0]!r} is no column of the SQL: select it")
    terms = {key: given[key.lower()] for key in keys}
    grouped = {bare(select, term): term for term in group_terms(select)}
    by_key = {bare(select, term): key for key, term in terms.items()}
    extra = [term.sql(DIALECT) for text, term in grouped.items() if text not in by_key]
    lost = [key for text, key in by_key.items() if text not in grouped]
    if extra or lost:
        problem = f"groups by {extra[0]}, which is no key" if extra else f"does not group by the key {lost[0]!r}"
        raise ValueError(f"{problem}: GROUP BY and keys must be the same columns")
    return terms


def keys_over(select: exp.Select, terms: dict[str, exp.Expr], part: exp.Expr) -> KeyColumns:
    """For each term, by which column of one input of the SELECT each column that it mentions is given.

    Equal columns of a join stand for each other. The term itself is Spark's to read, from the text of the query.

    Raises:
        ValueError: for a term that this input does not tell.
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
                raise ValueError(f"{key!r} comes from {home[0]!r}, which an outer join may leave empty: take the other side's")
            own = column.name if home[0] == alias else next((name for other, name in equal.get(home, ()) if other == alias), None)
            if own is None:
                name = dotted(part) if isinstance(part, exp.Table) else alias
                raise ValueError(f"a change of {name} does not tell {key!r}: read {name} as a snapshot, or join by the key")
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
        if join is not None and any(name.name.lower() == column.name.lower() for name in join.args.get("using") or ()):
            return parts[0][0].alias_or_name.lower(), column.name.lower()
    raise ValueError(f"the column {column.name!r} may be of either side of the join: write it as alias.{column.name}")


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
        pairs = [((first, name.name.lower()), (part.alias_or_name.lower(), name.name.lower())) for name in join.args.get("using") or ()]
        condition = join.args.get("on")
        for term in condition.flatten() if isinstance(condition, exp.And) else [condition]:
            if isinstance(term, exp.EQ) and isinstance(term.this, exp.Column) and isinstance(term.expression, exp.Column):
                pairs.append((home_of(select, term.this), home_of(select, term.expression)))
        for pair in pairs:
            touching = [group for group in groups if group & set(pair)]
            groups = [group for group in groups if group not in touching] + [set(pair).union(*touching)]
    return {column: sorted(group) for group in groups for column in group}
