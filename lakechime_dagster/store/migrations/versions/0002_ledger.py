"""The tables of the ledger: flows, lanes, executions, attempts, interventions."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OPEN = sa.text("state = 'OPEN'")


def upgrade() -> None:
    _flow()
    _lane()
    _lane_partition()
    _execution()
    _attempt()
    _intervention()


def _flow() -> None:
    op.create_table(
        "lc_flow",
        sa.Column("flow_id", BIG, sa.Identity(), nullable=False),
        sa.Column("deployment", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tables", sa.JSON(), nullable=False),
        sa.Column("target", sa.String(length=512)),
        sa.Column("job", sa.String(length=512)),
        sa.Column("asset_keys", sa.JSON(), nullable=False),
        sa.Column("activated_ts", sa.BigInteger(), nullable=False),
        sa.Column("start", sa.JSON(), nullable=False),
        sa.Column("ticked_ts", sa.BigInteger()),
        sa.Column("paused_ts", sa.BigInteger()),
        sa.Column("paused_reason", sa.Text()),
        sa.Column("looked_tx", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("looked_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("flow_id", name=("lc_flow_pk")),
        sa.UniqueConstraint("deployment", "name", name="lc_flow_name"),
        sqlite_autoincrement=True,
    )


def _lane() -> None:
    op.create_table(
        "lc_lane",
        sa.Column("lane_id", BIG, sa.Identity(), nullable=False),
        sa.Column("flow_id", BIG, nullable=False),
        sa.Column("key", sa.String(length=512), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("state_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("settled", BIG, nullable=False),
        sa.Column("place", sa.JSON(), nullable=False),
        sa.Column("place_tx", sa.BigInteger(), nullable=False),
        sa.Column("place_seq", sa.BigInteger(), nullable=False),
        sa.Column("fired", sa.Boolean(), nullable=False),
        sa.Column("created_ts", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["flow_id"], ["lc_flow.flow_id"], name=("lc_lane_flow_id_fk")),
        sa.PrimaryKeyConstraint("lane_id", name=("lc_lane_pk")),
        sa.UniqueConstraint("flow_id", "key", name="lc_lane_key"),
        sqlite_autoincrement=True,
    )


def _lane_partition() -> None:
    op.create_table(
        "lc_lane_partition",
        sa.Column("lane_id", BIG, nullable=False),
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("table_name", sa.String(length=512), nullable=False),
        sa.Column("partition_key", sa.String(length=512), nullable=False),
        sa.ForeignKeyConstraint(["lane_id"], ["lc_lane.lane_id"], name=("lc_lane_partition_lane_id_fk")),
        sa.PrimaryKeyConstraint("lane_id", "cluster", "table_name", "partition_key", name=("lc_lane_partition_pk")),
    )
    op.create_index("lc_lane_partition_of", "lc_lane_partition", ["table_name", "partition_key"], unique=False)


def _execution() -> None:
    op.create_table(
        "lc_execution",
        sa.Column("execution_id", sa.String(length=36), nullable=False),
        sa.Column("lane_id", BIG, nullable=False),
        sa.Column("step", BIG, nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("cause", sa.String(length=8), nullable=False),
        sa.Column("start_place", sa.JSON(), nullable=False),
        sa.Column("end_place", sa.JSON(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("partition_key", sa.String(length=512)),
        sa.Column("claimed_ts", sa.BigInteger(), nullable=False),
        sa.Column("settled_ts", sa.BigInteger()),
        sa.Column("version", sa.String(length=128)),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["lane_id"], ["lc_lane.lane_id"], name=("lc_execution_lane_id_fk")),
        sa.PrimaryKeyConstraint("execution_id", name=("lc_execution_pk")),
        sa.UniqueConstraint("lane_id", "step", name="lc_execution_step"),
    )
    op.create_index("lc_execution_claimed", "lc_execution", ["claimed_ts"], unique=False)
    op.create_index("lc_execution_open", "lc_execution", ["lane_id"], unique=True, sqlite_where=OPEN, postgresql_where=OPEN)


def _attempt() -> None:
    op.create_table(
        "lc_attempt",
        sa.Column("execution_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64)),
        sa.Column("due_ts", sa.BigInteger(), nullable=False),
        sa.Column("begun_ts", sa.BigInteger()),
        sa.Column("lease_until", sa.BigInteger()),
        sa.Column("ended_ts", sa.BigInteger()),
        sa.Column("outcome", sa.String(length=16)),
        sa.Column("error", sa.Text()),
        sa.ForeignKeyConstraint(["execution_id"], ["lc_execution.execution_id"], name=("lc_attempt_execution_id_fk")),
        sa.PrimaryKeyConstraint("execution_id", "number", name=("lc_attempt_pk")),
    )
    op.create_index("lc_attempt_run", "lc_attempt", ["run_id"], unique=False)


def _intervention() -> None:
    op.create_table(
        "lc_intervention",
        sa.Column("intervention_id", BIG, sa.Identity(), nullable=False),
        sa.Column("ts", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("flow_id", BIG, nullable=False),
        sa.Column("lane_key", sa.String(length=512)),
        sa.Column("execution_id", sa.String(length=36)),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("after", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["flow_id"], ["lc_flow.flow_id"], name=("lc_intervention_flow_id_fk")),
        sa.PrimaryKeyConstraint("intervention_id", name=("lc_intervention_pk")),
        sqlite_autoincrement=True,
    )
