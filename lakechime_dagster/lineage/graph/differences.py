"""What was told of a data set at one time and not at another."""

from collections.abc import Iterable
from dataclasses import dataclass

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.parts import edges_of, kind_of, parts_of
from lakechime_dagster.lineage.graph.paths import READS
from lakechime_dagster.lineage.record import Statement


@dataclass(frozen=True, order=True)
class Told:
    """A source of a column, or of a data set as a whole; or a reason why one is not known, which has no source."""

    target: ColumnRef
    source: ColumnRef | None
    kind: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What came and what went of one target."""

    target: str
    came: tuple[Told, ...]
    went: tuple[Told, ...]


def differences(before: Iterable[Statement], after: Iterable[Statement]) -> tuple[Difference, ...]:
    """What is told otherwise, by target; equal ones are left out."""
    earlier, later = _told(before), _told(after)
    found = [
        Difference(target=target, came=_sorted(later.get(target, set()) - earlier.get(target, set())),
                   went=_sorted(earlier.get(target, set()) - later.get(target, set())))
        for target in sorted({*earlier, *later})
    ]  # fmt: skip
    return tuple(one for one in found if one.came or one.went)


def _told(statements: Iterable[Statement]) -> dict[str, set[Told]]:
    found: dict[str, set[Told]] = {}
    for one in statements:
        told = found.setdefault(one.target, set())
        told |= {Told(target, source, kind_of(code).value) for source, target, code in edges_of(one)}
        told |= {Told(ColumnRef(one.target), ColumnRef(name), READS) for name in parts_of(one)}
        told |= {Told(ColumnRef(one.target, column.column), None, reason) for column in one.columns for reason in column.not_known}
        told |= {Told(ColumnRef(one.target), None, reason) for reason in one.not_known}
    return found


def _sorted(told: set[Told]) -> tuple[Told, ...]:
    return tuple(sorted(told, key=lambda one: (one.target, one.source is None, one.source or one.target, one.kind)))
