"""Drafting a notice from the page of lineage. It is a draft: nobody is told before a person sends it by the command line."""

import datetime as dt
import ipaddress
import json
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakechime_dagster.api.app import NOTICE
from lakechime_dagster.api.body import form_of
from lakechime_dagster.api.session import is_from_here
from lakechime_dagster.errors import InvalidValueError, NotFoundError
from lakechime_dagster.lineage.notices.changes import Change, ChangeKind
from lakechime_dagster.resources.lineage.asked import AskedLineage
from lakechime_dagster.resources.notices.drafting import draft
from lakechime_dagster.store.notices.changes import KeptChange

MARK = "x-lakechime"  # a header that no form of another site can send
FIELDS = frozenset({"of", "kind", "what", "action", "on", "sender", "who"})
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def notice_form(ask: Callable[[], AskedLineage], hosts: Collection[str] = ()) -> APIRouter:
    """The route of the form. `hosts` are those under which people reach it, beside the machine itself."""
    router = APIRouter()

    @router.post(NOTICE)
    async def take(request: Request) -> JSONResponse:
        if problem := _refusal(request, hosts):
            return _answer(403, {"error": {"type": "Forbidden", "message": problem}})
        body = await form_of(request)
        if body is None:
            return _answer(413, {"error": {"type": "TooLargeError", "message": "the form is too long"}})
        try:
            kept = await run_in_threadpool(lambda: drafted(ask(), _fields(body)))
        except NotFoundError as error:
            return _answer(404, {"error": {"type": "NotFoundError", "message": str(error)}})
        return _answer(201, {"change": kept.change_id, "version": kept.version, "title": kept.change.title})

    return router


def drafted(lineage: AskedLineage, fields: dict[str, Any]) -> KeptChange:
    """The draft of what a form says.

    Raises:
        InvalidValueError: naming the field.
        NotFoundError: for a table or column that nobody knows.
    """
    of = fields.get("of")
    names = of if isinstance(of, list) else [of]
    change = Change(
        kind=_kind(fields.get("kind")), what=_text(fields, "what"), action=_text(fields, "action"), sender=_text(fields, "sender"),
        on=_day(_text(fields, "on")), refs=tuple(lineage.ref(str(name)) for name in names if name),
    )  # fmt: skip
    return draft(lineage.platform, change, _text(fields, "who"))


def _refusal(request: Request, hosts: Collection[str]) -> str:
    """Why a request does not come from our page; empty if it does.

    The name of the host is looked at, since others can have a name of theirs lead to this machine.
    """
    if request.headers.get(MARK) != "page" or request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return "only the page of lineage drafts notices here; use `lakechime notice draft`"
    if not is_from_here(request):
        return "this was sent by another site"
    name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if name not in hosts and not _is_this_machine(name):
        return f"nobody said that people come here as {name[:100]}: set LAKECHIME_LINEAGE_URL"
    return ""


def _is_this_machine(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidValueError("form", f"of {len(body):,} bytes", "is no JSON") from None
    if not isinstance(fields, dict):
        raise InvalidValueError("form", f"of {len(body):,} bytes", "is no JSON object")
    if unknown := sorted(set(fields) - FIELDS):
        raise InvalidValueError(unknown[0][:100], "…", f"is no field; there are {', '.join(sorted(FIELDS))}")
    return fields


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise InvalidValueError(name, str(value)[:100], "is no text")
    return value.strip()


def _kind(value: Any) -> ChangeKind:
    try:
        return ChangeKind(value)
    except ValueError:
        raise InvalidValueError("kind", str(value)[:100], f"is none of {', '.join(ChangeKind)}") from None


def _day(text: str) -> dt.date | None:
    try:
        return dt.date.fromisoformat(text) if text else None
    except ValueError:
        raise InvalidValueError("on", text[:100], "is no date; write it as 2026-12-31") from None


def _answer(status: int, document: dict[str, Any]) -> JSONResponse:
    return JSONResponse(document, status_code=status, headers=HEADERS)
