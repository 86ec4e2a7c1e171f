"""Why values were rescued, by type; of each type its conflicts, and the rows behind its place."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
KIND = sa.table("lc_event_type", *map(sa.column, ("type_id", "layout_version", "pending", "conflicts", "rows_behind")))
LAYOUT = sa.table("lc_layout", sa.column("type_id"), sa.column("version"), sa.column("columns", sa.JSON()))


def upgrade() -> None:
    for name in ("conflicts", "rows_behind"):
        op.add_column("lc_event_type", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    op.create_table(
        "lc_type_rescue",
        sa.Column("type_id", BIG, nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type_id", "reason", name="lc_type_rescue_pk"),
        sa.ForeignKeyConstraint(["type_id"], ["lc_event_type.type_id"], name="lc_type_rescue_type_id_fk"),
    )
    _count()


def _count() -> None:
    """What can be told of earlier steps; why values were rescued was not kept, nor how many rows of types that fail are behind."""
    connection = op.get_bind()
    connection.execute(sa.update(KIND).values(rows_behind=KIND.c.pending))
    is_newest = sa.and_(LAYOUT.c.type_id == KIND.c.type_id, LAYOUT.c.version == KIND.c.layout_version)
    newest = sa.select(LAYOUT.c.type_id, LAYOUT.c.columns).select_from(LAYOUT.join(KIND, is_newest))
    for row in connection.execute(newest).all():
        if found := siblings(row.columns):
            connection.execute(sa.update(KIND).where(KIND.c.type_id == row.type_id).values(conflicts=found))


def siblings(columns: list[dict[str, Any]]) -> int:
    """How many of these columns, and of those within them, hold what the column of their field cannot."""
    return sum(
        int(one.get("sibling", False)) + siblings(one.get("fields", [])) + siblings([one["element"]] if "element" in one else [])
        for one in columns
    )
