"""Declaring streams of JSON events and groups of their types, and the refusal of what cannot work."""

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import ParamSpec

from lakechime_dagster.errors import DeclarationError, are_failures_kept, shown
from lakechime_dagster.lake.accounts import Account
from lakechime_dagster.lake.contracts import Contract, Pin
from lakechime_dagster.lake.events import (
    EVENTS,
    MATERIALIZE_EVERY,
    MAX_CATCHUP,
    MAX_COLD_AGE,
    MAX_COLUMNS_PER_PRODUCER,
    MAX_TYPES,
    EventGroup,
    EventStream,
    EventTable,
)
from lakechime_dagster.lake.feeds import JsonLines, KafkaTopic
from lakechime_dagster.lake.maintenance import Maintenance, checked_maintenance
from lakechime_dagster.lake.moved_types import MAX_GROUP_NAME, checked_moved
from lakechime_dagster.lake.names import PART, checked_owner, checked_table_name
from lakechime_dagster.lake.personal import PersonalColumns, checked_personal_paths, personal_paths_of
from lakechime_dagster.lake.reads import Passthrough
from lakechime_dagster.lake.table_rows import AnySource, TableRows
from lakechime_dagster.lake.type_patterns import ANY, is_matched, overlap, specificity
from lakechime_dagster.masters import REMEDY, is_driver
from lakechime_dagster.triggers.grid import Schedule

OTHER = "_other"  # what the name of the group ends with that has what no other takes
_FIELD = re.compile(r"\$(\.[^.\[\]]+)+")


