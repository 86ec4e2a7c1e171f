"""Reads the commit files of a Delta table's log."""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from lakechime_dagster.dce.events import TableUid
from lakechime_dagster.dce.partitions import (
    NULL_PARTITION,
    LevelType,
    PartitionLevels,
    PartitionValue,
    checked_milliseconds,
)
from lakechime_dagster.dce.snapshots import FileAction, TableCommit
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.formats.changes import TAGS_KEY, producer_tags
from lakechime_dagster.triggers.consumers import COMMIT_METADATA_KEY


def commit_path(version: int) -> str:
    """The commit file of a version, relative to the table."""
    return f"_delta_log/{version:020d}.json"


def parse_commit(version: int, text: str, levels: "DeltaLevels") -> TableCommit:
    """The commit that a log file holds.

    Raises:
        ValueError: for a file that is not a Delta commit.
    """
    actions = [json.loads(line) for line in _lines(text)]
    info = _first(actions, "commitInfo") or {}
    metadata = _first(actions, "metaData")
    levels = DeltaLevels.of_metadata(metadata) if metadata else levels
    return TableCommit(
        version=version,
        timestamp=_time(info.get("inCommitTimestamp", info.get("timestamp"))),
        operation=str(info.get("operation", "")),
        engine=str(info.get("engineInfo") or info.get("clientVersion") or ""),
        parameters=info.get("operationParameters") or {},
        metrics=info.get("operationMetrics") or {},
        user_metadata=info.get(COMMIT_METADATA_KEY),
        tags=producer_tags(info.get(TAGS_KEY)),
        transactions={a["txn"]["appId"]: int(a["txn"]["version"]) for a in actions if "txn" in a},
        added=_files(actions, "add", levels, changes=True),
        removed=_files(actions, "remove", levels, changes=True),
        moved_in=_files(actions, "add", levels, changes=False),
        moved_out=_files(actions, "remove", levels, changes=False),
        change_files=tuple(a["cdc"]["path"] for a in actions if "cdc" in a),
        table_uid=TableUid(metadata["id"]) if metadata else None,
        properties=metadata.get("configuration") or {} if metadata else None,
        columns=tuple(f["name"] for f in json.loads(metadata["schemaString"])["fields"])
        if metadata
        else None,
    )


def first_metadata(text: str) -> Mapping[str, Any] | None:
    """The metadata that the table's first commit wrote, without parsing its files."""
    line = next((line for line in _lines(text) if line.lstrip().startswith('{"metaData"')), None)
    return json.loads(line)["metaData"] if line else None


def _lines(text: str) -> list[str]:
    """The lines of a commit, split at line feeds alone: other separators may stand unescaped in a
    text of its statistics.
    """
    return [line for line in text.split("\n") if line.strip()]


class DeltaLevels:
    """The partition levels of a Delta table, and how its log spells their values: text by physical
    column name.
    """

    def __init__(self, levels: PartitionLevels, physical: tuple[str, ...]) -> None:
        self.levels = levels
        self.physical = physical

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any]) -> "DeltaLevels":
        return cls.of_schema(
            json.loads(metadata["schemaString"]), metadata.get("partitionColumns") or []
        )

    @classmethod
    def of_schema(
        cls, schema: Mapping[str, Any], partition_columns: Iterable[str]
    ) -> "DeltaLevels":
        fields = {f["name"]: f for f in schema["fields"]}
        names = tuple(partition_columns)
        types = tuple(_level_type(fields[name]["type"]) for name in names)
        physical = tuple(
            (fields[name].get("metadata") or {}).get("delta.columnMapping.physicalName", name)
            for name in names
        )
        return cls(PartitionLevels(names, types), physical)

    def file(self, action: Mapping[str, Any]) -> FileAction:
        stats = action.get("stats")
        statistics = json.loads(stats) if isinstance(stats, str) and stats else {}
        vector = action.get("deletionVector") or {}
        raw = self._raw(action)
        return FileAction(
            path=action["path"],
            partition=self.values(raw) if set(raw) == set(self.physical) else None,
            is_foreign=set(raw) != set(self.physical),
            size=action.get("size") or 0,
            rows=statistics.get("numRecords"),
            nulls={
                name: count
                for name, count in (statistics.get("nullCount") or {}).items()
                if isinstance(count, int)
            },
            vector=f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"
            if vector
            else None,
            entry=_entry(action) if action.get("partitionValues") is not None else "",
        )

    def values(self, raw: Mapping[str, str | None]) -> tuple[PartitionValue, ...] | None:
        """Typed values by level, None for an unpartitioned table; the log's empty text is null."""
        if not self.physical:
            return None
        return tuple(
            None if raw[name] in (None, "") else _typed(raw[name], kind)
            for name, kind in zip(self.physical, self.levels.types, strict=True)
        )

    def _raw(self, action: Mapping[str, Any]) -> Mapping[str, str | None]:
        """The values as the log has them; a writer that left them out of a removal is read from the
        path.
        """
        raw = action.get("partitionValues")
        if raw is None and self.physical:
            return _values_of_path(action["path"])
        return raw or {}


def _entry(action: Mapping[str, Any]) -> str:
    """An `add` of the file, also for one that was removed, so that an engine can still open it."""
    kept = (
        "path",
        "partitionValues",
        "size",
        "deletionVector",
        "baseRowId",
        "defaultRowCommitVersion",
    )
    entry = {name: action[name] for name in kept if action.get(name) is not None}
    return json.dumps({"add": {"modificationTime": 0, "dataChange": True, "size": 0} | entry})


def _typed(text: Any, kind: LevelType) -> PartitionValue:
    try:
        return PartitionLevels(("level",), (kind,)).typed((text,))[0]
    except InvalidValueError:  # such as the floats NaN and Infinity: shown as the log spells them
        return str(text)


def _level_type(delta_type: Any) -> LevelType:
    name = delta_type if isinstance(delta_type, str) else "string"
    if name in ("float", "double"):
        return LevelType.DECIMAL
    try:
        return LevelType.of("partition column type", name)
    except InvalidValueError:
        return LevelType.STRING


def _values_of_path(path: str) -> dict[str, str | None]:
    pairs = [part.partition("=") for part in unquote(path).split("/")[:-1]]
    return {
        name: None if value == NULL_PARTITION else unquote(value)
        for name, equals, value in pairs
        if equals
    }


def _files(
    actions: Iterable[Mapping[str, Any]], kind: str, levels: DeltaLevels, *, changes: bool
) -> tuple[FileAction, ...]:
    found = (action[kind] for action in actions if kind in action)
    return tuple(
        levels.file(action) for action in found if action.get("dataChange", True) is changes
    )


def _first(actions: Iterable[Mapping[str, Any]], kind: str) -> dict[str, Any] | None:
    return next((action[kind] for action in actions if kind in action), None)


def _time(value: Any) -> int | None:
    """The time of a commit; what is not one is none, since a commit cannot be refused any more."""
    try:
        return checked_milliseconds("timestamp", value)
    except InvalidValueError:
        return None
