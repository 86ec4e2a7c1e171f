"""Sums of what steps did: of each type beside it, of each group what no type could be told of and the seconds of its phases."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

SUMS = ("written_sum", "rescued_sum", "discarded_sum", "columns_added", "failed_steps", "variations", "pending")


def upgrade() -> None:
    for name in SUMS:
        op.add_column("lc_event_type", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("lc_event_type", sa.Column("behind_ts", sa.BigInteger()))
    op.create_table(
        "lc_group_total",
        sa.Column("deployment", sa.String(length=64), nullable=False),
        sa.Column("group_name", sa.String(length=64), nullable=False),
        sa.Column("counter", sa.String(length=16), nullable=False),
        sa.Column("label", sa.String(length=64), nullable=False),
        sa.Column("total", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", "group_name", "counter", "label", name="lc_group_total_pk"),
    )
    _sum_up()


def _sum_up() -> None:
    """What the steps until now did; how many columns they added was not kept, and begins at 0."""
    kinds = sa.table("lc_event_type", sa.column("type_id"), *map(sa.column, SUMS))
    steps = sa.table("lc_type_step", *map(sa.column, ("type_id", "written", "rescued", "discarded", "error")))
    shapes = sa.table("lc_variation", sa.column("type_id"))

    def of_type(value: sa.ColumnElement[int], source: sa.TableClause, *more: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
        return sa.select(value).select_from(source).where(source.c.type_id == kinds.c.type_id, *more).scalar_subquery()

    sums = {f"{name}_sum": of_type(sa.func.coalesce(sa.func.sum(steps.c[name]), 0), steps) for name in ("written", "rescued", "discarded")}
    counts = {"failed_steps": of_type(sa.func.count(), steps, steps.c.error != ""), "variations": of_type(sa.func.count(), shapes)}
    op.execute(sa.update(kinds).values(**sums, **counts))
