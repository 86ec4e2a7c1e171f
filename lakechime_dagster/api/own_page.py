"""Requests that only our own page may send, as they draft, show or send notices: how they are told from those of other sites."""

import json
from collections.abc import Collection
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from lakechime_dagster.api.body import TooLargeError, form_of
from lakechime_dagster.api.session import is_from_here
from lakechime_dagster.errors import InvalidValueError, LakeChimeError

NOTICES = "/lineage/notices"  # where it asks
MARK = "x-lakechime"  # a header that no form of another site can send
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class NotOurPageError(LakeChimeError):
    """A request does not come from our page."""


def check_own(request: Request) -> None:
    """Refuse what does not come from our page.

    Raises:
        NotOurPageError: saying why.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if request.headers.get(MARK) != "page" or (request.method == "POST" and kind != "application/json"):
        raise NotOurPageError("only the page of lineage asks here; use `lakechime notice`")
    if not is_from_here(request):
        raise NotOurPageError("this was sent by another site")


async def own_fields(request: Request, names: Collection[str]) -> dict[str, Any]:
    """The fields of a form of our page, none but those of these names.

    Raises:
        NotOurPageError: it is of another one.
        TooLargeError: it is too long to be read.
        InvalidValueError: it is no form, or has another field.
    """
    check_own(request)
    body = await form_of(request)
    if body is None:
        raise TooLargeError("the form is too long")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidValueError("form", f"of {len(body):,} bytes", "is no JSON") from None
    if not isinstance(fields, dict):
        raise InvalidValueError("form", f"of {len(body):,} bytes", "is no JSON object")
    if unknown := sorted(set(fields) - set(names)):
        raise InvalidValueError(unknown[0][:100], "…", f"is no field; there are {', '.join(sorted(names))}")
    return fields


def text_in(fields: dict[str, Any], name: str) -> str:
    """A field that is text, without white space around it; empty where it is not given.

    Raises:
        InvalidValueError: it is something else.
    """
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise InvalidValueError(name, str(value)[:100], "is no text")
    return value.strip()


def answer(status: int, document: dict[str, Any]) -> JSONResponse:
    """An answer that nobody keeps."""
    return JSONResponse(document, status_code=status, headers=HEADERS)
