"""Up to which number each layout and variation is told in the tables that show them."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    for name in ("lc_layout", "lc_variation"):
        op.add_column(name, sa.Column("batch", sa.BigInteger(), nullable=True))
        op.create_index(f"{name}_batch", name, ["batch"])
