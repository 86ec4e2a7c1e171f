"""Tables of event types in the store."""

import sqlalchemy as sa

from lakechime_dagster.dce.schema import metadata

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# A type of a group: its table, up to which version of the stream's table that holds its rows, and its commits so far. Its table
# lies in the folder of its home, the group that had it first.
event_type = sa.Table(
    "lc_event_type",
    metadata,
    sa.Column("type_id", Id, sa.Identity(), primary_key=True),
    sa.Column("deployment", sa.String(64), nullable=False),
    sa.Column("group_name", sa.String(64), nullable=False),
    sa.Column("type", sa.String(512), nullable=False),
    sa.Column("table_name", sa.String(128), nullable=False),
    sa.Column("home", sa.String(64), nullable=False, server_default=""),  # the group in whose folder its table lies
    sa.Column("checkpoint_uid", sa.String(128)),
    sa.Column("checkpoint_version", sa.BigInteger, nullable=False, server_default="-1"),
    sa.Column("commits", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("schema_version", sa.Integer, nullable=False, server_default="0"),
    sa.Column("observed", sa.JSON, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("due_ts", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("first_ts", sa.BigInteger, nullable=False),
    sa.Column("commit_ts", sa.BigInteger),  # of its last commit
    sa.Column("told_ts", sa.BigInteger, nullable=False, server_default="0"),  # when Dagster was told of it last
    sa.Column("written_sum", sa.BigInteger, nullable=False, server_default="0"),  # these three: of all completed steps
    sa.Column("rescued_sum", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("discarded_sum", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("columns_added", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("failed_steps", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("variations", sa.BigInteger, nullable=False, server_default="0"),  # that are kept
    sa.Column("pending", sa.BigInteger, nullable=False, server_default="0"),  # rows that wait since the newest step
    sa.Column("waits", sa.Text, nullable=False, server_default=""),  # why they do
    sa.Column("conflicts", sa.BigInteger, nullable=False, server_default="0"),  # the variant columns of its newest schema
    sa.Column("rows_behind", sa.BigInteger, nullable=False, server_default="0"),  # of its checkpoint, as they were counted last
    sa.Column("behind_ts", sa.BigInteger),  # when the first step that left its rows where they are was completed
    sa.UniqueConstraint("deployment", "group_name", "type", name="lc_event_type_name"),
    sa.UniqueConstraint("deployment", "group_name", "table_name", name="lc_event_type_table"),
    sa.Index("lc_event_type_home", "deployment", "home", "type", unique=True),
    sqlite_autoincrement=True,
)

# A schema is added, never changed. Of one that is made anew for a rebuild the type's own number tells when it holds.
schema_version = sa.Table(
    "lc_schema_version",
    metadata,
    sa.Column("type_id", Id, sa.ForeignKey("lc_event_type.type_id"), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("columns", sa.JSON, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("actor", sa.String(256), nullable=False),
    sa.Column("made_ts", sa.BigInteger, nullable=False),
)

variation = sa.Table(
    "lc_variation",
    metadata,
    sa.Column("type_id", Id, sa.ForeignKey("lc_event_type.type_id"), primary_key=True),
    sa.Column("typed_hash", sa.String(32), primary_key=True),
    sa.Column("names_hash", sa.String(32), nullable=False),
    sa.Column("kinds", sa.JSON, nullable=False),  # [[path, kind], …]
    sa.Column("shape", sa.Text, nullable=False),  # an event of it without its values
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("first_ts", sa.BigInteger, nullable=False),
)

# How many values of a type completed steps rescued, by reason.
type_rescue = sa.Table(
    "lc_type_rescue",
    metadata,
    sa.Column("type_id", Id, sa.ForeignKey("lc_event_type.type_id"), primary_key=True),
    sa.Column("reason", sa.String(16), primary_key=True),
    sa.Column("total", sa.BigInteger, nullable=False),
)

# A change of a type that breaks something; it is told once the next step is completed.
type_break = sa.Table(
    "lc_type_break",
    metadata,
    sa.Column("break_id", Id, sa.Identity(), primary_key=True),
    sa.Column("type_id", Id, sa.ForeignKey("lc_event_type.type_id"), nullable=False),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("path", sa.JSON, nullable=False),  # which may have characters that no text of a database holds
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("how", sa.String(16), nullable=False),
    sa.Column("producer", sa.String(512)),
    sa.Column("made_ts", sa.BigInteger, nullable=False),
    sa.Column("told_ts", sa.BigInteger),  # null until then
    sa.Index("lc_type_break_of_type", "type_id", "told_ts"),
    sqlite_autoincrement=True,
)

# That somebody wants a type's earlier events read again, and what came of it; of a type one is open at most.
type_replay = sa.Table(
    "lc_type_replay",
    metadata,
    sa.Column("replay_id", Id, sa.Identity(), primary_key=True),
    sa.Column("type_id", Id, sa.ForeignKey("lc_event_type.type_id"), nullable=False),
    sa.Column("is_rebuild", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("asked_ts", sa.BigInteger, nullable=False),
    sa.Column("execution_id", sa.String(32)),  # of the step that did it
    sa.Column("replaced", sa.BigInteger),
    sa.Column("added", sa.BigInteger),
    sa.Column("removed", sa.BigInteger),  # by a rebuild alone
    sa.Column("done_ts", sa.BigInteger),  # null while it is open
    sa.Index("lc_type_replay_of_type", "type_id", "done_ts"),
    sqlite_autoincrement=True,
)

# That somebody wants what a stream refused to be looked at again, and what came of it; of a stream one is open at most.
stream_reprocess = sa.Table(
    "lc_stream_reprocess",
    metadata,
    sa.Column("reprocess_id", Id, sa.Identity(), primary_key=True),
    sa.Column("deployment", sa.String(64), nullable=False),
    sa.Column("table_name", sa.String(128), nullable=False),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("asked_ts", sa.BigInteger, nullable=False),
    sa.Column("execution_id", sa.String(32)),  # of the step that did it
    sa.Column("rows", sa.BigInteger),
    sa.Column("done_ts", sa.BigInteger),  # null while it is open
    sa.Index("lc_stream_reprocess_of_table", "deployment", "table_name", "done_ts"),
    sqlite_autoincrement=True,
)

# What a person says of a type beside what is declared: how a path is kept, or whether something new may come.
type_hint = sa.Table(
    "lc_type_hint",
    metadata,
    sa.Column("hint_id", Id, sa.Identity(), primary_key=True),
    sa.Column("deployment", sa.String(64), nullable=False),
    sa.Column("group_name", sa.String(64), nullable=False),
    sa.Column("type", sa.String(512), nullable=False),
    sa.Column("of", sa.Text, nullable=False),  # a path, such as /price, or tables, columns, kinds
    sa.Column("says", sa.String(32), nullable=False),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("made_ts", sa.BigInteger, nullable=False),
    sa.Column("ended_ts", sa.BigInteger),  # null while it holds; a newer one of the same ends it
    sa.Index("lc_type_hint_of_group", "deployment", "group_name"),
    sqlite_autoincrement=True,
)

# What the completed steps of a group did in sum, apart from its types: rows refused by reason, seconds by phase.
group_total = sa.Table(
    "lc_group_total",
    metadata,
    sa.Column("deployment", sa.String(64), primary_key=True),
    sa.Column("group_name", sa.String(64), primary_key=True),
    sa.Column("counter", sa.String(16), primary_key=True),
    sa.Column("label", sa.String(64), primary_key=True),
    sa.Column("total", sa.Double, nullable=False),
)
