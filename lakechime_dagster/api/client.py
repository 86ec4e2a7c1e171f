"""A client of `lakechime serve`, for programs that do not reach the DCE store itself."""

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPException, HTTPResponse
from typing import Any, TypeVar
from urllib.parse import urlencode

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from lakechime_dagster.dce.events import (
    DataChangeEvent,
    EventQuery,
    Position,
    RegisteredEvent,
    Registration,
    from_json,
    to_json,
)
from lakechime_dagster.dce.partitions import canonical_partition
from lakechime_dagster.errors import InvalidValueError, LakeChimeError

PAGE = 1000  # events of an answer
MAX_WAIT = 10  # seconds between two attempts
MAX_ASKED = 60  # of them that a server can add
ASKED = ("table", "cluster", "since", "until", "after", "limit")  # fields of a query
TOO_MANY = 429  # the status of an answer to one request too many
Answer = TypeVar("Answer")


class ServerUnreachableError(LakeChimeError):
    """The server does not answer, or not now: the same request may succeed after `wait` seconds."""

    wait: float = 0


@dataclass(frozen=True)
class Client:
    """Registers, fetches and follows data change events through HTTP.

    Args:
        url: Where `lakechime serve` is, such as `http://127.0.0.1:9465`.
        token: That of `LAKECHIME_API_TOKEN`, where the server asks for it.
        timeout: Seconds that one attempt may take.
        attempts: How often a request is sent before it fails.

    Raises (every method):
        ServerUnreachableError: no attempt was answered.
        LakeChimeError: the server refused the request: for want of the right token, or naming field,
            value and remedy of what is wrong.
    """

    url: str
    token: str = field(default="", repr=False)
    timeout: float = 30
    attempts: int = 5

    def register(self, events: Iterable[DataChangeEvent]) -> Registration:
        """Register events in one transaction, once however often the request is sent.

        An event that has no identity of its own, such as a completeness marker, gets an
        `event_key`. Without a cluster an event is of the server's.
        """
        wire = [_with_identity(event) for event in events]
        answer = self._asked("/events", json.dumps(wire).encode())
        return Registration(
            registered=tuple(map(_fetched, answer["registered"])),
            duplicates=tuple(map(_fetched, answer["duplicates"])),
        )

    def fetch(self, query: EventQuery) -> Iterator[RegisteredEvent]:
        """The events for which every condition of the query holds, in commit order, page by page.

        Raises:
            InvalidValueError: the query has `through`, `only_new` or conditions on tags with
                operators, which the server does not answer.
        """
        for name, value in query.tags.items():
            if not isinstance(value, str):
                raise InvalidValueError(
                    f"tags[{name}]", dict(value), "is not asked by HTTP; give a text to equal"
                )
        if query.through is not None or query.only_new:
            name = "only_new" if query.only_new else "through"
            raise InvalidValueError(
                name, getattr(query, name), "is not asked by HTTP; leave it out"
            )
        left = query.limit
        while left is None or left > 0:
            page = replace(query, limit=PAGE if left is None else min(PAGE, left))
            answer = self._asked(f"/events?{_asked_for(page)}")
            found = [_fetched(one) for one in answer["events"]]
            yield from found
            if answer["next"] is None:
                return
            query = replace(query, after=Position.parse(answer["next"]))
            left = None if left is None else left - len(found)

    def follow(
        self,
        after: Position | None = None,
        *,
        table: str | None = None,
        cluster: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Generator[RegisteredEvent, None, None]:
        """The events after a position, or from now on, as they are registered, without end.

        A lost connection is made again from the last event, each once and in commit order.
        """
        query = EventQuery(table=table, cluster=cluster, tags=tags or {}, after=after)
        path = f"/events/feed?{_asked_for(query)}"
        last = ""
        while True:
            headers = {"Last-Event-ID": last} if last else {}
            # to connect again waits, and fails where no server answers any more
            with (
                suppress(OSError, HTTPException),
                self._retried(partial(self._sent, path, None, headers)) as stream,
            ):
                message = dict[str, str]()
                for line in iter(stream.readline, b""):
                    if not line.endswith(b"\n"):
                        break  # cut off; only an empty line ends a message
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name:
                        message[name] = value
                        continue
                    if "data" in message:
                        yield _fetched(json.loads(message["data"]))
                    last = message.get("id", last)
                    message = {}

    def _asked(self, path: str, body: bytes | None = None) -> Any:
        """The JSON of an answer."""

        def answer() -> Any:
            with self._sent(path, body, {}) as found:
                return json.loads(found.read())

        return self._retried(answer)

    def _retried(self, ask: Callable[[], Answer]) -> Answer:
        """What is asked, which is asked again where no whole answer arrives."""

        def attempt() -> Answer:
            try:
                return ask()
            except (OSError, HTTPException, json.JSONDecodeError) as error:
                reason = getattr(error, "reason", error)
                raise ServerUnreachableError(
                    f"{self.url} does not answer ({reason}); check that `lakechime serve` runs "
                    f"there"
                ) from error

        return Retrying(
            retry=retry_if_exception_type(ServerUnreachableError),
            stop=stop_after_attempt(self.attempts),
            wait=_pause,
            reraise=True,
        )(attempt)

    def _sent(self, path: str, body: bytes | None, headers: Mapping[str, str]) -> HTTPResponse:
        """The answer to one attempt, if it is none of refusal."""
        kind = {"Content-Type": "application/json"} if body is not None else {}
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}{path}", body, {**kind, **token, **headers}
        )
        try:
            return urllib.request.urlopen(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None


def _with_identity(event: DataChangeEvent) -> dict[str, Any]:
    wire = {name: value for name, value in to_json(event).items() if value not in (None, {}, "")}
    if event.event_key is None and event.snapshot_id is None:
        wire["event_key"] = str(uuid.uuid4())
    return wire


def _fetched(wire: Mapping[str, Any]) -> RegisteredEvent:
    event, amends = from_json(wire), wire["amends"]
    return RegisteredEvent(
        event=event,
        canonical=canonical_partition(event.partition),
        position=Position.parse(wire["position"]),
        event_ts=wire["event_ts"],
        amends=None if amends is None else Position.parse(amends),
    )


def _asked_for(query: EventQuery) -> str:
    """The parameters of a query; one that is not given is left out."""
    given = {name: getattr(query, name) for name in ASKED}
    if query.partition is not None:
        given["partition"] = json.dumps(list(query.partition))
    pairs = [(name, str(value)) for name, value in given.items() if value is not None]
    return urlencode([*pairs, *(("tag", f"{name}={value}") for name, value in query.tags.items())])


def _pause(state: RetryCallState) -> float:
    """Seconds until the next attempt: those that the server asks for, and some at random."""
    error = state.outcome and state.outcome.exception()
    asked = error.wait if isinstance(error, ServerUnreachableError) else 0
    return asked + wait_random_exponential(multiplier=0.2, max=MAX_WAIT)(state)


def _refusal(answer: urllib.error.HTTPError) -> LakeChimeError:
    """The error of an answer; what the server cannot do now may succeed later."""
    try:
        said = json.loads(answer.read())["error"]["message"]
    except (ValueError, KeyError, TypeError):
        said = f"the server answers with status {answer.code}"
    if answer.code != TOO_MANY and answer.code < 500:
        return LakeChimeError(said)
    error = ServerUnreachableError(said)
    seconds = answer.headers.get("Retry-After", "")
    error.wait = min(int(seconds), MAX_ASKED) if seconds.isdigit() else 0
    return error
