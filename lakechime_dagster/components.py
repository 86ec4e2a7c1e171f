"""Dagster components: the declarations of tables, event streams and triggers in `defs.yaml` files.

A field of YAML is a parameter of the Python declaration, from whose signature and docstring the
schema is derived: an object such as `Storage(…)` is a map of its arguments. Where one of several
classes or functions may be called, the map's only key names it: `snapshot_trigger: {…}` is
`SnapshotTrigger(…)`.

All tables of a project are one lake, in whatever files they are declared, as tables read each
other.
"""

import dataclasses
import datetime as dt
import functools
import importlib
import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import or_
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from typing_extensions import Self

from lakechime_dagster.dce.events import NamedTable, WantedTags
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError, needs, shown
from lakechime_dagster.runtime.names import asset_key
from lakechime_dagster.runtime.resource import LAKECHIME
from lakechime_dagster.sensors.trigger import deadline_sensor, lakechime_sensor
from lakechime_dagster.tables.cdc import HOUR_LEVELS, CDCMerge, CDCTable, cdc_table
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.events import (
    Contract,
    EventGroup,
    EventStream,
    event_group,
    event_stream,
)
from lakechime_dagster.tables.lake import Lake, QueryLog
from lakechime_dagster.tables.options import Personal, Storage, personal
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.consumers import HOURS
from lakechime_dagster.triggers.schedule import HoursOf, Schedule, Tick, every, hours_of, tick
from lakechime_dagster.triggers.triggers import PartitionCondition

Declared = SourceTable | LakeTable | CDCTable | EventStream | EventGroup
Levels = Mapping[str, Mapping[str, str]]  # by table the types of its partition levels


def _duration(
    *, weeks: float = 0, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> dt.timedelta:
    return dt.timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)


def _hours_of(tick: Tick, zone: str = "UTC", utc: bool = False) -> object:
    """The hours of a day.

    Args:
        tick: The day, such as "-1d".
        zone: Whose hours, such as America/New_York.
        utc: The hours of UTC in which that day lies, for levels that vary together.
    """
    return hours_of(tick, zone, utc)


Level = str | int | bool | Tick | HoursOf


def _condition(
    table: str,
    partitions: Mapping[str, Level | Sequence[Level]],
    *,
    levels: Mapping[str, str] | None = None,
    cluster: str = "",
    tags: WantedTags | None = None,
) -> PartitionCondition:
    """Partitions that must be there.

    Args:
        table: The table's name.
        partitions: By partition level a value, `{tick: "-1d"}`, `{hours_of: {tick: "-1d"}}`, or a
            list of them.
        levels: The types of its levels, such as `{day: date}`, of a table that no file of this
            project declares.
        cluster: The data platform of the table, where there are several.
        tags: What is demanded of its events, in addition to the tags of the trigger.
    """
    return PartitionCondition.of(
        table, partitions, None if levels is None else PartitionLevels.of(levels), cluster
    ).with_tags(tags or {})


def _file(path: str) -> Path:
    """A file beside defs.yaml."""
    return Path(path)


def _lake(
    *,
    name: str | None = None,
    tables: Sequence[str] = (),
    alarms: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
    query_logs: Sequence[QueryLog] = (),
    table_format: str | None = None,
) -> dict[str, Any]:
    """What holds for the whole lake.

    Args:
        name: Its name, by which its jobs and sensors begin; the name of the project's package by
            default.
        tables: Tables that are declared in Python, such as `my_project.tables:silver_orders`.
        alarms: URLs of apprise, or `$NAME`s of variables that hold them, for checks that fail.
        aliases: What other engines call its tables.
        query_logs: Its tables in which executed SQL is recorded.
        table_format: The format of computed tables that declare none: delta, iceberg or hive.
    """
    found = {
        "name": name,
        "tables": tables,
        "alarms": alarms,
        "aliases": aliases or {},
        "query_logs": query_logs,
        "table_format": table_format,
    }
    return {key: value for key, value in found.items() if value}


_CALLS: Mapping[
    Any, Callable[..., Any]
] = {  # what makes a value of a type, where that is not the type itself
    EventGroup: event_group,
    HoursOf: _hours_of,
    PartitionCondition: _condition,
    Path: _file,
    Personal: personal,
    Schedule: every,
    Tick: tick,
    dg.AssetKey: dg.AssetKey.from_user_string,
    dt.timedelta: _duration,
}
# called with a text; whether YAML has no other form
_OF_TEXT = {dg.AssetKey.from_user_string: True, personal: True, tick: False}
_PYTHON_ONLY = (NoneType, NamedTable, PartitionLevels, dt.date)
_OTHER_TYPES: Mapping[
    Any, Mapping[str, Any]
] = {  # of parameters; None of those that YAML does not have
    Contract: {"shared": None},
    event_group: {"stream": None},
    event_stream: {"groups": Sequence[EventGroup]},
    deadline_sensor: {"job": str},
    lakechime_sensor: {"job": str, "target": dg.AssetKey},
}


