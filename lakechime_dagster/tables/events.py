"""`event_stream` and `event_group`: event streams, groups of their types, and contracts as
declared.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from typing import Any, TypeVar

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.errors import DeclarationError, are_failures_kept, keep_or_raise, shown
from lakechime_dagster.spark_drivers import REMEDY, is_driver
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.names import PART, RESERVED, checked_owner, checked_table_name
from lakechime_dagster.tables.options import (
    Asset,
    Passthrough,
    PersonalColumns,
    Storage,
    check_effective,
    checked_asset,
    checked_personal_paths,
    checked_storage,
)
from lakechime_dagster.tables.sources import (
    AnySource,
    JsonLines,
    KafkaTopic,
    MessageTable,
    TableRows,
)
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.schedule import Schedule
from lakechime_dagster.triggers.triggers import SnapshotTrigger

MAX_TABLE = 80  # characters of a table's name
MAX_COLUMN = 128
VARIANT = (
    "__v_"  # between a column's name and the kind of the values that the column itself cannot hold
)
_DIGITS = 12  # of a digest
_WORDS = re.compile(r"[a-z0-9]+([._][a-z0-9]+)*", re.ASCII)
_DIGESTED = re.compile(rf"__[0-9a-f]{{{_DIGITS}}}$")
_CODE = re.compile(r"_x([0-9a-f]+)_")
# with an underscore behind it, its own or a code's, it would be read as one
_LIKE_CODE = re.compile(r"_x[0-9a-f]+(?![^\W_])")
_NAMELESS = "_x_"  # of the field without a name


def table_of(type_name: str) -> str:
    """The name of the table of a type: of `[a-z0-9_]`, at most `MAX_TABLE` characters, no two types
    of one.

    Words with single underscores and dots between them are kept, a dot as two underscores. Of any
    other name a digest stands behind what is left of it; a kept one never ends as such a one does,
    nor as tables that come beside others.
    """
    plain = type_name.replace(".", "__")
    is_taken = _DIGESTED.search(plain) or plain.endswith(tuple(RESERVED))
    if _WORDS.fullmatch(type_name) and len(plain) <= MAX_TABLE and not is_taken:
        return plain
    return _with_digest(re.sub(r"[^a-z0-9_]", "_", type_name.lower()), type_name, MAX_TABLE)


def column_of(field: str) -> str:
    """The name of the column of a field: its own, with codes for what no name of a column may hold.

    It begins as no technical column does, and holds no `VARIANT`. One longer than `MAX_COLUMN` is
    cut, with a digest of the field's name behind it.
    """
    if not field:
        return _NAMELESS
    coded = "".join(
        one if _is_kept(field, at) else f"_x{ord(one):x}_" for at, one in enumerate(field)
    )
    return coded if len(coded) <= MAX_COLUMN else _with_digest(coded, field, MAX_COLUMN)


def field_of(column: str) -> str:
    """The name of the field of a column that is not cut."""
    return "" if column == _NAMELESS else _CODE.sub(lambda code: chr(int(code[1], 16)), column)


def _is_kept(field: str, at: int) -> bool:
    """Whether a character stands for itself; an underscore does not where one would be read as
    something else.
    """
    if field[at] != "_":
        return field[at].isalnum()
    return at > 0 and not _LIKE_CODE.match(field, at) and not field.startswith(VARIANT, at)


def _with_digest(text: str, name: str, length: int) -> str:
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{text[: length - _DIGITS - 2]}__{digest}"


ANY = "*"


def is_matched(match: str, type_name: str) -> bool:
    """Whether a pattern matches the name of a type; letters of another case are others."""
    return (
        re.fullmatch(".*".join(map(re.escape, match.split("*"))), type_name, re.DOTALL) is not None
    )


def specificity(match: str) -> int:
    """How many characters of a name a pattern gives; the whole name is more than any part of it."""
    return len(match.replace("*", "")) * 2 + ("*" not in match)


@cache
def overlap(one: str, other: str) -> bool:
    """Whether some name is matched by both patterns."""
    if not one or not other:
        return not (one + other).replace("*", "")
    if one[0] == "*" or other[0] == "*":
        star, rest = (one, other) if one[0] == "*" else (other, one)
        return overlap(star[1:], rest) or overlap(star, rest[1:])
    return one[0] == other[0] and overlap(one[1:], other[1:])


MAX_COLUMNS = 500  # of single values that a type gets, unless its contract says otherwise
MOST_COLUMNS = 5_000  # that a contract may say
MAX_TYPES = 1_000  # tables of a group, unless its contract says otherwise
MODES = ("tables", "columns", "kinds")  # of a contract, each by its own mode


class Mode(StrEnum):
    """What becomes of something new.

    Attributes:
        EVOLVE: It gets a table, a column, or a variant column of one.
        FREEZE: It gets none; its values are kept in `_rescued`, as frozen, and events of a new type
            wait in bronze.
        RESCUE: The same, as of an unknown path, without a word to anybody.
        DISCARD_VALUE: Its values are left out, and counted.
        DISCARD_ROW: Events with it are left out, and counted.
    """

    EVOLVE = "evolve"
    FREEZE = "freeze"
    RESCUE = "rescue"
    DISCARD_VALUE = "discard_value"
    DISCARD_ROW = "discard_row"


class Pin(StrEnum):
    """The type that a column has from its birth.

    Attributes:
        DOUBLE: Whole numbers are held too, where a double is exactly that number.
        JSON: The text of whatever is there; how objects whose fields are ids are kept.
        IGNORE: No column; its values are left out.
    """

    BOOL = "bool"
    LONG = "long"
    BIGINT = "bigint"
    DOUBLE = "double"
    STRING = "string"
    JSON = "json"
    IGNORE = "ignore"


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What may change: tables of new types, columns of new paths, variant columns for values of
    another type.

    The fields of the events that create a table, or an object within it, are no change: they always
    get columns.

    Attributes:
        is_double_first: New columns for numbers are doubles, unless they are pinned.
        pins: The types of new columns by path: `{"/items[]/price": "double"}`.
        problem: What is wrong with it when a lake is loaded; its group fails.
        max_columns: The largest number of columns with single values of a type; by default the
            group's, or MAX_COLUMNS.
        max_types: The largest number of tables of a group; events of further types wait in the
            stream's table.
    """

    tables: str | Mode = Mode.EVOLVE
    columns: str | Mode = Mode.EVOLVE
    kinds: str | Mode = Mode.EVOLVE
    is_double_first: bool = False
    pins: Mapping[str, Pin | str] = field(default_factory=dict, hash=False)
    max_columns: int | None = None
    max_types: int = MAX_TYPES
    problem: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self._check()
        except DeclarationError as error:
            keep_or_raise(self, error)

    def _check(self) -> None:
        for name in MODES:
            object.__setattr__(self, name, _mode("Contract", name, getattr(self, name)))
        object.__setattr__(self, "pins", _pins(self.pins))
        most = self.max_columns
        if most is not None and (type(most) is not int or not 1 <= most <= MOST_COLUMNS):
            raise DeclarationError(
                "Contract",
                "max_columns",
                f"{shown(most)} is no number of columns from 1 to {MOST_COLUMNS}",
            )
        if type(self.max_types) is not int or self.max_types < 1:
            raise DeclarationError(
                "Contract",
                "max_types",
                f"{shown(self.max_types)} is no number of tables, 1 or more",
            )

    @property
    def column_cap(self) -> int:
        """How many columns of single values a type gets at most."""
        return self.max_columns or MAX_COLUMNS

    def mode(self, change: str) -> Mode:
        """What becomes of a change, which is one of MODES."""
        return Mode(getattr(self, change))

    def within(self, group: "Contract") -> "Contract":
        """The contract of a single type in that of its group, of which it keeps the pins, and
        doubles first.
        """
        return replace(
            self,
            pins={**group.pins, **self.pins},
            is_double_first=self.is_double_first or group.is_double_first,
            max_columns=self.max_columns or group.max_columns,
        )

    def to_json(self) -> dict[str, Any]:
        """The contract for people; a default is left out, but for the modes."""
        rules: dict[str, Any] = {name: str(getattr(self, name)) for name in MODES}
        rules |= {"max columns": self.column_cap} if self.column_cap != MAX_COLUMNS else {}
        return {
            **rules,
            "double first": self.is_double_first,
            "pins": {path: str(pin) for path, pin in self.pins.items()},
        }


