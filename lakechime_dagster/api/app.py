"""The HTTP application: who may ask it what and how often, its errors, ingestion of lineage."""

import base64
import hmac
import ipaddress
import math
import threading
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, make_asgi_app
from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException

from lakechime_dagster.api.access import EVERYTHING, WITHOUT_TOKEN, Access, ForbiddenError, Scope
from lakechime_dagster.api.metrics import StoreCollector
from lakechime_dagster.api.tokens import Tokens
from lakechime_dagster.errors import (
    InvalidValueError,
    LakeChimeError,
    MessagesUnreadableError,
    NotFoundError,
    StoreUnreachableError,
    StoreVersionError,
    TableUnreadableError,
)
from lakechime_dagster.lineage.ingest import MAX_BYTES, LineageIngest, parsed
from lakechime_dagster.silver.metrics import Measures

JSON_TYPE = "application/json"
METRICS = "/metrics"
OPEN = (METRICS, "/health", "/ready")  # without a token: scrapers and load balancers have none
READING = ("GET", "HEAD")
WAY = "api"
MAX_UNREAD = 100_000_000  # bytes of a body that is not wanted
BURST = 5  # seconds whose requests may come at once
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class WrongTypeError(LakeChimeError):
    """A body is not said to be of the type that is read."""


# of our errors; of one that is not here, that of what it is derived from
STATUS = {
    InvalidValueError: 400,
    ForbiddenError: 403,
    NotFoundError: 404,
    LakeChimeError: 409,
    WrongTypeError: 415,
    MessagesUnreadableError: 503,
    StoreUnreachableError: 503,
    StoreVersionError: 503,
    TableUnreadableError: 503,
}
# of every answer
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, kw_only=True)
class Served:
    """What an application answers from; `routers` are further routes, which the same token
    protects.

    It asks for a token where it `is_public`, that is reached from other machines, where `token` is
    one, which lets its bearer do everything, or where `tokens` has any. `hosts` are the names by
    which people reach it, beside this machine; without a token it answers to no other. `is_ready`
    raises what keeps it from answering, and `rate` limits the requests a second of each token.
    """

    ingest: LineageIngest
    measures: Callable[[], Measures] | None = None
    token: str = field(default="", repr=False)
    tokens: Tokens | None = None
    is_public: bool = False
    routers: tuple[APIRouter, ...] = ()
    hosts: Collection[str] = ()
    is_ready: Callable[[], object] = lambda: None
    rate: int = 0

    def asks_for_token(self) -> bool:
        """Whether a request must bring one."""
        has_any = self.tokens is not None and self.tokens.any_valid()
        return self.is_public or bool(self.token) or has_any

    def is_ours(self, request: Request) -> bool:
        """Whether a request without a token names this machine or one of `hosts`: another site can
        lead a name of its own here.
        """
        try:
            name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        except ValueError:
            return False
        return name in self.hosts or is_loopback(name)

    def access(self, request: Request) -> Access | None:
        """What a request may do by its token, a bearer's, or for reading also the password of a
        browser (HTTP Basic); None of one that is unknown.
        """
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic" and request.method in READING:
            given = _password(given)
        elif scheme.lower() != "bearer":
            return None
        if self.token and hmac.compare_digest(given.strip().encode(), self.token.encode()):
            return EVERYTHING
        return self.tokens.access(given.strip()) if self.tokens is not None else None


