"""The snapshots of folded events, so that a reader may start from them; and the tags that their earlier versions had."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DOCUMENT = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("dce_folded", sa.Column("table_id", BIG))
    op.add_column("dce_folded", sa.Column("partition_key", sa.String(512)))
    op.add_column("dce_folded", sa.Column("snapshot_id", sa.String(128)))
    op.add_column("dce_folded", sa.Column("snapshot_ts", BIG))
    op.add_column("dce_folded", sa.Column("table_uid", sa.String(128)))
    op.add_column("dce_folded", sa.Column("table_format", sa.SmallInteger))
    op.create_index("dce_folded_table", "dce_folded", ["table_id", "tx_id", "seq"])
    op.create_table("dce_folded_version", sa.Column("seq", BIG, nullable=False), sa.Column("tags", DOCUMENT, nullable=False))
    op.create_index("dce_folded_version_seq", "dce_folded_version", ["seq"])
