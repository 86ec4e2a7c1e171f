"""Drafting a notice from the page of lineage. It is a draft: nobody is told before a person has looked at it and sends it."""

import datetime as dt
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakechime_dagster.api.own_page import NOTICES, answer, own_fields, text_in
from lakechime_dagster.compat import date_of_iso
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.notices.changes import Change, ChangeKind
from lakechime_dagster.resources.lineage.asked import AskedLineage
from lakechime_dagster.resources.notices.drafting import draft, sender_of
from lakechime_dagster.store.notices.changes import KeptChange

FIELDS = frozenset({"of", "kind", "what", "action", "on", "sender", "who"})


def notice_form(ask: Callable[[], AskedLineage]) -> APIRouter:
    """The route of the form."""
    router = APIRouter()

    @router.post(NOTICES)
    async def take(request: Request) -> JSONResponse:
        fields = await own_fields(request, FIELDS)
        kept = await run_in_threadpool(lambda: drafted(ask(), fields))
        return answer(201, {"change": kept.change_id, "version": kept.version, "title": kept.change.title})

    return router


def drafted(lineage: AskedLineage, fields: dict[str, Any]) -> KeptChange:
    """The draft of what a form says.

    Raises:
        InvalidValueError: naming the field.
        NotFoundError: for a table or column that nobody knows.
    """
    of = fields.get("of")
    names = of if isinstance(of, list) else [of]
    refs = tuple(lineage.ref(str(name)) for name in names if name)
    change = Change(
        kind=_kind(fields.get("kind")), what=text_in(fields, "what"), action=text_in(fields, "action"),
        sender=text_in(fields, "sender") or sender_of(lineage, refs), on=_day(text_in(fields, "on")), refs=refs,
    )  # fmt: skip
    return draft(lineage.platform, change, text_in(fields, "who"))


def _kind(value: Any) -> ChangeKind:
    try:
        return ChangeKind(value)
    except ValueError:
        raise InvalidValueError("kind", str(value)[:100], f"is none of {', '.join(ChangeKind)}") from None


def _day(text: str) -> dt.date | None:
    try:
        return date_of_iso(text) if text else None
    except ValueError:
        raise InvalidValueError("on", text[:100], "is no date; write it as 2026-12-31") from None
