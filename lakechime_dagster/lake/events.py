"""Streams of JSON events, and groups of their types, each of which gets a table of its own without being declared."""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakechime_dagster.errors import DeclarationError, are_failures_kept, shown
from lakechime_dagster.lake.contracts import COLUMNS, Contract, Hint, Mode, with_hint
from lakechime_dagster.lake.event_names import table_of
from lakechime_dagster.lake.feed_tables import FeedTable
from lakechime_dagster.lake.maintenance import Maintenance
from lakechime_dagster.lake.personal import PersonalColumns
from lakechime_dagster.lake.reads import Passthrough
from lakechime_dagster.lake.tables import SourceTable
from lakechime_dagster.lake.type_patterns import ANY, is_matched, specificity
from lakechime_dagster.triggers.grid import Schedule
from lakechime_dagster.triggers.model import SnapshotTrigger

EVENTS = "events"  # the table of a stream's events, `<stream>.events`
SCHEMAS, VARIATIONS = "schemas", "variations"  # the tables beside it that show what is known of its types
CLUSTERED = ("type", "hash")  # by which its rows lie together
REFUSED_BEFORE = "refused_before"  # of a row that was drained: why it was refused; null of others
MAX_TYPES = 1_000  # tables of a group
MAX_COLD_AGE = dt.timedelta(minutes=10)
MAX_CATCHUP = 100  # versions of the stream's table
MATERIALIZE_EVERY = dt.timedelta(minutes=5)
MAX_COLUMNS_PER_PRODUCER = 400  # of a type; of its 500 others have some left


@dataclass(frozen=True, kw_only=True)
class EventTable(FeedTable):
    """The events of a stream as they came: what its source holds, appended, with what is known of each payload.

    Attributes:
        type_field: The names that lead to an event's type.
        producer_field: Those that lead to who sent it; none where nobody is told.
    """

    type_field: tuple[str, ...]
    producer_field: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EventStream:
    """A stream of events: its name, and the table that holds them as they came."""

    name: str
    table: EventTable

    @property
    def schemas(self) -> SourceTable:
        """The table of the layouts of all its types, a row each, to be read by others."""
        about = f"Layouts of the types of {self.name}: when each was made, by whom, and what it gained"
        return SourceTable(f"{self.name}.{SCHEMAS}", owner=self.table.owner, group=self.name, description=about)

    @property
    def variations(self) -> SourceTable:
        """The table of the variations that are kept of its types, a row each, to be read by others."""
        about = f"Variations of the types of {self.name}, each by the shape of its first event"
        return SourceTable(f"{self.name}.{VARIATIONS}", owner=self.table.owner, group=self.name, description=about)