def event_stream(
    name: str,
    *,
    source: AnySource,
    type_field: str = "$.type",
    producer_field: str | None = None,
    every: Schedule | None = None,
    maintenance: Maintenance | None = None,
    write_as: Account | None = None,
    owner: str | None = None,
    location: str | None = None,
    description: str = "",
    dagster: Passthrough | None = None,
) -> EventStream:
    """Declare a stream of JSON events, an object each, that a feed or a table brings; `<name>.events` holds them as they came.

    `type_field` leads to the name of an event's type, such as `$.header.type`, `producer_field` to who sent it.

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
    table = EventTable(
        name=table_name, feed=source, type_field=_field(name, "type_field", type_field), every=_schedule(name, every),
        producer_field=() if producer_field is None else _field(name, "producer_field", producer_field), owner=owner,
        location=location, maintenance=maintenance, write_as=write_as, dagster=dagster or {}, group=name,
        description=description or f"The events of {name} as they came from {source}",
    )  # fmt: skip
    return EventStream(name=name, table=table)


Given = ParamSpec("Given")


def _kept_with_its_problem(declare: Callable[Given, EventGroup]) -> Callable[Given, EventGroup]:
    """A group whose declaration is wrong is kept with the error, where failures are, as far as its parameters can be used."""

    @wraps(declare)
    def declared(*args: Given.args, **options: Given.kwargs) -> EventGroup:
        try:
            return declare(*args, **options)
        except DeclarationError as error:
            if not are_failures_kept():
                raise
            return _failed(declare, dict(zip(("name", "stream"), args, strict=False)) | options, error)

    return declared


def _failed(declare: Callable[..., EventGroup], options: Mapping[str, object], error: DeclarationError) -> EventGroup:
    """The group by those of its parameters that say which types it has and where; a wrong one is as if it were left out."""
    name, stream = options.get("name"), options.get("stream")
    own = {field: options[field] for field in ("name", "stream", "match", "moved", "columns") if field in options}
    unknown: set[str] = set()
    while True:
        try:
            return replace(declare(**own), problem=str(error), unknown=frozenset(unknown))
        except DeclarationError as other:
            if other.field in unknown:
                raise
            unknown.add(other.field)
            if other.field == "name":
                own["name"] = usable_name(name, {stream.name} if isinstance(stream, EventStream) else ())
            elif other.field == "stream":
                own["stream"] = event_stream("unknown", source=JsonLines("unknown"))
            elif other.field == "columns":
                own["columns"] = personal_paths_of(own["columns"])
            else:
                del own[other.field]


def usable_name(name: object, taken: Collection[str]) -> str:
    """A name under which a group is shown whose own cannot be used, or is one of `taken`."""
    plain = re.sub(r"\W+", "_", str(name), flags=re.ASCII).strip("_")[: MAX_GROUP_NAME - 4] or "group"
    others = {one.casefold() for one in taken}
    return next(one for one in (plain, *(f"{plain}_{at}" for at in range(2, len(others) + 3))) if one.casefold() not in others)


@_kept_with_its_problem
def event_group(
    name: str,
    stream: EventStream,
    *,
    match: str = ANY,
    numbers: str = "by_kind",
    contract: Contract | None = None,
    hints: Mapping[str, str | Pin] | None = None,
    types: Mapping[str, Contract] | None = None,
    moved: Mapping[str, str] | None = None,
    columns: PersonalColumns | None = None,
    max_types: int = MAX_TYPES,
    max_columns_per_producer: int | None = MAX_COLUMNS_PER_PRODUCER,
    cold_rows: int = 0,
    max_cold_age: dt.timedelta = MAX_COLD_AGE,
    max_catchup: int = MAX_CATCHUP,
    materialize_every: dt.timedelta = MATERIALIZE_EVERY,
    every: Schedule | None = None,
    verify: Schedule | None = None,
    maintenance: Maintenance | None = None,
    spark: str | None = None,
    pool: str | None = None,
    owner: str | None = None,
    description: str = "",
    dagster: Passthrough | None = None,
) -> EventGroup:
    """Declare types of a stream by a pattern of their names; each gets a table `<name>.<type>` when its first event comes.

    A type is of the group with the most specific pattern that matches it. `hints` name the types of single paths from their
    birth, such as `{"/items[]/price": "double"}`; with `numbers="double_first"` every number's column is a double from its birth.
    `columns` says at which paths values are personal, by patterns (`{"/user/email": personal("email")}`).
    `types` gives contracts of single types, in place of the group's but for its hints and rules for paths. `moved` names types that
    another group had before, such as `{"shop.buy": "shop"}`, or `{"*": "shop"}` for all of it: their tables keep their names and
    places, and so the declaration stays. Who has brought `max_columns_per_producer` columns of a type, where the stream has a
    `producer_field`, brings no further ones: their values are rescued until another producer sends them too. `spark` names the
    driver of its runs where it is not the deployment's, such as the master of a cluster of its own, `pool` the pool of Dagster of
    which a run takes a slot; `dagster` is what its asset is given beside. `maintenance` says how the files of all its tables are kept.

    With `cold_rows` a type of which fewer rows came is written less often: they stay in the stream's table until there are so
    many, for at most `max_cold_age`. Without it each step writes all that came, which readers see soonest. A type that is more
    than `max_catchup` versions of the stream's table behind the group is read apart from the others, part by part. `verify` says when
    the tables are compared with the whole of the stream's, such as `every(days=1)`. Dagster is told of a type to which nothing but
    rows came at most `materialize_every` so often.

    Raises:
        DeclarationError: naming the group, the field and the remedy.
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
    if numbers not in ("by_kind", "double_first"):
        raise DeclarationError(name, "numbers", f"{shown(numbers)} is neither 'by_kind' nor 'double_first'")
    _check_numbers(name, max_types=(max_types, 1, "tables"), cold_rows=(cold_rows, 0, "rows"), max_catchup=(max_catchup, 1, "versions"))
    _check_times(name, max_cold_age=max_cold_age, materialize_every=materialize_every)
    if max_columns_per_producer is not None and (type(max_columns_per_producer) is not int or max_columns_per_producer < 1):
        problem = f"{shown(max_columns_per_producer)} is no number of columns, 1 or more, nor None for any number"
        raise DeclarationError(name, "max_columns_per_producer", problem)
    if spark is not None and not is_driver(spark):
        raise DeclarationError(name, "spark", f"{shown(spark)} is no driver; {REMEDY}")
    if pool is not None and (not isinstance(pool, str) or not pool or "pool" in (dagster or {})):
        raise DeclarationError(name, "pool", f"{shown(pool)} is no name of a pool, or dagster= names one too; name it once")
    checked_owner(name, owner)
    given = _contract(name, "contract", Contract() if contract is None else contract)
    pins = dict(given.pins) | _pins(name, {} if hints is None else hints)
    own = replace(given, pins=pins, is_double_first=given.is_double_first or numbers == "double_first")
    if types is not None and not isinstance(types, Mapping):
        raise DeclarationError(name, "types", f'{shown(types)} is no map of types, such as {{"shop.buy": Contract(columns="freeze")}}')
    several = {kind: _contract(name, f"types[{kind!r}]", one).within(own) for kind, one in (types or {}).items()}
    for kind in several:
        if not isinstance(kind, str) or not is_matched(match, kind):
            raise DeclarationError(name, "types", f"{shown(kind)} is not matched by {match!r}; it is of another group")
    taken = checked_moved(name, stream, match, {} if moved is None else moved)
    return EventGroup(
        name=name, stream=stream, match=match, contract=own, contracts=several, moved=taken, max_types=max_types,
        personal=checked_personal_paths(name, columns or {}),
        max_columns_per_producer=max_columns_per_producer, cold_rows=cold_rows, max_cold_age=max_cold_age, max_catchup=max_catchup,
        materialize_every=materialize_every, every=_schedule(name, every), verify=_schedule(name, verify, "verify"), owner=owner,
        spark=spark, maintenance=checked_maintenance(name, maintenance), dagster={**({"pool": pool} if pool else {}), **(dagster or {})},
        description=description or f"Types {match} of {stream.name}, a table each",
    )  # fmt: skip


