"""The tables of the schema repository: types of events, their layouts, variations, and what each step did for them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _event_type()
    _layout()
    _variation()
    _type_step()


def _event_type() -> None:
    op.create_table(
        "lc_event_type",
        sa.Column("type_id", BIG, sa.Identity(), nullable=False),
        sa.Column("deployment", sa.String(length=64), nullable=False),
        sa.Column("group_name", sa.String(length=64), nullable=False),
        sa.Column("type", sa.String(length=512), nullable=False),
        sa.Column("table_name", sa.String(length=128), nullable=False),
        sa.Column("place_uid", sa.String(length=128)),
        sa.Column("place_version", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("commits", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("layout_version", sa.Integer(), server_default="0", nullable=False),
        sa.Column("observed", sa.JSON(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("due_ts", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("first_ts", sa.BigInteger(), nullable=False),
        sa.Column("commit_ts", sa.BigInteger()),
        sa.Column("told_ts", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("type_id", name="lc_event_type_pk"),
        sa.UniqueConstraint("deployment", "group_name", "type", name="lc_event_type_name"),
        sa.UniqueConstraint("deployment", "group_name", "table_name", name="lc_event_type_table"),
        sqlite_autoincrement=True,
    )


def _layout() -> None:
    op.create_table(
        "lc_layout",
        sa.Column("type_id", BIG, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("actor", sa.String(length=256), nullable=False),
        sa.Column("made_ts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type_id", "version", name="lc_layout_pk"),
        sa.ForeignKeyConstraint(["type_id"], ["lc_event_type.type_id"], name="lc_layout_type_id_fk"),
    )


def _variation() -> None:
    op.create_table(
        "lc_variation",
        sa.Column("type_id", BIG, nullable=False),
        sa.Column("typed_hash", sa.String(length=32), nullable=False),
        sa.Column("names_hash", sa.String(length=32), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("first_ts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type_id", "typed_hash", name="lc_variation_pk"),
        sa.ForeignKeyConstraint(["type_id"], ["lc_event_type.type_id"], name="lc_variation_type_id_fk"),
    )


def _type_step() -> None:
    op.create_table(
        "lc_type_step",
        sa.Column("type_id", BIG, nullable=False),
        sa.Column("execution_id", sa.String(length=32), nullable=False),
        sa.Column("start_version", sa.BigInteger(), nullable=False),
        sa.Column("end_version", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("written", sa.BigInteger(), nullable=False),
        sa.Column("rescued", sa.BigInteger(), nullable=False),
        sa.Column("discarded", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("waits", sa.Text(), server_default="", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("settled_ts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type_id", "execution_id", name="lc_type_step_pk"),
        sa.ForeignKeyConstraint(["type_id"], ["lc_event_type.type_id"], name="lc_type_step_type_id_fk"),
    )
