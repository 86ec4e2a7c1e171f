"""That refused events of streams are to be drained, and what came of it."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "lc_stream_drain",
        sa.Column("drain_id", BIG, sa.Identity(), nullable=False),
        sa.Column("deployment", sa.String(length=64), nullable=False),
        sa.Column("table_name", sa.String(length=128), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("asked_ts", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.String(length=32)),
        sa.Column("rows", sa.BigInteger()),
        sa.Column("done_ts", sa.BigInteger()),
        sa.PrimaryKeyConstraint("drain_id", name="lc_stream_drain_pk"),
        sqlite_autoincrement=True,
    )
    op.create_index("lc_stream_drain_of_table", "lc_stream_drain", ["deployment", "table_name", "done_ts"])
