"""Whether the lake has the newest row of a database's table: a probe that costs one look into an index, and no comparison."""

import os
from collections.abc import Iterator, Mapping

from sqlglot import exp

from lakechime_dagster.capture.rows import TABLE, column, row_is
from lakechime_dagster.cdc.comparing.keeping_up import NewestId, SeenId
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lake.databases import Database, url_in
from lakechime_dagster.lake.feeds import shard_columns
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.resources.followed import Followed
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
    if not monitor.is_comparing:
        return
    for values, database in monitor.databases.items():
        shard = dict(zip(shard_columns(followed.table.bronze.feed.shards), values, strict=True))
        name = ", ".join(values)
        try:
            found = _newest(followed, database, shard, before.get(name))
        except LakeChimeError as error:
            yield f"shard {name}: {error}" if name else str(error)
            continue
        if found is not None:
            yield NewestId(shard=name, in_database=found[0], in_lake=found[1], lacking=found[2])


def _newest(
    followed: Followed, database: Database, shard: Mapping[str, str], before: SeenId | None
) -> tuple[int, int | None, SeenId | None] | None:
    """The newest id of the database, that of the lake, and the earlier one where the database has it still and the lake has not."""
    types = followed.target.types()
    names = zip(followed.table.keys, followed.table.bronze.keys, strict=True)
    own = [(here, there) for here, there in names if here not in shard]
    if len(own) != 1 or types.get(own[0][0]) not in WHOLE:
        return None
    ((here, there),) = own
    newest, is_there = newest_id(url_in(os.environ, database.url, "database"), database.source_table, there, before and before.id)
    if newest is None:
        return None
    of_shard = row_is(shard, types)
    (lake,) = followed.target.query(exp.select(exp.Max(this=column(here)).as_("newest")).from_(TABLE).where(*of_shard))
    is_lacking = before is not None and is_there and not followed.target.count(*of_shard, *row_is({here: before.id}, types))
    return newest, lake["newest"], before if is_lacking else None
