"""The HTTP application: lineage page, ingestion of lineage, metrics."""

import base64
import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, make_asgi_app

from lakechime_dagster.api.access import EVERYTHING, WITHOUT_TOKEN, Access, ForbiddenError, Scope
from lakechime_dagster.api.metrics import StoreCollector
from lakechime_dagster.api.tokens import Tokens
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError
from lakechime_dagster.lineage.ingest import MAX_BYTES, LineageIngest, parsed
from lakechime_dagster.silver.metrics import Measures

MIN_TOKEN = 16  # characters, of which fewer could be guessed


def check_address(host: str, token: str, *, has_tokens: bool = False) -> None:
    """Refuse an address that others can reach without a token, or with one that can be guessed.

    Raises:
        LakeChimeError: naming the variable, never its value.
    """
    if token and (
        len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise LakeChimeError(
            f"LAKECHIME_API_TOKEN is no token; write at least {MIN_TOKEN} ASCII characters without "
            f"blanks"
        )
    if not (token or has_tokens or is_loopback(host)):
        raise LakeChimeError(
            f"{host} can be reached from other machines; set LAKECHIME_API_TOKEN to a secret, "
            f"make a token (`lakechime token create`), or serve at 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at the address, so that whoever asks afterwards waits instead of being
    refused.

    Raises:
        LakeChimeError: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()
    except OSError as error:
        remedy = "end what uses it, or choose another one with --host and --port"
        raise LakeChimeError(
            f"port {port} of {host} cannot be used ({error.strerror}); {remedy}"
        ) from None
    return made


def build_server(app: FastAPI) -> uvicorn.Server:
    """A server that logs no request: what is sent may be secret, or personal."""
    return uvicorn.Server(
        uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=5
        )
    )


JSON_TYPE = "application/json"
METRICS = "/metrics"
OPEN = (METRICS, "/health")  # without a token: scrapers and load balancers have none
READING = ("GET", "HEAD")
WAY = "api"
MAX_UNREAD = 100_000_000  # bytes of a body that is not wanted
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Next = Callable[[Request], Awaitable[Response]]


class TooLargeError(LakeChimeError):
    """A body is larger than is read."""


class WrongTypeError(LakeChimeError):
    """A body is not said to be of the type that is read."""


STATUS = {
    InvalidValueError: 400,
    ForbiddenError: 403,
    NotFoundError: 404,
    TooLargeError: 413,
    WrongTypeError: 415,
    LakeChimeError: 503,
}


@dataclass(frozen=True, kw_only=True)
class Served:
    """What an application answers from; `routers` are further routes, which the same token
    protects.

    It asks for a token where it `is_public`, that is reached from other machines, where `token` is
    one, which lets its bearer do everything, or where `tokens` has any. `hosts` are the names by
    which people reach it, beside this machine; without a token it answers to no other.
    """

    ingest: LineageIngest
    measures: Callable[[], Measures] | None = None
    token: str = field(default="", repr=False)
    tokens: Tokens | None = None
    is_public: bool = False
    routers: tuple[APIRouter, ...] = ()
    hosts: Collection[str] = ()
    is_ready: Callable[[], object] = lambda: None

    def asks_for_token(self) -> bool:
        """Whether a request must bring one."""
        has_any = self.tokens is not None and self.tokens.any_valid()
        return self.is_public or bool(self.token) or has_any

    def is_ours(self, request: Request) -> bool:
        """Whether a request without a token names this machine or one of `hosts`: another site can
        lead a name of its own here.
        """
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
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


class ReadsToTheEnd:
    """Reads what is left of a body before an answer is sent, and forgets it: most clients read no
    answer before they have sent all.

    A server that answers early and closes makes them see a reset instead. One that asks first
    (`Expect: 100-continue`) sends nothing.
    """

    def __init__(self, app: Callable[[Any, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or b"expect" in dict(scope["headers"]):
            await self.app(scope, receive, send)
            return
        is_read = False

        async def received() -> AsgiMessage:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def sent(message: AsgiMessage) -> None:
            unread = 0
            while message["type"] == "http.response.start" and not is_read and unread <= MAX_UNREAD:
                unread += len((await received()).get("body", b""))
            await send(message)

        await self.app(scope, received, sent)


def build_app(served: Served) -> FastAPI:
    """The application; with a token every route but those of `OPEN` asks for it.

    Its own errors are JSON: `{"error": {"type", "message", …}}`, 401 without a token that is known,
    and those of `STATUS`.
    """
    app = FastAPI(title="lakechime", docs_url=None, redoc_url=None)

    @app.middleware("http")
    async def asks_for_the_token(request: Request, go_on: Next) -> Response:
        request.state.access = WITHOUT_TOKEN
        if request.url.path.startswith(OPEN):
            return await go_on(request)
        if not await run_in_threadpool(served.asks_for_token):
            if served.is_ours(request):
                return await go_on(request)
            return _refused(
                403, "Forbidden", "this host name is not configured: set LAKECHIME_LINEAGE_URL"
            )
        access = await run_in_threadpool(served.access, request)
        if access is not None:
            request.state.access = access
            try:
                access.check(_scope(request))
            except ForbiddenError as error:
                return _refused(403, "Forbidden", str(error))
            return await go_on(request)
        scheme = 'Basic realm="lakechime"' if request.method == "GET" else "Bearer"
        answer = _refused(
            401,
            "Unauthorized",
            "send a token (LAKECHIME_API_TOKEN, or one of `lakechime token create`): Authorization: "
            "Bearer, or as a browser's password",
        )
        answer.headers["WWW-Authenticate"] = scheme
        return answer

    app.add_middleware(ReadsToTheEnd)
    for kind, status in STATUS.items():
        app.add_exception_handler(kind, partial(_refusal, status))
    app.add_exception_handler(RequestValidationError, _wrong_parameter)

    @app.post("/lineage", tags=["lineage"])
    async def take(request: Request) -> dict[str, Any]:
        """Take one document or a list of them, all or none: ours, or run events of OpenLineage."""
        sent = await json_of(request)
        documents = sent if isinstance(sent, list) else [sent]
        taken = await run_in_threadpool(lambda: served.ingest.take(documents, WAY))
        return {
            **{
                name: getattr(taken, name) for name in ("documents", "repeated", "records", "reads")
            },
            "outside": taken.outside,
        }

    @app.get("/health", tags=["server"])
    def health() -> dict[str, str]:
        """Whether the server answers and reaches its store: 503 where it does not."""
        served.is_ready()
        return {"status": "ok"}

    for router in served.routers:
        app.include_router(router)
    if served.measures is not None:
        registry = CollectorRegistry()
        registry.register(StoreCollector(served.measures))
        app.mount(METRICS, make_asgi_app(registry))
    return app


async def json_of(request: Request) -> Any:
    """The body as JSON, read no further than it may be long.

    Raises:
        WrongTypeError: it is not said to be JSON. A page of another origin could send other types
            without asking first.
        TooLargeError: it is longer.
        InvalidValueError: it is no JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise WrongTypeError(f"send Content-Type: {JSON_TYPE}")
    said = request.headers.get("content-length", "0")
    parts = bytearray()
    if said.isdigit() and int(said) <= MAX_BYTES:
        async for part in request.stream():
            parts += part
            if len(parts) > MAX_BYTES:
                break
        else:
            return parsed(bytes(parts))
    raise TooLargeError(
        f"the body is longer than {MAX_BYTES:,} bytes; send fewer documents at a time"
    )


async def _refusal(status: int, _: Request, error: Exception) -> Response:
    facts = (
        {"field": error.field, "remedy": error.remedy}
        if isinstance(error, InvalidValueError)
        else {}
    )
    return _refused(status, type(error).__name__, str(error), **facts)


def _scope(request: Request) -> Scope:
    """The scope that a request needs."""
    if request.method in READING:
        return Scope.READ
    return Scope.OPERATE if request.url.path.startswith("/triggers/") else Scope.REGISTER


async def _wrong_parameter(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name, remedy = str(first["loc"][-1]), f"is refused: {first['msg']}"
    return await _refusal(400, _, InvalidValueError(name, first["input"], remedy))


def _refused(status: int, kind: str, message: str, **facts: Any) -> JSONResponse:
    return JSONResponse({"error": {"type": kind, "message": message, **facts}}, status_code=status)


def _password(encoded: str) -> str:
    """The password of HTTP Basic credentials; empty of what are none."""
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
