"""Tables of event types in the store."""

import sqlalchemy as sa

from lakechime_dagster.dce.schema import metadata

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# A type of a stream: the group that has it, its table, up to which version of the stream's table
# that holds its rows, its commits so
# far, and what completed executions counted.
event_type = sa.Table(
    "lc_event_type",
    metadata,
    sa.Column("type_id", Id, sa.Identity(), primary_key=True),
    sa.Column("deployment", sa.String(64), nullable=False),
    sa.Column("stream", sa.String(64), nullable=False),
    sa.Column("type", sa.String(512), nullable=False),
    sa.Column("group_name", sa.String(64), nullable=False),  # by the newest declaration
    # in the folder of the group that had the type first
    sa.Column("table_name", sa.String(200), nullable=False),
    sa.Column("checkpoint_uid", sa.String(128)),
    sa.Column("checkpoint_version", sa.BigInteger, nullable=False, server_default="-1"),
    sa.Column("commits", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("schema_version", sa.Integer, nullable=False, server_default="0"),
    sa.Column("observed", sa.JSON, nullable=False),  # [[path, kind], …]
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("due_ts", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("first_ts", sa.BigInteger, nullable=False),
    sa.Column("commit_ts", sa.BigInteger),  # of its last commit
    # of its last materialization in Dagster
    sa.Column("materialized_ts", sa.BigInteger, nullable=False, server_default="0"),
    # rows written, rescued, discarded; columns added; failed executions
    sa.Column("sums", sa.JSON, nullable=False),
    sa.Column("reasons", sa.JSON, nullable=False),  # values rescued, by reason
    sa.Column("variations", sa.BigInteger, nullable=False, server_default="0"),  # that are kept
    # rows that wait since the newest execution
    sa.Column("pending", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("waits", sa.Text, nullable=False, server_default=""),  # why they do
    # of its checkpoint, as they were counted last
    sa.Column("rows_behind", sa.BigInteger, nullable=False, server_default="0"),
    # when the first execution that left its rows where they are was completed
    sa.Column("behind_ts", sa.BigInteger),
    sa.UniqueConstraint("deployment", "stream", "type", name="lc_event_type_name"),
    sa.Index("lc_event_type_of_group", "deployment", "group_name"),
    sqlite_autoincrement=True,
)

# A schema is added, never changed. The one of a rebuild holds once its type has its number.
schema_version = sa.Table(
    "lc_schema_version",
    metadata,
    sa.Column("type_id", Id, sa.ForeignKey("lc_event_type.type_id"), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("columns", sa.JSON, nullable=False),
    sa.Column("variants", sa.Integer, nullable=False),  # variant columns among them, at any depth
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("actor", sa.String(256), nullable=False),
    sa.Column("made_ts", sa.BigInteger, nullable=False),
)

variation = sa.Table(
    "lc_variation",
    metadata,
    sa.Column("type_id", Id, sa.ForeignKey("lc_event_type.type_id"), primary_key=True),
    sa.Column("typed_hash", sa.String(32), primary_key=True),
    sa.Column("kinds", sa.JSON, nullable=False),  # [[path, kind], …]
)

# That somebody wants a type replayed or rebuilt, or what a stream refused reprocessed, and the
# result; of a table one is open at most.
event_request = sa.Table(
    "lc_event_request",
    metadata,
    sa.Column("request_id", Id, sa.Identity(), primary_key=True),
    sa.Column("deployment", sa.String(64), nullable=False),
    sa.Column("table_name", sa.String(200), nullable=False),  # of the type, or of the stream
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("asked_ts", sa.BigInteger, nullable=False),
    sa.Column("execution_id", sa.String(32)),  # that did it
    # replaced, added, removed; null where it was cancelled
    sa.Column("rows", sa.JSON(none_as_null=True)),
    sa.Column("done_ts", sa.BigInteger),  # null while it is open
    sa.Index("lc_event_request_of_table", "deployment", "table_name", "done_ts"),
    sa.Index(
        "lc_event_request_open",
        "deployment",
        "table_name",
        unique=True,
        sqlite_where=sa.text("done_ts IS NULL"),
        postgresql_where=sa.text("done_ts IS NULL"),
    ),
    sqlite_autoincrement=True,
)

# What the completed executions of a group did in sum, apart from its types.
group_total = sa.Table(
    "lc_group_total",
    metadata,
    sa.Column("deployment", sa.String(64), primary_key=True),
    sa.Column("group_name", sa.String(64), primary_key=True),
    sa.Column("refused", sa.JSON, nullable=False),  # rows by reason
    sa.Column("seconds", sa.JSON, nullable=False),  # by phase
)
