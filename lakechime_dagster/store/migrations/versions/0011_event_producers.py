"""Who sends the events of a type: what each producer sent and brought, and what is withheld as he has brought too much."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("lc_event_type", sa.Column("withheld", sa.JSON(), server_default="[]", nullable=False))
    counts = ("events", "rescued", "variations", "columns", "conflicts")
    op.create_table(
        "lc_type_producer",
        sa.Column("type_id", BIG, nullable=False),
        sa.Column("producer", sa.String(length=512), nullable=False),
        *(sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in counts),
        sa.PrimaryKeyConstraint("type_id", "producer", name="lc_type_producer_pk"),
        sa.ForeignKeyConstraint(["type_id"], ["lc_event_type.type_id"], name="lc_type_producer_type_id_fk"),
    )
    op.create_table(
        "lc_producer_rescue",
        sa.Column("type_id", BIG, nullable=False),
        sa.Column("producer", sa.String(length=512), nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=False),
        sa.Column("total", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("type_id", "producer", "reason", name="lc_producer_rescue_pk"),
        sa.ForeignKeyConstraint(["type_id"], ["lc_event_type.type_id"], name="lc_producer_rescue_type_id_fk"),
    )
