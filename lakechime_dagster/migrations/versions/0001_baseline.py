"""All tables of the store.

Until the first release they are those of the metadata, so that no second description of them has to
be kept. The first migration after that release freezes them here, as `op.create_table` calls.
"""

from alembic import op

from lakechime_dagster.api import tokens as api
from lakechime_dagster.dce.schema import metadata
from lakechime_dagster.governance import store as governance
from lakechime_dagster.lineage import schema as lineage
from lakechime_dagster.silver import store_schema as silver
from lakechime_dagster.triggers import schema as triggers

revision = "0001"
down_revision = None

SCHEMAS = (triggers, silver, lineage, governance, api)
"""Modules that add their tables to the metadata when they are imported."""


def upgrade() -> None:
    """Create every table and index."""
    metadata.create_all(op.get_bind())
