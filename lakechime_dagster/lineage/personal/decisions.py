"""What people decided of columns: that they hold personal data of a category, or none. It holds until somebody decides otherwise."""

from dataclasses import dataclass

from lakechime_dagster.lineage.columns import ColumnRef


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A decision about a column; without a category it holds nothing personal, however it looks and whatever leads to it."""

    ref: ColumnRef
    category: str | None
    who: str
    reason: str
    decided_ms: int
