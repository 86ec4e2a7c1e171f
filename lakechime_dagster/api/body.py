"""The bodies of requests, read no further than they may be long."""

from fastapi import Request

from lakechime_dagster.errors import LakeChimeError

MAX_FORM = 20_000  # bytes of a form


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
