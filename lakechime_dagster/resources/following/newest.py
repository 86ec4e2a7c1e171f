"""Whether the lake has the newest row of a database's table: a probe that costs one look into an index, and no comparison."""

import os
from collections.abc import Iterator, Mapping

from sqlglot import exp

from lakechime_dagster.capture.rows import TABLE, column, row_is
from lakechime_dagster.cdc.comparing.keeping_up import NewestId, SeenId
from lakechime_dagster.cdc.comparing.monitored import Part, parts_of
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lake.databases import url_in
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.resources.following.followed import Followed
from lakechime_dagster.sources.newest import newest_id

WHOLE = ("bigint", "int", "smallint", "tinyint")


def newest_ids(followed: Followed, monitor: Monitor, before: Mapping[str, SeenId]) -> Iterator[NewestId | str]:
    """Of each database the newest id and that of the lake, or why it was not asked.

    Tables whose key is one whole number, beside the columns that tell a shard, have such ids.

    Args:
        followed: The table.
        monitor: Which names the databases.
        before: By shard the newest id that a database had at an earlier look.
    """
    feed = followed.table.bronze.feed
    for part in parts_of(monitor, followed.table.keys, feed.shards) if monitor.is_comparing else ():
        try:
            found = _newest(followed, part, before.get(part.name))
        except LakeChimeError as error:
            yield f"{part.told}{error}"
        else:
            yield from [found] if found is not None else []


def _newest(followed: Followed, part: Part, before: SeenId | None) -> NewestId | None:
    """What a database and the lake say; None where the table has no such ids, or no row."""
    types, target = followed.target.types(), followed.target
    there = dict(zip(followed.table.keys, followed.table.bronze.keys, strict=True))
    if len(part.own_keys) != 1 or types.get(part.own_keys[0]) not in WHOLE:
        return None
    (key,) = part.own_keys
    url = url_in(os.environ, part.database.url, "database")
    newest, is_there = newest_id(url, part.database.source_table, there[key], before and before.id)
    if newest is None:
        return None
    rows = row_is(part.shard, types)
    (lake,) = target.query(exp.select(exp.Max(this=column(key)).as_("newest")).from_(TABLE).where(*rows))
    is_lacking = before is not None and is_there and not target.count(*rows, *row_is({key: before.id}, types))
    return NewestId(shard=part.name, in_database=newest, in_lake=lake["newest"], lacking=before if is_lacking else None)
