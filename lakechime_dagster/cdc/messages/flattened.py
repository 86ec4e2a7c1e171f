"""Debezium's messages after its event flattening (`ExtractNewRecordState`): the row, and what `add.fields` put beside it.

With its defaults a flattened message tells neither its operation nor its position: every row is an upsert then, a tombstone
its deletion, and Kafka's order the only one.
"""

from collections.abc import Mapping
from typing import Any

from lakechime_dagster.cdc.change import Operation

_DELETED = "__deleted"  # "true" as text, with `delete.tombstone.handling.mode=rewrite`
_PREFIX = "__"
_OF_SOURCE = "__source_"


def is_column(name: str) -> bool:
    """Whether a field of a flattened message is a column of the row, and not one that was put beside it."""
    return not name.startswith(_PREFIX)


def unflattened(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The envelope that a flattened message was made of, as far as it tells."""
    row = {name: value for name, value in payload.items() if is_column(name)}
    beside = {name: value for name, value in payload.items() if not is_column(name)}
    is_deleted = str(beside.get(_DELETED)).lower() == "true"
    operation = beside.get("__op") or (Operation.DELETE if is_deleted else Operation.UPDATE)
    gone = operation == Operation.DELETE
    transaction = {"id": beside.get("__transaction_id"), "data_collection_order": beside.get("__transaction_data_collection_order")}
    sides = {"before": row if gone else None, "after": None if gone else row}
    return {"op": str(operation), "source": _source(beside), **sides, "transaction": transaction}


def _source(beside: Mapping[str, Any]) -> dict[str, Any]:
    """The source block: fields of it are named `__source_pos` or, where `add.fields` names them alone, `__pos`."""
    found = {name.removeprefix(_PREFIX): value for name, value in beside.items() if not name.startswith(_OF_SOURCE)}
    found |= {name.removeprefix(_OF_SOURCE): value for name, value in beside.items() if name.startswith(_OF_SOURCE)}
    if "connector" not in found:
        if found.get("file") is not None and found.get("pos") is not None:
            found["connector"] = "mysql"
        elif found.get("lsn") is not None and found.get("sequence") is not None:
            found["connector"] = "postgresql"
    return found
