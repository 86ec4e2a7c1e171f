"""Partitions, inputs and parameters of an asset, as Dagster needs them."""

import datetime as dt
import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.partitions import LevelType, PartitionLevels
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lineage.manifest import FILE, Manifest
from lakechime_dagster.runtime.names import asset_key, op_name
from lakechime_dagster.tables.lake import Lake, Table, Target, find_cycle, writer_of
from lakechime_dagster.tables.tables import LakeTable, RefreshMode, SourceTable
from lakechime_dagster.triggers.schedule import OFFSET, HoursOf, Schedule, Tick
from lakechime_dagster.triggers.subscription import is_hourly, partition_of
from lakechime_dagster.triggers.triggers import LevelSpec, PartitionCondition, PartitionTrigger

HOUR_FORMAT = "%Y-%m-%d-%H"


def partitions_of(lake: Lake, table: Table) -> dg.PartitionsDefinition | None:
    """The partitions that Dagster shows of a table; None where it is run as a whole, or a source's
    levels are not times.

    A computed table has them when its trigger fires by partition, dynamic ones where its levels are
    not times; a source that others write when its levels are a date, or a date and an hour, and
    some trigger says when the lake's time begins.
    """
    if not table.levels or (
        isinstance(table, LakeTable) and not isinstance(table.trigger, PartitionTrigger)
    ):
        return None
    if isinstance(table, SourceTable) and writer_of(lake, table) is not None:
        return None
    span = lake.span
    if span is not None and table.levels.types == (LevelType.DATE,):
        end = span.end.isoformat() if span.end else None
        return dg.DailyPartitionsDefinition(
            span.start.isoformat(), end_date=end, end_offset=0 if end else span.days_ahead
        )
    if span is not None and is_hourly(table.levels):
        end = f"{span.end}-00" if span.end else None
        return dg.HourlyPartitionsDefinition(
            f"{span.start}-00",
            end_date=end,
            fmt=HOUR_FORMAT,
            timezone="UTC",
            end_offset=0 if end else span.hours_ahead,
        )
    if isinstance(table, LakeTable):
        return dg.DynamicPartitionsDefinition(name=f"{lake.name}__{'__'.join(table.levels.names)}")
    return None


def levels_text(levels: PartitionLevels) -> str:
    """The levels for people: `flight_date (date), hour (int)`."""
    return ", ".join(
        f"{name} ({kind.value})" for name, kind in zip(levels.names, levels.types, strict=True)
    )


def input_deps(lake: Lake, table: Target) -> list[dg.AssetDep]:
    """The declared inputs of a table."""
    below = partitions_of(lake, table)
    return [
        dg.AssetDep(asset_key(name), partition_mapping=mapping_of(lake, table, name, below))
        for name in table.inputs
    ]


def mapping_of(
    lake: Lake, table: Target, name: str, below: dg.PartitionsDefinition | None
) -> dg.PartitionMapping | None:
    """Which partitions of an input a partition of a table needs, of which `below` are; None where
    the input has none in Dagster.

    They are those for which its trigger waits. Of an input that it reads and does not wait for they
    are all, but for changes of a table that is replaced by partitions, of which a run reads those
    of its own.
    """
    above = partitions_of(lake, lake.table(name))
    if above is None:
        return None
    if (
        below is None
        or not isinstance(table, LakeTable)
        or not isinstance(table.trigger, PartitionTrigger)
    ):
        return dg.AllPartitionMapping()
    is_waited_for = bool(conditions_on(table.trigger, name))
    reads_own = (
        not is_waited_for
        and table.refresh is RefreshMode.PARTITIONS
        and _reads_changes(table, name)
    )
    if isinstance(above, dg.TimeWindowPartitionsDefinition) and isinstance(
        below, dg.TimeWindowPartitionsDefinition
    ):
        return (
            dg.TimeWindowPartitionMapping()
            if reads_own
            else window_mapping(table.trigger, table.levels, name)
        )
    is_own = reads_own or waits_for_own(table.trigger, table.levels, name)
    return dg.IdentityPartitionMapping() if above == below and is_own else dg.AllPartitionMapping()


def _reads_changes(table: LakeTable, name: str) -> bool:
    """Whether all that a table reads of an input are changes."""
    return all(
        read.is_changing and read.table == name
        for read in table.reads.values()
        if name in (read.table, read.rejoin)
    )


