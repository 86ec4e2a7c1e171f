"""Flows that were forgotten: their rows stay for what people did to them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("lc_flow", sa.Column("forgotten_ts", sa.BigInteger))
