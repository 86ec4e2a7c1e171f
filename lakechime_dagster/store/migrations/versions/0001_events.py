"""The tables of events."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DOCUMENT = sa.JSON().with_variant(JSONB(), "postgresql")
NOW = {
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
    "sqlite": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
}
TRANSACTION = {"postgresql": "pg_current_xact_id()::text::bigint", "sqlite": "0"}


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    _tables()
    _events(dialect)
    _folded()


def _tables() -> None:
    op.create_table(
        "dce_table",
        sa.Column("table_id", BIG, sa.Identity(), nullable=False),
        sa.Column("cluster", sa.String(128), nullable=False, server_default=sa.text("''")),
        sa.Column("name", sa.String(512), nullable=False),
        sa.Column("levels", DOCUMENT),
        sa.Column("table_uid", sa.String(128)),
        sa.Column("seen", sa.String(128)),
        sa.Column("version", BIG, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("table_id", name="dce_table_pk"),
        sa.UniqueConstraint("cluster", "name", name="dce_table_cluster_name_key"),
        sqlite_autoincrement=True,
    )


def _events(dialect: str) -> None:
    op.create_table(
        "dce_event",
        sa.Column("seq", BIG, sa.Identity(), nullable=False),
        sa.Column("tx_id", BIG, nullable=False, server_default=sa.text(f"({TRANSACTION[dialect]})")),
        sa.Column("event_ts", BIG, nullable=False, server_default=sa.text(f"({NOW[dialect]})")),
        sa.Column("table_id", BIG, nullable=False),
        sa.Column("partition_key", sa.String(512), nullable=False, server_default=sa.text("''")),
        sa.Column("partition_sent", sa.Text()),
        sa.Column("snapshot_id", sa.String(128)),
        sa.Column("snapshot_ts", BIG),
        sa.Column("prev_snapshot_id", sa.String(128)),
        sa.Column("table_uid", sa.String(128)),
        sa.Column("table_format", sa.SmallInteger(), nullable=False),
        sa.Column("operation_type", sa.SmallInteger(), nullable=False),
        sa.Column("tags", DOCUMENT, nullable=False),
        sa.Column("event_key", sa.LargeBinary(16), nullable=False),
        sa.Column("producer_key", sa.String(512)),
        sa.Column("amends_tx", BIG),
        sa.Column("amends_seq", BIG),
        sa.PrimaryKeyConstraint("seq", name="dce_event_pk"),
        sa.UniqueConstraint("event_key", name="dce_event_event_key_key"),
        sqlite_autoincrement=True,
    )
    if dialect == "postgresql":
        op.create_index("dce_event_feed", "dce_event", ["tx_id", "seq"])
    op.create_index("dce_event_table", "dce_event", ["table_id", "tx_id", "seq"])
    op.create_index("dce_event_partition", "dce_event", ["table_id", "partition_key", "tx_id", "seq"])
    op.create_index("dce_event_time", "dce_event", ["event_ts"], postgresql_using="brin")
    amended = sa.text("amends_seq IS NOT NULL")
    op.create_index("dce_event_amends", "dce_event", ["amends_seq"], postgresql_where=amended, sqlite_where=amended)


def _folded() -> None:
    op.create_table(
        "dce_availability",
        sa.Column("table_id", BIG, nullable=False),
        sa.Column("partition_key", sa.String(512), nullable=False),
        sa.Column("table_uid", sa.String(128), nullable=False, server_default=sa.text("''")),
        sa.Column("newest_tx", BIG, nullable=False),
        sa.Column("newest_seq", BIG, nullable=False),
        sa.Column("data_tx", BIG),
        sa.Column("data_seq", BIG),
        sa.Column("tag_positions", DOCUMENT, nullable=False),
        sa.Column("first_ts", BIG, nullable=False),
        sa.Column("last_ts", BIG, nullable=False),
        sa.Column("events", BIG, nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["dce_table.table_id"], name="dce_availability_table_id_fk"),
        sa.PrimaryKeyConstraint("table_id", "partition_key", "table_uid", name="dce_availability_pk"),
    )
    op.create_table(
        "dce_folded",
        sa.Column("event_key", sa.LargeBinary(16), nullable=False),
        sa.Column("tx_id", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("event_ts", BIG, nullable=False),
        sa.PrimaryKeyConstraint("event_key", name="dce_folded_pk"),
    )