def _mode(who: str, name: str, value: object) -> Mode:
    try:
        mode = Mode(str(value))
    except ValueError:
        raise DeclarationError(who, name, f"{shown(value)} is none of {', '.join(Mode)}") from None
    if name == "tables" and mode not in (Mode.EVOLVE, Mode.FREEZE):
        raise DeclarationError(
            who,
            name,
            f"{shown(value)} is neither {Mode.EVOLVE} nor {Mode.FREEZE}, in which events wait in "
            f"bronze",
        )
    return mode


def _pins(pins: object) -> dict[str, Pin]:
    if not isinstance(pins, Mapping):
        raise DeclarationError(
            "Contract", "pins", f'{shown(pins)} is no map of paths, such as {{"/price": "double"}}'
        )
    for path, kind in pins.items():
        if not isinstance(path, str) or not path.startswith("/"):
            raise DeclarationError(
                "Contract",
                "pins",
                f"{shown(path)} is no path; write such as '/price' or '/items[]/price'",
            )
        if kind not in tuple(Pin):
            raise DeclarationError(
                "Contract", "pins", f"{shown(kind)} of {path} is none of {', '.join(Pin)}"
            )
    return {path: Pin(kind) for path, kind in pins.items()}


EVENTS = "events"  # the table of a stream's events, `<stream>.events`
CLUSTERED = ("type", "hash")  # by which its rows lie together
REFUSED_BEFORE = (
    "refused_before"  # of a row that was reprocessed: why it was refused; null of others
)
OTHER = "_other"  # what the name of the group ends with that has what no other takes
MAX_GROUP_NAME = 40
Option = TypeVar("Option", bound="Contract | GroupOptions")
_FIELD = re.compile(r"\$(\.[^.\[\]]+)+")


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """How the runs of a group are launched, and it is verified and shown.

    Attributes:
        every: How often the stream is looked at; as events arrive, unless given.
        verify: When its tables are compared with the whole of the stream's, such as
            `every(days=1)`; on request only, unless given.
        spark: The driver of its runs, such as the URL of a cluster's master; that of the settings,
            unless given.
        dagster: Arguments of its asset, such as a pool.
    """

    every: Schedule | None = None
    verify: Schedule | None = None
    spark: str | None = None
    description: str = ""
    dagster: Passthrough = field(default_factory=dict, hash=False)
    problem: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            _schedule("GroupOptions", self.every)
            _schedule("GroupOptions", self.verify, "verify")
            if self.spark is not None and not is_driver(self.spark):
                raise DeclarationError(
                    "GroupOptions", "spark", f"{shown(self.spark)} is no driver; {REMEDY}"
                )
        except DeclarationError as error:
            keep_or_raise(self, error)


