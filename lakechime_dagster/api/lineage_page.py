"""The lineage page: the neighbourhood of a table, drawn and as a list."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, HTMLResponse

from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.governance.data import PersonalData
from lakechime_dagster.governance.notifications import PlannedChange, planned_changes
from lakechime_dagster.governance.tags import Reach
from lakechime_dagster.lineage.answers import ReachedTables, affected_consumers
from lakechime_dagster.lineage.columns import ColumnRef, Read
from lakechime_dagster.lineage.graph import Gap
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.lineage.store import SqlReads
from lakechime_dagster.triggers.schedule import from_milliseconds

Ask = Callable[[], AskedLineage]
FOLDER = Path(__file__).with_name("page")
FILES = ("lineage.css", "icon.svg", "dagre.min.js", "elements.js", "lineage.js")
MAX_TABLES, MAX_DEPTH, MAX_NAMES, MAX_READERS, MAX_REASONS, MAX_CHANGES = 150, 20, 20, 20, 20, 20
READERS_UNKNOWN = "readers outside this lake, as no audit log is configured"

Depth = Annotated[int, Query(ge=0, le=MAX_DEPTH)]


def lineage_page(ask: Ask) -> APIRouter:
    """The routes of the page. Of a name that nobody knows the answer is 404 with the nearest
    ones.
    """
    router = APIRouter(prefix="/lineage", tags=["lineage"])

    @router.get("", response_class=HTMLResponse)
    def page() -> FileResponse:
        """The page."""
        return FileResponse(FOLDER / "lineage.html")

    @router.get("/page/{name}", include_in_schema=False)
    def file(name: str) -> FileResponse:
        if name not in FILES:
            raise NotFoundError(f"the page has no file {name!r}")
        return FileResponse(FOLDER / name)

    @router.get("/around")
    def around(table: str, up: Depth = 1, down: Depth = 1) -> dict[str, Any]:
        """What is around a table or a column, as the page draws it."""
        return around_json(ask(), table, up, down)

    @router.get("/way")
    def way(source: str, target: str) -> dict[str, Any]:
        """A shortest way between two columns or tables; null where there is none."""
        lineage = ask()
        edges = lineage.path(lineage.ref(source), lineage.ref(target))
        links = edges and [_link(edge.source, edge.target, edge.kinds) for edge in edges]
        return {"edges": links}

    @router.get("/names")
    def names(like: str = "") -> dict[str, Any]:
        """The names that begin or continue like this."""
        return {"names": ask().names(like, MAX_NAMES)}

    return router


def around_json(lineage: AskedLineage, name: str, up: int, down: int) -> dict[str, Any]:
    """What is around a table or a column, as the page draws it.

    Raises:
        NotFoundError: naming what is nearest.
    """
    ref = lineage.ref(name)
    found = lineage.around(ref.table, up=up, down=down, limit=MAX_TABLES)
    facts = lineage.facts(one.table for one in found.tables)
    names = {one.table for one in found.tables}
    tags = personal_json(lineage, names)
    gaps = lineage.gaps(names)
    readers = readers_json(lineage, names)
    changes = planned_changes(lineage, names)
    tables = [
        {
            "table": one.table,
            "layer": one.layer,
            "columns": list(one.columns),
            "more": one.more,
            "owners": list(facts[one.table].owners),
            "is_source": facts[one.table].is_source,
            "last": _said(facts[one.table].last_ms),
            "tags": ["stale"] if lineage.is_stale(facts[one.table]) else [],
            "gap": _gap(gaps.get(one.table)),
            "personal": tags.get(one.table, []),
            "readers": readers.get(one.table, [])[:MAX_READERS],
            "more_readers": max(0, len(readers.get(one.table, [])) - MAX_READERS),
            "planned": [*map(_change, changes.get(one.table, [])[:MAX_CHANGES])],
        }
        for one in found.tables
    ]
    return {
        "table": ref.table,
        "column": ref.column,
        "tables": tables,
        "more": found.more,
        "links": [_link(one.source, one.target, one.kinds) for one in found.links],
        "unknown": [
            *lineage.unknown([ref], upstream=True),
            *([] if lineage.read_ways else [READERS_UNKNOWN]),
        ],
    }


def readers_json(lineage: AskedLineage, tables: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """By table who reads it without writing any, the last one first, and by which columns, as far
    as they are known.
    """
    reads: dict[str, list[Read]] = {}
    for one in SqlReads(lineage.platform.store.engine).of_tables(tables):
        reads.setdefault(one.refs[0].table, []).append(one)
    return {
        table: [
            {
                "kind": one.consumer.kind,
                "name": one.consumer.name,
                "namespace": one.consumer.namespace,
                "columns": [ref.column for ref in one.refs if ref.column is not None],
                "last": _said(one.last_ms),
                "active": one.is_active(lineage.now_ms),
                "owners": list(one.owners),
                "link": one.link,
            }
            for one in affected_consumers([ColumnRef(table)], ReachedTables(tables=()), several)
        ]
        for table, several in reads.items()
    }


def _gap(one: Gap | None) -> dict[str, Any] | None:
    """Why not all of a table is known; of many reasons the first ones."""
    if one is None:
        return None
    return {
        "kind": one.kind.value,
        "reasons": list(one.reasons[:MAX_REASONS]),
        "more": max(0, len(one.reasons) - MAX_REASONS),
    }


def _change(planned: PlannedChange) -> dict[str, Any]:
    change = planned.kept.change
    return {
        "change": planned.kept.change_id,
        "state": planned.kept.state,
        "title": change.title,
        "what": change.what,
        "action": change.action,
        "sure": planned.is_sure,
    }


def personal_json(
    lineage: AskedLineage, tables: Collection[str]
) -> dict[str, list[dict[str, Any]]]:
    """The columns of tables that hold personal data, or may, by table; what merely decides is left
    out.
    """
    by_table: dict[str, list[dict[str, Any]]] = {}
    data = PersonalData(lineage.platform, lineage.lake)
    found = (
        data.found(lineage.part([ColumnRef(table) for table in tables], upstream=True), tables)
        if data.tags
        else ()
    )
    for one in found:
        if one.reach is not Reach.INDIRECT:
            by_table.setdefault(one.ref.table, []).append(
                {"column": one.ref.column, "category": one.category, "how": one.reach.word}
            )
    return by_table


def _link(source: Any, target: Any, kinds: tuple[str, ...]) -> dict[str, Any]:
    return {
        "source": [source.table, source.column],
        "target": [target.table, target.column],
        "kinds": list(kinds),
    }


def _said(moment: int | None) -> str:
    return "" if moment is None else f"{from_milliseconds(moment):%Y-%m-%d %H:%M:%S} UTC"
