"""What other programs tell of lineage: who read which columns when, runs of which more may come, and the ways by which it is told."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0020"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
KEY = sa.LargeBinary(16)


def upgrade() -> None:
    op.create_table(
        "lc_told_consumer",
        sa.Column("consumer_id", BIG, sa.Identity(), nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owners", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("link", sa.Text(), server_default="", nullable=False),
        sa.Column("told_ms", BIG, server_default="-1", nullable=False),
        sa.PrimaryKeyConstraint("consumer_id", name="lc_told_consumer_pk"),
        sa.UniqueConstraint("key", name="lc_told_consumer_key_key"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "lc_told_read",
        sa.Column("node_id", BIG, nullable=False),
        sa.Column("consumer_id", BIG, nullable=False),
        sa.Column("first_ms", BIG, nullable=False),
        sa.Column("last_ms", BIG, nullable=False),
        sa.PrimaryKeyConstraint("node_id", "consumer_id", name="lc_told_read_pk"),
    )
    op.create_index("lc_told_read_of_consumer", "lc_told_read", ["consumer_id"])
    op.create_table(
        "lc_told_arriving",
        sa.Column("key", KEY, nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("updated_ms", BIG, nullable=False),
        sa.PrimaryKeyConstraint("key", name="lc_told_arriving_pk"),
    )
    op.create_index("lc_told_arriving_updated", "lc_told_arriving", ["updated_ms"])
    op.create_table(
        "lc_told_way",
        sa.Column("name", sa.String(length=512), nullable=False),
        sa.Column("since_ms", BIG, nullable=False),
        sa.Column("last_ms", BIG, nullable=False),
        sa.Column("documents", BIG, nullable=False),
        sa.Column("refused", BIG, nullable=False),
        sa.Column("outside", BIG, nullable=False),
        sa.PrimaryKeyConstraint("name", name="lc_told_way_pk"),
    )
