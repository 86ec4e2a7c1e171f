"""When two names of columns are of the same thing, or one leads into the other."""

from lakechime_dagster.lake.names import folded
from lakechime_dagster.lineage.columns import ColumnRef


def lower(ref: ColumnRef) -> str:
    """The name of a column without its letters' case, as Spark takes names for one that differ in it alone."""
    return folded(ref.column or "")


def is_within(part: str, whole: str) -> bool:
    """Whether a name leads into a column, or into a field that is told like one: `payload:$.to` into `payload`, `$.a.b` into `$.a`."""
    return part.startswith((f"{whole}:", f"{whole}.", f"{whole}["))


def are_of_one(one: str, other: str) -> bool:
    """Whether two names are of the same column, or one leads into the other."""
    return one == other or is_within(one, other) or is_within(other, one)