class Limit:
    """Admits `rate` requests a second of each name, and after a pause those of `BURST` seconds at
    once; all of them where `rate` is 0.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._due = dict[str, float]()  # when the next one of a name comes at an even pace

    def wait(self, name: str, now: float) -> float:
        """Seconds until a request of that name is admitted; 0 where it is admitted now."""
        if not self._rate:
            return 0
        with self._lock:
            due = max(self._due.get(name, 0), now - BURST)
            if due <= now:
                self._due[name] = due + 1 / self._rate
        return max(0, due - now)


class Gate:
    """Lets a request go on that may, with at most `MAX_BYTES` of its body, and puts `HEADERS` into
    the answer.

    What is left of the body is read before the answer is sent: most clients read no answer before
    they have sent all, and would see a reset. One that asks first (`Expect: 100-continue`) sends
    nothing.
    """

    def __init__(self, app: App, served: Served) -> None:
        self._app, self._served, self._limit = app, served, Limit(served.rate)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        is_long = int(request.headers.get("content-length", 0)) > MAX_BYTES
        read, is_read = 0, False

        async def next_part() -> Message:
            nonlocal read, is_read
            message = await receive()
            read += len(message.get("body", b""))
            is_read = not message.get("more_body", False)
            return message

        async def received() -> Message:
            message = {} if is_long else await next_part()
            if is_long or read > MAX_BYTES:
                raise HTTPException(
                    413,
                    f"the body is longer than {MAX_BYTES:,} bytes; send fewer documents at a time",
                )
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
                while not ("expect" in request.headers or is_read or read > MAX_UNREAD):
                    await next_part()
            await send(message)

        go_on = self._app
        try:
            request.state.access = await run_in_threadpool(self._access_of, request)
        except (LakeChimeError, HTTPException) as error:
            go_on = await failed(request, error)
        await go_on(scope, received, sent)

    def _access_of(self, request: Request) -> Access:
        """What a request may do, if it may go on."""
        served = self._served
        if "\0" in unquote(request.url.path + request.url.query):
            raise HTTPException(400, "the URL holds a zero character (%00); remove it")
        if request.url.path.startswith(OPEN):
            return WITHOUT_TOKEN
        if not served.asks_for_token():
            if served.is_ours(request):
                return WITHOUT_TOKEN
            raise ForbiddenError("this host name is not configured: set LAKECHIME_LINEAGE_URL")
        access = served.access(request)
        if access is None:
            scheme = 'Basic realm="lakechime"' if request.method == "GET" else "Bearer"
            raise HTTPException(
                401,
                "send a token (LAKECHIME_API_TOKEN, or one of `lakechime token create`): "
                "Authorization: Bearer, or as a browser's password",
                {"WWW-Authenticate": scheme},
            )
        if wait := math.ceil(self._limit.wait(access.name, time.monotonic())):
            raise HTTPException(
                429,
                f"token {access.name} sends more than {served.rate} requests a second "
                f"(LAKECHIME_API_RATE); wait {wait} s, and send several events at a time",
                {"Retry-After": str(wait)},
            )
        access.check(_scope(request))
        return access


class Problem(BaseModel):
    """What is wrong; of a value that is refused also its field, and a remedy."""

    type: str
    message: str
    field: str | None = None
    remedy: str | None = None


class Failure(BaseModel):
    """The answer to a request that failed."""

    error: Problem


def build_app(served: Served) -> FastAPI:
    """The application; with a token every route but those of `OPEN` asks for it.

    Its errors are JSON, as `Failure` has it: 401 without a token that is known, 429 of one that
    sends too much, and those of `STATUS`.
    """
    failure: dict[int | str, dict[str, Any]] = {"default": {"model": Failure}}
    app = FastAPI(title="lakechime", version="1", docs_url=None, redoc_url=None, responses=failure)
    app.add_middleware(Gate, served=served)
    for kind in (LakeChimeError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, failed)

    @app.post(
        "/lineage", tags=["lineage"], openapi_extra={"requestBody": body_of({"type": "object"})}
    )
    async def take(request: Request) -> dict[str, Any]:
        """Take one document or a list of them, all or none: ours, or run events of OpenLineage."""
        sent = await json_of(request)
        documents = sent if isinstance(sent, list) else [sent]
        taken = await run_in_threadpool(lambda: served.ingest.take(documents, WAY))
        names = ("documents", "repeated", "records", "reads", "outside")
        return {name: getattr(taken, name) for name in names}

    @app.get("/health", tags=["server"])
    async def health() -> dict[str, str]:
        """Whether the server runs; it needs no token."""
        return {"status": "ok"}

    @app.get("/ready", tags=["server"])
    def ready() -> dict[str, str]:
        """Whether the store answers and has this program's version, else 503; it needs no token."""
        served.is_ready()
        return {"status": "ok"}

    for router in served.routers:
        app.include_router(router)
    if served.measures is not None:
        registry = CollectorRegistry()
        registry.register(StoreCollector(served.measures))
        app.mount(METRICS, make_asgi_app(registry))
    return app


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def body_of(schema: dict[str, Any]) -> dict[str, Any]:
    """A body of one of these, or a list of them, for the OpenAPI document."""
    several = {"anyOf": [schema, {"type": "array", "items": schema}]}
    return {"required": True, "content": {JSON_TYPE: {"schema": several}}}


async def json_of(request: Request) -> Any:
    """The body as JSON.

    Raises:
        WrongTypeError: it is not said to be JSON. A page of another origin could send other types
            without asking first.
        InvalidValueError: it is no JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise WrongTypeError(f"send Content-Type: {JSON_TYPE}")
    return parsed(await request.body())


def _scope(request: Request) -> Scope:
    """The scope that a request needs."""
    if request.method in READING:
        return Scope.READ
    return Scope.OPERATE if request.url.path.startswith("/triggers/") else Scope.REGISTER


async def failed(_: Request, error: Exception) -> Response:
    """The answer to a request that an error ended."""
    if isinstance(error, HTTPException):
        kind, status = HTTPStatus(error.status_code).phrase, error.status_code
        body = {"error": {"type": kind, "message": error.detail}}
        return JSONResponse(body, status, error.headers)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        remedy = f"is refused: {first['msg']}"
        error = InvalidValueError(str(first["loc"][-1]), first["input"], remedy)
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    said = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, InvalidValueError):
        said |= {"field": error.field, "remedy": error.remedy}
    return JSONResponse({"error": said}, status)


def _password(encoded: str) -> str:
    """The password of HTTP Basic credentials; empty of what are none."""
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
