"""What people decided about columns and personal data, in the store."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import BIG, now_ms, reading, writing
from lakechime_dagster.dce.schema import metadata
from lakechime_dagster.governance.tags import Decision
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.triggers.interventions import By

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


@dataclass(frozen=True)
class PersonalDecisions:
    """The decisions of a store, for good: of a column the newest one holds, whatever the case of its name."""

    engine: Engine

    def decide(self, ref: ColumnRef, category: str | None, by: By) -> None:
        """From now on a column holds personal data of a category, or without one none."""
        values = {"dataset": ref.table, "name": ref.column, "category": category, "who": by.who, "reason": by.reason}
        with writing(self.engine) as connection:
            connection.execute(sa.insert(personal_decision).values(**values, decided_ts=now_ms(connection)))

    def holding(self) -> dict[ColumnRef, Decision]:
        """What holds by now, by column."""
        newest = {(one.ref.table, str(one.ref.column).lower()): one for one in self.all()}
        return {one.ref: one for one in newest.values()}

    def all(self) -> list[Decision]:
        """All that was ever decided, the first one first."""
        query = sa.select(personal_decision).order_by(personal_decision.c.decision_id)
        with reading(self.engine) as connection:
            return [
                Decision(
                    ref=ColumnRef(row.dataset, row.name), category=row.category, who=row.who, reason=row.reason, decided_ms=row.decided_ts
                )
                for row in connection.execute(query)
            ]
