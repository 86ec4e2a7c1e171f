"""Planned changes on the page of lineage: which there are, whom one concerns, telling them, what came of it, and taking one back.

To look tells nobody. Whoever sends says which preview was looked at, and another one is refused.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakechime_dagster.api.own_page import NOTICES, answer, check_own, own_fields, text_in
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.resources.lineage.asked import AskedLineage
from lakechime_dagster.resources.notices.documents import list_document, message_document, preview_document, story_document
from lakechime_dagster.resources.notices.preview import preview, send_previewed
from lakechime_dagster.resources.notices.sending import withdraw
from lakechime_dagster.store.interventions import By

MAX_LISTED = 200
SOMEBODY = "whoever sends it"
Number = Annotated[int, Path(ge=1, le=2**31 - 1)]


def notice_page(ask: Callable[[], AskedLineage], environment: Mapping[str, str]) -> APIRouter:
    """The routes; `environment` holds the addresses by which people are told, of which nothing is in any answer."""
    router = APIRouter()

    @router.get(NOTICES)
    def listed(request: Request, ended: bool = False) -> JSONResponse:
        check_own(request)
        changes = list_document(ask().platform, ended=ended)
        return answer(200, {"changes": changes[:MAX_LISTED], "more": max(0, len(changes) - MAX_LISTED)})

    @router.get(f"{NOTICES}/{{change}}")
    def shown(request: Request, change: Number) -> JSONResponse:
        check_own(request)
        return answer(200, story_document(ask().platform, change))

    @router.get(f"{NOTICES}/{{change}}/preview")
    def previewed(request: Request, change: Number, who: str = "") -> JSONResponse:
        check_own(request)
        return answer(200, preview_document(preview(ask(), environment, change, who.strip()[:128] or SOMEBODY)))

    @router.post(f"{NOTICES}/{{change}}/send")
    async def sent(request: Request, change: Number) -> JSONResponse:
        fields = await own_fields(request, ("version", "mark", "again", "who"))
        return await run_in_threadpool(lambda: answer(200, told(ask(), environment, change, fields)))

    @router.post(f"{NOTICES}/{{change}}/withdraw")
    async def withdrawn(request: Request, change: Number) -> JSONResponse:
        fields = await own_fields(request, ("reason", "who"))
        by = By(who=text_in(fields, "who"), reason=text_in(fields, "reason"))
        platform = ask().platform
        _, waiting = await run_in_threadpool(lambda: withdraw(platform, change, by))
        return answer(200, await run_in_threadpool(lambda: story_document(platform, change)) | {"waiting": waiting})

    return router


def told(asked: AskedLineage, environment: Mapping[str, str], change: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Send what a form says was looked at; the change as it is then, with what this sending tried and whom nobody could tell.

    Raises:
        ChangeMovedError: it is another thing by now.
        InvalidValueError: naming the field.
    """
    version, again = fields.get("version"), fields.get("again", False)
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidValueError("version", str(version)[:100], "is none of a preview; look at one first")
    if not isinstance(again, bool):
        raise InvalidValueError("again", str(again)[:100], "is neither true nor false")
    by = By(who=text_in(fields, "who"), reason="sends")
    outcome = send_previewed(asked, environment, change, by, version=version, mark=text_in(fields, "mark"), again=again)
    return story_document(asked.platform, change) | {
        "tried": [message_document(one) for one in outcome.tried],
        "unreached": [{"owner": one.owner, "reason": one.reason} for one in outcome.unreached],
    }
