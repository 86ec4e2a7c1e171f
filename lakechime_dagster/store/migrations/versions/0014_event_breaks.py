"""Changes of types of events that break something, each with who brought it, and when people were told."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "lc_type_break",
        sa.Column("break_id", BIG, sa.Identity(), nullable=False),
        sa.Column("type_id", BIG, nullable=False),
        sa.Column("layout_version", sa.Integer(), nullable=False),
        sa.Column("path", sa.JSON(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("how", sa.String(length=16), nullable=False),
        sa.Column("producer", sa.String(length=512)),
        sa.Column("made_ts", sa.BigInteger(), nullable=False),
        sa.Column("told_ts", sa.BigInteger()),
        sa.PrimaryKeyConstraint("break_id", name="lc_type_break_pk"),
        sa.ForeignKeyConstraint(["type_id"], ["lc_event_type.type_id"], name="lc_type_break_type_id_fk"),
        sqlite_autoincrement=True,
    )
    op.create_index("lc_type_break_of_type", "lc_type_break", ["type_id", "told_ts"])
