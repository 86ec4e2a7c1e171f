"""Partition conditions: which partitions of which table must exist at a tick."""

import datetime as dt
import itertools
import math
from collections import ChainMap
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import NO_CONDITIONS, Position, TagConditions, WantedTags
from lakechime_dagster.dce.partitions import (
    LevelType,
    PartitionLevels,
    canonical_json,
    canonical_partition,
    checked_partition,
    checked_text,
    typed_value,
)
from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.triggers.schedule import HoursOf, Tick

MAX_PARTITIONS = 10_000  # of one condition at one tick
LevelSpec = Any  # a literal, a tick, hours_of a tick, or several of the first two


class TagsFrom(StrEnum):
    """The tags of a partition that conditions are compared with."""

    EVENT = "event"  # all conditions must hold of one of its events
    UNION = "union"  # those of all its events, of a key the newest value
    LATEST = "latest"  # those of its latest event

    def merged(self, versions: Iterable[tuple[Position, Mapping[str, str]]]) -> dict[str, str]:
        """The tags of a partition from its events in commit order, each with the position where it
        was registered first: an amendment is a later version of that event, and brings the tags
        that differ.
        """
        known: dict[Position, Mapping[str, str]] = {}
        tags: dict[str, str] = {}
        for event, given in versions:
            before = known.get(event, {})
            tags |= {key: value for key, value in given.items() if before.get(key) != value}
            known[event] = given
        if self is TagsFrom.LATEST:
            return dict(known[max(known)])
        return tags


@dataclass(frozen=True)
class TableName:
    """A bare table name where a declared table could stand.

    Attributes:
        name: The table's name.
        cluster: Its data platform, where there are several.
        tags: What a snapshot trigger demands of its events, in addition to the tags of the trigger,
            whose conditions of the same keys they replace.
        is_optional: Of a snapshot trigger with `changed="all"`: whether `max_wait` ends the wait for
            this table; without the others it never fires then.
    """

    name: str
    cluster: str = ""
    tags: WantedTags = field(default_factory=TagConditions)
    is_optional: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", TagConditions(self.tags))

    def __str__(self) -> str:
        return f"{self.cluster}:{self.name}" if self.cluster else self.name


@dataclass(frozen=True)
class Atom:
    """One partition of one table, by its canonical text, with what is demanded of its tags."""

    table: str
    canonical: str
    cluster: str = ""
    tags: TagConditions = NO_CONDITIONS

    def __str__(self) -> str:
        return f"{self.table}{self.canonical.replace(',', ', ')}"


@dataclass(frozen=True)
class PartitionCondition:
    """The partitions of a table that must be there: per level a literal, a tick, or several of them
    (all must be), each with an event that meets the conditions on tags.
    """

    table: str
    specs: tuple[tuple[str, LevelSpec], ...]
    levels: PartitionLevels = PartitionLevels()
    cluster: str = ""
    tags: TagConditions = NO_CONDITIONS

    @classmethod
    def of(
        cls,
        table: str,
        specs: Mapping[str, LevelSpec],
        levels: PartitionLevels | None = None,
        cluster: str = "",
    ) -> "PartitionCondition":
        """A condition as a user writes it; levels may come in any order when the table declares
        them.

        Raises:
            DeclarationError: for a level that the table does not have, or one that is not given.
            InvalidValueError: for a literal that no event's partition can have.
        """
        checked_text("table", table)
        declared = levels or PartitionLevels()
        if declared:
            unknown = [name for name in specs if name not in declared.names]
            missing = [name for name in declared.names if name not in specs]
            if unknown or missing:
                problem = (
                    f"has no level {unknown[0]!r}"
                    if unknown
                    else f"needs a value for level {missing[0]!r}"
                )
                raise DeclarationError(
                    table, "partitions", f"{problem}; its levels are {', '.join(declared.names)}"
                )
            specs = {name: specs[name] for name in declared.names}
        if not specs:
            raise DeclarationError(
                table, "partitions", "names no level; give a value per partition level"
            )
        for name, spec in specs.items():
            checked_text("partition level name", name, limit=128)
            if _is_utc(spec) and not declared:
                remedy = "needs the types of the levels for hours of UTC; declare partitioned_by="
                raise DeclarationError(table, "partitions", remedy)
        return cls(
            table,
            tuple((name, _frozen(f"{table}.{name}", spec)) for name, spec in specs.items()),
            declared,
            cluster,
        )

    def in_cluster(self, cluster: str) -> "PartitionCondition":
        """This condition on the table of a cluster, where it names none itself."""
        return self if self.cluster else replace(self, cluster=cluster)

    def with_tags(self, tags: WantedTags) -> "PartitionCondition":
        """This condition where the events of this table must meet these conditions on tags too, such
        as `{"rows": {">=": 100}}`; of a key that the trigger demands too, these alone.
        """
        return replace(self, tags=self.tags.merged(tags))

    def atoms(self, moment: dt.datetime, zone: str) -> tuple[Atom, ...]:
        """The partitions at a tick, in order, each once."""
        return _atoms(self, moment, zone)

    def constants(self, moment: dt.datetime, zone: str) -> dict[str, Any]:
        """The values of the levels that have a single one at this tick, typed; of a date level with
        the hours of UTC in which a local day lies, that day.
        """
        singles = {}
        kinds = self.levels.as_dict()
        for (name, values), (_, spec) in zip(self._values(moment, zone), self.specs, strict=True):
            if _is_utc(spec) and kinds[name] == LevelType.DATE:
                singles[name] = spec.date(moment, zone).isoformat()
            elif len(values) == 1:
                singles[name] = values[0]
        return singles

    @property
    def has_changing_sets(self) -> bool:
        """Whether some level has several values that depend on the tick."""
        return any(
            isinstance(spec, HoursOf) or (isinstance(spec, tuple) and any(map(_depends, spec)))
            for _, spec in self.specs
        )

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={_shown(spec)}" for name, spec in self.specs)
        return f"{self.table}({shown})" + (f" with {self.tags}" if self.tags else "")

    def _values(self, moment: dt.datetime, zone: str) -> list[tuple[str, list[Any]]]:
        kinds = dict(zip(self.levels.names, self.levels.types, strict=True))
        resolved = []
        for name, spec in self.specs:
            several = spec if isinstance(spec, tuple) else (spec,)
            values: dict[Any, Any] = {}
            for item in several:
                for value in (
                    item.resolve(moment, zone)
                    if isinstance(item, HoursOf)
                    else (_at(item, moment, zone),)
                ):
                    typed = _typed(f"{self.table}.{name}", value, kinds.get(name))
                    # of hours of UTC each stays, since several levels vary together
                    values[value if _is_utc(item) else canonical_json(typed)] = typed
            resolved.append((name, list(values.values())))
        return resolved


