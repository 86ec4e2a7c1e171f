"""How many owners were told of changes, and how many of them have said to have seen them."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.lineage.notices.occasions import WITHDRAWN
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.notices import schema
from lakechime_dagster.store.notices.outbox import MessageState


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Of the newest version of a change: owners to whom a message was sent, and owners for whom it was acknowledged."""

    told: int = 0
    seen: int = 0


def tally(engine: Engine, deployment: str) -> dict[int, Tally]:
    """By change of a deployment; those of which nobody was told or has seen anything are left out."""
    change, outbox, ack = schema.notice_change, schema.notice_outbox, schema.notice_ack
    sent = (outbox.c.state == MessageState.SENT.value, outbox.c.occasion != WITHDRAWN)
    with reading(engine) as connection:
        told, seen = (
            {
                row.change_id: row.owners
                for row in connection.execute(
                    sa.select(of.c.change_id, sa.func.count(sa.distinct(of.c.owner)).label("owners"))
                    .join(change, sa.and_(change.c.change_id == of.c.change_id, change.c.version == of.c.version))
                    .where(change.c.deployment == deployment, *which)
                    .group_by(of.c.change_id)
                )
            }
            for of, which in ((outbox, sent), (ack, ()))
        )
    return {number: Tally(told=told.get(number, 0), seen=seen.get(number, 0)) for number in {*told, *seen}}
