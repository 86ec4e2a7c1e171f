"""Code that values came through and nobody looks into, apart from reasons why sources may not be all."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("lc_lineage_told", sa.Column("foreign_code", sa.JSON(), nullable=False, server_default="[]"))
