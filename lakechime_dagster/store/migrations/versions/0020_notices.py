"""Changes that people are told of, what is sent to whom, and who acknowledged."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0020"
down_revision = "0019"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DOCUMENT = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "lc_notice_change",
        sa.Column("change_id", BIG, sa.Identity(), nullable=False),
        sa.Column("deployment", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=512)),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("change", DOCUMENT, nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("made_ts", sa.BigInteger(), nullable=False),
        sa.Column("announced_ts", sa.BigInteger()),
        sa.PrimaryKeyConstraint("change_id", name="lc_notice_change_pk"),
        sa.UniqueConstraint("deployment", "source", name="lc_notice_change_deployment_source_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("lc_notice_change_by_state", "lc_notice_change", ["deployment", "state"])
    op.create_table(
        "lc_notice_step",
        sa.Column("step_id", BIG, sa.Identity(), nullable=False),
        sa.Column("change_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("change", DOCUMENT),
        sa.Column("ts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("step_id", name="lc_notice_step_pk"),
        sqlite_autoincrement=True,
    )
    op.create_index("lc_notice_step_of_change", "lc_notice_step", ["change_id"])
    op.create_table(
        "lc_notice_outbox",
        sa.Column("message_id", BIG, sa.Identity(), nullable=False),
        sa.Column("change_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("occasion", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=512), nullable=False),
        sa.Column("channel", sa.String(length=128), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sender", sa.String(length=32)),
        sa.Column("lease_until", sa.BigInteger()),
        sa.Column("due_ts", sa.BigInteger(), nullable=False),
        sa.Column("made_ts", sa.BigInteger(), nullable=False),
        sa.Column("tried_ts", sa.BigInteger()),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("message_id", name="lc_notice_outbox_pk"),
        sa.UniqueConstraint("change_id", "version", "occasion", "owner", "channel", name="lc_notice_outbox_once"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "lc_notice_ack",
        sa.Column("change_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("version", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("owner", sa.String(length=512), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("acked_ts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("change_id", "version", "owner", name="lc_notice_ack_pk"),
    )
