"""What one writes by hand for Debezium's messages: the newest row of each key, by the log's time.
Plain Python over the bronze table.

Contenders that read no messages themselves merge what this gives. It imports nothing of ours, as
another environment runs it too.
"""

from base64 import b64decode
from decimal import Decimal

import orjson
import pyarrow as pa
from deltalake import DeltaTable

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int32()),
        ("status", pa.string()),
        ("note", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("changed", pa.timestamp("us")),
        ("deleted", pa.bool_()),
    ]
)


def newest_rows(bronze: str) -> pa.Table:
    """The newest row of each key that the messages report, and whether it was deleted."""
    newest: dict[int, tuple[int, bool, dict]] = {}
    for text in DeltaTable(bronze).to_pyarrow_table(columns=["value"])["value"].to_pylist():
        if text is None:
            continue
        payload = orjson.loads(text)["payload"]
        is_deleted = payload["op"] == "d"
        row, at = payload["before" if is_deleted else "after"], payload["source"]["ts_ms"]
        if row["id"] not in newest or newest[row["id"]][0] < at:
            newest[row["id"]] = at, is_deleted, row
    rows = [
        {**row, "amount": _amount(row["amount"]), "deleted": is_deleted}
        for _, is_deleted, row in newest.values()
    ]
    columns = [pa.array([row[one.name] for row in rows], one.type) for one in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _amount(text: str) -> Decimal:
    return Decimal(int.from_bytes(b64decode(text), "big", signed=True)).scaleb(-2)
