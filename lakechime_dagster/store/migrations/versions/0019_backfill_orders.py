"""Backfills as orders on lanes, and which of them an execution does."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0017"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WAITING = sa.text("state = 'WAITING'")


def upgrade() -> None:
    op.add_column("lc_execution", sa.Column("backfill", sa.Text()))
    op.create_table(
        "lc_backfill",
        sa.Column("backfill_id", sa.String(length=36), nullable=False),
        sa.Column("deployment", sa.String(length=64), nullable=False),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("max_in_flight", sa.Integer(), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_ts", sa.BigInteger(), nullable=False),
        sa.Column("cancelled_ts", sa.BigInteger()),
        sa.PrimaryKeyConstraint("backfill_id", name="lc_backfill_pk"),
    )
    op.create_index("lc_backfill_created", "lc_backfill", ["deployment", "created_ts"])
    op.create_table(
        "lc_order",
        sa.Column("order_id", BIG, sa.Identity(), nullable=False),
        sa.Column("backfill_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("flow_id", BIG, nullable=False),
        sa.Column("key", sa.String(length=512), nullable=False),
        sa.Column("waits_for", sa.JSON(), nullable=False),
        sa.Column("span", sa.JSON(none_as_null=True)),
        sa.Column("why", sa.Text(), nullable=False, server_default=""),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("execution_id", sa.String(length=36)),
        sa.Column("closed_ts", sa.BigInteger()),
        sa.Column("closed_tx", sa.BigInteger()),
        sa.ForeignKeyConstraint(["backfill_id"], ["lc_backfill.backfill_id"]),
        sa.ForeignKeyConstraint(["flow_id"], ["lc_flow.flow_id"]),
        sa.PrimaryKeyConstraint("order_id", name="lc_order_pk"),
        sa.UniqueConstraint("backfill_id", "number", name="lc_order_number"),
        sqlite_autoincrement=True,
    )
    op.create_index("lc_order_waiting", "lc_order", ["flow_id", "key"], sqlite_where=WAITING, postgresql_where=WAITING)
    op.create_index("lc_order_execution", "lc_order", ["execution_id"])