@dataclass(frozen=True, kw_only=True)
class EventTable(MessageTable):
    """The events of a stream as they arrived: what its source holds, appended, with what is known
    of each payload.

    Attributes:
        type_field: The names that lead to an event's type.
        producer_field: Those that lead to who sent it; empty where no field names it.
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
    """Types of a stream that are loaded into tables together: `<group>.<type>` each, made when its
    first event arrives.

    Attributes:
        match: A pattern of the types' names, in which `*` stands for any text.
        contract: What its events may change.
        contracts: The same of single types, in place of it.
        personal: Patterns of paths at which values are personal.
        storage: The format of its tables, and how their files are kept.
        problem: What is wrong with its declaration. It still owns the types that it matches; their
            events wait in the stream's table.
    """

    name: str
    stream: EventStream
    match: str = ANY
    contract: Contract = field(default_factory=Contract)
    contracts: Mapping[str, Contract] = field(default_factory=dict, hash=False)
    personal: PersonalColumns = field(default_factory=dict, hash=False)
    owner: str | None = None
    storage: Storage = field(default_factory=Storage)
    options: GroupOptions = field(default_factory=GroupOptions)
    problem: str = ""

    @property
    def format(self) -> TableFormat:
        """The format of its tables."""
        return TableFormat(self.storage.format or TableFormat.DELTA)

    @property
    def maintenance(self) -> Maintenance | None:
        """How the files of its tables are kept, as of other tables."""
        return self.storage.maintenance

    @property
    def spark(self) -> str | None:
        """The driver of its runs, as of other tables."""
        return self.options.spark

    def contract_of(self, type_name: str) -> Contract:
        """What events of a type may change."""
        return self.contracts.get(type_name, self.contract)

    def table(self, type_name: str) -> SourceTable:
        """The table of a type, to be read by others; it need not exist yet.

        Raises:
            DeclarationError: the group's pattern does not match the type.
        """
        if not is_matched(self.match, type_name):
            raise DeclarationError(
                self.name,
                "table",
                f"{shown(type_name)} is no type of {self.match}; ask the group that has it",
            )
        asset = Asset(
            owner=self.owner,
            group=self.name,
            description=f"Events {type_name} of {self.stream.name}",
        )
        return SourceTable(
            f"{self.name}.{table_of(type_name)}", storage=Storage(format=self.format), asset=asset
        )

    @property
    def trigger(self) -> SnapshotTrigger:
        """As events arrive in the stream's table."""
        return SnapshotTrigger((self.stream.table.name,), self.options.every)


