"""Personal values never are a partition level: refused as a lake is loaded, where its manifest tells, else before a step writes.

As levels they would stand in names of folders, in partition keys, events, tags and logs. What only may be there is no reason.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakechime_dagster.errors import DeclarationError, LaneHeldError
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.lineage.personal.declared import declared_tags
from lakechime_dagster.lineage.planned.current import planned_of
from lakechime_dagster.lineage.planned.manifest import FILE, Manifest
from lakechime_dagster.lineage.record import Statement
from lakechime_dagster.resources.lineage.runs import statement_of
from lakechime_dagster.resources.platform import open_platform_without_store
from lakechime_dagster.resources.running import RunningExecution
from lakechime_dagster.spark.job import Seen
from lakechime_dagster.triggers.model import PartitionTrigger

if TYPE_CHECKING:
    from lakechime_dagster.lineage.personal.tags import Tagged

HELD = "a partition level would hold personal values: "  # how the reason of such a hold begins


def refuse_personal_levels(lake: Lake, manifest: Manifest | None) -> None:
    """Refuse a lake of whose code the manifest tells that values of a column that is declared personal are a partition level.

    The store is asked for what people decided only where there is something to refuse.

    Raises:
        DeclarationError: naming table, level, the personal column and the remedy.
    """
    if manifest is None or manifest.lake != lake.name or not any(table.levels for table in lake.computed) or not declared_tags(lake):
        return
    from lakechime_dagster.lineage.graph.network import network_of  # numpy, which each process would pay for
    from lakechime_dagster.lineage.personal.tags import followed, on_levels
    from lakechime_dagster.resources.personal.reached import PersonalData, levels_of

    declared = (Statement(target=table.name, inputs=table.inputs) for table in lake.targets)
    network, levels = network_of([], [*planned_of(lake, manifest).values(), *declared]), levels_of(lake)
    if not on_levels(followed(network, declared_tags(lake), (), levels), levels):
        return
    platform, why = open_platform_without_store()
    found = on_levels(PersonalData(platform, lake).found(network, levels), levels)
    if not found:
        return
    unasked = f" (what people decided is not known: {why})" if why else ""
    raise DeclarationError(found[0].ref.table, "partitioned_by", f"{_sentences(found)}{_waiting(lake, found)}, as {FILE} tells{unasked}")


def check_levels(running: RunningExecution, lake: Lake, table: LakeTable, seen: Seen) -> None:
    """Let a step write what was seen of it only if no level of its table holds values of a column that is known to be personal.

    Raises:
        LaneHeldError: naming table, level, the personal column and the remedy.
    """
    if not table.levels:
        return
    from lakechime_dagster.lineage.personal.tags import on_levels  # as above
    from lakechime_dagster.resources.personal.reached import PersonalData, levels_of

    data = PersonalData(running.platform, lake)
    if not data.tags:
        return
    network = data.network_above(table.name, statement_of(seen, lake, table, running.platform))
    found = on_levels(data.found(network, [table.name]), levels_of(lake))
    if found:
        raise LaneHeldError(f"{HELD}{_sentences(found)}; nothing was written")


def _sentences(found: "Iterable[Tagged]") -> str:
    return "; ".join(map(_sentence, found))


def _sentence(one: "Tagged") -> str:
    from lakechime_dagster.lineage.personal.tags import level_remedy

    origin, *between = one.path[:-1] or one.path
    way = f" by way of {' and '.join(map(str, between))}" if between else ""
    told = f"is personal ({one.category})" if one.is_source else f"holds values of {origin}, which is personal ({one.category}){way}"
    return f"level {one.ref.column!r} of {one.ref.table} {told}: {level_remedy(one.ref)}"


def _waiting(lake: Lake, found: "Iterable[Tagged]") -> str:
    """Whose keys would be made of such levels, too."""
    tables = {one.ref.table for one in found}
    names = [one.name for one in lake.computed if isinstance(one.trigger, PartitionTrigger) and not tables.isdisjoint(one.trigger.tables)]
    return f"; the keys of {', '.join(names)} would name it, too" if names else ""
