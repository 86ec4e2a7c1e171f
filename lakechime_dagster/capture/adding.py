"""Adds Parquet files that lie in a Delta table's folder to the table, in one commit. No JVM.

A commit in Spark that names a transaction reckons the table's whole state first; this one reads its log, as small as that is.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from lakechime_dagster.capture.statistics import LISTED, listed_in, statistics_of

PLAIN_WRITER = 4  # the last of Delta's versions of writers that asks for these features alone, of which properties and columns tell more
PLAIN_FEATURES = frozenset({"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"})
BY_FEATURES = 7  # the version of writers that names its features
CONSTRAINT = "delta.constraints."


def is_plain(state: DeltaTable) -> bool:
    """Whether rows of its columns may be added as they are: it has no partitions, and holds them to nothing."""
    metadata, protocol = state.metadata(), state.protocol()
    named = protocol.min_writer_version >= BY_FEATURES and PLAIN_FEATURES.issuperset(protocol.writer_features or ())
    is_free = not any(name.startswith(CONSTRAINT) for name in metadata.configuration)
    schema = json.loads(state.schema().to_json())
    is_open = all(field["nullable"] and not field["metadata"] for field in _fields(schema))
    return is_free and is_open and not metadata.partition_columns and (named or protocol.min_writer_version <= PLAIN_WRITER)


def add_folder(state: DeltaTable, files: pafs.FileSystem, folder: str, app_id: str, version: int, facts: Mapping[str, str]) -> bool:
    """Commit the Parquet files of a folder under a transaction; False when one of it, or of a later version, did before this state.

    Args:
        state: The table as the commit finds it; `is_plain`.
        files: With the table's folder as its root.
        folder: Below it, with files of the table's columns, all or some of them. Those without rows are left out.
        app_id: The transaction's application.
        version: Its number, which commits of the application raise.
        facts: Told by the commit.

    Raises:
        FileNotFoundError: no such file is there, so that rows would be lost.
        CommitFailedError: since this state another commit was first that this one may not follow unseen, of its transaction for one.
    """
    done = state.transaction_version(app_id)
    if done is not None and done >= version:
        return False
    property_value = state.metadata().configuration.get(LISTED)
    listed = None if property_value is None else listed_in(property_value)
    told = CommitProperties(custom_metadata=dict(facts), app_transactions=[Transaction(app_id, version)])
    state.create_write_transaction(list(_actions(files, folder, listed)), "append", state.schema(), commit_properties=told)
    return True


def _actions(files: pafs.FileSystem, folder: str, listed: Collection[str] | None) -> Iterator[AddAction]:
    found = [one for one in files.get_file_info(pafs.FileSelector(folder)) if one.base_name.endswith(".parquet")]
    if not found:
        raise FileNotFoundError(f"{folder} holds no Parquet file, and who writes no rows writes one too")
    for one in found:
        with files.open_input_file(one.path) as opened:
            statistics = statistics_of(pq.read_metadata(opened), listed)
        if statistics["numRecords"]:
            modified = int(one.mtime_ns or 0) // 1_000_000
            yield AddAction(f"{folder}/{one.base_name}", one.size, {}, modified, True, json.dumps(statistics))


def _fields(kind: Any) -> Iterator[Mapping[str, Any]]:
    """The fields of a type in Delta's words, and those within them."""
    if isinstance(kind, Mapping):
        for field in kind.get("fields", ()):
            yield field
            yield from _fields(field["type"])
        for name in ("elementType", "keyType", "valueType"):
            yield from _fields(kind.get(name))
