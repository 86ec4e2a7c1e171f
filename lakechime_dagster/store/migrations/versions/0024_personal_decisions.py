"""What people decided of columns: whether they hold personal data, and of which kind."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "lc_personal_decision",
        sa.Column("decision_id", BIG, sa.Identity(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("category", sa.String(length=40)),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("decided_ts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("decision_id", name="lc_personal_decision_pk"),
        sqlite_autoincrement=True,
    )