def owner_of(groups: Iterable[EventGroup], type_name: str) -> EventGroup:
    """The group that has a type: of those that match it the one whose pattern is the most
    specific.
    """
    return max(
        (group for group in groups if is_matched(group.match, type_name)),
        key=lambda group: specificity(group.match),
    )


def event_stream(
    name: str,
    *,
    source: AnySource,
    type_field: str = "$.type",
    producer_field: str | None = None,
    storage: Storage = Storage(),
    asset: Asset = Asset(),
) -> EventStream:
    """Declare a stream of JSON events, an object each, from files, a topic or rows of a table;
    `<name>.events` holds them as they arrived.

    Args:
        name: A single word.
        source: `JsonLines`, `KafkaTopic` or `TableRows`: where the events are, and how often it is
            polled.
        type_field: The path of the name of an event's type, such as `$.header.type`.
        producer_field: The path of the name of the sender.
        storage: The location, account and maintenance of its table. The maintenance also applies to
            the group of types that no other group matches.
        asset: What the asset of its table shows; its group is the stream's name by default.

    Raises:
        DeclarationError: naming the stream, the field and the remedy.
    """
    if not isinstance(name, str) or not PART.fullmatch(name):
        raise DeclarationError(
            f"event_stream {shown(name)}",
            "name",
            "is no single word of letters, digits and _, such as 'game'",
        )
    if len(name) > MAX_GROUP_NAME - len(OTHER):
        problem = f"has {len(name)} characters; use at most {MAX_GROUP_NAME - len(OTHER)}"
        raise DeclarationError(f"event_stream {shown(name)}", "name", problem)
    table_name = checked_table_name(f"{name}.{EVENTS}", "event_stream")
    if not isinstance(source, JsonLines | KafkaTopic | TableRows):
        problem = (
            f"{shown(source)} is none of JsonLines(folder), KafkaTopic(topic, bootstrap=…) and "
            f"TableRows(table, payload=…)"
        )
        raise DeclarationError(name, "source", problem)
    if getattr(source, "records", False):
        raise DeclarationError(
            name,
            "source",
            "records=True is of tables that follow a database; each line of a stream is an event",
        )
    of_cdc = ("shards", "database", "table", "transactions", "heartbeats")
    given = (
        [one for one in of_cdc if getattr(source, one, "")]
        if isinstance(source, JsonLines | KafkaTopic)
        else []
    )
    if given:
        raise DeclarationError(
            name, "source", f"{given[0]}= is of tables that follow a database; leave it out"
        )
    files = checked_storage(name, storage)
    about = checked_asset(name, asset, files)
    table = EventTable(
        name=table_name,
        source=source,
        type_field=_field(name, "type_field", type_field),
        producer_field=()
        if producer_field is None
        else _field(name, "producer_field", producer_field),
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
    storage: Storage = Storage(),
    options: GroupOptions | None = None,
) -> EventGroup:
    """Declare types of a stream by a pattern of their names; each gets a table `<name>.<type>` when
    its first event arrives.

    A type belongs to the group with the most specific matching pattern. If a change of patterns
    moves it to another group, its table keeps its name, and its checkpoint moves with it.

    Args:
        name: A single word; the folder of the tables.
        stream: The result of `event_stream`.
        match: A pattern of type names, in which `*` stands for any text.
        contract: What events may change, how many columns and tables there may be, and the types of
            single paths.
        types: Contracts of single types. They replace the group's contract except for its pins.
        columns: At which paths values are personal, by patterns (`{"/user/email":
            personal("email")}`).
        owner: Who receives alarms about failures and breaking changes.
        storage: The `format` of its tables, `delta` or `iceberg`; the `write_mode` of replays of
            Iceberg tables; the `maintenance` of Delta tables, with one budget of a run for all.
        options: When it runs and is verified, by which driver, and how it is shown.

    Raises:
        DeclarationError: naming the group, the field and the remedy. While a code location loads, a
            group with a wrong contract, types, owner, storage or options is kept with its `problem`, so that
            it fails alone.
    """
    if not isinstance(name, str) or not PART.fullmatch(name) or len(name) > MAX_GROUP_NAME:
        problem = (
            f"is no single word of at most {MAX_GROUP_NAME} letters, digits and _, such as 'shop'"
        )
        raise DeclarationError(f"event_group {shown(name)}", "name", problem)
    if not isinstance(stream, EventStream):
        raise DeclarationError(name, "stream", f"{shown(stream)} is no event_stream(…)")
    if name == stream.name:
        raise DeclarationError(
            name,
            "name",
            f"is the stream's own name, whose table is {stream.table.name}; choose another",
        )
    if not isinstance(match, str) or not match:
        raise DeclarationError(
            name, "match", f"{shown(match)} is no pattern of types, such as 'shop.*'"
        )
    group = EventGroup(
        name=name, stream=stream, match=match, personal=checked_personal_paths(name, columns or {})
    )
    try:
        own = _usable(name, "contract", Contract() if contract is None else contract, Contract)
        return replace(
            group,
            contract=own,
            contracts=_contracts_of_types(group, own, types),
            owner=checked_owner(name, owner),
            storage=_checked_storage(name, storage),
            options=_usable(
                name, "options", GroupOptions() if options is None else options, GroupOptions
            ),
        )
    except DeclarationError as error:
        if not are_failures_kept():
            raise
        return replace(group, problem=str(error))


