"""The lake of the tests of streams: one of events by types, of which one may have no table."""

import os

from lakechime_dagster.lake import Contract, JsonLines, Lake, event_group, event_stream
from tests.support.drift import FROZEN
from tests.support.event_lake import FOLDER
from tests.support.impatient import short_leases

MAX_BYTES = 6_000_000  # of a step: a twelfth of what comes, so that there are several however fast the machine is

short_leases()
game = event_stream("game", source=JsonLines(os.environ[FOLDER], max_bytes=MAX_BYTES), producer_field="$.title")
play = event_group("play", game, match="play.*", types={FROZEN: Contract(tables="freeze")})
lake = Lake("streams", [game, play])