def with_signature(body: Any, table: LakeTable) -> Any:
    """The body with the parameters that Dagster should give: its own, and those that the table's
    function asks for.

    Raises:
        DeclarationError: the function calls something else by the name of one of ours.
    """
    own = {
        one.name: one
        for one in inspect.signature(body).parameters.values()
        if one.kind is not inspect.Parameter.VAR_KEYWORD
    }
    asked = []
    for one in table.injected:
        if one.name not in own:
            asked.append(
                inspect.Parameter(
                    one.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=one.annotation
                )
            )
        elif one.name != "context" and one.annotation is not (ours := own[one.name].annotation):
            remedy = (
                f"is the {ours.__name__} of this package; annotate it so, or give it another name"
            )
            raise DeclarationError(table.name, f"parameter {one.name!r}", remedy)
    body.__signature__ = inspect.Signature([*own.values(), *asked])
    body.__annotations__ = {
        parameter.name: parameter.annotation for parameter in body.__signature__.parameters.values()
    }
    body.__name__ = op_name(table.name)
    body.__doc__ = table.description
    return body


def shared_with(table: LakeTable, own: Mapping[str, Any]) -> dict[str, Any]:
    """What of the body's own parameters the table's function asks for too."""
    return {one.name: own[one.name] for one in table.injected if one.name in own}


def check_inputs(table: LakeTable, asset: dg.AssetsDefinition) -> None:
    """Refuse a parameter that Dagster takes for one more input, as it is nothing else to it.

    Raises:
        DeclarationError: naming the parameter.
    """
    strange = set(asset.dependency_keys) - {asset_key(name) for name in table.inputs}
    for one in table.injected:
        if asset_key(one.name) in strange:
            remedy = (
                "is no input, `context`, `config` or resource by its annotation; give it a "
                "default, or leave it out"
            )
            raise DeclarationError(table.name, f"parameter {one.name!r}", remedy)


def planned_inputs(lake: Lake, manifest: Manifest | None) -> Mapping[str, tuple[str, ...]]:
    """By table the tables of the lake that its code reads beside the declared ones, as the manifest
    has it.

    Raises:
        DeclarationError: together they are a cycle; it names the path.
    """
    if manifest is None or manifest.lake != lake.name:
        return {}
    declared, known = lake.graph(), manifest.tables
    found = {
        table.name: tuple(
            name
            for name in known[table.name].inputs
            if name in declared and name not in (*table.inputs, table.name)
        )
        for table in lake.computed
        if table.name in known
    }
    found = {name: inputs for name, inputs in found.items() if inputs}
    cycle = find_cycle({name: (*inputs, *found.get(name, ())) for name, inputs in declared.items()})
    if cycle is not None:
        raise DeclarationError(
            cycle[0],
            FILE,
            f"is a cycle: {' ← '.join(cycle)}; let one of them not read the next, and plan again",
        )
    return found


def planned_deps(lake: Lake, manifest: Manifest | None) -> Mapping[str, tuple[dg.AssetDep, ...]]:
    """The same as dependencies; a table that is read so is read whole, whatever its partitions."""
    return {
        table: tuple(_dep(lake, name) for name in inputs)
        for table, inputs in planned_inputs(lake, manifest).items()
    }


def _dep(lake: Lake, name: str) -> dg.AssetDep:
    whole = dg.AllPartitionMapping() if partitions_of(lake, lake.table(name)) is not None else None
    return dg.AssetDep(asset_key(name), partition_mapping=whole)


# How far from a partition those lie for which a trigger waits

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
# formats that name a whole day, or an hour
PLAIN = {LevelType.DATE: (None, "%Y-%m-%d"), LevelType.INT: ("%H",)}
MINUTES_OF_DAY = 24 * 60
TWO_DAYS = (
    49  # hours: one of the days is one at which no clocks change, so that all hours are among them
)


def conditions_on(trigger: PartitionTrigger, table: str) -> tuple[PartitionCondition, ...]:
    """What a trigger waits for of a table of its own lake."""
    return tuple(one for one in trigger.conditions if one.table == table and not one.cluster)


