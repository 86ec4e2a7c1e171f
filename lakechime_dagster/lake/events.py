"""Streams of JSON events, and groups of their types, each of which gets a table of its own without being declared."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lakechime_dagster.errors import DeclarationError, are_failures_kept, keep_or_raise, shown
from lakechime_dagster.lake.contracts import Contract, Hint, Mode, with_hint
from lakechime_dagster.lake.event_names import table_of
from lakechime_dagster.lake.feed_tables import FeedTable
from lakechime_dagster.lake.feeds import JsonLines, KafkaTopic
from lakechime_dagster.lake.maintenance import Maintenance, checked_maintenance
from lakechime_dagster.lake.names import PART, checked_owner, checked_table_name
from lakechime_dagster.lake.options import Asset, Storage, checked_asset, checked_storage
from lakechime_dagster.lake.personal import PersonalColumns, checked_personal_paths
from lakechime_dagster.lake.reads import Passthrough
from lakechime_dagster.lake.table_rows import AnySource, TableRows
from lakechime_dagster.lake.tables import SourceTable
from lakechime_dagster.lake.type_patterns import ANY, is_matched, overlap, specificity
from lakechime_dagster.masters import REMEDY, is_driver
from lakechime_dagster.triggers.grid import Schedule
from lakechime_dagster.triggers.model import SnapshotTrigger

EVENTS = "events"  # the table of a stream's events, `<stream>.events`
CLUSTERED = ("type", "hash")  # by which its rows lie together
REFUSED_BEFORE = "refused_before"  # of a row that was reprocessed: why it was refused; null of others
OTHER = "_other"  # what the name of the group ends with that has what no other takes
MAX_GROUP_NAME = 40
Option = TypeVar("Option", bound="Contract | GroupOptions")
_FIELD = re.compile(r"\$(\.[^.\[\]]+)+")


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """How the runs of a group are launched, and its tables kept and shown.

    Attributes:
        every: How often the stream is looked at; as events arrive, unless given.
        verify: When its tables are compared with the whole of the stream's, such as `every(days=1)`; on request only, unless given.
        maintenance: How the files of all its tables are kept, with one budget of a run; they are left alone, unless given.
        spark: The driver of its runs, such as the URL of a cluster's master; that of the settings, unless given.
        dagster: Arguments of its asset, such as a pool.
    """

    every: Schedule | None = None
    verify: Schedule | None = None
    maintenance: Maintenance | None = None
    spark: str | None = None
    description: str = ""
    dagster: Passthrough = field(default_factory=dict, hash=False)
    problem: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            _schedule("GroupOptions", self.every)
            _schedule("GroupOptions", self.verify, "verify")
            checked_maintenance("GroupOptions", self.maintenance)
            if self.spark is not None and not is_driver(self.spark):
                raise DeclarationError("GroupOptions", "spark", f"{shown(self.spark)} is no driver; {REMEDY}")
        except DeclarationError as error:
            keep_or_raise(self, error)


@dataclass(frozen=True, kw_only=True)
class EventTable(FeedTable):
    """The events of a stream as they arrived: what its source holds, appended, with what is known of each payload.

    Attributes:
        type_field: The names that lead to an event's type.
        producer_field: Those that lead to who sent it; empty where no field tells it.
    """

    type_field: tuple[str, ...]
    producer_field: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EventStream:
    """A stream of events: its name, and the table that holds them as they arrived."""

    name: str
    table: EventTable


@dataclass(frozen=True, kw_only=True)
class EventGroup:
    """Types of a stream that are loaded into tables together: `<group>.<type>` each, made when its first event arrives.

    Attributes:
        match: A pattern of the types' names, in which `*` stands for any text.
        contract: What its events may change.
        contracts: The same of single types, in place of it.
        personal: Patterns of paths at which values are personal.
        allowed: Types that people let have a table, however many there are.
        problem: What is wrong with its declaration. It still has the types that it matches, whose events wait in the stream's table.
    """

    name: str
    stream: EventStream
    match: str = ANY
    contract: Contract = field(default_factory=Contract)
    contracts: Mapping[str, Contract] = field(default_factory=dict, hash=False)
    personal: PersonalColumns = field(default_factory=dict, hash=False)
    allowed: frozenset[str] = frozenset()
    owner: str | None = None
    options: GroupOptions = field(default_factory=GroupOptions)
    problem: str = ""

    @property
    def maintenance(self) -> Maintenance | None:
        """How the files of its tables are kept, as of other tables."""
        return self.options.maintenance

    @property
    def spark(self) -> str | None:
        """The driver of its runs, as of other tables."""
        return self.options.spark

    def contract_of(self, type_name: str) -> Contract:
        """What events of a type may change."""
        return self.contracts.get(type_name, self.contract)

    def with_hints(self, hints: Iterable[Hint]) -> "EventGroup":
        """The group with what people decided of its types, in place of what is declared."""
        contracts, allowed = dict(self.contracts), {*self.allowed}
        for one in hints:
            contracts[one.type] = with_hint(contracts.get(one.type, self.contract), one)
            if one.of == "tables":
                (allowed.add if one.says == Mode.EVOLVE else allowed.discard)(one.type)
        return replace(self, contracts=contracts, allowed=frozenset(allowed))

    def table(self, type_name: str) -> SourceTable:
        """The table of a type, to be read by others; it need not exist yet.

        Raises:
            DeclarationError: the group's pattern does not match the type.
        """
        if not is_matched(self.match, type_name):
            raise DeclarationError(self.name, "table", f"{shown(type_name)} is no type of {self.match}; ask the group that has it")
        asset = Asset(owner=self.owner, group=self.name, description=f"Events {type_name} of {self.stream.name}")
        return SourceTable(f"{self.name}.{table_of(type_name)}", asset=asset)

    @property
    def trigger(self) -> SnapshotTrigger:
        """As events arrive in the stream's table."""
        return SnapshotTrigger((self.stream.table.name,), self.options.every)


