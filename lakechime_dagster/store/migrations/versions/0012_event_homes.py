"""Where the tables of types lie, whichever group has them by now; and tables that are made anew."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

KIND = sa.table("lc_event_type", sa.column("group_name"), sa.column("home"))


def upgrade() -> None:
    op.add_column("lc_event_type", sa.Column("home", sa.String(length=64), server_default="", nullable=False))
    op.get_bind().execute(sa.update(KIND).values(home=KIND.c.group_name))
    op.create_index("lc_event_type_home", "lc_event_type", ["deployment", "home", "type"], unique=True)
    op.add_column("lc_event_type", sa.Column("rebuilt_step", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("lc_type_replay", sa.Column("is_rebuild", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("lc_type_replay", sa.Column("removed", sa.BigInteger()))
