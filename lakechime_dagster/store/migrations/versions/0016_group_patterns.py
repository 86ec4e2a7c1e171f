"""By which patterns the groups of a stream shared its types when a group's step was settled last."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "lc_group_patterns",
        sa.Column("deployment", sa.String(length=64), nullable=False),
        sa.Column("group_name", sa.String(length=64), nullable=False),
        sa.Column("patterns", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", "group_name", name="lc_group_patterns_pk"),
    )
