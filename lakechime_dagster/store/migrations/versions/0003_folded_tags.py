"""The tags of folded events, so that a tag that comes after folding is told from a repeat."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("dce_folded", sa.Column("tags", sa.JSON().with_variant(JSONB(), "postgresql")))
    op.create_index("dce_folded_seq", "dce_folded", ["seq"])
