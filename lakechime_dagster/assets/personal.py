"""Personal data is tagged wherever it goes, is in no public table, and is no partition level.

Partition levels stand in names of folders, in partition keys, events, tags and logs.
"""

from typing import TYPE_CHECKING

import dagster as dg

from lakechime_dagster.errors import LaneHeldError
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.lineage.personal.tags import Reach, level_remedy, on_levels, within_reach
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.lineage.runs import statement_of
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.running import RunningExecution
from lakechime_dagster.spark.job import Seen

if TYPE_CHECKING:
    from lakechime_dagster.lineage.personal.tags import Tagged

PERSONAL_DECLARED = "personal_data_is_declared"
NOTHING_PERSONAL = "nothing_personal"
MAX_SHOWN = 50  # columns in the metadata of a check


def personal_specs(lake: Lake, table: LakeTable) -> list[dg.AssetCheckSpec]:
    """The check of a table that is public, or that personal columns reach by the declarations."""
    if table.public:
        told = "The table is public: no column of it holds personal data, or a pseudonym, as far as lineage tells."
    elif table.name in within_reach(lake):
        told = "Each column that personal data comes to is declared personal, or decided not to be, as far as lineage tells."
    else:
        return []
    return [dg.AssetCheckSpec(_name(table), asset=asset_key(table.name), description=told)]


def personal_results(lake: Lake, table: LakeTable, platform: Platform) -> list[dg.AssetCheckResult]:
    """What the check says by the lineage that is known now; a table without one has none.

    Values in a partition level are an error, also where that is known only since the commit.
    """
    if not personal_specs(lake, table):
        return []
    from lakechime_dagster.resources.personal.data import PersonalData  # numpy, which each process would pay for

    data = PersonalData(platform, lake)
    found = data.found(data.network_above(table.name), [table.name])
    wrong = data.leaks(found)
    unsure = sorted({one.ref.column or "its rows" for one in found if one.reach is Reach.UNSURE})
    metadata: dict[str, str | int] = {"columns that should not be": len({one.tagged.ref for one in wrong})}
    metadata |= {one.tagged.ref.column or "rows": one.remedy for one in wrong[:MAX_SHOWN]}
    if unsure:
        metadata["not known whether personal"] = ", ".join(unsure[:MAX_SHOWN])
    severity = dg.AssetCheckSeverity.ERROR if any(one.is_level for one in wrong) else dg.AssetCheckSeverity.WARN
    return [dg.AssetCheckResult(check_name=_name(table), passed=not wrong, severity=severity, metadata=metadata)]


def check_levels(running: RunningExecution, lake: Lake, table: LakeTable, seen: Seen) -> None:
    """Let an execution write only if no partition level of its table holds values of a column that is known to be personal.

    Raises:
        LaneHeldError: naming table, level, the personal column and the remedy.
    """
    if not table.levels:
        return
    from lakechime_dagster.resources.personal.data import PersonalData, levels_of  # as above

    data = PersonalData(running.platform, lake)
    if not data.tags:
        return
    network = data.network_above(table.name, statement_of(seen, lake, table, running.platform))
    found = on_levels(data.found(network, [table.name]), levels_of(lake))
    if found:
        raise LaneHeldError(f"a partition level would hold personal values: {'; '.join(map(_sentence, found))}; nothing was written")


def _sentence(one: "Tagged") -> str:
    origin, *between = one.path[:-1] or one.path
    way = f" by way of {' and '.join(map(str, between))}" if between else ""
    told = f"is personal ({one.category})" if one.is_source else f"holds values of {origin}, which is personal ({one.category}){way}"
    return f"level {one.ref.column!r} of {one.ref.table} {told}: {level_remedy(one.ref)}"


def _name(table: LakeTable) -> str:
    return NOTHING_PERSONAL if table.public else PERSONAL_DECLARED
