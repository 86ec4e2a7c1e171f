"""Lineage that is kept with the transaction that settles its run's step: a step is never settled without what it told."""

from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from lakechime_dagster.lineage.record import LineageRecord
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.lineage.code import forget_code_on
from lakechime_dagster.store.lineage.records import is_told_on, record_on


@dataclass
class LineageToKeep:
    """A record of what a run told of its target, of whose rows it may have `replaced` all.

    `is_new` says whether it is unlike what the run before told; None until it is kept.
    """

    record: LineageRecord
    replaced: bool = False
    is_new: bool | None = None

    def __call__(self, connection: Connection) -> None:
        """Keep it in an open transaction that writes."""
        is_new = not is_told_on(connection, self.record)
        record_on(connection, self.record)
        if self.replaced:
            forget_code_on(connection, self.record.producer, self.record.target, self.record.at_ms)
        self.is_new = is_new

    def kept(self, engine: Engine) -> bool:
        """Keep it now, unless it is; whether it is new."""
        if self.is_new is None:
            with writing(engine) as connection:
                self(connection)
        return bool(self.is_new)
