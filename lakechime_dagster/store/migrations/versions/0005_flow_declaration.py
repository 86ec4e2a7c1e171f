"""What a flow's declaration says of its needs: its cluster, the tags that retention keeps for it, and how its trigger fires.

A flow that was activated before has NULL there until its sensor ticks again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("lc_flow", sa.Column("cluster", sa.String(128)))
    op.add_column("lc_flow", sa.Column("tag_keys", sa.JSON))
    op.add_column("lc_flow", sa.Column("is_partitioned", sa.Boolean))
    op.add_column("lc_flow", sa.Column("refires", sa.Boolean))
