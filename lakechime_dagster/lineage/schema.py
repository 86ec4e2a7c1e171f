"""Tables of recorded lineage."""

import sqlalchemy as sa

from lakechime_dagster.dce.engine import BIG
from lakechime_dagster.dce.schema import metadata

KEY = sa.LargeBinary(16)

# A data set, or a column of one.
node = sa.Table(
    "lc_lineage_node",
    metadata,
    sa.Column("node_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("key", KEY, nullable=False, unique=True),
    sa.Column("dataset_id", BIG),  # null of a data set
    sa.Column("name", sa.Text, nullable=False),
    sa.Index("lc_lineage_node_of_dataset", "dataset_id"),
    sqlite_autoincrement=True,
)

# A producer at one of its targets, with the statement of its newest run.
writer = sa.Table(
    "lc_lineage_writer",
    metadata,
    sa.Column("writer_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("key", KEY, nullable=False, unique=True),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("job", sa.Text, nullable=False),
    sa.Column("target_id", BIG, nullable=False),
    sa.Column("statement_id", BIG),
    sa.Column("first_ms", BIG),
    sa.Column("at_ms", BIG, nullable=False),
    # of runs at the same time the one whose digest is greater is the newer
    sa.Column("run_key", KEY, nullable=False),
    sa.Column("consumer", sa.Text),
    sa.Column("code", sa.Text),
    sa.Column("owners", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("links", sa.JSON, nullable=False, server_default="{}"),
    sa.Index("lc_lineage_writer_of_target", "target_id"),
    sa.Index("lc_lineage_writer_of_statement", "statement_id"),
    sqlite_autoincrement=True,
)

# What a run says of a target, kept once however many runs say it.
statement = sa.Table(
    "lc_lineage_statement",
    metadata,
    sa.Column("statement_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("key", KEY, nullable=False, unique=True),
    sa.Column("target_id", BIG, nullable=False),
    # as `lineage.columns.statement_json` writes it
    sa.Column("statement", sa.JSON, nullable=False),
    sqlite_autoincrement=True,
)

# A data set that is read; `parts` says how it takes part, by the bits of `lineage.graph.Part`.
statement_input = sa.Table(
    "lc_lineage_input",
    metadata,
    sa.Column(
        "statement_id",
        BIG,
        sa.ForeignKey("lc_lineage_statement.statement_id"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("source_id", BIG, primary_key=True, autoincrement=False),
    sa.Column("parts", sa.SmallInteger, nullable=False),
    sa.Index("lc_lineage_input_of_source", "source_id"),
)

# A dashboard, a person or a job that reads.
consumer = sa.Table(
    "lc_lineage_consumer",
    metadata,
    sa.Column("consumer_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("key", KEY, nullable=False, unique=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # these two are those of its newest read
    sa.Column("owners", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("link", sa.Text, nullable=False, server_default=""),
    sa.Column("newest_ms", BIG, nullable=False, server_default="-1"),
    sqlite_autoincrement=True,
)

# A consumer read a column, or a data set of which the columns are unknown.
read = sa.Table(
    "lc_lineage_read",
    metadata,
    sa.Column("node_id", BIG, primary_key=True, autoincrement=False),
    sa.Column("consumer_id", BIG, primary_key=True, autoincrement=False),
    sa.Column("last_ms", BIG, nullable=False),
    sa.Index("lc_lineage_read_of_consumer", "consumer_id"),
)

# What documents report of a run of which more may come.
pending_run = sa.Table(
    "lc_lineage_pending_run",
    metadata,
    sa.Column("key", KEY, primary_key=True),
    # as `lineage.reports.RunReport.to_json` writes it
    sa.Column("report", sa.JSON, nullable=False),
    sa.Column("updated_ms", BIG, nullable=False),
    sa.Index("lc_lineage_pending_run_updated", "updated_ms"),
)

# A way by which other programs report, such as an audit table; since when.
way = sa.Table(
    "lc_lineage_way",
    metadata,
    sa.Column("name", sa.String(512), primary_key=True),
    sa.Column("since_ms", BIG, nullable=False),
    sa.Column("last_ms", BIG, nullable=False),
    sa.Column("checkpoint", sa.Text),  # up to where it was read, of what is read by versions
)
