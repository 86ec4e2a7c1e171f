"""Tables of what other programs tell: who read which columns when, runs of which more may come, and the ways by which it is told.

Times are milliseconds since the epoch, but for `since_ms`, `last_ms` of ways and `updated_ms`, of the clocks of those who ran.
"""

import sqlalchemy as sa

from lakechime_dagster.store.dialect import BIG
from lakechime_dagster.store.lineage.schema import KEY
from lakechime_dagster.store.schema import metadata

# A dashboard, a person or a job that reads.
consumer = sa.Table(
    "lc_told_consumer",
    metadata,
    sa.Column("consumer_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("key", KEY, nullable=False, unique=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("owners", sa.JSON, nullable=False, server_default="[]"),  # these two: as its newest read told them
    sa.Column("link", sa.Text, nullable=False, server_default=""),
    sa.Column("told_ms", BIG, nullable=False, server_default="-1"),
    sqlite_autoincrement=True,
)

# A consumer read a column, or a data set of which it is not told which columns.
read = sa.Table(
    "lc_told_read",
    metadata,
    sa.Column("node_id", BIG, primary_key=True, autoincrement=False),
    sa.Column("consumer_id", BIG, primary_key=True, autoincrement=False),
    sa.Column("first_ms", BIG, nullable=False),
    sa.Column("last_ms", BIG, nullable=False),
    sa.Index("lc_told_read_of_consumer", "consumer_id"),
)

# What came of a run of which more may come.
arriving = sa.Table(
    "lc_told_arriving",
    metadata,
    sa.Column("key", KEY, primary_key=True),
    sa.Column("facts", sa.JSON, nullable=False),
    sa.Column("updated_ms", BIG, nullable=False),
    sa.Index("lc_told_arriving_updated", "updated_ms"),
)

# A way by which it is told, such as an audit table; since when.
way = sa.Table(
    "lc_told_way",
    metadata,
    sa.Column("name", sa.String(512), primary_key=True),
    sa.Column("since_ms", BIG, nullable=False),
    sa.Column("last_ms", BIG, nullable=False),
    sa.Column("documents", BIG, nullable=False),
    sa.Column("refused", BIG, nullable=False),
    sa.Column("outside", BIG, nullable=False),  # data sets told of that the lake does not know
    sa.Column("place", sa.Text),  # up to where it was read, of what is read by versions
)