def owner_of(groups: Iterable[EventGroup], type_name: str) -> EventGroup:
    """The group that has a type: of those that match it the one whose pattern is the most specific."""
    return max((group for group in groups if is_matched(group.match, type_name)), key=lambda group: specificity(group.match))


def event_stream(
    name: str,
    *,
    source: AnySource,
    type_field: str = "$.type",
    producer_field: str | None = None,
    storage: Storage = Storage(),
    asset: Asset = Asset(),
) -> EventStream:
    """Declare a stream of JSON events, an object each, from files, a topic or rows of a table; `<name>.events` holds them as they arrived.

    Args:
        name: A single word.
        source: `JsonLines`, `KafkaTopic` or `TableRows`: where the events are, and how often it is polled.
        type_field: The path that leads to the name of an event's type, such as `$.header.type`.
        producer_field: The path that leads to who sent it.
        storage: The location, account and maintenance of its table. The maintenance is also that of the group for types that no other
            group takes.
        asset: What the asset of its table shows; its group is the stream's name by default.

    Raises:
        DeclarationError: naming the stream, the field and the remedy.
    """
    if not isinstance(name, str) or not PART.fullmatch(name):
        raise DeclarationError(f"event_stream {shown(name)}", "name", "is no single word of letters, digits and _, such as 'game'")
    if len(name) > MAX_GROUP_NAME - len(OTHER):
        problem = f"has {len(name)} characters; use at most {MAX_GROUP_NAME - len(OTHER)}"
        raise DeclarationError(f"event_stream {shown(name)}", "name", problem)
    table_name = checked_table_name(f"{name}.{EVENTS}", "event_stream")
    if not isinstance(source, JsonLines | KafkaTopic | TableRows):
        problem = f"{shown(source)} is none of JsonLines(folder), KafkaTopic(topic, bootstrap=…) and TableRows(table, payload=…)"
        raise DeclarationError(name, "source", problem)
    if getattr(source, "records", False):
        raise DeclarationError(name, "source", "records=True is of tables that follow a database; each line of a stream is an event")
    of_cdc = ("shards", "database", "table", "ddl", "transactions", "heartbeats")
    told = [one for one in of_cdc if getattr(source, one, "")] if isinstance(source, JsonLines | KafkaTopic) else []
    if told:
        raise DeclarationError(name, "source", f"{told[0]}= is of tables that follow a database; leave it out")
    files = checked_storage(name, storage)
    about = checked_asset(name, asset, files)
    table = EventTable(
        name=table_name,
        feed=source,
        type_field=_field(name, "type_field", type_field),
        producer_field=() if producer_field is None else _field(name, "producer_field", producer_field),
        storage=files,
        asset=replace(
            about,
            group=about.group or name,
            description=about.description or f"The events of {name} as they arrived from {source}",
        ),
    )
    return EventStream(name=name, table=table)


