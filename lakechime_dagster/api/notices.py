"""The page on which an owner says to have seen a change: opening it shows a form, and only sending that counts.

Scanners of mail open every link, so that a link alone says nothing.
"""

from collections.abc import Callable
from html import escape
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.params import Query
from fastapi.responses import HTMLResponse

from lakechime_dagster.api.body import form_of
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError
from lakechime_dagster.lineage.notices.acknowledging import Acknowledgement, LinkError, verified
from lakechime_dagster.store.notices.changes import Notices

PATH = "/notice/acknowledge"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",  # the link itself is what signs
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


def acknowledge_router(notices: Notices, key: str, now_ms: Callable[[], int]) -> APIRouter:
    """The routes of the form; the signed link is what lets its holder in, so that they ask for nothing else."""
    router = APIRouter()

    @router.get(PATH)
    async def show(token: Annotated[str, Query()] = "") -> HTMLResponse:
        return await run_in_threadpool(lambda: form(notices, key, now_ms(), token))

    @router.post(PATH)
    async def confirm(request: Request) -> HTMLResponse:
        body = await form_of(request)
        if body is None:
            return _page(413, "<p>The form is too long.</p>")
        fields = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        return await run_in_threadpool(lambda: confirmed(notices, key, now_ms(), fields))

    return router


def form(notices: Notices, key: str, now_ms: int, token: str) -> HTMLResponse:
    """The form that a link opens; nothing is kept by it."""
    try:
        what = _allowed(notices, key, now_ms, token)
        known = notices.get(what.change_id)
    except LakeChimeError as error:
        return _page(403, f"<p>{escape(str(error))}</p>")
    newer = "" if known.version == what.version else f"<p>It was amended since: version {known.version} was, or will be, told apart.</p>"
    action = f"<p>What to do: {escape(known.change.action)}</p>" if known.change.action else ""
    return _page(200, (
        f"<h1>{escape(known.change.title)}</h1><p>{escape(known.change.what)}</p>{action}<p>It is {known.state}.</p>{newer}"
        f'<form method="post" action="{PATH}"><input type="hidden" name="token" value="{escape(token)}">'
        f"<p>For {escape(what.owner)}</p>"
        '<p><label>Your name <input name="who" required maxlength="128"></label></p>'
        '<p><label>A word to the sender <input name="note" maxlength="1000"></label></p>'
        "<p><button>I have seen this</button></p></form>"
    ))  # fmt: skip


def confirmed(notices: Notices, key: str, now_ms: int, fields: dict[str, str]) -> HTMLResponse:
    """Keep that an owner has seen a change, and say so."""
    try:
        what = _allowed(notices, key, now_ms, fields.get("token", ""))
        seen = notices.acknowledge(
            what.change_id, what.owner, fields.get("who", "").strip(), fields.get("note", "").strip(), version=what.version
        )
    except InvalidValueError as error:
        return _page(400, f"<p>{escape(str(error))}</p>")
    except (LinkError, NotFoundError) as error:
        return _page(403, f"<p>{escape(str(error))}</p>")
    return _page(200, f"<h1>Thank you</h1><p>{escape(seen.who)} has seen version {seen.version} for {escape(seen.owner)}.</p>")


def _allowed(notices: Notices, key: str, now_ms: int, token: str) -> Acknowledgement:
    what = verified(token, key, now_ms)
    if what.deployment != notices.deployment:
        raise LinkError("this link is of another deployment")
    return what


def _page(status: int, body: str) -> HTMLResponse:
    text = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>A planned change</title><body>{body}</body></html>'
    return HTMLResponse(text, status_code=status, headers=HEADERS)
