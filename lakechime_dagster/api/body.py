"""The bodies of requests, read no further than they may be long."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import Request

from lakechime_dagster.errors import LakeChimeError

Message = MutableMapping[str, Any]  # of ASGI
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MAX_FORM = 20_000  # bytes of a form
MAX_UNREAD = 100_000_000  # bytes of a body that nobody wants


class TooLargeError(LakeChimeError):
    """A body is larger than is read."""


async def form_of(request: Request, limit: int = MAX_FORM) -> bytes | None:
    """The body of a form; None of one that is longer."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            return None
    return bytes(body)


class LetsSend:
    """Reads what is left of a body before an answer is sent, and forgets it: most clients read no answer before they have sent all.

    A server that answers early and closes makes them see a reset instead. One that asks first (`Expect: 100-continue`) sends nothing.
    """

    def __init__(self, app: Callable[[Any, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or b"expect" in dict(scope["headers"]):
            await self.app(scope, receive, send)
            return
        is_read = False

        async def received() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def sent(message: Message) -> None:
            unread = 0
            while message["type"] == "http.response.start" and not is_read and unread <= MAX_UNREAD:
                unread += len((await received()).get("body", b""))
            await send(message)

        await self.app(scope, received, sent)
