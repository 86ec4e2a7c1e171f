"""Dependencies on inputs, each with the partitions of the input that a partition needs."""

import dagster as dg

from lakechime_dagster.assets.partitions import partitions_of
from lakechime_dagster.lake.lake import Lake, Target
from lakechime_dagster.lake.tables import LakeTable, RefreshMode
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.triggers.model import PartitionTrigger
from lakechime_dagster.triggers.offsets import Offsets, conditions_on, offsets_of, waits_for_own


def input_deps(lake: Lake, table: Target) -> list[dg.AssetDep]:
    """The declared inputs of a table."""
    below = partitions_of(lake, table)
    return [dg.AssetDep(asset_key(name), partition_mapping=mapping_of(lake, table, name, below)) for name in table.inputs]


def mapping_of(lake: Lake, table: Target, name: str, below: dg.PartitionsDefinition | None) -> dg.PartitionMapping | None:
    """Which partitions of an input a partition of a table needs, of which `below` are; None where the input has none in Dagster.

    They are those for which its trigger waits. Of an input that it reads and does not wait for they are all, but for changes of
    a table that is replaced by partitions, of which a run reads those of its own.
    """
    above = partitions_of(lake, lake.table(name))
    if above is None:
        return None
    if below is None or not isinstance(table, LakeTable) or not isinstance(table.trigger, PartitionTrigger):
        return dg.AllPartitionMapping()
    is_waited_for = bool(conditions_on(table.trigger, name))
    reads_own = not is_waited_for and table.refresh is RefreshMode.PARTITIONS and _reads_changes(table, name)
    if isinstance(above, dg.TimeWindowPartitionsDefinition) and isinstance(below, dg.TimeWindowPartitionsDefinition):
        offsets = Offsets(0, 0) if reads_own else offsets_of(table.trigger, table.levels, name)
        return dg.AllPartitionMapping() if offsets is None else dg.TimeWindowPartitionMapping(offsets.start, offsets.end)
    is_own = reads_own or waits_for_own(table.trigger, table.levels, name)
    return dg.IdentityPartitionMapping() if above == below and is_own else dg.AllPartitionMapping()


def _reads_changes(table: LakeTable, name: str) -> bool:
    """Whether all that a table reads of an input are changes."""
    return all(read.is_changing and read.table == name for read in table.reads.values() if name in (read.table, read.rejoin))
