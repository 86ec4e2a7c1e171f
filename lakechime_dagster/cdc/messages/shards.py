"""Columns that the name of a topic tells, for tables that follow one table in many databases, or one that was cut into many."""

import re
from collections.abc import Mapping
from dataclasses import replace

from lakechime_dagster.cdc.change import Change, Key
from lakechime_dagster.cdc.messages.reading import EnvelopeReader, shown
from lakechime_dagster.cdc.messages.record import Changes, Reading, Record, Tombstone

TYPE = "string"


def shard_of(shards: re.Pattern[str], topic: str) -> dict[str, str] | None:
    """What the name of a topic tells of its rows: of each column its value; None if it does not match."""
    found = shards.fullmatch(topic)
    return None if found is None else {name: value or "" for name, value in found.groupdict().items()}


class ShardReader(EnvelopeReader):
    """Reads the messages of many topics, whose names tell columns of the rows.

    Args:
        reader: Of the messages, by the columns of the key that these tell.
        shards: A regular expression that the whole name of a topic matches, with a named group for each such column.
        keys: All columns of the key, in their order.
    """

    def __init__(self, reader: EnvelopeReader, shards: str, keys: tuple[str, ...]) -> None:
        self._reader, self._pattern, self._keys = reader, re.compile(shards), keys
        self._told: dict[str, dict[str, str]] = {}
        self._types: dict[int, tuple[Mapping[str, str], Mapping[str, str]]] = {}

    def _read(self, record: Record, is_exact: bool) -> Reading:
        match reading := self._reader.read(record):
            case Changes(changes, types):
                told = self._told_by(record.topic)
                return replace(reading, changes=tuple(self._with(change, told) for change in changes), types=self._with_types(types, told))
            case Tombstone(key) if key is not None:
                return replace(reading, key=self._key(key, self._told_by(record.topic)))
            case _:
                return reading

    def _told_by(self, topic: str) -> Mapping[str, str]:
        return self._told.get(topic) or self._told.setdefault(topic, self._columns(topic))

    def _columns(self, topic: str) -> dict[str, str]:
        found = shard_of(self._pattern, topic)
        if found is None:
            raise ValueError(f"topic: {shown(topic)} does not match shards={shown(self._pattern.pattern)}, by which it tells columns")
        return found

    def _with(self, change: Change, told: Mapping[str, str]) -> Change:
        """A change of the table of all shards; a truncation is one of its own shard, as that is a source of its own."""
        continues = None if change.continues is None else self._key(change.continues, told)
        columns = {**told, **change.columns} if change.operation.is_upsert else change.columns
        return replace(change, key=self._key(change.key, told) if change.key else change.key, columns=columns, continues=continues)

    def _key(self, key: Key, told: Mapping[str, str]) -> Key:
        rest = iter(key)
        return tuple(told[name] if name in told else next(rest) for name in self._keys)

    def _with_types(self, types: Mapping[str, str], told: Mapping[str, str]) -> Mapping[str, str]:
        """The types with those of the shard's columns, one object for each schema."""
        if id(types) not in self._types:
            self._types[id(types)] = types, {**dict.fromkeys(told, TYPE), **types}
        return self._types[id(types)][1]
