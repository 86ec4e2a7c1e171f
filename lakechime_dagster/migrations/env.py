"""Runs migrations on the connection, and within the transaction, that `upgrade` opened."""

from alembic import context

from lakechime_dagster.dce.engine import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()
