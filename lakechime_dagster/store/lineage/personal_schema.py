"""The table of what people decided of columns and personal data."""

import sqlalchemy as sa

from lakechime_dagster.store.dialect import BIG
from lakechime_dagster.store.schema import metadata

# Of a column the newest row holds; those before it say who thought otherwise.
personal_decision = sa.Table(
    "lc_personal_decision",
    metadata,
    sa.Column("decision_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),  # of the column, or a path into it
    sa.Column("category", sa.String(40)),  # null: not personal
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("decided_ts", sa.BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