def _parameters(call: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a declaration that YAML has, with their types."""
    hints = get_type_hints(call.__init__ if isinstance(call, type) else call)
    found = {name: hints.get(name) for name in inspect.signature(call).parameters} | dict(
        _OTHER_TYPES.get(call, {})
    )
    return {name: hint for name, hint in found.items() if hint is not None}


def _members(hint: Any) -> list[Any]:
    """The types of a union that YAML has: of an enumeration and a text only the enumeration, of a
    list and its only item only the list.
    """
    several = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    members = [one for one in several if one not in _PYTHON_ONLY]
    single, lists = (
        [one for one in members if not _is_list(one)],
        [one for one in members if _is_list(one)],
    )
    if len(single) > 1:
        return (
            [one for one in members if one is not str] if any(map(_is_enum, members)) else members
        )
    return lists or single


def _is_list(hint: Any) -> bool:
    origin = get_origin(hint)
    return (
        isinstance(origin, type)
        and issubclass(origin, Iterable)
        and not issubclass(origin, Mapping)
    )


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _called(members: Iterable[Any]) -> dict[str, Callable[..., Any]]:
    """What can be called for a value of some types, by its name in YAML."""
    calls: list[Any] = [
        _CALLS.get(one) or (one if dataclasses.is_dataclass(one) else None) for one in members
    ]
    return {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", call.__name__).lower().strip("_"): call
        for call in calls
        if call is not None
    }


def _yaml_type(hint: Any) -> Any:
    """The type of a value in YAML that stands for one of a type in Python."""
    members = _members(hint)
    calls = _called(members)
    kinds: list[Any] = (
        [_one_of(tuple(calls.items()))]
        if len(calls) > 1
        else [_model_of(call) for call in calls.values() if not _OF_TEXT.get(call)]
    )
    kinds += [str] * any(call in _OF_TEXT for call in calls.values())
    for one in members:
        if _called([one]):
            continue
        if _is_enum(one):
            kinds.append(Literal[tuple(str(value.value).lower() for value in one)])
        elif _is_list(one):
            kinds.append(list[_yaml_type(get_args(one)[0])])
        elif get_args(one):
            kinds.append(dict[str, _yaml_type(get_args(one)[1])])
        else:
            kinds.append(one)
    return functools.reduce(or_, dict.fromkeys(kinds))


@functools.cache
def _model_of(call: Callable[..., Any]) -> type[dg.Model]:
    """The schema of the arguments of a declaration, as its docstring describes them."""
    given, about = inspect.signature(call).parameters, _descriptions(call)
    fields: dict[str, Any] = {}
    for name, hint in _parameters(call).items():
        default = given[name].default if name in given else ()
        kind = _yaml_type(hint)
        if NoneType in get_args(hint) and default is not None:
            kind = kind | None
        value = (
            ...
            if default is inspect.Parameter.empty
            else default
            if isinstance(default, str | int | float)
            else None
        )
        is_taken = hasattr(dg.Model, name)  # such as by pydantic's `schema`
        fields[f"{name}_" if is_taken else name] = (
            kind,
            Field(value, alias=name if is_taken else None, description=about.get(name)),
        )
    return create_model(
        call.__name__.strip("_"),
        __base__=dg.Model,
        __doc__=(inspect.getdoc(call) or "").partition("\n")[0],
        **fields,
    )


@functools.cache
def _one_of(calls: tuple[tuple[str, Callable[..., Any]], ...]) -> type[dg.Model]:
    """The schema of a map whose only key says what is called."""
    fields: dict[str, Any] = {
        name: (_model_of(call) | str if call in _OF_TEXT else _model_of(call), None)
        for name, call in calls
    }
    names = [name for name, _ in calls]

    class OneOf(dg.Model):
        model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

        @model_validator(mode="after")
        def _is_one(self) -> Self:
            if len(self.model_fields_set) != 1:
                raise ValueError(f"give one of {', '.join(names)}")
            return self

    return create_model("_or_".join(names), __base__=OneOf, **fields)


def _descriptions(call: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of each parameter, by its name."""
    _, _, section = re.sub(r"\n(Attributes|Args):\n", "\n\0", inspect.getdoc(call) or "").partition(
        "\0"
    )
    entries = re.findall(
        r"^    (\w[\w, ]*): (.*(?:\n     .*)*)", section.partition("\n\n")[0], re.MULTILINE
    )
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


@dataclasses.dataclass(frozen=True)
class _Reading:
    """Makes declarations of values in YAML; `levels` are those of the tables that the project
    declares.
    """

    levels: Levels = dataclasses.field(default_factory=dict)
    folder: Path = Path()  # of files

    def call(self, call: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """What a declaration returns for arguments as they are in YAML; those that are made already
        stay as they are.
        """
        if call is _condition and (known := self.levels.get(arguments["table"])):
            arguments = {"levels": known, **arguments}
        hints = _parameters(call)
        made = call(**{name: self.value(hints[name], value) for name, value in arguments.items()})
        return self.folder / made if call is _file else made

    def value(self, hint: Any, value: Any) -> Any:
        """What a value in YAML stands for, by the type that is declared for it."""
        if hint is Any:
            return value
        members = _members(hint)
        calls = _called(members)
        if isinstance(value, Mapping) and len(calls) > 1:
            ((name, arguments),) = value.items()
            return (
                self.call(calls[name], arguments)
                if isinstance(arguments, Mapping)
                else calls[name](arguments)
            )
        if isinstance(value, Mapping) and calls:
            return self.call(next(iter(calls.values())), value)
        if isinstance(value, Mapping):
            of = next(
                (
                    get_args(one)[1]
                    for one in members
                    if len(get_args(one)) == 2 and not _is_list(one)
                ),
                Any,
            )
            return {key: self.value(of, one) for key, one in value.items()}
        if type(value) in (list, tuple):
            of = next((get_args(one)[0] for one in members if _is_list(one)), Any)
            return tuple(self.value(of, one) for one in value)
        if isinstance(value, str):
            of_text = [call for call in calls.values() if call in _OF_TEXT and str not in members]
            named = [
                member
                for one in members
                if _is_enum(one)
                for member in one
                if str(member.value).lower() == value.lower()
            ]
            return of_text[0](value) if of_text else named[0] if named else value
        return value


def _rendered(value: Any, context: dg.ResolutionContext) -> Any:
    """A value of YAML with its templates, such as `{{ env.KAFKA }}`, replaced; texts without one
    stay texts.
    """
    if isinstance(value, Mapping):
        return {key: _rendered(one, context) for key, one in value.items()}
    if isinstance(value, list):
        return [_rendered(one, context) for one in value]
    return context.resolve_value(value) if isinstance(value, str) and "{{" in value else value


class _Example(dg.Scaffolder):
    """Writes the example of a component, and the files to which it refers."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        if request.scaffold_format == "python":
            dg.scaffold_component(request)
            return
        kind = next(
            one
            for one in (TriggerComponent, DeadlineComponent, *_TABLES)
            if one.__name__ == request.type_name.rpartition(".")[2]
        )
        text = f"type: {request.type_name}\n\nattributes:\n{kind.example}"
        if request.append:
            with request.target_path.open("a", encoding="utf-8") as file:
                file.write(f"\n---\n{text}")
            return
        (request.target_path / "defs.yaml").write_text(text, encoding="utf-8")
        for name, content in kind.files.items():
            (request.target_path / name).write_text(content, encoding="utf-8")


@dg.scaffold_with(_Example)
class LakeChimeComponent(dg.Component):
    """A declaration in YAML, or in Python with the same names."""

    declare: ClassVar[Callable[..., Any]]
    example: ClassVar[str]
    files: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.folder = Path()

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return _model_of(cls.declare)

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        found = cls.get_model_cls().model_validate({}) if attributes is None else attributes
        loaded = cls(
            **_rendered(
                found.model_dump(exclude_unset=True, by_alias=True), context.resolution_context
            )
        )
        loaded.folder = context.path
        loaded.checked(context)
        return loaded

    @abstractmethod
    def checked(self, context: dg.ComponentLoadContext) -> None:
        """Find what is wrong with it alone, so that the error names its own file."""


class TriggerComponent(LakeChimeComponent):
    """A trigger that launches a job or an asset of this project with the changes of lake tables."""

    declare = staticmethod(lakechime_sensor)
    example = """\
  name: features
  target: features            # the key of an asset, or `job:` the name of a job
  trigger:
    snapshot_trigger:         # launches a run after any of the tables has changed
      tables: [silver.orders]
  # trigger:
  #   partition_trigger:      # launches a run for each day whose partition is there
  #     conditions:
  #       - table: silver.orders
  #         levels: {day: date}
  #         partitions: {day: {tick: "-1d"}}
  #     every: {days: 1, start: "2026-01-02"}
"""

    def checked(self, context: dg.ComponentLoadContext) -> None:
        self.sensor({})

    def sensor(self, levels: Levels) -> dg.SensorDefinition:
        return _Reading(levels).call(type(self).declare, self.arguments)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions(
            sensors=[self.sensor(_levels(_parts(context.component_tree)))],
            resources={"lakechime": LAKECHIME},
        )


class DeadlineComponent(TriggerComponent):
    """A job that is launched for each key that passed the deadline of a partition trigger."""

    declare = staticmethod(deadline_sensor)
    example = """\
  trigger: features           # the name of a partition trigger with a deadline
  job: notify                 # the name of a job; its run has tags that say what is missing
"""


class LakePart(LakeChimeComponent):
    """A declaration of the project's lake."""

    # the definitions of each part, kept by the first
    shares: "Mapping[LakePart, dg.Definitions]" = MappingProxyType({})

    def declared(self, levels: Levels) -> list[Declared]:
        """Its tables, streams and groups."""
        return [_Reading(levels, self.folder).call(type(self).declare, self.arguments)]

    def levels(self) -> Levels:
        """The partition levels of its tables, by which conditions on them are typed."""
        storage = _Reading().value(Storage, self.arguments.get("storage") or Storage())
        return {self.arguments["name"]: storage.partitioned_by or {}}

    def checked(self, context: dg.ComponentLoadContext) -> None:
        self.declared({})

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        parts = _parts(context.component_tree)
        first = parts[0]
        first.shares = first.shares or _shares(parts, context.defs_module_name)
        return first.shares[self]


class SourceTableComponent(LakePart):
    """A lake table that others write."""

    declare = SourceTable
    example = """\
  name: bronze.orders
  storage:
    partitioned_by: {day: date}
    # location: s3://lake/bronze/orders     # <warehouse>/bronze/orders by default
  asset:
    owner: team:shop
    description: Orders as the shop wrote them
"""


class SqlTableComponent(LakePart):
    """A lake table computed by a Spark SQL query, kept up to date incrementally."""

    declare = staticmethod(sql_table)
    example = """\
  name: gold.revenue
  sql: {path: revenue.sql}
  keys: [day]
  refresh: affected_keys      # what a change of the inputs computes again: rows, affected_keys, partitions or full
  trigger:
    snapshot_trigger:         # runs as its inputs change
      every: {minutes: 5}
"""
    files = MappingProxyType(
        {
            "revenue.sql": (
                "-- Revenue of each day\nSELECT day, SUM(amount) AS revenue FROM bronze.orders "
                "GROUP BY day\n"
            )
        }
    )


class CDCTableComponent(LakePart):
    """A lake table that replicates a table of a business database from its change messages."""

    declare = staticmethod(cdc_table)
    example = """\
  name: silver.customers
  source:
    kafka_topic:              # or `json_lines: {folder: …}`
      topic: shop.public.customers
      bootstrap: "{{ env.KAFKA_BOOTSTRAP }}"
      every: {minutes: 1}
  envelope: {debezium: {}}    # or canal, maxwell, dms
  merge: {keys: [id]}
  asset:
    owner: team:shop
    columns: {email: email}   # columns with personal data, and of which category
"""

    def levels(self) -> Levels:
        merge = _Reading().value(CDCMerge, self.arguments.get("merge"))
        hours = {self.arguments["name"] + HOURS: HOUR_LEVELS}
        return {
            **super().levels(),
            **(hours if isinstance(merge, CDCMerge) and merge.max_transaction is not None else {}),
        }


class EventStreamComponent(LakePart):
    """A stream of JSON events, and the groups of its types, each of which becomes a typed table."""

    declare = staticmethod(event_stream)
    example = """\
  name: game
  source:
    json_lines: {folder: data/events}       # or kafka_topic, table_rows
  type_field: $.type
  groups:
    - name: shop                            # shop.<type> for each type that matches
      match: shop.*
      owner: team:shop
      contract: {kinds: freeze, pins: {/price: double}}
"""

    def declared(self, levels: Levels) -> list[Declared]:
        reading = _Reading(levels)
        stream = reading.call(
            event_stream,
            {name: value for name, value in self.arguments.items() if name != "groups"},
        )
        return [
            stream,
            *(
                event_group(stream=stream, **self._group(reading, one))
                for one in self.arguments.get("groups", ())
            ),
        ]

    def _group(self, reading: _Reading, arguments: Mapping[str, Any]) -> dict[str, Any]:
        hints = _parameters(event_group)
        return {name: reading.value(hints[name], value) for name, value in arguments.items()}


class LakeComponent(LakePart):
    """What holds for the whole lake: its name, tables declared in Python, alarms. A project has one
    at most, and needs none.
    """

    declare = staticmethod(_lake)
    example = """\
  name: shop
  # tables: [my_project.tables:silver_orders]  # of spark_table and others declared in Python
  # alarms: [$SHOP_ALARMS]  # environment variables with URLs of apprise, for checks that fail
"""

    def options(self) -> dict[str, Any]:
        """The arguments of the lake but its tables."""
        return {
            name: value
            for name, value in _Reading().call(_lake, self.arguments).items()
            if name != "tables"
        }

    def declared(self, levels: Levels) -> list[Declared]:
        return [_imported(one) for one in self.arguments.get("tables", ())]

    def levels(self) -> Levels:
        return {
            one.name: one.levels.as_dict()
            for one in self.declared({})
            if not isinstance(one, EventStream | EventGroup)
        }


_TABLES = (
    SourceTableComponent,
    SqlTableComponent,
    CDCTableComponent,
    EventStreamComponent,
    LakeComponent,
)


def _imported(name: str) -> Any:
    """What a name of the form `module:attribute` means."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise DeclarationError(
            "LakeComponent", "tables", f"{shown(name)} is no module:attribute: {error}"
        ) from error


def _names(declared: Declared) -> list[str]:
    """The tables of a declaration, and the group."""
    if isinstance(declared, EventStream):
        return [declared.table.name]
    return [
        declared.name,
        *(one.name for one in (declared.beside if isinstance(declared, CDCTable) else ())),
    ]


def _parts(tree: dg.ComponentTree) -> list[LakePart]:
    """The parts of a project's lake, that of the whole lake first."""
    return sorted(
        tree.get_all_components(of_type=LakePart),
        key=lambda part: not isinstance(part, LakeComponent),
    )  # type: ignore[type-abstract]


def _levels(parts: Iterable[LakePart]) -> dict[str, Mapping[str, str]]:
    return {table: levels for part in parts for table, levels in part.levels().items()}


def _lake_of(parts: Sequence[LakePart], declared: Iterable[Declared], defs_module: str) -> Lake:
    """The lake of which these are all parts, with what they declare; it has the name of the
    project's package by default.

    Raises:
        DeclarationError: they do not fit each other.
    """
    whole = [part for part in parts if isinstance(part, LakeComponent)]
    if len(whole) > 1:
        raise DeclarationError(
            "LakeComponent",
            "name",
            f"is declared {len(whole)} times, and a project has one lake; keep one file",
        )
    options: dict[str, Any] = {"name": re.sub(r"\W", "_", defs_module.partition(".")[0])}
    return Lake(tables=declared, **(options | (whole[0].options() if whole else {})))


def _shares(parts: Sequence[LakePart], defs_module: str) -> dict[LakePart, dg.Definitions]:
    """The definitions of a lake: of each part the assets of its tables, so that they link to its
    file; of the first all else too.
    """
    with needs("a lake", extra="delta"):
        from lakechime_dagster.definitions import build_definitions
    levels = _levels(parts)
    declared = {part: part.declared(levels) for part in parts}
    names = {
        name: part for part, several in declared.items() for one in several for name in _names(one)
    }
    try:
        built = build_definitions(
            _lake_of(parts, [one for several in declared.values() for one in several], defs_module)
        )
    except DeclarationError as error:
        if error.declared not in names:
            raise
        raise DeclarationError(
            f"{names[error.declared].folder}: {error.declared}", error.field, error.remedy
        ) from error
    owners = {asset_key(name): part for name, part in names.items()}
    assets: dict[LakePart, list[Any]] = {part: [] for part in parts}
    for asset in built.assets or ():
        keys = (
            asset.keys
            if isinstance(asset, dg.AssetsDefinition)
            else [asset.key]
            if isinstance(asset, dg.AssetSpec)
            else []
        )
        assets[next((owners[key] for key in keys if key in owners), parts[0])].append(asset)
    rest = dg.Definitions(
        assets=assets[parts[0]],
        asset_checks=built.asset_checks,
        jobs=built.jobs,
        sensors=built.sensors,
        resources=built.resources,
        executor=built.executor,
    )
    return {part: dg.Definitions(assets=several) for part, several in assets.items()} | {
        parts[0]: rest
    }
