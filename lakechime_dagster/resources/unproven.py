"""What changes of its database's schema did to a table's rows, and no message of a row told; without a JVM."""

from sqlglot import exp

from lakechime_dagster.capture.rows import column, moment, texts
from lakechime_dagster.cdc.log_place import BinlogPlace
from lakechime_dagster.cdc.message import parsed
from lakechime_dagster.cdc.record import Control
from lakechime_dagster.cdc.untold import SeenSame, Untold, untold_change
from lakechime_dagster.resources.followed import Followed
from lakechime_dagster.resources.keeping_up import DAY_MS


def unproven(followed: Followed, seen: SeenSame | None) -> list[Untold]:
    """By the table's messages, the first ones first: none that lies before the place at which the table was seen to be the same.

    Messages that came a day before that are not read.
    """
    assert followed.table.monitor is not None
    where = [texts("kind", Control.SCHEMA_CHANGE.value)]
    if seen is not None:
        where.append(exp.GTE(this=column("timestamp"), expression=moment(seen.at_ms - DAY_MS)))
    found = list[Untold]()
    for row in followed.bronze.select("value", where=tuple(where)):
        message = parsed(row["value"].encode(), "value", is_exact=False)
        payload = message["payload"] if message.keys() == {"schema", "payload"} else message
        change = untold_change(payload, ".".join(followed.table.monitor.source_table))
        if change is not None and (seen is None or not BinlogPlace.of(seen.place).includes(change.position)):
            found.append(change)
    return sorted(found, key=lambda one: one.position)
