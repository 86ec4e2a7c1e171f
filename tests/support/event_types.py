"""Types of events in a store, filled as executions of their groups leave it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.silver.event import JsonEvent, event_of, variation_of
from lakechime_dagster.silver.results import GroupResult, TypeResult
from lakechime_dagster.silver.schema import KnownType, Learning, Prototype, TypeCheckpoint, learned
from lakechime_dagster.silver.store import SqlEventTypes
from lakechime_dagster.tables.events import Contract, EventGroup, event_group, event_stream
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, Committed, ConsumerId

GAME = event_stream("game", source=JsonLines("in"))
SHOP = event_group("shop", GAME)
START = TypeCheckpoint(uid="u", version=2)


def prototype(**fields: object) -> Prototype:
    event = event_of(json.dumps(fields))
    assert isinstance(event, JsonEvent)
    variation = variation_of(event)
    return Prototype(typed_hash=variation.typed_hash, variation=variation)


def learning(known: KnownType, *found: Prototype, is_rebuild: bool = False) -> Learning:
    one = learned(known, found, Contract(), is_rebuild=is_rebuild)
    assert one is not None
    return one


def registered(
    types: SqlEventTypes,
    name: str = "buy",
    begin: TypeCheckpoint = START,
    groups: Sequence[EventGroup] = (SHOP,),
) -> KnownType:
    """A type of the group shop of which nothing was learned, unless it is there."""
    types.register(groups, [name], begin)
    return types.types(groups[0].name)[name]


def learn(
    types: SqlEventTypes, *found: Prototype, name: str = "buy", begin: TypeCheckpoint = START
) -> KnownType:
    """What an execution finds out of a type of the group shop; by default of an event of one whole
    number.
    """
    types.learn("shop", [learning(registered(types, name, begin), *(found or (prototype(a=1),)))])
    return types.types("shop")[name]


def complete(
    types: SqlEventTypes,
    execution: str,
    *results: TypeResult,
    group: str = "shop",
    uid: str = "u",
    **more: Mapping[str, Any],
) -> None:
    with writing(types.engine) as connection:
        types.complete(connection, group, execution, GroupResult(types=results, **more), uid)  # type: ignore[arg-type]


def committed(number: int, name: str = "buy", version: str = "1") -> Committed:
    metadata = CommitMetadata(
        consumer=ConsumerId("test", "shop", name), number=number, attempt=1, end=Checkpoint()
    )
    return Committed(version=SnapshotId(version), commit_metadata=metadata)


def result(
    end: int, number: int | None = None, error: str = "", rows: int = 1, name: str = "buy"
) -> TypeResult:
    """So many rows that one execution has written, with that commit."""
    commits = () if number is None else (committed(number, name),)
    return TypeResult(
        type=name,
        table=f"shop.{name}",
        start=0,
        end=end,
        rows=rows,
        written=rows,
        commits=commits,
        error=error,
    )
