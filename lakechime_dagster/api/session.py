"""How a browser shows the token: once, in a form, for a cookie that no script reads, no other site sends, and that ends by itself.

The token is in no address, and the cookie does not hold it: it is when it ends, signed with the token.
"""

import hmac
from collections.abc import Callable, Collection
from hashlib import sha256
from html import escape
from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from lakechime_dagster.api.body import MAX_FORM, form_of
from lakechime_dagster.api.serve import is_loopback

LOGIN = "/lineage/login"
COOKIE = "lakechime"
HOURS = 12  # that a browser stays logged in
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "same-origin", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
}  # fmt: skip


def session_router(token: str, now_ms: Callable[[], int]) -> APIRouter:
    """The routes by which a browser logs in and out; they ask for nothing else."""
    router = APIRouter()

    @router.get(LOGIN)
    def ask(to: str = "") -> HTMLResponse:
        return login_page(to, 200)

    @router.post(LOGIN)
    async def log_in(request: Request) -> Response:
        body = await form_of(request)
        fields = {} if body is None else {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        to = fields.get("to", "")
        if not is_from_here(request):
            return login_page(to, 403, "This form was sent by another site.")
        if not hmac.compare_digest(fields.get("token", "").encode(), token.encode()):
            return login_page(to, 401, "That is not the token." if body is not None else f"More than {MAX_FORM:,} bytes are not the token.")
        answer = RedirectResponse(_place(to), status_code=303, headers=HEADERS)
        answer.set_cookie(
            COOKIE, signed(token, now_ms() + HOURS * 3_600_000), max_age=HOURS * 3600, path="/", httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    return router


def signed(token: str, until_ms: int) -> str:
    """What a cookie holds."""
    return f"{until_ms}.{hmac.new(token.encode(), f'lakechime page {until_ms}'.encode(), sha256).hexdigest()}"


def is_logged_in(cookie: str, token: str, now_ms: int) -> bool:
    """Whether a cookie was made with the token, and has not ended."""
    until, _, _ = cookie.partition(".")
    if not until.isascii() or not until.isdigit() or len(until) > 15:
        return False
    return hmac.compare_digest(cookie.encode(), signed(token, int(until)).encode()) and now_ms < int(until)


def is_from_here(request: Request) -> bool:
    """Whether a page of ours sent a request, as far as the browser says; other programs say nothing, and hold no cookie."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or origin.partition("://")[2] == request.headers.get("host", "")


def is_our_name(request: Request, hosts: Collection[str]) -> bool:
    """Whether a request names this machine or one of these; a site can lead a name of its own here, and a browser sends that one."""
    name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    return name in hosts or is_loopback(name)


def login_page(to: str, status: int, problem: str = "") -> HTMLResponse:
    """The form. Its second link is for whoever is logged in and came from another site, as the browser kept the cookie to itself."""
    place = escape(_place(to), quote=True)
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Lineage: log in</title><body><h1>Lineage</h1>'
        f'<p role="alert">{escape(problem)}</p><form method="post" action="{LOGIN}"><input type="hidden" name="to" value="{place}">'
        '<p><label>Token <input type="password" name="token" required autofocus autocomplete="current-password"></label> '
        f'<button>Log in</button></p></form><p><a href="{place}">I am logged in already: go on</a></p></body></html>'
    )
    return HTMLResponse(text, status_code=status, headers=HEADERS)


def _place(to: str) -> str:
    """Where to go on: a page of ours, or the page of lineage."""
    return to if to.startswith("/lineage?") and to.isprintable() and to.isascii() else "/lineage"