def window_mapping(
    trigger: PartitionTrigger, target: PartitionLevels, table: str
) -> dg.PartitionMapping:
    """The least window around a target's own day or hour that holds, for every key, what it waits
    for of a table.

    All partitions where the distance is not the same for all keys, such as to the day a month
    before, or the levels are no days or hours.
    """
    conditions = conditions_on(trigger, table)
    if not conditions or not all(map(_is_time, (target, *[one.levels for one in conditions]))):
        return dg.AllPartitionMapping()
    specs = [*_own_specs(trigger, target), *(spec for one in conditions for spec in _specs_on(one))]
    if not _move_alike(specs, trigger.every.zone):
        return dg.AllPartitionMapping()
    width = _width(target)
    before: list[int] = []
    after: list[int] = []
    for point in _moments(trigger.every, target):
        key = trigger.key_at(point)
        values = partition_of(target, key)
        if values is None:
            return dg.AllPartitionMapping()
        own = _start(target, values)
        for one in conditions:
            starts = [
                _start(one.levels, json.loads(atom.canonical))
                for atom in one.atoms(point, trigger.every.zone)
            ]
            before.append(math.ceil((min(starts) + _width(one.levels) - own) / width) - 1)
            after.append((max(starts) - own) // width)
    start, end = min(before), max(after)
    if end < start:
        # each of them is enough: one that is longer than the target's own is met by several of its
        # windows
        start = end = max(end, min(0, start))
    return dg.TimeWindowPartitionMapping(start, end)


def waits_for_own(trigger: PartitionTrigger, target: PartitionLevels, table: str) -> bool:
    """Whether each key waits, of a table with the levels of the target, for the partition that it
    stands for itself, and for no other.
    """
    conditions = conditions_on(trigger, table)
    if len(conditions) != 1 or conditions[0].levels != target:
        return False
    first = {
        name: next(spec for one in trigger.conditions for level, spec in one.specs if level == name)
        for name in target.names
    }
    return dict(conditions[0].specs) == first and not any(
        isinstance(spec, tuple | HoursOf) for spec in first.values()
    )


def _is_time(levels: PartitionLevels) -> bool:
    return levels.types == (LevelType.DATE,) or is_hourly(levels)


def _width(levels: PartitionLevels) -> dt.timedelta:
    return HOUR if is_hourly(levels) else DAY


def _start(levels: PartitionLevels, values: Sequence[object]) -> dt.datetime:
    hours = values[1] if is_hourly(levels) else 0
    return datetime_of_iso(str(values[0])) + int(str(hours)) * HOUR


def _own_specs(
    trigger: PartitionTrigger, target: PartitionLevels
) -> list[tuple[LevelType, LevelSpec]]:
    """What may say a key's own day and hour: of each level the first single value, and what stands
    before.
    """
    found: list[tuple[LevelType, LevelSpec]] = []
    for name, kind in zip(target.names, target.types, strict=True):
        for condition in trigger.conditions:
            spec = dict(condition.specs).get(name)
            found += _each(kind, spec)
            if spec is not None and not isinstance(spec, tuple | HoursOf):
                break
    return found


def _specs_on(condition: PartitionCondition) -> list[tuple[LevelType, LevelSpec]]:
    kinds = dict(zip(condition.levels.names, condition.levels.types, strict=True))
    return [one for name, spec in condition.specs for one in _each(kinds[name], spec)]


def _each(kind: LevelType, spec: LevelSpec) -> list[tuple[LevelType, LevelSpec]]:
    several = spec if isinstance(spec, tuple) else () if spec is None else (spec,)
    return [(kind, one) for one in several]


def _move_alike(specs: Sequence[tuple[LevelType, LevelSpec]], zone: str) -> bool:
    """Whether all days and hours move with the schedule: then the time of the day decides how far
    they are apart.

    What all offsets begin with may be of any unit. What follows are days, or hours and minutes
    where all days have 24 hours.
    """
    dates = {spec for kind, spec in specs if kind is LevelType.DATE}
    if not all(isinstance(spec, Tick) for spec in dates):
        return False
    days = {spec.day if isinstance(spec, HoursOf) else spec for _, spec in specs}
    ticks = {day for day in days if isinstance(day, Tick)}
    if len(ticks) == 1:
        return True
    if any(isinstance(spec, Tick) and spec.format not in PLAIN[kind] for kind, spec in specs):
        return False
    offsets = [
        [(int(amount), unit) for amount, unit in OFFSET.findall(one.offset)] for one in ticks
    ]
    shared = 0
    while all(len(one) > shared for one in offsets) and len({one[shared] for one in offsets}) == 1:
        shared += 1
    units = {"w", "d", "h", "m"} if zone == "UTC" else {"w", "d"}
    return all(unit in units for one in offsets for _, unit in one[shared:])


def _moments(every: Schedule, target: PartitionLevels) -> Iterator[dt.datetime]:
    """Ticks at every time of the day at which a schedule has one; where clocks change, at every
    hour, of which days are the same.
    """
    if every.zone != "UTC":
        return (every.first + n * HOUR for n in range(TWO_DAYS if is_hourly(target) else 1))
    step = (every.point(1) - every.first) // dt.timedelta(minutes=1)
    return (every.point(n) for n in range(MINUTES_OF_DAY // math.gcd(step, MINUTES_OF_DAY)))