@dataclass(frozen=True, kw_only=True)
class EventGroup:
    """Types of a stream that are brought into tables together: `<home>.<type>` each, made when its first event comes.

    The home of a type is its group, or the one that had it first, where it moved.

    Attributes:
        match: A pattern of the types' names, in which `*` stands for any text.
        contract: What its events may change.
        contracts: The same of single types, in place of it.
        moved: Types that another group had before, by pattern, with the name of the first that did: their tables stay in its folder.
        personal: Patterns of paths at which values are personal.
        allowed: Types that people let have a table, however many there are.
        max_types: With so many tables, events of further types stay in the stream's own.
        max_columns_per_producer: Who has brought so many columns of a type brings no further ones; None for any number.
        uncapped: Types of which a person lets all columns come, whoever brings them.
        cold_rows: A type with fewer rows than these behind its place is cold: they stay in the stream's table for some steps.
        max_cold_age: For so long at most; then they are written, also when nothing comes.
        max_catchup: A type whose place is more versions of the stream's table behind the group's is read apart from the others, by
            parts of so many versions beside those of the step.
        materialize_every: Dagster is told of mere rows of a type at most so often.
        every: How often the stream is looked at; as events come, where it is not said.
        verify: When its tables are compared with the stream's, whole; by hand alone, where it is not said.
        maintenance: How the files of all its tables are kept, with one budget of a run; they are left alone, where it is not said.
        spark: The driver of its runs, such as the URL of a cluster's master; that of the settings, where it is not said.
        dagster: What its asset is given beside, such as a pool.
        problem: What is wrong with its declaration. It still has the types that it matches, whose events wait in the stream's table.
        unknown: The parameters of its declaration among `name`, `stream`, `match`, `moved` and `columns` whose values are wrong, so
            that the group has others in their place.
    """

    name: str
    stream: EventStream
    match: str = ANY
    contract: Contract = field(default_factory=Contract)
    contracts: Mapping[str, Contract] = field(default_factory=dict, hash=False)
    moved: Mapping[str, str] = field(default_factory=dict, hash=False)
    personal: PersonalColumns = field(default_factory=dict, hash=False)
    allowed: frozenset[str] = frozenset()
    max_types: int = MAX_TYPES
    max_columns_per_producer: int | None = MAX_COLUMNS_PER_PRODUCER
    uncapped: frozenset[str] = frozenset()
    cold_rows: int = 0
    max_cold_age: dt.timedelta = MAX_COLD_AGE
    max_catchup: int = MAX_CATCHUP
    materialize_every: dt.timedelta = MATERIALIZE_EVERY
    every: Schedule | None = None
    verify: Schedule | None = None
    maintenance: Maintenance | None = None
    owner: str | None = None
    description: str = ""
    spark: str | None = None
    dagster: Passthrough = field(default_factory=dict, hash=False)
    problem: str = ""
    unknown: frozenset[str] = frozenset()

    def failed(self, error: DeclarationError, **known: Any) -> "EventGroup":
        """The group with what is wrong with it, where failures are kept; `known` are values in place of those that are wrong.

        Raises:
            DeclarationError: failures are not kept.
        """
        if not are_failures_kept():
            raise error
        problem = "; ".join(filter(None, (self.problem, str(error))))
        return replace(self, problem=problem, unknown=self.unknown | known.keys(), **known)

    def contract_of(self, type_name: str) -> Contract:
        """What events of a type may change."""
        return self.contracts.get(type_name, self.contract)

    @property
    def tells_producers(self) -> bool:
        """Whether its stream says which field leads to who sent an event."""
        return bool(self.stream.table.producer_field)

    def cap_of(self, type_name: str) -> int | None:
        """How many columns of a type a producer may bring; None for any number."""
        return self.max_columns_per_producer if self.tells_producers and type_name not in self.uncapped else None

    def with_hints(self, hints: Iterable[Hint]) -> "EventGroup":
        """The group with what people say of its types beside what is declared; who lets columns come lets them come from anybody."""
        contracts, allowed, uncapped = dict(self.contracts), {*self.allowed}, {*self.uncapped}
        for one in hints:
            contracts[one.type] = with_hint(contracts.get(one.type, self.contract), one)
            for of, types in (("tables", allowed), (COLUMNS, uncapped)):
                if one.of == of:
                    (types.add if one.says == Mode.EVOLVE else types.discard)(one.type)
        return replace(self, contracts=contracts, allowed=frozenset(allowed), uncapped=frozenset(uncapped))

    @property
    def homes(self) -> tuple[str, ...]:
        """The groups in whose folders tables of its types may lie, its own name first."""
        return tuple(dict.fromkeys((self.name, *self.moved.values())))

    def home_of(self, type_name: str) -> str:
        """The group in whose folder the table of a type lies: where it moved the one that had it first."""
        found = [pattern for pattern in self.moved if is_matched(pattern, type_name)]
        return self.moved[max(found, key=specificity)] if found else self.name

    def table(self, type_name: str) -> SourceTable:
        """The table of a type, to be read by others; it need not be there yet.

        Raises:
            DeclarationError: the group's pattern does not match the type.
        """
        if not is_matched(self.match, type_name):
            raise DeclarationError(self.name, "table", f"{shown(type_name)} is no type of {self.match}; ask the group that has it")
        about = f"Events {type_name} of {self.stream.name}"
        return SourceTable(f"{self.home_of(type_name)}.{table_of(type_name)}", owner=self.owner, group=self.name, description=about)

    @property
    def trigger(self) -> SnapshotTrigger:
        """As events come to the stream's table."""
        return SnapshotTrigger((self.stream.table.name,), self.every)


def owner_of(groups: Iterable[EventGroup], type_name: str) -> EventGroup:
    """The group that has a type: of those that match it the one that says most of its name."""
    return max((group for group in groups if is_matched(group.match, type_name)), key=lambda group: specificity(group.match))
