"""Small Delta tables for tests, written by delta-rs: a producer that is not our Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

SCHEMA = pa.schema(
    [("day", pa.date32()), ("hour", pa.int32()), ("id", pa.int64()), ("value", pa.string())]
)


def rows(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows in the order of the schema's columns."""
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in values], schema=schema
    )


def write(
    location: Path | str,
    data: pa.Table,
    *,
    mode: str = "append",
    partition_by: list[str] | None = None,
    tags: dict[str, str] | None = None,
    user_metadata: str | None = None,
    transaction: tuple[str, int] | None = None,
    **options: Any,
) -> None:
    """One commit by delta-rs, with tags, our commit metadata or a transaction where given."""
    custom = ({"lakechime.tags": json.dumps(tags)} if tags else {}) | (
        {"userMetadata": user_metadata} if user_metadata else {}
    )
    properties = CommitProperties(
        custom_metadata=custom or None,
        app_transactions=[Transaction(*transaction)] if transaction else None,
    )
    write_deltalake(  # pyright: ignore[reportCallIssue]
        str(location),
        data,
        mode=mode,  # pyright: ignore[reportArgumentType]
        partition_by=partition_by,
        commit_properties=properties,
        **options,
    )
