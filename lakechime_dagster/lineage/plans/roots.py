"""Which data sets a leaf reads: one that its place tells, or all those that its folders and files are of."""

from dataclasses import dataclass

from lakechime_dagster.lineage.names import Names, normalised, outside
from lakechime_dagster.lineage.plans.places import Place

MANY = "files in many folders, among which are tables of the lake"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSets:
    """The data sets that one leaf reads, of which `outside` have no name in the lake; `unknown` says why these may not be all."""

    names: tuple[str, ...] = ()
    outside: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()


def read_at(place: Place, names: Names) -> DataSets:
    """What is read there. A folder or a file in a table's folder is of that table, as a partition is."""
    whole = place.named(names)
    if whole is None and not place.roots:
        return DataSets()
    if whole is not None and (whole[1] or not place.roots):
        return DataSets(names=whole[:1], outside=frozenset(() if whole[1] else whole[:1]))
    hidden = {root for root in place.roots if place.is_grouped and names.has_below(root)}
    known = {root: names.holding(root) for root in place.roots}
    told = {root: known[root] or outside(_folder(root, place.base)) for root in place.roots if known[root] or root not in hidden}
    return DataSets(
        names=tuple(dict.fromkeys(told.values())),
        outside=frozenset(name for root, name in told.items() if known[root] is None),
        unknown=frozenset((MANY,) if hidden else ()),
    )


def _folder(root: str, base: str | None) -> str:
    """The data set that a folder or a file outside of the lake is of: what lies above partitions and files that Spark named."""
    path = normalised(root)
    if base is not None and path.startswith(f"{normalised(base)}/"):
        return base
    above, _, last = path.rpartition("/")
    if last.startswith((*_OWN, ".")) and "=" not in last:
        above, _, last = (path := above).rpartition("/")
    while "=" in last:
        above, _, last = (path := above).rpartition("/")
    return path


_OWN = ("part-", "_")
