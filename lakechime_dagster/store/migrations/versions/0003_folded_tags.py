"""The tags of folded events, so that a tag that comes after folding is told from a repeat; and which of them were on one event."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"

DOCUMENT = sa.JSON().with_variant(JSONB(), "postgresql")
KEY = ("table_id", "partition_key", "table_uid")
AVAILABILITY = sa.table("dce_availability", *map(sa.column, KEY), sa.column("tag_positions", DOCUMENT))


def upgrade() -> None:
    op.add_column("dce_folded", sa.Column("tags", DOCUMENT))
    op.create_index("dce_folded_seq", "dce_folded", ["seq"])
    connection = op.get_bind()
    for row in connection.execute(sa.select(AVAILABILITY)).all():
        this = [AVAILABILITY.c[name] == getattr(row, name) for name in KEY]
        connection.execute(sa.update(AVAILABILITY).where(*this).values(tag_positions=together(row.tag_positions)))


def together(singles: list[list[str]]) -> list[list[Any]]:
    """[[{key: value, …}, position], …] of [[key, value, position], …]: tags of one position were on one event."""
    found: dict[str, dict[str, str]] = {}
    for key, value, position in singles:
        found.setdefault(position, {})[key] = value
    return [[tags, position] for position, tags in found.items()]