@lru_cache(maxsize=100_000)
def _atoms(condition: PartitionCondition, moment: dt.datetime, zone: str) -> tuple[Atom, ...]:
    together: dict[Any, list[dict[str, Any]]] = {}  # by what varies the values of its levels
    for (name, values), (_, spec) in zip(
        condition._values(moment, zone), condition.specs, strict=True
    ):
        which = spec if _is_utc(spec) else name
        known = together.get(which) or [{} for _ in values]
        together[which] = [row | {name: one} for row, one in zip(known, values, strict=True)]
    count = math.prod(map(len, together.values()))
    if count > MAX_PARTITIONS:
        raise DeclarationError(
            condition.table,
            "partitions",
            f"asks for {count} partitions at once; ask for at most {MAX_PARTITIONS}",
        )
    levels, names = condition.levels or None, [name for name, _ in condition.specs]
    texts = dict.fromkeys(
        canonical_partition(tuple(row[name] for name in names), levels)
        for row in (dict(ChainMap(*several)) for several in itertools.product(*together.values()))
    )
    return tuple(Atom(condition.table, text, condition.cluster, condition.tags) for text in texts)


def _frozen(field: str, spec: LevelSpec) -> LevelSpec:
    """A single value or tick, or several of them as a tuple; those of a set in an order that each
    process finds alike.
    """
    if isinstance(spec, str | bytes | Mapping) or not isinstance(spec, Iterable):
        return _checked(field, spec)
    frozen = tuple(_checked(field, item) for item in spec)
    if not frozen:
        raise DeclarationError(
            "partitions",
            "level",
            "is an empty list, which nothing can meet; give at least one value",
        )
    return tuple(sorted(frozen, key=repr)) if isinstance(spec, Set) else frozen


def _checked(field: str, item: LevelSpec) -> LevelSpec:
    """The tick, or the literal as an event's partition has it; a date or time is read by its
    level's type.
    """
    if _depends(item):
        return item
    try:
        levels = checked_partition((item,))
    except InvalidValueError as error:
        raise InvalidValueError(field, item, error.remedy) from None
    return item if levels is None or isinstance(item, dt.date) else levels[0]


def _at(item: LevelSpec, moment: dt.datetime, zone: str) -> object:
    return item.resolve(moment, zone) if isinstance(item, Tick) else item


def _is_utc(spec: LevelSpec) -> bool:
    return isinstance(spec, HoursOf) and spec.utc


def _depends(spec: LevelSpec) -> bool:
    return isinstance(spec, Tick | HoursOf)


def _typed(field: str, value: object, kind: LevelType | None) -> object:
    if isinstance(value, dt.datetime) and kind is LevelType.INT:
        return value.hour
    if isinstance(value, dt.datetime) and kind not in (LevelType.DATE, LevelType.TIMESTAMP):
        value = value.date().isoformat()
    if isinstance(value, dt.date) and kind is None:
        value = value.isoformat()
    return typed_value(field, value, kind) if kind else value


def _shown(spec: LevelSpec) -> str:
    if not isinstance(spec, tuple):
        hours = f"the {'UTC ' if _is_utc(spec) else ''}hours of the day"
        return hours if isinstance(spec, HoursOf) else str(spec)
    if (
        len(spec) > 3
        and all(isinstance(value, int) for value in spec)
        and spec == tuple(range(spec[0], spec[-1] + 1))
    ):
        return f"{spec[0]}…{spec[-1]}"
    return "|".join(map(str, spec))