def event_group(
    name: str,
    stream: EventStream,
    *,
    match: str = ANY,
    contract: Contract | None = None,
    types: Mapping[str, Contract] | None = None,
    columns: PersonalColumns | None = None,
    owner: str | None = None,
    options: GroupOptions | None = None,
) -> EventGroup:
    """Declare types of a stream by a pattern of their names; each gets a table `<name>.<type>` when its first event arrives.

    A type is of the group with the most specific pattern that matches it. When a change of the patterns gives it to another group,
    its table keeps its name, and its checkpoint moves with it.

    Args:
        name: A single word; the folder of the tables.
        stream: The result of `event_stream`.
        match: In which `*` stands for any text.
        contract: What events may change, how many columns and tables there may be, and the types of single paths.
        types: Contracts of single types, in place of the group's but for its pins and rules for paths.
        columns: At which paths values are personal, by patterns (`{"/user/email": personal("email")}`).
        owner: Who is told of failures and breaking changes.
        options: When it runs, is verified and maintained, by which driver, and how it is shown.

    Raises:
        DeclarationError: naming the group, the field and the remedy. While a code location loads, a group with a wrong contract, types,
            owner or options is kept with its `problem`, so that it fails alone.
    """
    if not isinstance(name, str) or not PART.fullmatch(name) or len(name) > MAX_GROUP_NAME:
        problem = f"is no single word of at most {MAX_GROUP_NAME} letters, digits and _, such as 'shop'"
        raise DeclarationError(f"event_group {shown(name)}", "name", problem)
    if not isinstance(stream, EventStream):
        raise DeclarationError(name, "stream", f"{shown(stream)} is no event_stream(…)")
    if name == stream.name:
        raise DeclarationError(name, "name", f"is the stream's own name, whose table is {stream.table.name}; choose another")
    if not isinstance(match, str) or not match:
        raise DeclarationError(name, "match", f"{shown(match)} is no pattern of types, such as 'shop.*'")
    group = EventGroup(name=name, stream=stream, match=match, personal=checked_personal_paths(name, columns or {}))
    try:
        own = _usable(name, "contract", Contract() if contract is None else contract, Contract)
        return replace(
            group,
            contract=own,
            contracts=_contracts_of_types(group, own, types),
            owner=checked_owner(name, owner),
            options=_usable(name, "options", GroupOptions() if options is None else options, GroupOptions),
        )
    except DeclarationError as error:
        if not are_failures_kept():
            raise
        return replace(group, problem=str(error))


def checked_groups(stream: EventStream, groups: Iterable[EventGroup]) -> tuple[EventGroup, ...]:
    """The groups of a stream; where none takes all types, one more does, kept as the stream's table is: `<stream>_other`.

    Raises:
        DeclarationError: some type would be of two groups as much as of each other.
    """
    several = list(groups)
    for at, one in enumerate(several):
        for other in several[:at]:
            if specificity(one.match) == specificity(other.match) and overlap(one.match, other.match):
                problem = f"{one.match!r} matches types that {other.match!r} of {other.name} matches too, and says as much of them"
                raise DeclarationError(one.name, "match", f"{problem}; make one of them longer")
    if not any(group.match.strip("*") == "" for group in several):
        about, kept = f"Types of {stream.name} that no other group takes", stream.table.maintenance
        several.append(event_group(stream.name + OTHER, stream, options=GroupOptions(description=about, maintenance=kept)))
    return tuple(several)


def _contracts_of_types(group: EventGroup, own: Contract, types: object) -> dict[str, Contract]:
    if types is not None and not isinstance(types, Mapping):
        raise DeclarationError(
            group.name, "types", f'{shown(types)} is no map of types, such as {{"shop.buy": Contract(columns="freeze")}}'
        )
    for kind in types or ():
        if not isinstance(kind, str) or not is_matched(group.match, kind):
            raise DeclarationError(group.name, "types", f"{shown(kind)} is not matched by {group.match!r}; it is of another group")
    return {kind: _usable(group.name, f"types[{kind!r}]", one, Contract).within(own) for kind, one in (types or {}).items()}


def _usable(name: str, field_name: str, value: object, wanted: type[Option]) -> Option:
    """An option object of the wanted class whose own declaration is right."""
    if not isinstance(value, wanted):
        raise DeclarationError(name, field_name, f"{shown(value)} is no {wanted.__name__}(…)")
    if value.problem:
        raise DeclarationError(name, field_name, value.problem)
    return value


def _field(name: str, field_name: str, path: object) -> tuple[str, ...]:
    if not isinstance(path, str) or not _FIELD.fullmatch(path):
        raise DeclarationError(name, field_name, f"{shown(path)} leads to no field; write such as '$.type' or '$.header.type'")
    return tuple(path.split(".")[1:])


def _schedule(name: str, value: object, field_name: str = "every") -> Schedule | None:
    if value is not None and not isinstance(value, Schedule):
        remedy = "minutes=5" if field_name == "every" else "days=1"
        raise DeclarationError(name, field_name, f"{shown(value)} is no schedule; write every({remedy})")
    return value
