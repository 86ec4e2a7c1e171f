"""Recorded lineage: data sets and columns, writers, what they told, and from when to when it held."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
KEY = sa.LargeBinary(16)


def upgrade() -> None:
    op.create_table(
        "lc_lineage_node",
        sa.Column("node_id", BIG, sa.Identity(), nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("dataset_id", BIG),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", name="lc_lineage_node_pk"),
        sa.UniqueConstraint("key", name="lc_lineage_node_key_key"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "lc_lineage_writer",
        sa.Column("writer_id", BIG, sa.Identity(), nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("target_id", BIG, nullable=False),
        sa.Column("owners", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("links", sa.JSON(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("writer_id", name="lc_lineage_writer_pk"),
        sa.UniqueConstraint("key", name="lc_lineage_writer_key_key"),
        sqlite_autoincrement=True,
    )
    _create_told()
    op.create_table(
        "lc_lineage_interval",
        sa.Column("interval_id", BIG, sa.Identity(), nullable=False),
        sa.Column("writer_id", BIG, nullable=False),
        sa.Column("told_id", BIG, nullable=False),
        sa.Column("from_ms", BIG, nullable=False),
        sa.Column("from_run", KEY, nullable=False),
        sa.Column("last_ms", BIG, nullable=False),
        sa.Column("last_run", KEY, nullable=False),
        sa.Column("to_ms", BIG),
        sa.Column("change", BIG, nullable=False),
        sa.PrimaryKeyConstraint("interval_id", name="lc_lineage_interval_pk"),
        sqlite_autoincrement=True,
    )
    op.create_index("lc_lineage_interval_of_writer", "lc_lineage_interval", ["writer_id", "from_ms", "from_run"])
    op.create_index("lc_lineage_interval_change", "lc_lineage_interval", ["change"])
    op.create_table(
        "lc_lineage_run",
        sa.Column("writer_id", BIG, nullable=False),
        sa.Column("run_key", KEY, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("at_ms", BIG, nullable=False),
        sa.Column("told_id", BIG, nullable=False),
        sa.Column("lane", sa.Text()),
        sa.Column("step", BIG),
        sa.Column("version", sa.Text()),
        sa.Column("code", sa.Text()),
        sa.PrimaryKeyConstraint("writer_id", "run_key", name="lc_lineage_run_pk"),
    )
    op.create_index("lc_lineage_run_at", "lc_lineage_run", ["writer_id", "at_ms", "run_key"])


def _create_told() -> None:
    op.create_table(
        "lc_lineage_told",
        sa.Column("told_id", BIG, sa.Identity(), nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("target_id", BIG, nullable=False),
        sa.Column("replaces", sa.Boolean(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("opaque", sa.JSON(), nullable=False),
        sa.Column("unknown", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("told_id", name="lc_lineage_told_pk"),
        sa.UniqueConstraint("key", name="lc_lineage_told_key_key"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "lc_lineage_input",
        sa.Column("told_id", BIG, nullable=False),
        sa.Column("source_id", BIG, nullable=False),
        sa.Column("parts", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("told_id", "source_id", name="lc_lineage_input_pk"),
        sa.ForeignKeyConstraint(["told_id"], ["lc_lineage_told.told_id"], name="lc_lineage_input_told_id_fk"),
    )
    op.create_table(
        "lc_lineage_edge",
        sa.Column("told_id", BIG, nullable=False),
        sa.Column("target_id", BIG, nullable=False),
        sa.Column("source_id", BIG, nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("told_id", "target_id", "source_id", "kind", name="lc_lineage_edge_pk"),
        sa.ForeignKeyConstraint(["told_id"], ["lc_lineage_told.told_id"], name="lc_lineage_edge_told_id_fk"),
    )
