"""Whether the lake has the newest row of a database's table: a probe that costs one look into an index, and no comparison."""

import os
from collections.abc import Iterator, Mapping

from sqlglot import exp

from lakechime_dagster.capture.rows import TABLE, column, row_is
from lakechime_dagster.cdc.comparing.keeping_up import EarlierIds, NewestId
from lakechime_dagster.cdc.comparing.monitored import Part, parts_of
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lake.databases import url_in
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.resources.following.followed import Followed
from lakechime_dagster.sources.newest import newest_id

WHOLE = ("bigint", "int", "smallint", "tinyint")


def newest_ids(followed: Followed, monitor: Monitor, before: Mapping[str, EarlierIds]) -> Iterator[NewestId | str]:
    """Of each database the newest id and that of the lake, and why it was not asked where it was not.

    Tables whose key is one whole number, beside the columns that tell a shard, have such ids.

    Args:
        followed: The table.
        monitor: Which names the databases.
        before: By shard what earlier looks saw.
    """
    feed = followed.table.bronze.feed
    for part in parts_of(monitor, followed.table.keys, feed.shards) if monitor.is_comparing else ():
        types = followed.target.types()
        if len(part.own_keys) == 1 and types.get(part.own_keys[0]) in WHOLE:
            yield from _newest(followed, part, types, before.get(part.name, EarlierIds()))


def _newest(followed: Followed, part: Part, types: Mapping[str, str], before: EarlierIds) -> Iterator[NewestId | str]:
    """What a database and the lake say; nothing where the database has no row and none is missing."""
    (key,) = part.own_keys
    there = dict(zip(followed.table.keys, followed.table.bronze.keys, strict=True))
    newest, in_database = None, None
    try:
        url = url_in(os.environ, part.database.url, "database")
        newest, in_database = newest_id(url, part.database.source_table, there[key], before.ids)
    except LakeChimeError as error:
        yield f"{part.told}{error}"
    if newest is None and not before.lacking:
        return
    rows = row_is(part.shard, types)
    (lake,) = followed.target.query(exp.select(exp.Max(this=column(key)).as_("newest")).from_(TABLE).where(*rows))
    known = [column(key).isin(*map(exp.Literal.number, before.ids))]
    in_lake = {row[key] for row in followed.target.select(key, where=(*rows, *known))} if before.ids else set()
    missing = before.missing(in_database, in_lake)
    if newest is not None or missing:
        yield NewestId(shard=part.name, in_database=newest, in_lake=lake["newest"], lacking=missing)
