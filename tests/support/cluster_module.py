"""The lake of a stream of which a group's types are written by a cluster of their own."""

import os

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.tables.events import GroupOptions, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from tests.support.event_lake import FOLDER

game = event_stream("game", source=JsonLines(os.environ[FOLDER]))
shop = event_group("shop", game, match="shop.*", options=GroupOptions(spark=os.environ["LAKECHIME_TEST_SECOND_CLUSTER"]))
defs = build_definitions(Lake("second", [game, shop]))
