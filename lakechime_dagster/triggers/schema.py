"""Tables of the ledger: subscriptions, consumers, executions, attempts, interventions."""

import sqlalchemy as sa

from lakechime_dagster.dce.engine import BIG, AsJson, one_of
from lakechime_dagster.dce.schema import metadata
from lakechime_dagster.triggers.consumers import (
    Action,
    Cause,
    Checkpoint,
    ConsumerState,
    ExecutionState,
    RequestState,
    SourceLag,
)

lc_subscription = sa.Table(
    "lc_subscription",
    metadata,
    sa.Column("subscription_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("deployment", sa.String(64), nullable=False),
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("tables", sa.JSON, nullable=False),
    sa.Column("target", sa.String(512)),
    sa.Column("job", sa.String(512)),
    sa.Column("asset_keys", sa.JSON, nullable=False),
    sa.Column("cluster", sa.String(128), nullable=False),
    sa.Column("tag_keys", sa.JSON, nullable=False),
    sa.Column("is_partitioned", sa.Boolean, nullable=False),
    sa.Column("activated_ts", sa.BigInteger, nullable=False),
    sa.Column("start", AsJson(Checkpoint), nullable=False),
    sa.Column("ticked_ts", sa.BigInteger),
    sa.Column("paused_ts", sa.BigInteger),
    sa.Column("paused_reason", sa.Text),
    sa.Column("forgotten_ts", sa.BigInteger),
    sa.Column("looked_tx", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("looked_seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("source_lag", AsJson(SourceLag)),
    sa.UniqueConstraint("deployment", "name", name="lc_subscription_name"),
    sqlite_autoincrement=True,
)

lc_consumer = sa.Table(
    "lc_consumer",
    metadata,
    sa.Column("consumer_id", BIG, sa.Identity(), primary_key=True),
    sa.Column(
        "subscription_id", BIG, sa.ForeignKey("lc_subscription.subscription_id"), nullable=False
    ),
    sa.Column("key", sa.String(512), nullable=False),
    sa.Column("state", one_of(ConsumerState, 8), nullable=False),
    sa.Column("state_reason", sa.Text, nullable=False, server_default=""),
    sa.Column("completed", BIG, nullable=False),
    sa.Column("checkpoint", AsJson(Checkpoint), nullable=False),
    sa.Column("checkpoint_tx", sa.BigInteger, nullable=False),
    sa.Column("checkpoint_seq", sa.BigInteger, nullable=False),
    sa.Column("fired", sa.Boolean, nullable=False),
    sa.Column("created_ts", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("subscription_id", "key", name="lc_consumer_key"),
    sqlite_autoincrement=True,
)

lc_execution = sa.Table(
    "lc_execution",
    metadata,
    sa.Column("execution_id", sa.String(36), primary_key=True),
    sa.Column("consumer_id", BIG, sa.ForeignKey("lc_consumer.consumer_id"), nullable=False),
    sa.Column("number", BIG, nullable=False),
    sa.Column("state", one_of(ExecutionState, 16), nullable=False),
    sa.Column("cause", one_of(Cause, 8), nullable=False),
    sa.Column("start_checkpoint", AsJson(Checkpoint), nullable=False),
    sa.Column("end_checkpoint", AsJson(Checkpoint), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("partition_key", sa.String(512)),
    sa.Column("claimed_ts", sa.BigInteger, nullable=False),
    sa.Column("completed_ts", sa.BigInteger),
    sa.Column("version", sa.String(128)),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("backfill", sa.Text, nullable=False, server_default=""),
    sa.Column("dagster_backfill", sa.String(64), nullable=False, server_default=""),
    sa.UniqueConstraint("consumer_id", "number", name="lc_execution_number"),
    sa.Index(
        "lc_execution_open",
        "consumer_id",
        unique=True,
        sqlite_where=sa.text("state = 'OPEN'"),
        postgresql_where=sa.text("state = 'OPEN'"),
    ),
    sa.Index("lc_execution_claimed", "claimed_ts"),
)

lc_attempt = sa.Table(
    "lc_attempt",
    metadata,
    sa.Column(
        "execution_id", sa.String(36), sa.ForeignKey("lc_execution.execution_id"), primary_key=True
    ),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("run_id", sa.String(64)),
    sa.Column("due_ts", sa.BigInteger, nullable=False),
    sa.Column("begun_ts", sa.BigInteger),
    sa.Column("lease_until", sa.BigInteger),
    sa.Column("ended_ts", sa.BigInteger),
    sa.Column("outcome", sa.String(16)),
    sa.Column("error", sa.Text),
    sa.Index("lc_attempt_run", "run_id"),
)

lc_backfill = sa.Table(
    "lc_backfill",
    metadata,
    sa.Column("backfill_id", sa.String(36), primary_key=True),
    sa.Column("deployment", sa.String(64), nullable=False),
    sa.Column("asked", sa.JSON, nullable=False),
    sa.Column("max_in_flight", sa.Integer, nullable=False),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("created_ts", sa.BigInteger, nullable=False),
    sa.Column("cancelled_ts", sa.BigInteger),
    sa.Index("lc_backfill_created", "deployment", "created_ts"),
)

lc_request = sa.Table(
    "lc_request",
    metadata,
    sa.Column("request_id", BIG, sa.Identity(), primary_key=True),
    sa.Column(
        "backfill_id", sa.String(36), sa.ForeignKey("lc_backfill.backfill_id"), nullable=False
    ),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column(
        "subscription_id", BIG, sa.ForeignKey("lc_subscription.subscription_id"), nullable=False
    ),
    sa.Column("key", sa.String(512), nullable=False),
    sa.Column("waits_for", sa.JSON, nullable=False),
    sa.Column("span", sa.JSON(none_as_null=True)),
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    sa.Column("state", one_of(RequestState, 16), nullable=False),
    sa.Column("execution_id", sa.String(36)),
    sa.Column("closed_ts", sa.BigInteger),
    # the transaction that closed it: what it made is visible when all up to there have ended
    sa.Column("closed_tx", sa.BigInteger),
    sa.UniqueConstraint("backfill_id", "number", name="lc_request_number"),
    sa.Index(
        "lc_request_unclaimed",
        "subscription_id",
        "key",
        sqlite_where=sa.text("state IN ('WAITING', 'LATER')"),
        postgresql_where=sa.text("state IN ('WAITING', 'LATER')"),
    ),
    sa.Index("lc_request_execution", "execution_id"),
    sqlite_autoincrement=True,
)

lc_intervention = sa.Table(
    "lc_intervention",
    metadata,
    sa.Column("intervention_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("ts", sa.BigInteger, nullable=False),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("action", one_of(Action, 16), nullable=False),
    sa.Column(
        "subscription_id", BIG, sa.ForeignKey("lc_subscription.subscription_id"), nullable=False
    ),
    sa.Column("consumer_key", sa.String(512)),
    sa.Column("execution_id", sa.String(36)),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("before", sa.JSON, nullable=False),
    sa.Column("after", sa.JSON, nullable=False),
    sqlite_autoincrement=True,
)
