"""The application that answers other programs over HTTP: `POST /lineage`, and `/metrics` in the same process."""

import hmac
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, make_asgi_app

from lakechime_dagster.api import session
from lakechime_dagster.api.body import LetsSend, TooLargeError
from lakechime_dagster.api.metrics import StoreCollector
from lakechime_dagster.api.own_page import NOTICES, NotOurPageError
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError
from lakechime_dagster.resources.lineage.ingest import MAX_BYTES, LineageIngest, parsed
from lakechime_dagster.store.notices.changes import ChangeMovedError
from lakechime_dagster.store.types.measures import Measures

JSON_TYPE = "application/json"
OPEN = ("/metrics", "/notice/acknowledge")  # what needs no token: scrapers of Prometheus have none, and a signed link is one
WAY = "api"
STATUS = {
    InvalidValueError: 400, NotOurPageError: 403, NotFoundError: 404, ChangeMovedError: 409, TooLargeError: 413, LakeChimeError: 503,
}  # fmt: skip
Next = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class Served:
    """What an application answers from; `routers` are further routes, which the same token protects.

    `hosts` are the names under which people reach it, beside this machine; without a token it answers to no other.
    With `now_ms`, the clock in milliseconds, a browser logs in by a form that takes the token.
    """

    ingest: LineageIngest
    measures: Callable[[], Measures] | None = None
    token: str = field(default="", repr=False)
    routers: tuple[APIRouter, ...] = ()
    now_ms: Callable[[], int] | None = None
    hosts: Collection[str] = ()

    def is_ours(self, request: Request) -> bool:
        """Whether a request comes by a name of ours, which a token makes needless: a site that leads a name of its own here has none."""
        return bool(self.token) or request.url.path.startswith(OPEN) or session.is_our_name(request, self.hosts)

    def lets_in(self, request: Request) -> bool:
        """Whether a request needs no token, has it, or is one of the page's by a browser that has shown it."""
        path, now_ms = request.url.path, self.now_ms
        if not self.token or path.startswith(OPEN) or is_bearer(request.headers.get("authorization", ""), self.token):
            return True
        if now_ms is None or not (path == "/lineage" or path.startswith("/lineage/")):
            return False
        by_page = request.method in ("GET", "HEAD") or path == NOTICES or path.startswith(f"{NOTICES}/")
        return path == session.LOGIN or (by_page and session.is_logged_in(request.cookies.get(session.COOKIE, ""), self.token, now_ms()))


def build_app(served: Served) -> FastAPI:
    """The application; with a token every route but those in `OPEN` asks for `Authorization: Bearer …`.

    Its own errors are JSON: `{"error": {"type", "message", …}}`, 400 for what cannot be read, 401, 403, 415, and those of `STATUS`.
    """
    app = FastAPI(title="lakechime", docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def asks_for_the_token(request: Request, go_on: Next) -> Response:
        if not served.is_ours(request):
            return _refused(403, "Forbidden", "nobody said that people come here by this name: set LAKECHIME_LINEAGE_URL")
        if served.lets_in(request):
            return await go_on(request)
        if served.now_ms is not None and request.method == "GET" and request.url.path == "/lineage":
            return session.login_page(f"/lineage?{request.url.query}", 401)
        return _refused(401, "Unauthorized", "send Authorization: Bearer and the token of LAKECHIME_API_TOKEN")

    app.add_middleware(LetsSend)
    for kind, status in STATUS.items():
        app.add_exception_handler(kind, partial(_told, status))

    @app.post("/lineage")
    async def take(request: Request) -> Response:
        """Take one document or a list of them, all or none: ours, or run events of OpenLineage."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON_TYPE:  # a page of another origin could send other types without asking first
            return _refused(415, "UnsupportedMediaType", f"send Content-Type: {JSON_TYPE}")
        body = await body_of(request)
        taken = await run_in_threadpool(lambda: served.ingest.take(_documents(body), WAY))
        return JSONResponse(
            {**{name: getattr(taken, name) for name in ("documents", "repeated", "records", "reads")}, "outside": taken.outside}
        )

    if served.token and served.now_ms is not None:
        app.include_router(session.session_router(served.token, served.now_ms))
    for router in served.routers:
        app.include_router(router)
    if served.measures is not None:
        registry = CollectorRegistry()
        registry.register(StoreCollector(served.measures))
        app.mount("/metrics", make_asgi_app(registry))
    return app


def is_bearer(header: str, token: str) -> bool:
    """Whether a header names the token; how long that takes tells nothing of it."""
    scheme, _, given = header.partition(" ")
    return hmac.compare_digest(given.strip().encode(), token.encode()) and scheme.lower() == "bearer"


async def body_of(request: Request) -> bytes:
    """The body, read no further than it may be long.

    Raises:
        TooLargeError: it is longer.
    """
    said = request.headers.get("content-length", "0")
    parts = bytearray()
    if said.isdigit() and int(said) <= MAX_BYTES:
        async for part in request.stream():
            parts += part
            if len(parts) > MAX_BYTES:
                break
        else:
            return bytes(parts)
    raise TooLargeError(f"the body is longer than {MAX_BYTES:,} bytes; send fewer documents at a time")


def _documents(body: bytes) -> list[Any]:
    value = parsed(body)
    return value if isinstance(value, list) else [value]


async def _told(status: int, _: Request, error: Exception) -> Response:
    facts = {"field": error.field, "remedy": error.remedy} if isinstance(error, InvalidValueError) else {}
    return _refused(status, type(error).__name__, str(error), **facts)


def _refused(status: int, kind: str, message: str, **facts: Any) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": {"type": kind, "message": message, **facts}}, status_code=status, headers=headers)
