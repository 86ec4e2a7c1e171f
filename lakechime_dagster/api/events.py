"""The routes of data change events: register, fetch, follow."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from lakechime_dagster.api.app import body_of, json_of
from lakechime_dagster.dce.events import (
    DataChangeEvent,
    EventQuery,
    Position,
    RegisteredEvent,
    Tags,
    from_json,
    to_json,
)
from lakechime_dagster.dce.partitions import YEAR_10000
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import InvalidValueError

MAX_PAGE = 10_000  # events of an answer
POLL_SECONDS = 0.5
IDLE_POLLS = 30  # without an event, until the position is sent alone


class Event(BaseModel):
    """An event to register. Without `snapshot_id` it is a completeness marker.

    It is identified by `event_key`, else by cluster, table, table uid, partition and snapshot: a
    repeat is a duplicate, and with more tags an amendment.
    """

    table: str
    table_format: Literal["DELTA", "ICEBERG", "HIVE"] | None = Field(
        default=None, description="DELTA by default."
    )
    operation_type: Literal["APPEND", "DELETE", "UPDATE"] | None = Field(
        default=None, description="UPDATE by default."
    )
    partition: list[Any] | None = Field(default=None, description="A value for each level.")
    snapshot_id: str | None = None
    prev_snapshot_id: str | None = None
    snapshot_ts: int | None = Field(default=None, description="Milliseconds since the epoch.")
    tags: dict[str, str] | None = None
    cluster: str | None = Field(default=None, description="That of the server by default.")
    table_uid: str | None = None
    event_key: str | None = None
    added_bytes: int | None = Field(
        default=None, description="The size of the files that the commit added."
    )


BODY = body_of(Event.model_json_schema())


class Registered(Event):
    """An event as the store holds it. Positions are in commit order; `amends` is the position of
    the event that an amendment repeats.
    """

    event_ts: int
    position: str
    amends: str | None = None


class Registration(BaseModel):
    """The new events and amendments, and those that were there already."""

    registered: list[Registered]
    duplicates: list[Registered]


class Page(BaseModel):
    """Events in commit order, and the position to send as `after` for the following ones."""

    events: list[Registered]
    next: str | None = Field(description="None where these are all.")


Table = Annotated[str | None, Query(description="Of this table.")]
Cluster = Annotated[str | None, Query(description="Of this data platform; of all by default.")]
TagPairs = Annotated[
    list[str], Query(alias="tag", description="`name=value`; all must be on one event.")
]
Moment = Annotated[
    int | None, Query(ge=0, lt=YEAR_10000, description="In milliseconds since the epoch.")
]
After = Annotated[str | None, Query(description="After the event at this position.")]


def event_routes(store: DCEStore, cluster: str) -> APIRouter:
    """The routes of a store; events that name no cluster are of this one."""
    router = APIRouter(prefix="/events", tags=["events"])

    @router.post("", response_model=Registration, openapi_extra={"requestBody": BODY})
    async def register(request: Request) -> dict[str, Any]:
        """Register one event, or a list of them in one transaction: all or none."""
        sent = await json_of(request)
        several = sent if isinstance(sent, list) else [sent]
        events = [_event(one, cluster, at) for at, one in enumerate(several, 1)]
        for event in events:
            request.state.access.check_table(event.table)
        done = await run_in_threadpool(store.register, events)
        return {
            "registered": [to_json(one) for one in done.registered],
            "duplicates": [to_json(one) for one in done.duplicates],
        }

    @router.get("", response_model=Page)
    def fetch(
        table: Table = None,
        cluster: Cluster = None,
        partition: Annotated[
            str | None, Query(description='A JSON array of values, as `["2013-01-01", 5]`.')
        ] = None,
        tag: TagPairs = (),  # type: ignore[assignment]
        since: Moment = None,
        until: Moment = None,
        after: After = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 1000,
    ) -> dict[str, Any]:
        """The events for which every condition holds, oldest first; those that were registered at
        `since` or later, and before `until`.
        """
        events = store.fetch(
            EventQuery(
                table=table,
                cluster=cluster,
                partition=_partition(partition),
                tags=_tags(tag),
                since=since,
                until=until,
                after=_position("after", after),
                limit=limit,
            )
        )
        is_full = len(events) == limit
        return {
            "events": [to_json(one) for one in events],
            "next": str(events[-1].position) if is_full else None,
        }

    @router.get("/feed", response_class=StreamingResponse)
    async def feed(
        table: Table = None,
        cluster: Cluster = None,
        tag: TagPairs = (),  # type: ignore[assignment]
        after: After = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> StreamingResponse:
        """Follow events as they are registered, from now or after a position, as server-sent events.

        The id of each is its position, which a client that reconnects sends as `Last-Event-ID`.
        """
        wanted = _tags(tag)
        begin = _position("Last-Event-ID", last_event_id) or _position("after", after)
        position = begin or await run_in_threadpool(store.head)

        def is_wanted(event: RegisteredEvent) -> bool:
            inner = event.event
            return (
                table in (None, inner.table)
                and cluster in (None, inner.cluster)
                and inner.tags.carries(wanted)
            )

        return StreamingResponse(
            _followed(store, position, is_wanted),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache"},
        )

    return router


async def _followed(
    store: DCEStore, position: Position, is_wanted: Callable[[RegisteredEvent], bool]
) -> AsyncIterator[str]:
    """The wanted events after a position as server-sent events, until the client goes.

    The position alone is sent first, and when nothing was for a while: from there a client goes on
    that reconnects.
    """
    yield f"id: {position}\n\n"
    idle = 0
    while True:
        page = await run_in_threadpool(store.feed, position)
        position = page.through
        wanted = [one for one in page.events if is_wanted(one)]
        for event in wanted:
            yield f"id: {event.position}\ndata: {json.dumps(to_json(event))}\n\n"
        idle = 0 if wanted else idle + 1
        if idle >= IDLE_POLLS:
            idle = 0
            yield f"id: {position}\n\n"
        if not page.events:
            await asyncio.sleep(POLL_SECONDS)


def _event(sent: Any, cluster: str, number: int) -> DataChangeEvent:
    """An event of the body; the number of a wrong one is named."""
    try:
        return from_json({"cluster": cluster} | sent if isinstance(sent, dict) else sent)
    except InvalidValueError as error:
        raise InvalidValueError(
            f"event {number}, {error.field}", error.value, error.remedy
        ) from None


def _partition(text: str | None) -> tuple[Any, ...] | None:
    if text is None:
        return None
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, list):
        raise InvalidValueError("partition", text, 'is no JSON array; send ["2013-01-01", 5]')
    return tuple(values)


def _tags(pairs: Sequence[str]) -> Tags:
    found = dict[str, str]()
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidValueError("tag", pair, "is no pair; send tag=name=value")
        found[name] = value
    return Tags(found)


def _position(field: str, text: str | None) -> Position | None:
    try:
        return None if text is None else Position.parse(text)
    except InvalidValueError as error:
        raise InvalidValueError(field, error.value, error.remedy) from None
