"""Names that assets and sensors share: tags of runs, names of ops, keys of assets and of their
checks.
"""

import re
from typing import TYPE_CHECKING

from lakechime_dagster.triggers.consumers import Execution

if TYPE_CHECKING:
    import dagster as dg

    from lakechime_dagster.tables.cdc import CDCTable
    from lakechime_dagster.tables.events import EventGroup
    from lakechime_dagster.tables.lake import Target


EXECUTION_TAG = "lakechime/execution"  # of a run: the id of its execution
CONSUMER_TAG = "lakechime/consumer"  # of a run: its consumer, shortened
CAUSE_TAG = "lakechime/cause"  # of a run: why its execution was claimed
# of a run that a passed deadline launched: the trigger, the partition key, and what it lacks
TRIGGER_TAG, KEY_TAG, LACKS_TAG = "lakechime/trigger", "lakechime/key", "lakechime/lacks"
ATTEMPT_TAG = "lakechime/attempt"  # of a run: the attempt, from 1 on
BACKFILL_TAG = "lakechime/backfill"  # of a run: the backfill that requested it
# of runs that Dagster's own backfills launch; it counts what runs with it materialise
DAGSTER_BACKFILL_TAG = "dagster/backfill"
MAINTENANCE_TAG = "lakechime/maintenance"  # of a run: the table whose files it maintains
MAINTENANCE = "__maintenance"  # what the name of a table's maintenance ends with
# checks of a CDC table
KEEPS_UP, NOTHING_LOST, SAME_AS_DATABASE = "keeps_up", "nothing_lost", "same_as_database"
EACH_EVENT_ONCE = "each_event_once"  # the check of a group that is made at times of its own
MAX_TAG = 200  # characters of a consumer's name in a tag; the id in the other tag is exact


def asset_name(table: str) -> str:
    """The asset key of a table as text: its name with slashes for dots."""
    return table.replace(".", "/")


def asset_key(table: str) -> "dg.AssetKey":
    """The asset key of a table: its name split at dots, and of one outside of the lake, which has
    slashes, at these alone.
    """
    import dagster as dg  # a second that commands without assets need not wait

    text = table if "/" in table else asset_name(table)
    return dg.AssetKey([part for part in text.split("/") if part] or [table])


def verify_check_key(group: "EventGroup") -> "dg.AssetCheckKey":
    """The check of a group that no execution of it reports."""
    import dagster as dg

    return dg.AssetCheckKey(asset_key(group.name), EACH_EVENT_ONCE)


def monitor_check_keys(table: "CDCTable", *, may_compare: bool = True) -> "list[dg.AssetCheckKey]":
    """The checks by which a table is watched.

    That it keeps up; where the topic of transactions is declared that nothing of them is lost;
    where its database is declared that it is the same.
    """
    import dagster as dg

    names = [KEEPS_UP] + [NOTHING_LOST] * bool(table.bronze.source.transactions)
    if table.monitor is not None and table.monitor.is_comparing:
        names += [SAME_AS_DATABASE] * may_compare
    return [dg.AssetCheckKey(asset_key(table.name), name) for name in names]


def dagster_name(text: str) -> str:
    """A name that Dagster takes for a sensor or job: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def maintenance_name(table: str) -> str:
    """The name of the asset of a table's maintenance, as if it were a table."""
    return table + MAINTENANCE


def pool_of(table: "Target") -> str | None:
    """The pool of a table that is maintained, of which a run at it takes a slot; the declared one,
    or one of its own.
    """
    return table.dagster.get("pool") or (table.name if table.maintenance is not None else None)


def op_name(table: str) -> str:
    """The name of the op that computes a table."""
    return table.replace(".", "__")


def run_tags(execution: Execution) -> dict[str, str]:
    """The references by which a run finds its execution; never lists."""
    consumer = (
        f"{execution.consumer.subscription}[{execution.consumer.key}]"
        if execution.consumer.key
        else execution.consumer.subscription
    )
    return {
        EXECUTION_TAG: execution.execution_id,
        CONSUMER_TAG: consumer[:MAX_TAG],
        CAUSE_TAG: execution.cause.value,
        ATTEMPT_TAG: str(execution.attempt),
        **({BACKFILL_TAG: execution.backfill[:MAX_TAG]} if execution.backfill else {}),
        **(
            {DAGSTER_BACKFILL_TAG: execution.dagster_backfill} if execution.dagster_backfill else {}
        ),
    }
