"""All tables of the store.

Until the first release they are those of the metadata, so that no second description of them has to be kept. The first migration
after that release freezes them here, as `op.create_table` calls.
"""

from alembic import op

from lakechime_dagster.store import ledger_schema, notifications
from lakechime_dagster.store.lineage import ingest_schema, personal
from lakechime_dagster.store.lineage import schema as lineage_schema
from lakechime_dagster.store.schema import metadata
from lakechime_dagster.store.types import schema as event_schema

revision = "0001"
down_revision = None

SCHEMAS = (ledger_schema, event_schema, lineage_schema, notifications, ingest_schema, personal)
"""Modules that add their tables to the metadata when they are imported."""


def upgrade() -> None:
    """Create every table and index."""
    metadata.create_all(op.get_bind())
