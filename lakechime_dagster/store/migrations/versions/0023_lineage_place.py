"""Up to where an audit table was read for lineage."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.add_column("lc_told_way", sa.Column("place", sa.Text()))
