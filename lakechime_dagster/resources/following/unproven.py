"""What changes of its database's schema did to a table's rows, and no message of a row told; without a JVM."""

from lakechime_dagster.capture.rows import since, texts
from lakechime_dagster.cdc.comparing.log_place import BinlogPlace
from lakechime_dagster.cdc.comparing.untold import SeenSame, Untold, untold_change
from lakechime_dagster.cdc.messages.message import payload_of
from lakechime_dagster.cdc.messages.record import Control
from lakechime_dagster.resources.following.followed import Followed
from lakechime_dagster.triggers.grid import DAY_MS


def unproven(followed: Followed, seen: SeenSame | None) -> list[Untold]:
    """By the table's messages, the first ones first: none that lies before the place at which the table was seen to be the same.

    Messages that came a day before that are not read; of a table that was never seen so all its schema changes are.
    """
    assert followed.table.monitor is not None
    where = [texts("kind", Control.SCHEMA_CHANGE.value)]
    if seen is not None:
        where.append(since("timestamp", seen.at_ms - DAY_MS))
    found = list[Untold]()
    for row in followed.bronze.select("value", where=tuple(where)):
        change = untold_change(payload_of(row["value"].encode(), "value"), ".".join(followed.table.monitor.source_table))
        if change is not None and (seen is None or not BinlogPlace.of(seen.place).includes(change.position)):
            found.append(change)
    return sorted(found, key=lambda one: one.position)
