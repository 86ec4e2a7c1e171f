"""Orders of keys that have not fired are looked for by lane too, and executions keep which backfill of Dagster launched them."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

UNCLAIMED = sa.text("state IN ('WAITING', 'LATER')")


def upgrade() -> None:
    op.add_column("lc_execution", sa.Column("dagster_backfill", sa.String(length=64)))
    op.drop_index("lc_order_waiting", "lc_order")
    op.create_index("lc_order_unclaimed", "lc_order", ["flow_id", "key"], sqlite_where=UNCLAIMED, postgresql_where=UNCLAIMED)
