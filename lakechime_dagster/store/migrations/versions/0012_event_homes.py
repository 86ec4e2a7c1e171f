"""Where the tables of types lie, whichever group has them by now."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0010"

KIND = sa.table("lc_event_type", sa.column("group_name"), sa.column("home"))


def upgrade() -> None:
    op.add_column("lc_event_type", sa.Column("home", sa.String(length=64), server_default="", nullable=False))
    op.get_bind().execute(sa.update(KIND).values(home=KIND.c.group_name))
    op.create_index("lc_event_type_home", "lc_event_type", ["deployment", "home", "type"], unique=True)
