"""Programs that read a table beside Spark, and what of Delta they understand."""

from collections.abc import Iterable

from lakechime_dagster.errors import DeclarationError, shown

READS_DELETION_VECTORS = {  # measured with the versions of the lock file
    "datafusion": True,
    "duckdb": True,
    "pandas": False,
    "polars": False,
    "pyarrow": False,
    "spark": True,
    "trino": True,
}


def checked_readers(table: str, readers: object) -> tuple[str, ...]:
    """The names of known readers."""
    if isinstance(readers, str) or not isinstance(readers, Iterable):
        raise DeclarationError(table, "readers", f"{shown(readers)} is not a list of readers; write [{shown(readers)}]")
    several = tuple(readers)
    for one in several:
        if one not in READS_DELETION_VECTORS:
            known = ", ".join(READS_DELETION_VECTORS)
            raise DeclarationError(table, "readers", f"{shown(one)} is none of {known}; leave it out if it reads through one of these")
    return several


def all_read_deletion_vectors(readers: Iterable[str]) -> bool:
    """Whether rows may be marked as deleted in files that stay, which makes small changes of large tables many times cheaper."""
    return all(READS_DELETION_VECTORS[one] for one in readers)
