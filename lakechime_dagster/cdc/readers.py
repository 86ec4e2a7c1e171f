"""The reader of a declared envelope."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from lakechime_dagster.cdc.canal import CanalReader
from lakechime_dagster.cdc.connect import ConnectSchema
from lakechime_dagster.cdc.debezium import DebeziumReader
from lakechime_dagster.cdc.dms import DmsReader
from lakechime_dagster.cdc.heartbeats import BeatReader
from lakechime_dagster.cdc.maxwell import MaxwellReader
from lakechime_dagster.cdc.reading import EnvelopeReader
from lakechime_dagster.cdc.shards import ShardReader
from lakechime_dagster.lake.envelopes import Canal, Debezium, Dms, Envelope, Maxwell
from lakechime_dagster.lake.feeds import shard_columns


def reader_of(
    envelope: Envelope,
    keys: Sequence[str],
    types: Mapping[str, str],
    columns: ConnectSchema | None = None,
    *,
    heartbeats: str = "",
    shards: str = "",
) -> EnvelopeReader:
    """What reads the messages of one table's topics.

    Args:
        envelope: As it is declared.
        keys: The columns of the table's key, in their order.
        types: The type of each column, for envelopes whose messages never bring a schema.
        columns: The schema of a row, for Debezium's messages that bring none.
        heartbeats: A glob of topics that hold the changes of a heartbeat table.
        shards: A regular expression of topics' names, by whose named groups they tell columns.

    Raises:
        ValueError: A column of the key has no type, or one has a type of which such tools write no values.
    """
    told = shard_columns(shards)
    reader = _reader(envelope, [key for key in keys if key not in told], types, columns)
    if shards:
        reader = ShardReader(reader, shards, tuple(keys))
    return BeatReader(reader, heartbeats) if heartbeats else reader


def _reader(envelope: Envelope, keys: Sequence[str], types: Mapping[str, str], columns: ConnectSchema | None) -> EnvelopeReader:
    match envelope:
        case Debezium():
            return DebeziumReader(envelope, keys, columns)
        case Canal():
            return CanalReader(envelope, keys, types)
        case Maxwell():
            return MaxwellReader(envelope, keys, types)
        case Dms():
            return DmsReader(envelope, keys, types)
        case _:
            assert_never(envelope)
