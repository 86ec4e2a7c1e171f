"""The lake of the tests of streams: one of events by types, of which one may have no table."""

import os

from lakechime_dagster.tables.events import Contract, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from tests.support.drift import FROZEN
from tests.support.event_lake import FOLDER, MAX_BYTES
from tests.support.impatient import short_leases

short_leases()
game = event_stream(
    "game",
    source=JsonLines(os.environ[FOLDER], max_bytes=int(os.environ[MAX_BYTES])),
    producer_field="$.title",
)
play = event_group("play", game, match="play.*", types={FROZEN: Contract(tables="freeze")})
lake = Lake("streams", [game, play])
