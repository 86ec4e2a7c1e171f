"""What is known of a data set beside its edges: who owns it, who writes it, when a run told of it last."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """`last_ms` is when a run told last that it wrote the data set, None where none ever did; `jobs` are namespace/job of who do.

    `is_declared` says that the lake of this code location declares it, `is_source` that it is written elsewhere.
    """

    owners: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict, hash=False)
    since_ms: int | None = None
    last_ms: int | None = None
    is_declared: bool = False
    is_source: bool = False

    def is_stale(self, now_ms: int, days: int) -> bool:
        """Whether no run told of it for so many days, though one did."""
        return self.last_ms is not None and now_ms - self.last_ms > days * DAY_MS

    def joined(self, other: "TableFacts") -> "TableFacts":
        """Of two who tell of the same data set."""
        return TableFacts(
            owners=tuple(dict.fromkeys(self.owners + other.owners)), jobs=tuple(dict.fromkeys(self.jobs + other.jobs)),
            links={**other.links, **self.links},
            since_ms=min(_given(self.since_ms, other.since_ms), default=None),
            last_ms=max(_given(self.last_ms, other.last_ms), default=None), is_declared=self.is_declared or other.is_declared,
            is_source=self.is_source or other.is_source,
        )  # fmt: skip


def _given(*moments: int | None) -> list[int]:
    return [moment for moment in moments if moment is not None]


def by_owner(facts: Mapping[str, TableFacts], tables: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The data sets of each owner, those of nobody under an empty name; in the order given, owners by name."""
    found: dict[str, list[str]] = {}
    for table in tables:
        for owner in facts[table].owners or ("",):
            found.setdefault(owner, []).append(table)
    return {owner: tuple(found[owner]) for owner in sorted(found)}
