"""Which partitions of tables are hit, table after table from inputs to readers: by what the fire keys of each declare that they read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakechime_dagster.dce.partition import PartitionLevels, canonical_partition
from lakechime_dagster.lineage.backfill.window import Window
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.model import FireKey


@dataclass
class HitPartitions:
    """Partitions that are hit, as far as one has come.

    `known` are canonical partitions by table: of what changed those that were given, of a table that was looked at those that its keys
    make. Of other tables the window says whether a partition is hit, by its day or time; of `unknown` ones nobody can tell, as their
    keys stand for no partitions, such as one of a week of days.
    """

    window: Window
    levels: Mapping[str, PartitionLevels]
    known: dict[str, frozenset[str]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def keys(self, table: str, flow: Flow, inputs: Sequence[str], keys: Sequence[FireKey]) -> list[FireKey]:
        """Those of a table's keys that are hit through these inputs; without inputs those whose own partition is within the window."""
        within = [key for key in keys if self._is_hit(flow, key, inputs)]
        made = [made_by(flow, key) for key in within]
        if None in made:
            self.unknown.add(table)
        else:
            self.known[table] = frozenset(one for one in made if one is not None)
        return within

    def is_untouched(self, table: str, inputs: Sequence[str]) -> bool:
        """Whether nothing of any of the inputs is hit, so that nothing of the table is either."""
        if not inputs or any(self.known.get(one) != frozenset() for one in inputs):
            return False
        self.known[table] = frozenset()
        return True

    def _is_hit(self, flow: Flow, key: FireKey, inputs: Sequence[str]) -> bool:
        """A key is hit by its partitions of what is hit, else by any of its; one that names no day or time is."""
        own = made_by(flow, key) if not inputs else None
        if own is not None:
            return self.window.holds(own, flow.target_levels) is not False
        atoms = [atom for atom in key.atoms if atom.table in inputs] or list(key.atoms)
        told = [self._holds(atom.table, atom.canonical) for atom in atoms]
        return any(told) or all(one is None for one in told)

    def _holds(self, table: str, canonical: str) -> bool | None:
        if table in self.known:
            return canonical in self.known[table]
        if table in self.unknown and self.window.is_bounded:
            return None
        return self.window.holds(canonical, self.levels.get(table, PartitionLevels()))


def made_by(flow: Flow, key: FireKey) -> str | None:
    """The canonical partition that a key makes, None where it stands for none."""
    partition = flow.partition_of(key)
    return None if partition is None else canonical_partition(partition, flow.target_levels)  # pyright: ignore[reportArgumentType]


def untouched(inputs: Sequence[str]) -> str:
    """Why a table is not hit of whose inputs nothing is, in words."""
    return f"no partition of {', '.join(inputs)} is hit"
