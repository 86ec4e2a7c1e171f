"""What people decide of types of events: replays, and hints beside those that are declared."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _replay()
    _hint()


def _replay() -> None:
    op.create_table(
        "lc_type_replay",
        sa.Column("replay_id", BIG, sa.Identity(), nullable=False),
        sa.Column("type_id", BIG, nullable=False),
        sa.Column("is_whole", sa.Boolean(), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("asked_ts", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.String(length=32)),
        sa.Column("replaced", sa.BigInteger()),
        sa.Column("added", sa.BigInteger()),
        sa.Column("done_ts", sa.BigInteger()),
        sa.PrimaryKeyConstraint("replay_id", name="lc_type_replay_pk"),
        sa.ForeignKeyConstraint(["type_id"], ["lc_event_type.type_id"], name="lc_type_replay_type_id_fk"),
        sqlite_autoincrement=True,
    )
    op.create_index("lc_type_replay_of_type", "lc_type_replay", ["type_id", "done_ts"])


def _hint() -> None:
    op.create_table(
        "lc_type_hint",
        sa.Column("hint_id", BIG, sa.Identity(), nullable=False),
        sa.Column("deployment", sa.String(length=64), nullable=False),
        sa.Column("group_name", sa.String(length=64), nullable=False),
        sa.Column("type", sa.String(length=512), nullable=False),
        sa.Column("of", sa.Text(), nullable=False),
        sa.Column("says", sa.String(length=32), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("made_ts", sa.BigInteger(), nullable=False),
        sa.Column("ended_ts", sa.BigInteger()),
        sa.PrimaryKeyConstraint("hint_id", name="lc_type_hint_pk"),
        sqlite_autoincrement=True,
    )
    op.create_index("lc_type_hint_of_group", "lc_type_hint", ["deployment", "group_name"])