def checked_groups(stream: EventStream, groups: Iterable[EventGroup], unplaced: Iterable[EventGroup] = ()) -> tuple[EventGroup, ...]:
    """The groups of a stream; where none takes all types, one more does, kept as the stream's table is: `<stream>_other`.

    A group that takes what no other does fails, too, while it is unknown which types another one has: `unplaced` are those of
    which even the stream is unknown.

    Raises:
        DeclarationError: some type would be of two groups as much as of each other.
    """
    several = list(groups)
    unmatched = [*unplaced, *(one for one in several if "match" in one.unknown)]
    for at, one in enumerate(several):
        for before, other in enumerate(several[:at]):
            is_known = one not in unmatched and other not in unmatched
            if is_known and specificity(one.match) == specificity(other.match) and overlap(one.match, other.match):
                problem = f"{one.match!r} matches types that {other.match!r} of {other.name} matches too, and says as much of them"
                error = DeclarationError(one.name, "match", f"{problem}; make one of them longer")
                several[at], several[before] = one.failed(error), other.failed(error)
    if not any(group.match.strip("*") == "" for group in several if group not in unmatched):
        about, kept = f"Types of {stream.name} that no other group takes", stream.table.maintenance
        several.append(event_group(stream.name + OTHER, stream, description=about, maintenance=kept))
    for unknown in unmatched[:1]:
        several = [
            one.failed(DeclarationError(one.name, "match", f"waits until it is known which types {unknown.name} has ({unknown.problem})"))
            if one.match.strip("*") == "" and one not in unmatched
            else one
            for one in several
        ]
    return tuple(several)


def _check_numbers(name: str, **numbers: tuple[int, int, str]) -> None:
    """Each is a number of something, and at least the one beside it."""
    for field_name, (number, least, of) in numbers.items():
        if type(number) is not int or number < least:
            raise DeclarationError(name, field_name, f"{shown(number)} is no number of {of}, {least} or more")


def _check_times(name: str, **times: dt.timedelta) -> None:
    for field_name, time in times.items():
        if not isinstance(time, dt.timedelta) or time <= dt.timedelta(0):
            raise DeclarationError(name, field_name, f"{shown(time)} is no positive time; write timedelta(minutes=10)")


def _field(name: str, field_name: str, path: object) -> tuple[str, ...]:
    if not isinstance(path, str) or not _FIELD.fullmatch(path):
        raise DeclarationError(name, field_name, f"{shown(path)} leads to no field; write such as '$.type' or '$.header.type'")
    return tuple(path.split(".")[1:])


def _schedule(name: str, value: object, field_name: str = "every") -> Schedule | None:
    if value is not None and not isinstance(value, Schedule):
        raise DeclarationError(
            name, field_name, f"{shown(value)} is no schedule; write every({'minutes=5' if field_name == 'every' else 'days=1'})"
        )
    return value


def _contract(name: str, field_name: str, value: object) -> Contract:
    if not isinstance(value, Contract):
        raise DeclarationError(name, field_name, f"{shown(value)} is no Contract(columns=…, kinds=…)")
    if value.problem:
        raise DeclarationError(name, field_name, value.problem)
    return value


def _pins(name: str, hints: object) -> dict[str, Pin]:
    if not isinstance(hints, Mapping):
        raise DeclarationError(name, "hints", f'{shown(hints)} is no map of paths, such as {{"/price": "double"}}')
    found: dict[str, Pin] = {}
    for path, kind in hints.items():
        if not isinstance(path, str) or not path.startswith("/"):
            raise DeclarationError(name, "hints", f"{shown(path)} is no path; write such as '/price' or '/items[]/price'")
        try:
            found[path] = Pin(str(kind))
        except ValueError:
            raise DeclarationError(name, "hints", f"{shown(kind)} of {path} is none of {', '.join(Pin)}") from None
    return found