def checked_groups(stream: EventStream, groups: Iterable[EventGroup]) -> tuple[EventGroup, ...]:
    """The groups of a stream; where none takes all types, one more does, kept as the stream's table
    is: `<stream>_other`.

    Raises:
        DeclarationError: some type would be of two groups as much as of each other.
    """
    several = list(groups)
    for at, one in enumerate(several):
        for other in several[:at]:
            if specificity(one.match) == specificity(other.match) and overlap(
                one.match, other.match
            ):
                problem = (
                    f"{one.match!r} matches types that {other.match!r} of {other.name} matches "
                    f"too, and says as much of them"
                )
                raise DeclarationError(one.name, "match", f"{problem}; make one of them longer")
    if not any(group.match.strip("*") == "" for group in several):
        about, kept = f"Types of {stream.name} that no other group takes", stream.table.maintenance
        several.append(
            event_group(
                stream.name + OTHER,
                stream,
                storage=Storage(maintenance=kept),
                options=GroupOptions(description=about),
            )
        )
    return tuple(several)


def _contracts_of_types(group: EventGroup, own: Contract, types: object) -> dict[str, Contract]:
    if types is not None and not isinstance(types, Mapping):
        raise DeclarationError(
            group.name,
            "types",
            f'{shown(types)} is no map of types, such as {{"shop.buy": Contract(columns="freeze")}}',
        )
    for kind in types or ():
        if not isinstance(kind, str) or not is_matched(group.match, kind):
            raise DeclarationError(
                group.name,
                "types",
                f"{shown(kind)} is not matched by {group.match!r}; it is of another group",
            )
    return {
        kind: _usable(group.name, f"types[{kind!r}]", one, Contract).within(own)
        for kind, one in (types or {}).items()
    }


# of `Storage`, without effect for the tables of types
_UNUSED = ("partitioned_by", "location", "cluster_by", "write_as", "readers")


def _checked_storage(name: str, storage: object) -> Storage:
    checked = checked_storage(name, storage)
    check_effective(name, "the tables of an event group", checked, _UNUSED)
    if checked.format is TableFormat.HIVE:
        raise DeclarationError(name, "format", "is that of computed tables; name delta or iceberg")
    if checked.format is TableFormat.ICEBERG and checked.maintenance:
        problem = "has no effect on Iceberg tables; leave it out, and use Iceberg's procedures"
        raise DeclarationError(name, "maintenance", problem)
    return checked


def _usable(name: str, field_name: str, value: object, wanted: type[Option]) -> Option:
    """An option object of the wanted class whose own declaration is right."""
    if not isinstance(value, wanted):
        raise DeclarationError(name, field_name, f"{shown(value)} is no {wanted.__name__}(…)")
    if value.problem:
        raise DeclarationError(name, field_name, value.problem)
    return value


def _field(name: str, field_name: str, path: object) -> tuple[str, ...]:
    if not isinstance(path, str) or not _FIELD.fullmatch(path):
        raise DeclarationError(
            name,
            field_name,
            f"{shown(path)} leads to no field; write such as '$.type' or '$.header.type'",
        )
    return tuple(path.split(".")[1:])


def _schedule(name: str, value: object, field_name: str = "every") -> Schedule | None:
    if value is not None and not isinstance(value, Schedule):
        remedy = "minutes=5" if field_name == "every" else "days=1"
        raise DeclarationError(
            name, field_name, f"{shown(value)} is no schedule; write every({remedy})"
        )
    return value
