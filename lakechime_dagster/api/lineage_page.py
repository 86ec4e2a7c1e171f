"""The page of lineage: what is around a table, drawn and as a list; static files of ours, and the answers that they ask for.

Nothing is loaded from anywhere else, and no name is ever more than text: the policy of the page forbids the rest.
"""

import datetime as dt
import heapq
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse, JSONResponse

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.errors import InvalidValueError, NotFoundError
from lakechime_dagster.lineage.graph.gaps import Gap
from lakechime_dagster.lineage.graph.neighbourhood import neighbourhood
from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.lineage.personal.reach import Reach
from lakechime_dagster.resources.lineage.asked import AskedLineage
from lakechime_dagster.resources.lineage.marks import PlannedChange, PlannedChanges, TableReader, readers_of
from lakechime_dagster.resources.personal.reached import PersonalData
from lakechime_dagster.triggers.grid import from_milliseconds

Ask = Callable[[int | None], AskedLineage]  # by the time of which it is asked, None for now
FOLDER = Path(__file__).with_name("page")
SCRIPTS = ("dagre.min.js", "elements.js", "lineage.js", "notices.js")
FILES = {"lineage.css": "text/css", "icon.svg": "image/svg+xml", **dict.fromkeys(SCRIPTS, "text/javascript")}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'"
HEADERS = {
    "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}  # fmt: skip
MAX_TABLES, MAX_STEPS, MAX_NAMES, MAX_READERS, MAX_REASONS = 150, 20, 20, 20, 20
NOBODY_TELLS = "who reads without writing, as nobody tells it"

Steps = Annotated[int, Query(ge=0, le=MAX_STEPS)]


def lineage_page(ask: Ask) -> APIRouter:
    """The routes of the page. Of a name that nobody knows the answer is 404 with the nearest ones."""
    router, planned = APIRouter(default_response_class=JSONResponse), PlannedChanges(ask(None).platform)

    @router.get("/lineage")
    def page() -> Response:
        return FileResponse(FOLDER / "lineage.html", media_type="text/html; charset=utf-8", headers=HEADERS)

    @router.get("/lineage/page/{name}")
    def file(name: str) -> Response:
        if name not in FILES:
            return _unknown(f"the page has no file {name!r}")
        return FileResponse(FOLDER / name, media_type=f"{FILES[name]}; charset=utf-8", headers=HEADERS)

    @router.get("/lineage/around")
    def around(table: str, up: Steps = 1, down: Steps = 1, at: str | None = None) -> Response:
        try:
            return JSONResponse(around_json(ask(_milliseconds(at)), table, up, down, planned), headers=HEADERS)
        except NotFoundError as error:
            return _unknown(str(error))

    @router.get("/lineage/way")
    def way(source: str, target: str, at: str | None = None) -> Response:
        try:
            lineage = ask(_milliseconds(at))
            steps = lineage.path(lineage.ref(source), lineage.ref(target))
        except NotFoundError as error:
            return _unknown(str(error))
        told = None if steps is None else [_link(step.source, step.target, step.kinds) for step in steps]
        return JSONResponse({"steps": told}, headers=HEADERS)

    @router.get("/lineage/names")
    def names(like: str = "") -> Response:
        lineage, wanted = ask(None), like.casefold()
        known = {*lineage.network.tables, *(table.name for table in lineage.lake.tables), *_columns(lineage.network, like)}
        found = (name for name in known if wanted in name.casefold())
        first = heapq.nsmallest(MAX_NAMES, found, key=lambda name: (not name.casefold().startswith(wanted), name))
        return JSONResponse({"names": first}, headers=HEADERS)

    return router


def rehearse(lineage: AskedLineage) -> None:
    """Answer a question that nobody has asked, so that the first person does not wait for what a process does once."""
    known = {*lineage.network.tables, *(table.name for table in lineage.lake.tables)}
    if known:
        around_json(lineage, min(known), 1, 1, PlannedChanges(lineage.platform))


def around_json(lineage: AskedLineage, name: str, up: int, down: int, planned: PlannedChanges) -> dict[str, Any]:
    """What is around a table or a column, as the page draws it. Who reads it, and what is planned, is told of now alone.

    Raises:
        NotFoundError: naming what is nearest.
    """
    ref = lineage.ref(name)
    network = lineage.network.having([ref])
    found = neighbourhood(network, ref.table, up=up, down=down, limit=MAX_TABLES)
    facts = lineage.facts(one.table for one in found.tables)
    names = {one.table for one in found.tables}
    tags, is_now = personal_json(lineage, names), lineage.at_ms is None
    gaps = lineage.gaps(names)
    readers = readers_of(lineage.platform, names) if is_now else {}
    changes = planned.of(names, lineage.network) if is_now else {}
    tables = [
        {
            "table": one.table, "layer": one.layer, "columns": list(one.columns), "more": one.more,
            "owners": list(facts[one.table].owners), "is_source": facts[one.table].is_source,
            "last": _said(facts[one.table].last_ms), "tags": ["stale"] if lineage.is_stale(facts[one.table]) else [],
            "gap": _gap(gaps.get(one.table)),
            "personal": tags.get(one.table, []), "readers": [_reader(who) for who in readers.get(one.table, [])[:MAX_READERS]],
            "more_readers": max(0, len(readers.get(one.table, [])) - MAX_READERS),
            "planned": [_change(change) for change in changes.get(one.table, [])],
        }
        for one in found.tables
    ]  # fmt: skip
    return {
        "table": ref.table, "column": ref.column, "tables": tables, "more": found.more,
        "links": [_link(one.source, one.target, one.kinds) for one in found.links],
        "unknown": [*lineage.unknown([ref], upstream=True), *([] if lineage.read_ways or not is_now else [NOBODY_TELLS])],
    }  # fmt: skip


def _columns(network: Network, like: str) -> set[str]:
    """The columns of the tables whose names, with a dot, begin a text."""
    near = {like[:at] for at, character in enumerate(like) if character == "."} & network.tables.keys()
    return {f"{table}.{network.labels[node]}" for table in near for node in network.columns_of(network.tables[table])}


def _reader(one: TableReader) -> dict[str, Any]:
    return {
        "kind": one.consumer.kind, "name": one.consumer.name, "namespace": one.consumer.namespace, "columns": list(one.columns),
        "last": _said(one.last_ms), "active": one.is_active, "owners": list(one.owners), "link": one.link,
    }  # fmt: skip


def _gap(one: Gap | None) -> dict[str, Any] | None:
    """Why not all of a table is known; of many reasons the first ones."""
    if one is None:
        return None
    return {"kind": one.kind.value, "reasons": list(one.reasons[:MAX_REASONS]), "more": max(0, len(one.reasons) - MAX_REASONS)}


def _change(one: PlannedChange) -> dict[str, Any]:
    kept = one.kept
    return {
        "change": kept.change_id, "state": kept.state, "title": kept.change.title, "what": kept.change.what, "action": kept.change.action,
        "sure": one.is_sure,
    }  # fmt: skip


def personal_json(lineage: AskedLineage, tables: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """The columns of tables that hold personal data, or may, by table; what merely decides is left out."""
    told: dict[str, list[dict[str, Any]]] = {}
    for one in PersonalData(lineage.platform, lineage.lake).found(lineage.network, tables):
        if one.reach is not Reach.INDIRECT:
            told.setdefault(one.ref.table, []).append({"column": one.ref.column, "category": one.category, "how": one.reach.word})
    return told


def _link(source: Any, target: Any, kinds: tuple[str, ...]) -> dict[str, Any]:
    return {"source": [source.table, source.column], "target": [target.table, target.column], "kinds": list(kinds)}


def _said(moment: int | None) -> str:
    return "" if moment is None else f"{from_milliseconds(moment):%Y-%m-%d %H:%M:%S} UTC"


def _milliseconds(at: str | None) -> int | None:
    if not at:
        return None
    try:
        moment = datetime_of_iso(at)
    except ValueError:
        raise InvalidValueError("at", at, "is no time; write it as 2026-01-31T12:00:00Z") from None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.timezone.utc)
    return round(zoned.timestamp() * 1000)


def _unknown(message: str) -> JSONResponse:
    return JSONResponse({"error": {"type": "NotFoundError", "message": message}}, status_code=404, headers=HEADERS)
