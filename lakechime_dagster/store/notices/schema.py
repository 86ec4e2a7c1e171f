"""The tables of changes that people are told of: what they are, who did what with them, what is sent, and who acknowledged."""

import sqlalchemy as sa

from lakechime_dagster.store.dialect import BIG
from lakechime_dagster.store.schema import DOCUMENT, metadata

# A change as it stands. Versions count up with what is told; each stays among the steps.
notice_change = sa.Table(
    "lc_notice_change",
    metadata,
    sa.Column("change_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("deployment", sa.String(64), nullable=False),
    sa.Column("source", sa.String(512)),  # what drafted it, so that the same is not drafted twice; null: a person
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("change", DOCUMENT, nullable=False),
    sa.Column("who", sa.String(128), nullable=False),  # drafted it
    sa.Column("made_ts", sa.BigInteger, nullable=False),
    sa.Column("announced_ts", sa.BigInteger),  # this version
    sa.UniqueConstraint("deployment", "source"),
    sa.Index("lc_notice_change_by_state", "deployment", "state"),
    sqlite_autoincrement=True,
)

# What people, and what drafts by itself, did with a change.
notice_step = sa.Table(
    "lc_notice_step",
    metadata,
    sa.Column("step_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("change_id", sa.BigInteger, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("change", DOCUMENT),  # as this version says it, where the step made the version
    sa.Column("ts", sa.BigInteger, nullable=False),
    sa.Index("lc_notice_step_of_change", "change_id"),
    sqlite_autoincrement=True,
)

# A message to one recipient. Whoever claims a row sends it; a claim that is over without a result says that nobody knows.
notice_outbox = sa.Table(
    "lc_notice_outbox",
    metadata,
    sa.Column("message_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("change_id", sa.BigInteger, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("occasion", sa.String(16), nullable=False),
    sa.Column("owner", sa.String(512), nullable=False),
    sa.Column("channel", sa.String(128), nullable=False),  # the name of the variable that holds the URL, never the URL
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # without the link to acknowledge by
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("sender", sa.String(32)),  # who claimed it last
    sa.Column("lease_until", sa.BigInteger),
    sa.Column("due_ts", sa.BigInteger, nullable=False),  # not before
    sa.Column("made_ts", sa.BigInteger, nullable=False),
    sa.Column("tried_ts", sa.BigInteger),
    sa.Column("problem", sa.Text, nullable=False),
    sa.UniqueConstraint("change_id", "version", "occasion", "owner", "channel", name="lc_notice_outbox_once"),
    sqlite_autoincrement=True,
)

# Who has acknowledged a version of a change, for which owner.
notice_ack = sa.Table(
    "lc_notice_ack",
    metadata,
    sa.Column("change_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.String(512), primary_key=True),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("acked_ts", sa.BigInteger, nullable=False),
)
